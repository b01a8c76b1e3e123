/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/safetensors.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
    char folder[64];
    char path[96];
    struct convoy_safetensors file;
    struct convoy_error error;
};

static int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.error = CONVOY_ERROR_INIT};
    (void)snprintf(fixture.folder, sizeof fixture.folder, "/tmp/convoy_write_XXXXXX");
    *state = &fixture;
    if (mkdtemp(fixture.folder) == NULL) {
        return -1;
    }
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/out.safetensors", fixture.folder);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    convoy_safetensors_fini(&fixture->file);
    (void)unlink(fixture->path);
    return rmdir(fixture->folder); /* fails when something was left behind */
}

static size_t folder_count(const char *folder)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    assert_int_equal(closedir(entries), 0);
    return count;
}

static const uint8_t counted[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* In an order that no sorting gives; a name that JSON escapes; data that is not in a row. */
static struct convoy_safetensor some_tensors[] = {
    {"z.1", "BF16", 2, {1, 3}, counted + 10, 6}, {"a", "BOOL", 1, {5}, counted, 5},
    {"quote\" \n\xe2\x82\xac", "F64", 0, {0}, counted + 8, 8}, {"none", "F32", 2, {0, 16}, NULL, 0},
    {"z.0", "Q4_BLOCK", 1, {100}, counted + 1, 3},
};
static struct convoy_safetensors_text some_metadata[] = {{"format", "pt"}, {"empty", ""}};
static const struct convoy_safetensors some = {
    .tensors = some_tensors, .count = 5, .metadata = some_metadata, .metadata_count = 2};

static void expect_some(const struct convoy_safetensors *file)
{
    const uint8_t *end = file->tensors[0].data;
    assert_int_equal(file->count, some.count);
    for (size_t i = 0; i < some.count; i++) {
        const struct convoy_safetensor *tensor = &file->tensors[i];
        assert_string_equal(tensor->name, some_tensors[i].name);
        assert_string_equal(tensor->dtype, some_tensors[i].dtype);
        assert_int_equal(tensor->dim_count, some_tensors[i].dim_count);
        assert_memory_equal(tensor->shape, some_tensors[i].shape, tensor->dim_count * sizeof tensor->shape[0]);
        assert_int_equal(tensor->bytes, some_tensors[i].bytes);
        assert_ptr_equal(tensor->data, end); /* the data is in the order of the names */
        assert_true(tensor->bytes == 0 || memcmp(tensor->data, some_tensors[i].data, tensor->bytes) == 0);
        end = tensor->data + tensor->bytes;
    }
    assert_int_equal(file->metadata_count, 2);
    assert_string_equal(file->metadata[0].key, "format");
    assert_string_equal(file->metadata[1].value, "");
}

static void write_some(struct fixture *fixture)
{
    if (convoy_safetensors_write(fixture->path, &some, &fixture->error) != CONVOY_OK) {
        fail_msg("%s", fixture->error.text);
    }
}

static void test_safetensors_write_keeps_order_bytes_and_metadata(void **state)
{
    struct fixture *fixture = *state;
    write_some(fixture);
    assert_int_equal(folder_count(fixture->folder), 1);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, &fixture->error), CONVOY_OK);
    expect_some(&fixture->file);
    assert_int_equal((fixture->file.tensors[0].data - fixture->file.file) % 8, 0);
}

static void test_safetensors_write_of_what_was_read_is_the_same_file(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *heads[2];
    size_t lengths[2];
    write_some(fixture);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, &fixture->error), CONVOY_OK);
    assert_int_equal(convoy_safetensors_encode(&some, "x", &heads[0], &lengths[0], NULL), CONVOY_OK);
    assert_int_equal(convoy_safetensors_encode(&fixture->file, "x", &heads[1], &lengths[1], NULL), CONVOY_OK);
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(heads[0], heads[1], lengths[0]);
    assert_memory_equal(heads[0], fixture->file.file, lengths[0]);
    convoy_memory_free(heads[0]);
    convoy_memory_free(heads[1]);
}

static void test_safetensors_head_is_what_the_format_says(void **state)
{
    (void)state;
    static struct convoy_safetensor tensor = {"n", "U8", 1, {2}, counted, 2};
    static const char text[] = "{\"n\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}   ";
    uint8_t *head = NULL;
    size_t length = 0;
    assert_int_equal(convoy_safetensors_encode(&(struct convoy_safetensors){.tensors = &tensor, .count = 1}, "x", &head,
                                               &length, NULL), CONVOY_OK);
    assert_int_equal(length, 8 + sizeof text - 1);
    assert_int_equal(convoy_bytes_u64(head), sizeof text - 1);
    assert_memory_equal(head + 8, text, sizeof text - 1);
    convoy_memory_free(head);
}

static void test_safetensors_write_of_nothing_is_a_file(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(convoy_safetensors_write(fixture->path, &(struct convoy_safetensors){0}, NULL), CONVOY_OK);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, NULL), CONVOY_OK);
    assert_int_equal(fixture->file.count, 0);
}

static void test_safetensors_write_replaces_a_file_and_passes_over_leftovers(void **state)
{
    struct fixture *fixture = *state;
    char leftover[160];
    struct stat status;
    mode_t mask = umask(027);
    (void)snprintf(leftover, sizeof leftover, "%s.%ld-0.part", fixture->path, (long)getpid());
    const char *const old[] = {fixture->path, leftover};
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(old[i], "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
    write_some(fixture);
    (void)umask(mask);
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, &fixture->error), CONVOY_OK);
    assert_int_equal(folder_count(fixture->folder), 2);
    assert_int_equal(unlink(leftover), 0);
}

/* -- what is refused ----------------------------------------------------------------------------------------------- */

static void expect_refusal(struct fixture *fixture, const struct convoy_safetensors *file, const char *reason)
{
    int32_t status = convoy_safetensors_write(fixture->path, file, &fixture->error);
    if (status != CONVOY_INVALID_ARGUMENT || strstr(fixture->error.text, reason) == NULL ||
        strstr(fixture->error.text, fixture->path) == NULL) {
        fail_msg("%d \"%s\" is not \"%s\"", status, fixture->error.text, reason);
    }
    assert_int_equal(folder_count(fixture->folder), 0);
}

static void test_safetensors_write_of_what_no_reader_takes_is_refused(void **state)
{
    static const struct {
        struct convoy_safetensor tensor;
        const char *reason;
    } cases[] = {
        {{"first", "U8", 1, {1}, counted, 1}, "tensor \"first\": is there twice"},
        {{"__metadata__", "U8", 1, {1}, counted, 1}, "tensor \"__metadata__\": is no name"},
        {{"\xff", "U8", 1, {1}, counted, 1}, "is no name (must be UTF-8"},
        {{"t", "", 1, {1}, counted, 1}, "tensor \"t\": dtype of 0 bytes (must be 1 to 63, UTF-8)"},
        {{"t", "\xff", 1, {1}, counted, 1}, "dtype of 1 bytes (must be 1 to 63, UTF-8)"},
        {{"t", "U8", 17, {1}, counted, 1}, "17 dimensions (must be 0 to 16)"},
        {{"t", "U8", 1, {2}, counted, 1}, "shape [2] of U8 is 2 bytes, its data 1"},
        {{"t", "F4", 1, {3}, counted, 2}, "shape [3] of F4 is 12 bits, no whole bytes"},
        {{"t", "U8", 2, {0, UINT64_C(1) << 63}, counted, 0}, "is more than 64 bits count"},
        {{"t", "X", 2, {UINT64_C(1) << 62, 5}, counted, 1}, "is more than 64 bits count"},
        {{"t", "U8", 1, {1}, NULL, 1}, "tensor \"t\": has no data"},
        {{"t", "X", 0, {0}, counted, INT64_MAX}, "9223372036854775807 bytes after 2 are more than 63 bits count"},
        {{"t", "X", 0, {0}, counted, UINT64_MAX}, "18446744073709551615 bytes after 2 are more than 63 bits count"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_safetensor tensors[] = {{"first", "U8", 1, {2}, counted, 2}, cases[i].tensor};
        expect_refusal(*state, &(struct convoy_safetensors){.tensors = tensors, .count = 2}, cases[i].reason);
    }
}

static void test_safetensors_write_of_an_unterminated_dtype_is_refused(void **state)
{
    struct convoy_safetensor tensor = {"t", "", 1, {1}, counted, 1};
    memset(tensor.dtype, 'x', sizeof tensor.dtype);
    expect_refusal(*state, &(struct convoy_safetensors){.tensors = &tensor, .count = 1}, "dtype of 64 bytes");
}

static void test_safetensors_write_of_bad_metadata_is_refused(void **state)
{
    struct convoy_safetensors_text cases[][2] = {
        {{"k", "1"}, {"k", "2"}}, {{"a", "1"}, {"\xff", "2"}}, {{"a", "1"}, {"v", "\xff"}}};
    for (size_t i = 0; i < 3; i++) {
        expect_refusal(*state, &(struct convoy_safetensors){.metadata = cases[i], .metadata_count = 2},
                       "is there twice, or no UTF-8");
    }
}

static void test_safetensors_write_of_too_large_a_header_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char *name = malloc(CONVOY_SAFETENSORS_HEADER_BYTES_MAX + 1);
    assert_non_null(name);
    memset(name, 'n', CONVOY_SAFETENSORS_HEADER_BYTES_MAX);
    name[CONVOY_SAFETENSORS_HEADER_BYTES_MAX] = '\0';
    struct convoy_safetensor tensor = {name, "U8", 1, {1}, counted, 1};
    const struct convoy_safetensors file = {.tensors = &tensor, .count = 1};
    assert_int_equal(convoy_safetensors_write(fixture->path, &file, &fixture->error), CONVOY_LIMIT);
    assert_non_null(strstr(fixture->error.text, "values (must be up to 100000000 and 4194304)"));
    free(name);
}

/* -- what the system refuses --------------------------------------------------------------------------------------- */

static void test_safetensors_write_where_nothing_can_be_created_says_why(void **state)
{
    struct fixture *fixture = *state;
    char long_path[5000] = "/tmp/";
    memset(long_path + 5, 'x', sizeof long_path - 6);
    const struct {
        const char *path;
        const char *reason;
    } cases[] = {
        {"/nowhere/at/all", "creating a file beside /nowhere/at/all: No such file or directory"},
        {"/dev/null/x", "creating a file beside /dev/null/x: Not a directory"},
        {long_path, ": File name too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(convoy_safetensors_write(cases[i].path, &some, &fixture->error), CONVOY_SYSTEM);
        assert_non_null(strstr(fixture->error.text, cases[i].reason));
    }
}

static void test_safetensors_write_over_a_folder_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(mkdir(fixture->path, 0700), 0);
    assert_int_equal(convoy_safetensors_write(fixture->path, &some, &fixture->error), CONVOY_SYSTEM);
    assert_non_null(strstr(fixture->error.text, "out.safetensors: Is a directory"));
    assert_int_equal(folder_count(fixture->folder), 1);
    assert_int_equal(rmdir(fixture->path), 0);
}

/* A limit on the size of files stands in for a disk that is full: the write is cut short, the next one fails. */
static void test_safetensors_write_that_is_cut_short_keeps_the_old_file(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t many[8192];
    struct convoy_safetensor tensor = {"t", "U8", 1, {sizeof many}, many, sizeof many};
    struct rlimit limit;
    struct rlimit small;
    write_some(fixture);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const struct convoy_safetensors file = {.tensors = &tensor, .count = 1};
    int32_t status = convoy_safetensors_write(fixture->path, &file, &fixture->error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, old);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_non_null(strstr(fixture->error.text, "out.safetensors: File too large"));
    assert_int_equal(folder_count(fixture->folder), 1);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, &fixture->error), CONVOY_OK);
    expect_some(&fixture->file);
}

static void test_safetensors_write_gives_up_when_every_name_is_taken(void **state)
{
    struct fixture *fixture = *state;
    char names[100][160];
    for (unsigned i = 0; i < 100; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s.%ld-%u.part", fixture->path, (long)getpid(), i);
        assert_int_equal(mkdir(names[i], 0700), 0);
    }
    assert_int_equal(convoy_safetensors_write(fixture->path, &some, &fixture->error), CONVOY_SYSTEM);
    assert_int_equal(fixture->error.sys_errno, EEXIST);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(rmdir(names[i]), 0);
    }
}

static void test_safetensors_write_without_memory_leaves_nothing(void **state)
{
#ifdef CONVOY_FAULTS
    struct fixture *fixture = *state;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_safetensors_write(fixture->path, &some, &fixture->error), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
    assert_non_null(strstr(fixture->error.text, "no memory for the header of "));
    assert_int_equal(folder_count(fixture->folder), 0);
#else
    (void)state;
    skip();
#endif
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_safetensors_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(write_keeps_order_bytes_and_metadata),
        CASE(write_of_what_was_read_is_the_same_file),
        CASE(head_is_what_the_format_says),
        CASE(write_of_nothing_is_a_file),
        CASE(write_replaces_a_file_and_passes_over_leftovers),
        CASE(write_of_what_no_reader_takes_is_refused),
        CASE(write_of_an_unterminated_dtype_is_refused),
        CASE(write_of_bad_metadata_is_refused),
        CASE(write_of_too_large_a_header_is_refused),
        CASE(write_where_nothing_can_be_created_says_why),
        CASE(write_over_a_folder_leaves_nothing),
        CASE(write_that_is_cut_short_keeps_the_old_file),
        CASE(write_gives_up_when_every_name_is_taken),
        CASE(write_without_memory_leaves_nothing),
    };
    return cmocka_run_group_tests_name("safetensors_write", tests, NULL, NULL);
}
