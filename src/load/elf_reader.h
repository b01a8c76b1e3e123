/* SPDX-License-Identifier: Apache-2.0 */
/* One ELF file being read: shared by elf_file.c (headers) and elf_parts.c (notes, dynamic section) only. */
#ifndef CONVOY_LOAD_ELF_READER_H
#define CONVOY_LOAD_ELF_READER_H

#include "load/elf_file.h"

#include <elf.h>

#define CONVOY_ELF_HEADERS_MAX 256u           /* program headers; real files have about ten */
#define CONVOY_ELF_NOTE_BYTES_MAX (64u << 10) /* one run of notes */
#define CONVOY_ELF_DYNAMIC_MAX 1024u          /* entries of the dynamic section */

struct convoy_elf_reader {
    const struct convoy_elf_source *source;
    struct convoy_error *error;
    struct convoy_elf_info *info;
    Elf64_Ehdr elf;
    size_t header_count;
    Elf64_Phdr headers[CONVOY_ELF_HEADERS_MAX]; /* checked against each other before notes or dynamic are read */
    unsigned char notes[CONVOY_ELF_NOTE_BYTES_MAX];
};

/* Fills build id, manifest and digest of the info from all runs of notes. BAD_FILE: a note reaches past its run. */
int32_t convoy_elf_reader_notes(struct convoy_elf_reader *reader);

/* Fills the soname. BAD_FILE: the section or the string it names has no end. */
int32_t convoy_elf_reader_dynamic(struct convoy_elf_reader *reader, const Elf64_Phdr *header);

#endif
