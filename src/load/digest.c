/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest of what would be mapped. Headers that contradict each other are found one by one (elf_file.c); damage
 * inside code, symbol or relocation tables is found only by this, and such a file would crash the dynamic linker.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "load/elf_file.h"

#include "core/error.h"

#include <elf.h>
#include <string.h>

#define CHUNK_BYTES (16u << 10)

struct hole {
    uint64_t offset;
    uint64_t bytes;
};

/* Zeroes the part of [offset, offset + bytes) that lies in the hole. */
static void punch(unsigned char *chunk, uint64_t offset, size_t bytes, const struct hole *hole)
{
    for (uint64_t i = 0; i < hole->bytes; i++) {
        uint64_t place = hole->offset + i;
        if (place >= offset && place - offset < bytes) {
            chunk[place - offset] = 0;
        }
    }
}

static int32_t hash_range(const struct convoy_elf_source *source, const Elf64_Phdr *range, const struct hole holes[3],
                          XXH64_state_t *state, struct convoy_error *error)
{
    unsigned char chunk[CHUNK_BYTES];
    for (uint64_t done = 0; done < range->p_filesz;) {
        uint64_t left = range->p_filesz - done;
        size_t bytes = left < sizeof chunk ? (size_t)left : sizeof chunk;
        uint64_t offset = range->p_offset + done;
        int32_t status = convoy_elf_source_read(source, offset, chunk, bytes, "a segment", error);
        if (status != CONVOY_OK) {
            return status;
        }
        for (size_t i = 0; i < 3; i++) {
            punch(chunk, offset, bytes, &holes[i]);
        }
        (void)XXH64_update(state, chunk, bytes);
        done += bytes;
    }
    return CONVOY_OK;
}

int32_t convoy_elf_digest(const struct convoy_elf_source *source, uint64_t digest_offset, uint64_t *digest_out,
                          struct convoy_error *error)
{
    const struct hole holes[3] = {
        {digest_offset, sizeof *digest_out},
        {offsetof(Elf64_Ehdr, e_shoff), sizeof(Elf64_Off)},
        {offsetof(Elf64_Ehdr, e_shnum), 2 * sizeof(Elf64_Half)}, /* e_shnum, e_shstrndx */
    };
    Elf64_Ehdr elf;
    int32_t status = convoy_elf_source_read(source, 0, &elf, sizeof elf, "the ELF header", error);
    XXH64_state_t state;
    (void)XXH64_reset(&state, 0);
    for (size_t i = 0; status == CONVOY_OK && i < elf.e_phnum; i++) {
        Elf64_Phdr header;
        status = convoy_elf_source_read(source, elf.e_phoff + i * sizeof header, &header, sizeof header,
                                        "a program header", error);
        if (status != CONVOY_OK) {
            break;
        }
        (void)XXH64_update(&state, &header, sizeof header);
        if (header.p_type == PT_LOAD) {
            status = hash_range(source, &header, holes, &state, error);
        }
    }
    if (status == CONVOY_OK) {
        *digest_out = XXH64_digest(&state);
    }
    return status;
}
