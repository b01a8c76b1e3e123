/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build id of this object, read from its own mapped program headers: no file, no lock, no dl_iterate_phdr (whose
 * callback would run under the dynamic linker's lock, and a child of fork() may find that taken).
 */
#include "plugin/families.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#define BUILD_ID_BYTES_MAX 32
#define PADDED(n) (((size_t)(n) + 3) & ~(size_t)3)

/* Defined by the linker: the start of this object's mapping, of which the ELF header is only the first part. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

struct id_bytes {
    const unsigned char *bytes;
    size_t count;
};

/* Looks through one run of notes. They are our own linker's, so only the walk itself is bounded. */
static struct id_bytes find_in_notes(const char *notes, size_t size)
{
    size_t offset = 0;
    while (size - offset >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)(notes + offset);
        size_t owner = offset + sizeof *note;
        size_t data = owner + PADDED(note->n_namesz);
        if (data + note->n_descsz > size) {
            break;
        }
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof ELF_NOTE_GNU &&
            memcmp(notes + owner, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            return (struct id_bytes){(const unsigned char *)notes + data, note->n_descsz};
        }
        offset = data + PADDED(note->n_descsz);
        if (offset > size) {
            break;
        }
    }
    return (struct id_bytes){NULL, 0};
}

static struct id_bytes find_build_id(void)
{
    const char *base = __ehdr_start;
    const ElfW(Ehdr) *elf = (const ElfW(Ehdr) *)(const void *)base;
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)(const void *)(base + elf->e_phoff);
    ElfW(Addr) lowest = 0; /* address that the first PT_LOAD was linked at; 0 for a shared object */
    for (size_t i = 0; i < elf->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD) {
            lowest = headers[i].p_vaddr - headers[i].p_offset;
            break;
        }
    }
    for (size_t i = 0; i < elf->e_phnum; i++) {
        /* Runs of 8-aligned notes hold .note.gnu.property only. */
        if (headers[i].p_type == PT_NOTE && headers[i].p_align <= 4) {
            struct id_bytes found = find_in_notes(base + (headers[i].p_vaddr - lowest), headers[i].p_memsz);
            if (found.bytes != NULL) {
                return found;
            }
        }
    }
    return (struct id_bytes){NULL, 0};
}

/*
 * The text lives here because the answer must outlive the call without an allocation. Every call writes the same
 * bytes, and only where they are not there yet, so calls at the same time cannot disagree and need no lock.
 */
static char build_id_text[2 * BUILD_ID_BYTES_MAX + 1];

static void put_char(char *place, char value)
{
    if (__atomic_load_n(place, __ATOMIC_RELAXED) != value) {
        __atomic_store_n(place, value, __ATOMIC_RELAXED);
    }
}

const char *convoy_build_id_text(size_t *length_out)
{
    static const char digits[] = "0123456789abcdef";
    struct id_bytes id = find_build_id();
    size_t count = id.count < BUILD_ID_BYTES_MAX ? id.count : BUILD_ID_BYTES_MAX;
    for (size_t i = 0; i < count; i++) {
        put_char(&build_id_text[2 * i], digits[id.bytes[i] >> 4]);
        put_char(&build_id_text[2 * i + 1], digits[id.bytes[i] & 15]);
    }
    *length_out = 2 * count;
    return build_id_text;
}
