/* SPDX-License-Identifier: Apache-2.0 */
/* Struct sizes across the ABI, as reported in run-ai/runai-model-streamer PR 188 and meta-pytorch/torchcomms PR 450:
 * a host built against older or newer headers. Every struct lies at the end of a page that a guard page follows. */
#include "plugin/sized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* A struct that has grown since 1.0: `later` and `latest` came after. */
struct convoy_sample {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint64_t first;
    uint64_t later;
    uint64_t latest;
};

#define FIRST_BYTES offsetof(struct convoy_sample, later)
#define SAMPLE_SHAPE CONVOY_SHAPE_SINCE(sample, FIRST_BYTES)

struct guard {
    char *page;
    size_t bytes;
};

static int guard_setup(void **state)
{
    static struct guard guard;
    guard.bytes = (size_t)sysconf(_SC_PAGESIZE);
    guard.page = mmap(NULL, 2 * guard.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard.page == MAP_FAILED || mprotect(guard.page + guard.bytes, guard.bytes, PROT_NONE) != 0) {
        return -1;
    }
    *state = &guard;
    return 0;
}

static int guard_teardown(void **state)
{
    struct guard *guard = *state;
    return munmap(guard->page, 2 * guard->bytes);
}

/* A struct of exactly `bytes` bytes that ends where the guard page starts; its size is set, its rest is zero. */
static char *guard_struct(void **state, uint32_t bytes)
{
    struct guard *guard = *state;
    memset(guard->page, 0, guard->bytes);
    size_t room = bytes < sizeof bytes ? sizeof bytes : bytes; /* struct_size itself is always there */
    char *place = guard->page + guard->bytes - room;
    memcpy(place, &bytes, sizeof bytes);
    return place;
}

static void test_sized_in_of_null_is_refused_by_name(void **state)
{
    (void)state;
    struct convoy_sample full;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "sample is NULL"));
}

static void test_sized_in_below_the_first_release_is_too_old(void **state)
{
    const uint32_t sizes[] = {0, 4, 8, (uint32_t)FIRST_BYTES - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct convoy_sample full = {.first = 7};
        struct convoy_error error = CONVOY_ERROR_INIT;
        char *caller = guard_struct(state, sizes[i]);
        assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, &error), CONVOY_TOO_OLD);
        assert_int_equal(full.first, 7);
        assert_non_null(strstr(error.text, "release 1.0 has 16"));
    }
}

static void test_sized_in_of_the_first_release_has_a_zero_tail(void **state)
{
    struct convoy_sample full;
    memset(&full, 0x5a, sizeof full);
    char *caller = guard_struct(state, (uint32_t)FIRST_BYTES);
    memset(caller + offsetof(struct convoy_sample, first), 0x11, sizeof full.first);
    assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, NULL), CONVOY_OK);
    assert_int_equal(full.struct_size, sizeof full);
    assert_true(full.first == 0x1111111111111111u);
    assert_int_equal(full.later, 0);
    assert_int_equal(full.latest, 0);
}

static void test_sized_in_of_the_current_size_is_copied_whole(void **state)
{
    struct convoy_sample full;
    char *caller = guard_struct(state, sizeof full);
    memset(caller + sizeof(uint32_t), 0x22, sizeof full - sizeof(uint32_t));
    assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, NULL), CONVOY_OK);
    assert_memory_equal(&full, caller, sizeof full);
}

static void test_sized_in_longer_with_a_zero_tail_is_accepted(void **state)
{
    struct convoy_sample full;
    char *caller = guard_struct(state, sizeof full + 64);
    assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, NULL), CONVOY_OK);
    assert_int_equal(full.struct_size, sizeof full);
}

/* Each byte of the unknown tail is found, the last before the guard page included. */
static void test_sized_in_longer_with_a_set_tail_is_too_new_and_names_the_offset(void **state)
{
    for (uint32_t offset = sizeof(struct convoy_sample); offset < sizeof(struct convoy_sample) + 64; offset++) {
        struct convoy_sample full = {.first = 7};
        struct convoy_error error = CONVOY_ERROR_INIT;
        char expected[32];
        char *caller = guard_struct(state, sizeof full + 64);
        caller[offset] = 1;
        assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, &error), CONVOY_TOO_NEW);
        (void)snprintf(expected, sizeof expected, "offset %u ", offset);
        assert_non_null(strstr(error.text, expected));
        assert_int_equal(full.first, 7);
    }
}

/* A struct_size that nobody has set is any number. The bytes it claims lie behind the guard page. */
static void test_sized_struct_size_of_garbage_is_refused_with_value_and_range(void **state)
{
    const uint32_t sizes[] = {65537, 0x5a5a5a5au, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct convoy_sample full = {.first = 7};
        struct convoy_error error = CONVOY_ERROR_INIT;
        char expected[64];
        char *caller = guard_struct(state, sizeof full);
        memcpy(caller, &sizes[i], sizeof sizes[i]);
        (void)snprintf(expected, sizeof expected, "struct_size is %u, allowed are 16 to 65536", sizes[i]);
        assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, caller, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, expected));
        error = (struct convoy_error)CONVOY_ERROR_INIT;
        assert_int_equal(convoy_sized_out_begin(&full, &SAMPLE_SHAPE, caller, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, expected));
        assert_int_equal(full.first, 7);
    }
}

/* The longest that is taken: nothing that will ever be released comes near it. */
static void test_sized_struct_of_the_largest_size_is_accepted(void **state)
{
    (void)state;
    static union {
        uint32_t struct_size;
        char bytes[65536];
    } caller = {.struct_size = sizeof caller};
    struct convoy_sample full;
    assert_int_equal(convoy_sized_in(&full, &SAMPLE_SHAPE, &caller, NULL), CONVOY_OK);
    assert_int_equal(convoy_sized_out_begin(&full, &SAMPLE_SHAPE, &caller, NULL), CONVOY_OK);
    const struct convoy_sized_array array = {&caller, sizeof caller, 1};
    caller.struct_size = 0;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, NULL), CONVOY_OK);
}

static void test_sized_out_writes_what_fits_and_says_how_much(void **state)
{
    const uint32_t sizes[] = {(uint32_t)FIRST_BYTES, sizeof(struct convoy_sample), sizeof(struct convoy_sample) + 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *caller = guard_struct(state, sizes[i]);
        memset(caller + sizeof(uint32_t), 0x5a, sizes[i] - sizeof(uint32_t));
        struct convoy_sample full;
        assert_int_equal(convoy_sized_out_begin(&full, &SAMPLE_SHAPE, caller, NULL), CONVOY_OK);
        full.first = 1;
        full.later = 2;
        full.latest = 3;
        convoy_sized_out_end(caller, &SAMPLE_SHAPE, &full);
        uint32_t written = sizes[i] < sizeof full ? sizes[i] : (uint32_t)sizeof full;
        assert_int_equal(convoy_sized_bytes(caller), sizes[i]);
        assert_memory_equal(caller + sizeof(uint32_t), &written, sizeof written);
        assert_memory_equal(caller + 8, (char *)&full + 8, written - 8);
        for (uint32_t tail = written; tail < sizes[i]; tail++) {
            assert_int_equal(caller[tail], 0x5a); /* a newer caller's own fields stay as they were */
        }
    }
}

static void test_sized_out_below_the_first_release_is_too_old(void **state)
{
    const uint32_t sizes[] = {0, 8, (uint32_t)FIRST_BYTES - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct convoy_sample full;
        char *caller = guard_struct(state, sizes[i]);
        assert_int_equal(convoy_sized_out_begin(&full, &SAMPLE_SHAPE, caller, NULL), CONVOY_TOO_OLD);
    }
    assert_int_equal(convoy_sized_out_begin(&(struct convoy_sample){0}, &SAMPLE_SHAPE, NULL, NULL),
                     CONVOY_INVALID_ARGUMENT);
}

/* Three elements, each `stride` long, that end at the guard page. */
static struct convoy_sized_array guard_array(void **state, size_t stride)
{
    struct guard *guard = *state;
    memset(guard->page, 0, guard->bytes);
    return (struct convoy_sized_array){guard->page + guard->bytes - 3 * stride, stride, 3};
}

static void test_sized_array_reads_elements_of_any_stride(void **state)
{
    const size_t strides[] = {FIRST_BYTES, FIRST_BYTES + 8, sizeof(struct convoy_sample),
                              sizeof(struct convoy_sample) + 64};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        struct convoy_sized_array array = guard_array(state, strides[i]);
        uint64_t value = 42;
        memcpy((char *)(uintptr_t)array.base + 2 * strides[i] + 8, &value, sizeof value);
        assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, NULL), CONVOY_OK);
        struct convoy_sample full;
        memset(&full, 0x5a, sizeof full);
        convoy_sized_array_read(&full, &array, &SAMPLE_SHAPE, 2);
        assert_int_equal(full.first, 42);
        assert_int_equal(full.latest, 0);
    }
}

static void test_sized_array_that_does_not_fit_is_refused(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_sized_array array = guard_array(state, sizeof(struct convoy_sample) + 64);
    ((char *)(uintptr_t)array.base)[3 * array.stride - 1] = 1;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_TOO_NEW);
    assert_non_null(strstr(error.text, "element 2: the byte at offset 95 "));
    assert_int_equal(convoy_sized_array_check_out(&array, &SAMPLE_SHAPE, &error), CONVOY_OK);
    array.stride = FIRST_BYTES - 1;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_TOO_OLD);
    const size_t strides[] = {65537, 0x5a5a5a5au, SIZE_MAX};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "stride is %zu, allowed are 16 to 65536", strides[i]);
        array.stride = strides[i];
        array.count = 1;
        assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, expected));
        assert_int_equal(convoy_sized_array_check_out(&array, &SAMPLE_SHAPE, &error), CONVOY_INVALID_ARGUMENT);
    }
    array.stride = sizeof(struct convoy_sample);
    array.count = SIZE_MAX / array.stride + 1;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_INVALID_ARGUMENT);
    array.count = 1;
    array.base = NULL;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_INVALID_ARGUMENT);
    array.count = 0;
    array.stride = 0;
    assert_int_equal(convoy_sized_array_check_in(&array, &SAMPLE_SHAPE, &error), CONVOY_OK);
}

static void test_sized_array_writes_no_byte_past_an_element(void **state)
{
    struct convoy_sample full = {.first = 1, .later = 2, .latest = 3};
    struct convoy_sized_array array = guard_array(state, FIRST_BYTES);
    memset((char *)(uintptr_t)array.base, 0x5a, 3 * FIRST_BYTES);
    convoy_sized_array_write(&array, &SAMPLE_SHAPE, 2, &full);
    assert_memory_equal((const char *)array.base + 2 * FIRST_BYTES, &full, FIRST_BYTES);
    assert_int_equal(((const char *)array.base)[2 * FIRST_BYTES - 1], 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sized_in_of_null_is_refused_by_name),
        cmocka_unit_test(test_sized_in_below_the_first_release_is_too_old),
        cmocka_unit_test(test_sized_in_of_the_first_release_has_a_zero_tail),
        cmocka_unit_test(test_sized_in_of_the_current_size_is_copied_whole),
        cmocka_unit_test(test_sized_in_longer_with_a_zero_tail_is_accepted),
        cmocka_unit_test(test_sized_in_longer_with_a_set_tail_is_too_new_and_names_the_offset),
        cmocka_unit_test(test_sized_struct_size_of_garbage_is_refused_with_value_and_range),
        cmocka_unit_test(test_sized_struct_of_the_largest_size_is_accepted),
        cmocka_unit_test(test_sized_out_writes_what_fits_and_says_how_much),
        cmocka_unit_test(test_sized_out_below_the_first_release_is_too_old),
        cmocka_unit_test(test_sized_array_reads_elements_of_any_stride),
        cmocka_unit_test(test_sized_array_that_does_not_fit_is_refused),
        cmocka_unit_test(test_sized_array_writes_no_byte_past_an_element),
    };
    return cmocka_run_group_tests_name("sized", tests, guard_setup, guard_teardown);
}
