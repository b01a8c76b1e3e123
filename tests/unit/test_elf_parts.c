/* SPDX-License-Identifier: Apache-2.0 */
/* Notes and the dynamic section of a file, each made by hand: what is taken, and what is refused in which words. */
#include "load/elf_reader.h"

#include "convoy/query.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A file in memory of which only the headers in the reader say what it is. */
static struct {
    unsigned char bytes[200000];
    struct convoy_elf_source source;
    struct convoy_elf_info info;
    struct convoy_elf_reader reader;
    struct convoy_error error;
} file;

static int file_setup(void **state)
{
    (void)state;
    memset(&file, 0, sizeof file);
    file.error = (struct convoy_error)CONVOY_ERROR_INIT;
    file.source = (struct convoy_elf_source){.fd = -1, .memory = file.bytes, .size = sizeof file.bytes};
    file.reader.source = &file.source;
    file.reader.error = &file.error;
    file.reader.info = &file.info;
    return 0;
}

/* Puts a note at `offset`; returns the offset behind it. */
static size_t put_note(size_t offset, const char *owner, uint32_t type, const void *text, uint32_t bytes)
{
    const Elf64_Nhdr note = {.n_namesz = (uint32_t)strlen(owner) + 1, .n_descsz = bytes, .n_type = type};
    memcpy(file.bytes + offset, &note, sizeof note);
    offset += sizeof note;
    memcpy(file.bytes + offset, owner, note.n_namesz);
    offset += (note.n_namesz + 3) & ~3u;
    memcpy(file.bytes + offset, text, bytes);
    return offset + ((bytes + 3) & ~3u);
}

static int32_t read_notes(size_t bytes)
{
    file.reader.headers[file.reader.header_count++] =
        (Elf64_Phdr){.p_type = PT_NOTE, .p_align = 4, .p_filesz = bytes};
    return convoy_elf_reader_notes(&file.reader);
}

static void test_elf_parts_notes_of_ours_are_taken_and_others_passed_over(void **state)
{
    const uint64_t digest = 0x1122334455667788u;
    (void)state;
    size_t end = put_note(0, "someone", 1, "xyz", 3);
    end = put_note(end, ELF_NOTE_GNU, NT_GNU_BUILD_ID, "\1\2\3", 3);
    end = put_note(end, CONVOY_NOTE_OWNER, CONVOY_NOTE_MANIFEST, "{}\0\0", 4);
    size_t digest_at = put_note(end, CONVOY_NOTE_OWNER, CONVOY_NOTE_DIGEST, &digest, sizeof digest) - sizeof digest;
    end = put_note(digest_at + sizeof digest, CONVOY_NOTE_OWNER, CONVOY_NOTE_DIGEST, "12", 2); /* no digest */
    file.reader.headers[0] = (Elf64_Phdr){.p_type = PT_NOTE, .p_align = 8, .p_filesz = UINT64_MAX}; /* not looked at */
    file.reader.header_count = 1;
    assert_int_equal(read_notes(end - 2), CONVOY_OK); /* the last note lacks its padding */
    assert_int_equal(file.info.build_id_bytes, 3);
    assert_memory_equal(file.info.build_id, "\1\2\3", 3);
    assert_true(file.info.has_manifest);
    assert_string_equal(file.info.manifest, "{}");
    assert_int_equal(file.info.manifest_length, 2);
    assert_true(file.info.has_digest_note);
    assert_int_equal(file.info.digest_offset, digest_at);
    assert_true(file.info.digest == digest);
}

static void test_elf_parts_notes_too_long_or_cut_are_refused(void **state)
{
    static const unsigned char zeros[CONVOY_ELF_MANIFEST_BYTES_MAX + 4];
    (void)state;
    size_t end = put_note(0, ELF_NOTE_GNU, NT_GNU_BUILD_ID, zeros, CONVOY_ELF_BUILD_ID_BYTES_MAX + 1);
    assert_int_equal(read_notes(end), CONVOY_BAD_FILE);
    assert_non_null(strstr(file.error.text, "build id of"));
    file_setup(state);
    end = put_note(0, ELF_NOTE_GNU, NT_GNU_BUILD_ID, zeros, 0);
    assert_int_equal(read_notes(end), CONVOY_BAD_FILE);
    assert_non_null(strstr(file.error.text, "build id of 0 bytes"));
    file_setup(state);
    end = put_note(0, CONVOY_NOTE_OWNER, CONVOY_NOTE_MANIFEST, zeros, CONVOY_ELF_MANIFEST_BYTES_MAX + 1);
    assert_int_equal(read_notes(end), CONVOY_BAD_FILE);
    assert_non_null(strstr(file.error.text, end <= CONVOY_ELF_NOTE_BYTES_MAX ? "manifest of" : "notes of"));
    file_setup(state);
    end = put_note(0, "someone", 1, "12345678", 8);
    assert_int_equal(read_notes(end - 1), CONVOY_BAD_FILE);
    assert_non_null(strstr(file.error.text, "corrupt note: owner of 8 and text of 8 bytes where 15 are left"));
    file_setup(state);
    assert_int_equal(read_notes(CONVOY_ELF_NOTE_BYTES_MAX + 1), CONVOY_BAD_FILE);
    assert_non_null(strstr(file.error.text, "notes of"));
}

/* A dynamic section at 0 and a string table at 4096, loaded at address 0x10000. */
static int32_t read_soname(uint64_t strings, uint64_t strings_bytes, uint64_t index, size_t entries)
{
    const Elf64_Dyn dynamic[] = {{.d_tag = DT_NEEDED},
                                 {.d_tag = DT_STRTAB, .d_un.d_ptr = strings},
                                 {.d_tag = DT_STRSZ, .d_un.d_val = strings_bytes},
                                 {.d_tag = DT_SONAME, .d_un.d_val = index},
                                 {.d_tag = DT_NULL}};
    memcpy(file.bytes, dynamic, sizeof dynamic);
    file.reader.header_count = 2;
    file.reader.headers[0] = (Elf64_Phdr){.p_type = PT_NOTE};
    file.reader.headers[1] =
        (Elf64_Phdr){.p_type = PT_LOAD, .p_offset = 4096, .p_vaddr = 0x10000, .p_filesz = 8192};
    const Elf64_Phdr header = {.p_type = PT_DYNAMIC, .p_filesz = entries * sizeof dynamic[0]};
    return convoy_elf_reader_dynamic(&file.reader, &header);
}

static void test_elf_parts_soname_is_read_from_where_the_strings_are_loaded(void **state)
{
    (void)state;
    memcpy(file.bytes + 4096 + 5, "libx.so.1", 10);
    assert_int_equal(read_soname(0x10000, 100, 5, 5), CONVOY_OK);
    assert_string_equal(file.info.soname, "libx.so.1");
    assert_int_equal(read_soname(0x10000, 15, 5, 5), CONVOY_OK); /* ends with the table */
}

struct soname_row {
    uint64_t strings;
    uint64_t strings_bytes;
    uint64_t index;
    size_t entries;
    const char *words;
};

static void test_elf_parts_soname_that_is_not_there_is_refused_in_words(void **state)
{
    static const struct soname_row rows[] = {
        {0x10000, 100, 100, 5, "soname at 100 of a string table of 100 bytes at address 0x10000, which is not there"},
        {0x12000, 100, 0, 5, "at address 0x12000, which is not there"},
        {0xffff, 100, 0, 5, "at address 0xffff, which is not there"},
        {0x10000, 3, 0, 5, "soname without an end"},
        {0x10000, 100, 50, 5, "soname with a character that is not printable"},
        {0x10000, 100, 5, 4, "dynamic section without an end after 4 entries"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        file_setup(state);
        memcpy(file.bytes + 4096, "abcdefg", 8);
        memcpy(file.bytes + 4096 + 50, "a\033[b", 5);
        int32_t status =
            read_soname(rows[i].strings, rows[i].strings_bytes, rows[i].index, rows[i].entries);
        if (status != CONVOY_BAD_FILE || strstr(file.error.text, rows[i].words) == NULL) {
            fail_msg("row %zu: status %d, text \"%s\"", i, status, file.error.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_elf_parts_notes_of_ours_are_taken_and_others_passed_over, file_setup),
        cmocka_unit_test_setup(test_elf_parts_notes_too_long_or_cut_are_refused, file_setup),
        cmocka_unit_test_setup(test_elf_parts_soname_is_read_from_where_the_strings_are_loaded, file_setup),
        cmocka_unit_test_setup(test_elf_parts_soname_that_is_not_there_is_refused_in_words, file_setup),
    };
    return cmocka_run_group_tests_name("elf_parts", tests, NULL, NULL);
}
