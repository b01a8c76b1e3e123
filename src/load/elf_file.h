/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a shared object without loading it. Nothing in the file is trusted: every offset is checked against the size
 * before it is used, all counts are bounded, and the file is read, never mapped, so that one which shrinks meanwhile
 * is an error and not a SIGBUS.
 */
#ifndef CONVOY_LOAD_ELF_FILE_H
#define CONVOY_LOAD_ELF_FILE_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_ELF_BUILD_ID_BYTES_MAX 32
#define CONVOY_ELF_SONAME_BYTES 128
#define CONVOY_ELF_MANIFEST_BYTES_MAX 8192

/* Where the bytes come from: a regular file, or memory (fuzzers). */
struct convoy_elf_source {
    int fd;                      /* -1 = memory */
    const unsigned char *memory; /* borrows */
    uint64_t size;
    uint64_t device; /* of the file, to recognise it once it is mapped */
    uint64_t inode;
};

/* What a shared object says about itself. */
struct convoy_elf_info {
    uint32_t machine; /* EM_* */
    uint32_t bits;    /* 32 or 64 */
    size_t build_id_bytes; /* 0 = none */
    unsigned char build_id[CONVOY_ELF_BUILD_ID_BYTES_MAX];
    char soname[CONVOY_ELF_SONAME_BYTES]; /* empty = none */
    bool has_manifest;
    size_t manifest_length;
    char manifest[CONVOY_ELF_MANIFEST_BYTES_MAX + 1]; /* terminated */
    bool has_digest_note;
    uint64_t digest;        /* what the file says its loaded bytes hash to; 0 = not stamped */
    uint64_t digest_offset; /* where that is written */
};

/*
 * Opens a regular file; never blocks on a pipe or device. NOT_FOUND: no such file. BAD_FILE: a directory, a pipe, an
 * empty file. SYSTEM: not readable. source_out: gives (convoy_elf_source_close).
 */
int32_t convoy_elf_source_open(const char *path, struct convoy_elf_source *source_out, struct convoy_error *error);
void convoy_elf_source_close(struct convoy_elf_source *source);

/* Reads bytes [offset, offset + bytes). BAD_FILE: they are not all there; `what` names them in the text. */
int32_t convoy_elf_source_read(const struct convoy_elf_source *source, uint64_t offset, void *bytes_out, size_t bytes,
                               const char *what, struct convoy_error *error);

/*
 * Reads and checks headers, notes and dynamic section. A file without manifest is OK here (has_manifest false).
 * BAD_FILE: not ELF, other class, byte order, machine or type, truncated, or a header that contradicts another.
 * machine and bits are filled as soon as they are known, also on failure. info_out is large: keep it off small stacks.
 */
int32_t convoy_elf_info_read(const struct convoy_elf_source *source, struct convoy_elf_info *info_out,
                             struct convoy_error *error);

/*
 * Hashes what the dynamic linker would map: program headers and the file's part of every PT_LOAD, without the section
 * table's place in the ELF header (`strip` changes it) and without the 8 bytes at digest_offset.
 */
int32_t convoy_elf_digest(const struct convoy_elf_source *source, uint64_t digest_offset, uint64_t *digest_out,
                          struct convoy_error *error);

/* "x86-64", "aarch64", ... or "machine N". Constant, or the caller's buffer. */
const char *convoy_elf_machine_name(uint32_t machine, char buffer[24]);

/* Hexadecimal text of a build id; room for 2 x bytes + 1. */
void convoy_elf_build_id_text(const unsigned char *id, size_t bytes, char *text_out);

#endif
