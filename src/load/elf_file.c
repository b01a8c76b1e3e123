/* SPDX-License-Identifier: Apache-2.0 */
#include "load/elf_reader.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#define MACHINE_HERE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE_HERE EM_AARCH64
#else
#error "unsupported machine: x86-64 and aarch64 only"
#endif

#define ADDRESS_END (1ull << 47)

const char *convoy_elf_machine_name(uint32_t machine, char buffer[24])
{
    switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "aarch64";
    case EM_386: return "i386";
    case EM_ARM: return "arm";
    case EM_PPC64: return "ppc64";
    case EM_RISCV: return "riscv";
    case EM_S390: return "s390";
    default: (void)snprintf(buffer, 24, "machine %u", machine); return buffer;
    }
}

void convoy_elf_build_id_text(const unsigned char *id, size_t bytes, char *text_out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        text_out[2 * i] = digits[id[i] >> 4];
        text_out[2 * i + 1] = digits[id[i] & 15];
    }
    text_out[2 * bytes] = '\0';
}

/* Class and byte order first: they say how the rest of the header is laid out. */
static int32_t check_ident(struct convoy_elf_reader *reader)
{
    const unsigned char *ident = reader->elf.e_ident;
    if (memcmp(ident, ELFMAG, SELFMAG) != 0) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "not an ELF file");
    }
    reader->info->bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : ident[EI_CLASS] == ELFCLASS32 ? 32 : 0;
    if (ident[EI_CLASS] != ELFCLASS64) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "ELF class %u (%u bits); this process has 64 bits",
                                ident[EI_CLASS], reader->info->bits);
    }
    if (ident[EI_DATA] != ELFDATA2LSB) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "ELF byte order %u; this machine is little-endian",
                                ident[EI_DATA]);
    }
    if (ident[EI_VERSION] != EV_CURRENT) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "ELF version %u; only 1 exists", ident[EI_VERSION]);
    }
    return CONVOY_OK;
}

static int32_t check_elf_header(struct convoy_elf_reader *reader)
{
    const Elf64_Ehdr *elf = &reader->elf;
    reader->info->machine = elf->e_machine;
    if (elf->e_machine != MACHINE_HERE) {
        char theirs[24];
        char ours[24];
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "built for %s; this machine is %s",
                                convoy_elf_machine_name(elf->e_machine, theirs),
                                convoy_elf_machine_name(MACHINE_HERE, ours));
    }
    if (elf->e_type != ET_DYN) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "ELF type %u; a shared object has type 3", elf->e_type);
    }
    if (elf->e_phentsize != sizeof(Elf64_Phdr) || elf->e_phnum == 0 || elf->e_phnum > CONVOY_ELF_HEADERS_MAX) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                                "%u program headers of %u bytes; 1 to %u of %zu bytes are allowed", elf->e_phnum,
                                elf->e_phentsize, CONVOY_ELF_HEADERS_MAX, sizeof(Elf64_Phdr));
    }
    /* Nothing here needs sections, but their table is the last thing in the file, so it tells a truncated one. */
    uint64_t table = (uint64_t)elf->e_shnum * elf->e_shentsize;
    uint64_t size = reader->source->size;
    if (elf->e_shoff != 0 && (elf->e_shoff > size || table > size - elf->e_shoff)) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                                "truncated: its section table ends at offset %llu, but the file has %llu bytes",
                                (unsigned long long)(elf->e_shoff + table), (unsigned long long)size);
    }
    return CONVOY_OK;
}

static int32_t read_headers(struct convoy_elf_reader *reader)
{
    size_t size = sizeof reader->elf;
    if (reader->source->size < size) {
        unsigned char start[SELFMAG] = {0};
        if (reader->source->size >= SELFMAG) {
            (void)convoy_elf_source_read(reader->source, 0, start, sizeof start, "magic", NULL);
        }
        const char *what = memcmp(start, ELFMAG, SELFMAG) == 0 ? "truncated inside the ELF header" : "not an ELF file";
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "%s: %llu bytes", what,
                                (unsigned long long)reader->source->size);
    }
    int32_t status = convoy_elf_source_read(reader->source, 0, &reader->elf, size, "the ELF header", reader->error);
    if (status == CONVOY_OK) {
        status = check_ident(reader);
    }
    if (status == CONVOY_OK) {
        status = check_elf_header(reader);
    }
    if (status == CONVOY_OK) {
        reader->header_count = reader->elf.e_phnum;
        status = convoy_elf_source_read(reader->source, reader->elf.e_phoff, reader->headers,
                                        reader->header_count * sizeof(Elf64_Phdr), "the program headers",
                                        reader->error);
    }
    return status;
}

static int32_t bad_header(struct convoy_elf_reader *reader, size_t index, const char *why)
{
    const Elf64_Phdr *header = &reader->headers[index];
    return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                            "program header %zu (type 0x%x, offset %llu, size %llu): %s", index, header->p_type,
                            (unsigned long long)header->p_offset, (unsigned long long)header->p_filesz, why);
}

static bool is_in_file(const struct convoy_elf_reader *reader, const Elf64_Phdr *header)
{
    return header->p_offset <= reader->source->size && header->p_filesz <= reader->source->size - header->p_offset;
}

/* What the dynamic linker relies on when it maps a segment. `end`: where the one before ended. */
static const char *fault_of_load(const Elf64_Phdr *header, uint64_t end)
{
    if (header->p_filesz > header->p_memsz) {
        return "more bytes in the file than in memory";
    }
    if (header->p_vaddr >= ADDRESS_END || header->p_memsz > ADDRESS_END - header->p_vaddr) {
        return "address out of range";
    }
    if (header->p_align == 0 || (header->p_align & (header->p_align - 1)) != 0 ||
        ((header->p_vaddr - header->p_offset) & (header->p_align - 1)) != 0) {
        return "alignment contradicts address and offset";
    }
    return header->p_vaddr < end ? "segments overlap or are out of order" : NULL;
}

/* The dynamic section and what relro protects must lie inside a loaded segment. */
static bool is_loaded(const struct convoy_elf_reader *reader, const Elf64_Phdr *part)
{
    for (size_t i = 0; i < reader->header_count; i++) {
        const Elf64_Phdr *load = &reader->headers[i];
        if (load->p_type == PT_LOAD && part->p_vaddr >= load->p_vaddr &&
            part->p_vaddr - load->p_vaddr <= load->p_memsz &&
            part->p_filesz <= load->p_memsz - (part->p_vaddr - load->p_vaddr)) {
            return part->p_vaddr - load->p_vaddr == part->p_offset - load->p_offset;
        }
    }
    return false;
}

static int32_t check_segments(struct convoy_elf_reader *reader)
{
    size_t loads = 0;
    size_t dynamics = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < reader->header_count; i++) {
        const Elf64_Phdr *header = &reader->headers[i];
        if (!is_in_file(reader, header)) {
            return bad_header(reader, i, "reaches past the end of the file");
        }
        if (header->p_type == PT_LOAD) {
            const char *fault = fault_of_load(header, end);
            if (fault != NULL) {
                return bad_header(reader, i, fault);
            }
            end = header->p_vaddr + header->p_memsz;
            loads++;
        }
    }
    for (size_t i = 0; i < reader->header_count; i++) {
        uint32_t type = reader->headers[i].p_type;
        dynamics += type == PT_DYNAMIC;
        if ((type == PT_DYNAMIC || type == PT_GNU_RELRO || type == PT_NOTE) &&
            !is_loaded(reader, &reader->headers[i])) {
            return bad_header(reader, i, "lies outside the loaded segments");
        }
    }
    if (loads == 0 || dynamics != 1) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                                "%zu loaded segments and %zu dynamic sections; a shared object has some and one", loads,
                                dynamics);
    }
    return CONVOY_OK;
}

int32_t convoy_elf_info_read(const struct convoy_elf_source *source, struct convoy_elf_info *info_out,
                             struct convoy_error *error)
{
    struct convoy_elf_reader *reader = convoy_memory_zalloc(sizeof *reader);
    if (reader == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to read an ELF file");
    }
    memset(info_out, 0, sizeof *info_out);
    reader->source = source;
    reader->error = error;
    reader->info = info_out;
    int32_t status = read_headers(reader);
    if (status == CONVOY_OK) {
        status = check_segments(reader);
    }
    if (status == CONVOY_OK) {
        status = convoy_elf_reader_notes(reader);
    }
    for (size_t i = 0; status == CONVOY_OK && i < reader->header_count; i++) {
        if (reader->headers[i].p_type == PT_DYNAMIC) {
            status = convoy_elf_reader_dynamic(reader, &reader->headers[i]);
        }
    }
    convoy_memory_free(reader);
    return status;
}
