/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any file that somebody calls a plugin. With an even first byte the rest is the file; with an odd one it is edits
 * (16-bit offset, value) to a well-formed one made here, so that the fuzzer gets past the first checks. What is
 * accepted must be printable and bounded, since tools show it to people.
 */
#include "load/inspect.h"


#include "convoy/query.h"
#include "core/error.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#if defined(__x86_64__)
#define MACHINE_HERE EM_X86_64
#else
#define MACHINE_HERE EM_AARCH64
#endif

static const char fuzz_manifest[] =
    "{\"schema\":1,\"name\":\"f\",\"release\":\"1.0.0\","
    "\"families\":[{\"name\":\"core\",\"min\":\"1.0\",\"max\":\"1.0\"}],"
    "\"wire\":{\"min\":1,\"max\":1},\"ucx\":\"none\",\"unload\":\"nodelete\"}\0\0\0";

/* A file of one segment: headers, notes, dynamic section, strings. */
struct fuzz_file {
    Elf64_Ehdr elf;
    Elf64_Phdr headers[3];
    struct {
        Elf64_Nhdr id;
        char id_owner[4];
        unsigned char id_bytes[20];
        Elf64_Nhdr manifest;
        char manifest_owner[8];
        char text[(sizeof fuzz_manifest) & ~3u];
        Elf64_Nhdr digest;
        char digest_owner[8];
        unsigned char digest_bytes[8];
    } notes;
    Elf64_Dyn dynamic[4];
    char strings[32];
};

static Elf64_Phdr fuzz_header(uint32_t type, size_t offset, size_t bytes, uint64_t align)
{
    return (Elf64_Phdr){.p_type = type, .p_flags = PF_R, .p_offset = offset, .p_vaddr = offset, .p_paddr = offset,
                        .p_filesz = bytes, .p_memsz = bytes, .p_align = align};
}

static void fuzz_make(struct fuzz_file *file)
{
    memset(file, 0, sizeof *file);
    memcpy(file->elf.e_ident, ELFMAG, SELFMAG);
    file->elf.e_ident[EI_CLASS] = ELFCLASS64;
    file->elf.e_ident[EI_DATA] = ELFDATA2LSB;
    file->elf.e_ident[EI_VERSION] = EV_CURRENT;
    file->elf.e_type = ET_DYN;
    file->elf.e_machine = MACHINE_HERE;
    file->elf.e_phoff = offsetof(struct fuzz_file, headers);
    file->elf.e_phentsize = sizeof file->headers[0];
    file->elf.e_phnum = 3;
    file->headers[0] = fuzz_header(PT_LOAD, 0, sizeof *file, 4096);
    file->headers[1] = fuzz_header(PT_NOTE, offsetof(struct fuzz_file, notes), sizeof file->notes, 4);
    file->headers[2] = fuzz_header(PT_DYNAMIC, offsetof(struct fuzz_file, dynamic), sizeof file->dynamic, 8);
    file->notes.id = (Elf64_Nhdr){4, 20, NT_GNU_BUILD_ID};
    memcpy(file->notes.id_owner, ELF_NOTE_GNU, 4);
    file->notes.manifest = (Elf64_Nhdr){sizeof CONVOY_NOTE_OWNER, sizeof file->notes.text, CONVOY_NOTE_MANIFEST};
    memcpy(file->notes.manifest_owner, CONVOY_NOTE_OWNER, sizeof CONVOY_NOTE_OWNER);
    memcpy(file->notes.text, fuzz_manifest, sizeof file->notes.text);
    file->notes.digest = (Elf64_Nhdr){sizeof CONVOY_NOTE_OWNER, 8, CONVOY_NOTE_DIGEST};
    memcpy(file->notes.digest_owner, CONVOY_NOTE_OWNER, sizeof CONVOY_NOTE_OWNER);
    file->dynamic[0] = (Elf64_Dyn){DT_STRTAB, {offsetof(struct fuzz_file, strings)}};
    file->dynamic[1] = (Elf64_Dyn){DT_STRSZ, {sizeof file->strings}};
    file->dynamic[2] = (Elf64_Dyn){DT_SONAME, {1}};
    memcpy(file->strings, "\0libconvoy.so.1", sizeof "\0libconvoy.so.1");
}

/* The digest is made to match after the edits, or nothing behind it would ever be reached. */
static void fuzz_stamp(struct fuzz_file *file)
{
    const struct convoy_elf_source source = {.fd = -1, .memory = (const unsigned char *)file, .size = sizeof *file};
    uint64_t digest = 0;
    if (convoy_elf_digest(&source, offsetof(struct fuzz_file, notes.digest_bytes), &digest, NULL) == CONVOY_OK) {
        memcpy(file->notes.digest_bytes, &digest, sizeof digest);
    }
}

static void require_text(const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    if (length == room) {
        abort();
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~') {
            abort();
        }
    }
}

static void fuzz_inspect(const unsigned char *bytes, size_t size)
{
    static struct convoy_inspected inspected;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_elf_source source = {.fd = -1, .memory = bytes, .size = size};
    memset(&inspected, 0, sizeof inspected);
    int32_t status = convoy_inspect_source(&source, &inspected, &error);
    if (status != CONVOY_OK) {
        if (error.text[0] == '\0') {
            abort(); /* every refusal says why */
        }
        return;
    }
    const struct convoy_file_info *info = &inspected.file;
    require_text(info->soname, sizeof info->soname);
    require_text(info->name, sizeof info->name);
    require_text(info->release, sizeof info->release);
    require_text(info->ucx, sizeof info->ucx);
    require_text(info->unload, sizeof info->unload);
    for (uint32_t i = 0; i < info->family_count; i++) {
        require_text(info->families[i].name, sizeof info->families[i].name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        fuzz_inspect(data + 1, size - 1);
        return 0;
    }
    static struct fuzz_file file;
    fuzz_make(&file);
    for (size_t i = 1; i + 3 <= size; i += 3) {
        size_t offset = ((size_t)data[i] << 8 | data[i + 1]) % sizeof file;
        ((unsigned char *)&file)[offset] = data[i + 2];
    }
    fuzz_stamp(&file);
    fuzz_inspect((const unsigned char *)&file, sizeof file);
    return 0;
}
