/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged files, made from a real shared object held in memory. Under the address sanitizer every byte that is read
 * past the copy ends the test, so each copy is exactly as long as the damaged file. */
#include "load/inspect.h"

#include "core/error.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <cmocka.h>

static int good_setup(void **state)
{
    static struct file_bytes good;
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file("good", path);
    good = file_read(path);
    *state = &good;
    return good.size > 4096 ? 0 : -1;
}

static int good_teardown(void **state)
{
    free(((struct file_bytes *)*state)->bytes);
    return 0;
}

/* Inspects the first `size` bytes from a buffer of exactly that size. */
static int32_t inspect_bytes(const unsigned char *bytes, size_t size, struct convoy_error *error)
{
    static struct convoy_inspected inspected;
    unsigned char *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    memset(&inspected, 0, sizeof inspected);
    const struct convoy_elf_source source = {.fd = -1, .memory = copy, .size = size};
    int32_t status = convoy_inspect_source(&source, &inspected, error);
    free(copy);
    return status;
}

static void test_elf_file_whole_is_accepted_and_its_digest_matches(void **state)
{
    const struct file_bytes *good = *state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(inspect_bytes(good->bytes, good->size, &error), CONVOY_OK);
}

static void test_elf_file_truncated_at_every_64th_byte_is_refused_with_text(void **state)
{
    const struct file_bytes *good = *state;
    for (size_t size = 0; size < good->size; size += 64) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        int32_t status = inspect_bytes(good->bytes, size, &error);
        if (status != CONVOY_BAD_FILE || error.text[0] == '\0') {
            fail_msg("%zu bytes: status %d, text \"%s\"", size, status, error.text);
        }
    }
    assert_int_equal(inspect_bytes(good->bytes, good->size - 1, NULL), CONVOY_BAD_FILE);
}

/* Every length up to the end of the program headers, so at and inside each header field. */
static void test_elf_file_truncated_inside_each_header_field_is_refused(void **state)
{
    const struct file_bytes *good = *state;
    const size_t headers = sizeof(Elf64_Ehdr) + 16 * sizeof(Elf64_Phdr);
    for (size_t size = 0; size < headers; size++) {
        assert_int_equal(inspect_bytes(good->bytes, size, NULL), CONVOY_BAD_FILE);
    }
}

/* Where nothing that is loaded lies: the section table's place in the ELF header, and all behind the last segment. */
static bool is_unloaded(const struct file_bytes *file, size_t offset)
{
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)file->bytes;
    const Elf64_Phdr *headers = (const Elf64_Phdr *)(const void *)(file->bytes + elf->e_phoff);
    for (size_t i = 0; i < elf->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && offset >= headers[i].p_offset &&
            offset < headers[i].p_offset + headers[i].p_filesz) {
            return (offset >= offsetof(Elf64_Ehdr, e_shoff) && offset < offsetof(Elf64_Ehdr, e_flags)) ||
                   (offset >= offsetof(Elf64_Ehdr, e_shnum) && offset < sizeof *elf);
        }
    }
    return true;
}

static void check_flip(const struct file_bytes *good, unsigned char *copy, size_t offset, unsigned char flip)
{
    memcpy(copy, good->bytes, good->size);
    copy[offset] ^= flip;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = inspect_bytes(copy, good->size, &error);
    if (status == CONVOY_OK ? !is_unloaded(good, offset) : error.text[0] == '\0') {
        fail_msg("byte %zu xor 0x%x: status %d, text \"%s\"", offset, flip, status, error.text);
    }
}

/* Each byte of the headers, the notes and the dynamic strings; no damage to what is loaded is overlooked. */
static void test_elf_file_with_any_header_byte_flipped_is_refused_unless_it_is_not_loaded(void **state)
{
    const struct file_bytes *good = *state;
    const unsigned char flips[] = {0x01, 0x80, 0xff};
    unsigned char *copy = malloc(good->size);
    assert_non_null(copy);
    for (size_t offset = 0; offset < 0x700; offset++) {
        for (size_t i = 0; i < sizeof flips; i++) {
            check_flip(good, copy, offset, flips[i]);
        }
    }
    free(copy);
}

static void test_elf_file_with_any_17th_byte_flipped_is_refused_unless_it_is_not_loaded(void **state)
{
    const struct file_bytes *good = *state;
    unsigned char *copy = malloc(good->size);
    assert_non_null(copy);
    for (size_t offset = 0; offset < good->size; offset += 17) {
        check_flip(good, copy, offset, 0x55);
    }
    free(copy);
}

struct field_row {
    size_t offset;
    size_t bytes;
    uint64_t value;
    const char *words;
};

#define FIELD(name, number, text) {offsetof(Elf64_Ehdr, name), sizeof((Elf64_Ehdr *)0)->name, (number), (text)}

static void test_elf_file_of_another_kind_is_named_in_words(void **state)
{
    const struct file_bytes *good = *state;
    const struct field_row rows[] = {
        {EI_MAG0, 1, 'x', "not an ELF file"},
        {EI_CLASS, 1, ELFCLASS32, "32 bits"},
        {EI_CLASS, 1, 7, "ELF class 7"},
        {EI_DATA, 1, ELFDATA2MSB, "little-endian"},
        {EI_VERSION, 1, 2, "ELF version 2"},
        FIELD(e_machine, EM_RISCV, "built for riscv"),
        FIELD(e_machine, 9999, "built for machine 9999"),
        FIELD(e_type, ET_REL, "ELF type 1"),
        FIELD(e_type, ET_EXEC, "ELF type 2"),
        FIELD(e_phnum, 0, "0 program headers"),
        FIELD(e_phnum, 0xffff, "65535 program headers"),
        FIELD(e_phentsize, 8, "of 8 bytes"),
        FIELD(e_phoff, UINT64_MAX - 8, "the program headers should lie at"),
        FIELD(e_phoff, good->size - 8, "the program headers should lie at"),
        FIELD(e_shoff, UINT64_MAX - 8, "truncated: its section table"),
    };
    unsigned char *copy = malloc(good->size);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        memcpy(copy, good->bytes, good->size);
        memcpy(copy + rows[i].offset, &rows[i].value, rows[i].bytes);
        assert_int_equal(inspect_bytes(copy, good->size, &error), CONVOY_BAD_FILE);
        if (strstr(error.text, rows[i].words) == NULL) {
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, error.text, rows[i].words);
        }
    }
    free(copy);
}

/* Huge offsets and sizes in each field of each program header: whatever it says, nothing outside the file is read. */
static void test_elf_file_with_huge_segment_fields_is_refused(void **state)
{
    const struct file_bytes *good = *state;
    const uint64_t values[] = {UINT64_MAX, UINT64_MAX - 4096, 1ull << 63, 1ull << 47, (uint64_t)good->size + 1, 3};
    const size_t fields[] = {offsetof(Elf64_Phdr, p_offset), offsetof(Elf64_Phdr, p_vaddr),
                             offsetof(Elf64_Phdr, p_filesz), offsetof(Elf64_Phdr, p_memsz),
                             offsetof(Elf64_Phdr, p_align)};
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)good->bytes;
    unsigned char *copy = malloc(good->size);
    assert_non_null(copy);
    for (size_t header = 0; header < elf->e_phnum; header++) {
        for (size_t k = 0; k < 5 * 6; k++) {
            memcpy(copy, good->bytes, good->size);
            memcpy(copy + elf->e_phoff + header * sizeof(Elf64_Phdr) + fields[k / 6], &values[k % 6], 8);
            if (memcmp(copy, good->bytes, good->size) != 0) {
                assert_int_not_equal(inspect_bytes(copy, good->size, NULL), CONVOY_OK);
            }
        }
    }
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elf_file_whole_is_accepted_and_its_digest_matches),
        cmocka_unit_test(test_elf_file_truncated_at_every_64th_byte_is_refused_with_text),
        cmocka_unit_test(test_elf_file_truncated_inside_each_header_field_is_refused),
        cmocka_unit_test(test_elf_file_with_any_header_byte_flipped_is_refused_unless_it_is_not_loaded),
        cmocka_unit_test(test_elf_file_with_any_17th_byte_flipped_is_refused_unless_it_is_not_loaded),
        cmocka_unit_test(test_elf_file_of_another_kind_is_named_in_words),
        cmocka_unit_test(test_elf_file_with_huge_segment_fields_is_refused),
    };
    return cmocka_run_group_tests_name("elf_file", tests, good_setup, good_teardown);
}
