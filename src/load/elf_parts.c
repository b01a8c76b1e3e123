/* SPDX-License-Identifier: Apache-2.0 */
#include "load/elf_reader.h"

#include "convoy/query.h"
#include "core/error.h"

#include <string.h>

/* Keeps what a note says, when it is one of ours. `place`: offset of the descriptor in the file. */
static int32_t take_note(struct convoy_elf_reader *reader, const Elf64_Nhdr *note, const unsigned char *owner,
                         uint64_t place)
{
    struct convoy_elf_info *info = reader->info;
    const unsigned char *data = owner + ((note->n_namesz + 3u) & ~3u);
    bool is_gnu = note->n_namesz == sizeof ELF_NOTE_GNU && memcmp(owner, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0;
    bool is_ours =
        note->n_namesz == sizeof CONVOY_NOTE_OWNER && memcmp(owner, CONVOY_NOTE_OWNER, sizeof CONVOY_NOTE_OWNER) == 0;
    if (is_gnu && note->n_type == NT_GNU_BUILD_ID) {
        if (note->n_descsz == 0 || note->n_descsz > CONVOY_ELF_BUILD_ID_BYTES_MAX) {
            return convoy_error_set(reader->error, CONVOY_BAD_FILE, "build id of %u bytes; 1 to %d are allowed",
                                    note->n_descsz, CONVOY_ELF_BUILD_ID_BYTES_MAX);
        }
        info->build_id_bytes = note->n_descsz;
        memcpy(info->build_id, data, note->n_descsz);
    } else if (is_ours && note->n_type == CONVOY_NOTE_MANIFEST) {
        if (note->n_descsz > CONVOY_ELF_MANIFEST_BYTES_MAX) {
            return convoy_error_set(reader->error, CONVOY_BAD_FILE, "manifest of %u bytes; at most %d are allowed",
                                    note->n_descsz, CONVOY_ELF_MANIFEST_BYTES_MAX);
        }
        memcpy(info->manifest, data, note->n_descsz);
        info->manifest[note->n_descsz] = '\0';
        info->manifest_length = strlen(info->manifest); /* the padding is zeros */
        info->has_manifest = true;
    } else if (is_ours && note->n_type == CONVOY_NOTE_DIGEST && note->n_descsz == sizeof info->digest) {
        memcpy(&info->digest, data, sizeof info->digest);
        info->digest_offset = place;
        info->has_digest_note = true;
    }
    return CONVOY_OK;
}

static int32_t read_note_run(struct convoy_elf_reader *reader, const Elf64_Phdr *header)
{
    if (header->p_filesz > CONVOY_ELF_NOTE_BYTES_MAX) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "notes of %llu bytes; at most %u are allowed",
                                (unsigned long long)header->p_filesz, CONVOY_ELF_NOTE_BYTES_MAX);
    }
    size_t size = (size_t)header->p_filesz;
    int32_t status =
        convoy_elf_source_read(reader->source, header->p_offset, reader->notes, size, "the notes", reader->error);
    size_t offset = 0;
    while (status == CONVOY_OK && size - offset >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, reader->notes + offset, sizeof note);
        size_t left = size - offset - sizeof note;
        uint64_t owner = ((uint64_t)note.n_namesz + 3) & ~3ull;
        uint64_t data = ((uint64_t)note.n_descsz + 3) & ~3ull;
        if (owner > left || note.n_descsz > left - owner) {
            return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                                    "corrupt note: owner of %u and text of %u bytes where %zu are left", note.n_namesz,
                                    note.n_descsz, left);
        }
        size_t start = offset + sizeof note;
        status = take_note(reader, &note, reader->notes + start, header->p_offset + start + owner);
        if (data > left - owner) {
            break; /* the last note may lack its padding */
        }
        offset = start + (size_t)(owner + data);
    }
    return status;
}

int32_t convoy_elf_reader_notes(struct convoy_elf_reader *reader)
{
    int32_t status = CONVOY_OK;
    for (size_t i = 0; status == CONVOY_OK && i < reader->header_count; i++) {
        /* Runs of 8-aligned notes pad differently and hold .note.gnu.property only. */
        if (reader->headers[i].p_type == PT_NOTE && reader->headers[i].p_align <= 4) {
            status = read_note_run(reader, &reader->headers[i]);
        }
    }
    return status;
}

/* File offset of a loaded address. */
static bool offset_of_address(const struct convoy_elf_reader *reader, uint64_t address, uint64_t *offset_out)
{
    for (size_t i = 0; i < reader->header_count; i++) {
        const Elf64_Phdr *load = &reader->headers[i];
        if (load->p_type == PT_LOAD && address >= load->p_vaddr && address - load->p_vaddr < load->p_filesz) {
            *offset_out = load->p_offset + (address - load->p_vaddr);
            return true;
        }
    }
    return false;
}

static int32_t read_soname(struct convoy_elf_reader *reader, uint64_t strings, uint64_t strings_bytes, uint64_t index)
{
    uint64_t offset;
    if (index >= strings_bytes || !offset_of_address(reader, strings, &offset)) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE,
                                "soname at %llu of a string table of %llu bytes at address 0x%llx, which is not there",
                                (unsigned long long)index, (unsigned long long)strings_bytes,
                                (unsigned long long)strings);
    }
    char *soname = reader->info->soname;
    uint64_t left = strings_bytes - index;
    size_t bytes = left < CONVOY_ELF_SONAME_BYTES ? (size_t)left : CONVOY_ELF_SONAME_BYTES;
    int32_t status =
        convoy_elf_source_read(reader->source, offset + index, soname, bytes, "the soname", reader->error);
    if (status == CONVOY_OK && memchr(soname, '\0', bytes) == NULL) {
        return convoy_error_set(reader->error, CONVOY_BAD_FILE, "soname without an end; at most %d bytes are allowed",
                                CONVOY_ELF_SONAME_BYTES - 1);
    }
    for (const char *c = soname; status == CONVOY_OK && *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') { /* tools show it on terminals */
            return convoy_error_set(reader->error, CONVOY_BAD_FILE, "soname with a character that is not printable");
        }
    }
    return status;
}

int32_t convoy_elf_reader_dynamic(struct convoy_elf_reader *reader, const Elf64_Phdr *header)
{
    uint64_t strings = 0;
    uint64_t strings_bytes = 0;
    uint64_t soname = UINT64_MAX;
    for (size_t i = 0;; i++) {
        Elf64_Dyn entry;
        if (i == CONVOY_ELF_DYNAMIC_MAX || (i + 1) * sizeof entry > header->p_filesz) {
            return convoy_error_set(reader->error, CONVOY_BAD_FILE, "dynamic section without an end after %zu entries",
                                    i);
        }
        int32_t status = convoy_elf_source_read(reader->source, header->p_offset + i * sizeof entry, &entry,
                                                sizeof entry, "the dynamic section", reader->error);
        if (status != CONVOY_OK) {
            return status;
        }
        switch (entry.d_tag) {
        case DT_NULL: return soname == UINT64_MAX ? CONVOY_OK : read_soname(reader, strings, strings_bytes, soname);
        case DT_STRTAB: strings = entry.d_un.d_ptr; break;
        case DT_STRSZ: strings_bytes = entry.d_un.d_val; break;
        case DT_SONAME: soname = entry.d_un.d_val; break;
        default: break;
        }
    }
}
