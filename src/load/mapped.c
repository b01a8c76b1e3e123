/* SPDX-License-Identifier: Apache-2.0 */
#include "load/mapped.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#define PADDED(n) (((size_t)(n) + 3) & ~(size_t)3)

bool convoy_build_id_is_equal(const struct convoy_build_id *a, const struct convoy_build_id *b)
{
    return a->count != 0 && a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

static bool is_in_load(const struct dl_phdr_info *object, ElfW(Addr) address, size_t bytes)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *load = &object->dlpi_phdr[i];
        if (load->p_type == PT_LOAD && address >= load->p_vaddr && address - load->p_vaddr <= load->p_memsz &&
            bytes <= load->p_memsz - (address - load->p_vaddr)) {
            return true;
        }
    }
    return false;
}

static void read_notes(const char *notes, size_t size, struct convoy_build_id *id_out)
{
    size_t offset = 0;
    while (offset < size && size - offset >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + offset, sizeof note);
        size_t owner = offset + sizeof note;
        size_t data = owner + PADDED(note.n_namesz);
        if (data > size || note.n_descsz > size - data) {
            return;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            note.n_descsz <= sizeof id_out->bytes && memcmp(notes + owner, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            id_out->count = note.n_descsz;
            memcpy(id_out->bytes, notes + data, note.n_descsz);
            return;
        }
        offset = data + PADDED(note.n_descsz);
    }
}

/* An object of any origin: only notes that lie inside its own mapping are looked at. */
static void read_build_id(const struct dl_phdr_info *object, struct convoy_build_id *id_out)
{
    id_out->count = 0;
    for (size_t i = 0; id_out->count == 0 && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_NOTE && part->p_align <= 4 && is_in_load(object, part->p_vaddr, part->p_memsz)) {
            const char *notes = (const char *)(object->dlpi_addr + part->p_vaddr); /* an address, not an offset */
            read_notes(notes, part->p_memsz, id_out);
        }
    }
}

struct search {
    const struct convoy_build_id *wanted;
    char *path_out;
    uintptr_t address;
    struct convoy_build_id *id_out;
    uintptr_t *base_out;
};

static int visit_for_id(struct dl_phdr_info *object, size_t size, void *user)
{
    (void)size;
    const struct search *search = user;
    struct convoy_build_id id;
    size_t length = strlen(object->dlpi_name); /* empty: the executable itself, which cannot be opened again */
    if (length == 0 || length >= CONVOY_MAPPED_PATH_BYTES) {
        return 0;
    }
    read_build_id(object, &id);
    if (!convoy_build_id_is_equal(&id, search->wanted)) {
        return 0;
    }
    memcpy(search->path_out, object->dlpi_name, length + 1);
    return 1;
}

static int visit_for_address(struct dl_phdr_info *object, size_t size, void *user)
{
    (void)size;
    const struct search *search = user;
    if (!is_in_load(object, search->address - object->dlpi_addr, 1)) {
        return 0;
    }
    read_build_id(object, search->id_out);
    *search->base_out = object->dlpi_addr;
    return 1;
}

bool convoy_mapped_find(const struct convoy_build_id *id, char path_out[CONVOY_MAPPED_PATH_BYTES])
{
    struct search search = {.wanted = id, .path_out = path_out};
    return dl_iterate_phdr(visit_for_id, &search) != 0;
}

bool convoy_mapped_at(const void *address, struct convoy_build_id *id_out, uintptr_t *base_out)
{
    struct search search = {.address = (uintptr_t)address, .id_out = id_out, .base_out = base_out};
    return dl_iterate_phdr(visit_for_address, &search) != 0;
}
