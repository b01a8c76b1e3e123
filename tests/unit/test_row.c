/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_row_form plain = {.width = 8, .member_count = 10};
static const struct convoy_row_form world = {.width = 8, .member_count = 10, .has_slot = true};
static const int64_t narrow_values[8] = {0, 1, -1, INT32_MAX, INT32_MIN, 4, 77, 8192};
static const int64_t wide_values[8] = {0, 1, -1, (int64_t)INT32_MAX + 1, INT64_MIN, INT64_MAX, 77, 8192};

static struct convoy_mask full_mask(uint64_t version)
{
    struct convoy_mask mask;
    convoy_mask_set(&mask, 0, version, NULL, 0, 10);
    return mask;
}

static struct convoy_mask holed_mask(uint64_t version)
{
    const uint8_t active[10] = {1, 1, 1, 0, 1, 1, 1, 1, 1, 0};
    struct convoy_mask mask;
    convoy_mask_set(&mask, 0, version, active, 10, 10);
    return mask;
}

/* Eight columns fit the 32 bytes that a cell's first line has room for. */
static void test_row_of_eight_small_values_is_32_bytes(void **state)
{
    (void)state;
    uint8_t bytes[CONVOY_ROW_BYTES_MAX];
    struct convoy_mask mask = full_mask(0);
    assert_int_equal(convoy_row_encode(&plain, narrow_values, 0, &mask, bytes), 32);
    assert_int_equal(convoy_row_encode(&plain, wide_values, 0, &mask, bytes), 64);
}

/* Of every length, from any alignment, with one value that does not fit at every place or nowhere. */
static void test_row_put_shortest_equals_encode_and_is_read_back(void **state)
{
    (void)state;
    for (uint32_t width = 1; width <= 11; width++) {
        for (uint32_t wide = 0; wide <= width; wide++) {
            struct convoy_row_form form = {.width = width, .member_count = 10};
            struct convoy_mask mask = full_mask(0);
            uint8_t expected[CONVOY_ROW_BYTES_MAX];
            uint8_t bytes[CONVOY_ROW_BYTES_MAX];
            uint8_t unaligned[1 + 8 * 12];
            int64_t values[12];
            for (uint32_t i = 0; i < width; i++) {
                values[i] = i == wide ? (i % 2 == 0 ? (int64_t)INT32_MIN - 1 : (int64_t)INT32_MAX + 1)
                                      : (i % 2 == 0 ? INT32_MIN : INT32_MAX);
            }
            memcpy(unaligned + 1, values, 8 * (size_t)width);
            size_t length = convoy_row_encode(&form, values, 0, &mask, expected);
            assert_int_equal(convoy_row_put_shortest(unaligned + 1, width, bytes), length);
            assert_memory_equal(bytes, expected, length);
            uint8_t read[8 * 12];
            uint8_t copy[1 + 8 * 12];
            convoy_row_take_both(read, copy + 1, width, length == 4 * (size_t)width, bytes);
            assert_memory_equal(read, values, 8 * (size_t)width);
            assert_memory_equal(copy + 1, values, 8 * (size_t)width);
        }
    }
}

static void check_round_trip(const struct convoy_row_form *form, const int64_t *values, const struct convoy_mask *mask)
{
    uint8_t bytes[CONVOY_ROW_BYTES_MAX];
    int64_t read[8];
    struct convoy_row_out row = {.values = read};
    size_t length = convoy_row_encode(form, values, 5, mask, bytes);
    assert_in_range(length, 1, convoy_row_bytes_max(form));
    uint8_t *exact = malloc(length);
    memcpy(exact, bytes, length);
    assert_int_equal(convoy_row_decode(form, exact, length, &row), CONVOY_OK);
    assert_memory_equal(read, values, sizeof read);
    assert_int_equal(row.slot, form->has_slot ? 5 : 0);
    assert_int_equal(row.mask.version, mask->version);
    for (uint32_t i = 0; i < form->member_count; i++) {
        assert_int_equal(convoy_mask_is_active(&row.mask, i), convoy_mask_is_active(mask, i));
    }
    free(exact);
}

static void test_row_of_every_kind_reads_back(void **state)
{
    (void)state;
    struct convoy_mask masks[4] = {full_mask(0), full_mask(7), holed_mask(0), holed_mask(UINT64_MAX)};
    for (size_t i = 0; i < 4; i++) {
        check_round_trip(&plain, narrow_values, &masks[i]);
        check_round_trip(&plain, wide_values, &masks[i]);
        check_round_trip(&world, narrow_values, &masks[i]);
        check_round_trip(&world, wide_values, &masks[i]);
    }
}

/* Any prefix, any longer length, and every value of the last byte: refused, or read as a row of that kind. */
static void test_row_that_does_not_fit_is_malformed(void **state)
{
    (void)state;
    uint8_t bytes[CONVOY_ROW_BYTES_MAX + 8] = {0};
    int64_t read[8];
    struct convoy_row_out row = {.values = read};
    struct convoy_mask mask = holed_mask(7);
    size_t length = convoy_row_encode(&world, narrow_values, 5, &mask, bytes);
    for (size_t other = 0; other < sizeof bytes; other++) {
        if (other != length) {
            assert_int_equal(convoy_row_decode(&world, bytes, other, &row), CONVOY_MALFORMED);
        }
    }
    uint8_t right = bytes[length - 1];
    for (unsigned flags = 0; flags < 256; flags++) {
        bytes[length - 1] = (uint8_t)flags;
        int32_t wanted = flags == right ? CONVOY_OK : CONVOY_MALFORMED;
        assert_int_equal(convoy_row_decode(&world, bytes, length, &row), wanted);
    }
}

static void test_row_slot_belongs_to_world_gathers_only(void **state)
{
    (void)state;
    uint8_t bytes[CONVOY_ROW_BYTES_MAX];
    int64_t read[8];
    struct convoy_row_out row = {.values = read};
    struct convoy_mask mask = full_mask(0);
    size_t length = convoy_row_encode(&world, narrow_values, 5, &mask, bytes);
    assert_int_equal(convoy_row_decode(&plain, bytes, length, &row), CONVOY_MALFORMED);
    length = convoy_row_encode(&plain, narrow_values, 5, &mask, bytes);
    assert_int_equal(convoy_row_decode(&world, bytes, length, &row), CONVOY_MALFORMED);
}

static void test_row_mask_bit_behind_the_last_member_is_malformed(void **state)
{
    (void)state;
    uint8_t bytes[CONVOY_ROW_BYTES_MAX];
    int64_t read[8];
    struct convoy_row_out row = {.values = read};
    struct convoy_mask mask = holed_mask(7);
    size_t length = convoy_row_encode(&plain, narrow_values, 0, &mask, bytes);
    bytes[32 + 8 + 1] |= 0x04; /* member 10 of 10 */
    assert_int_equal(convoy_row_decode(&plain, bytes, length, &row), CONVOY_MALFORMED);
}

/* pytorch/gloo issue 179: a row of zero bytes is a row. */
static void test_row_without_columns_is_empty(void **state)
{
    (void)state;
    struct convoy_row_form form = {.width = 0, .member_count = 2};
    uint8_t bytes[CONVOY_ROW_BYTES_MAX];
    struct convoy_mask mask = full_mask(0);
    struct convoy_row_out row = {.values = NULL};
    assert_int_equal(convoy_row_encode(&form, NULL, 0, &mask, bytes), 0);
    assert_int_equal(convoy_row_decode(&form, NULL, 0, &row), CONVOY_OK);
    mask.version = 3;
    size_t length = convoy_row_encode(&form, NULL, 0, &mask, bytes);
    assert_int_equal(convoy_row_decode(&form, bytes, length, &row), CONVOY_OK);
    assert_int_equal(row.mask.version, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_of_eight_small_values_is_32_bytes),
        cmocka_unit_test(test_row_put_shortest_equals_encode_and_is_read_back),
        cmocka_unit_test(test_row_of_every_kind_reads_back),
        cmocka_unit_test(test_row_that_does_not_fit_is_malformed),
        cmocka_unit_test(test_row_slot_belongs_to_world_gathers_only),
        cmocka_unit_test(test_row_mask_bit_behind_the_last_member_is_malformed),
        cmocka_unit_test(test_row_without_columns_is_empty),
    };
    return cmocka_run_group_tests_name("row", tests, NULL, NULL);
}
