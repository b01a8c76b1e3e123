/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/derive.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct row {
    uint32_t reduction;
    uint32_t flags;
    int64_t values[3];
    size_t count;
    int64_t value;
    uint32_t agreed;
};

#define IGNORED CONVOY_COLUMN_HAS_IGNORED

/* Fallback is 9 and the ignored value 4 in all rows. */
static const struct row rows[] = {
    {CONVOY_REDUCE_NONE, 0, {5, 6, 7}, 3, 0, 1},
    {CONVOY_REDUCE_NONE, 0, {0}, 0, 0, 1},
    {CONVOY_REDUCE_MIN, 0, {5, -6, 7}, 3, -6, 1},
    {CONVOY_REDUCE_MIN, 0, {INT64_MAX, INT64_MIN, 0}, 3, INT64_MIN, 1},
    {CONVOY_REDUCE_MIN, 0, {0}, 0, 9, 0},
    {CONVOY_REDUCE_MAX, 0, {5, 60, 7}, 3, 60, 1},
    {CONVOY_REDUCE_MAX, 0, {-5, -60, -7}, 3, -5, 1},
    {CONVOY_REDUCE_SUM, 0, {5, 6, 7}, 3, 18, 1},
    {CONVOY_REDUCE_SUM, 0, {INT64_MAX, 1, 0}, 3, INT64_MAX, 1},
    {CONVOY_REDUCE_SUM, 0, {INT64_MIN, -1, 0}, 3, INT64_MIN, 1},
    {CONVOY_REDUCE_SUM, 0, {INT64_MAX, 1, -1}, 3, INT64_MAX, 1},
    {CONVOY_REDUCE_SUM, 0, {INT64_MAX, INT64_MAX, INT64_MIN}, 3, INT64_MAX - 1, 1},
    {CONVOY_REDUCE_SUM, 0, {0}, 0, 9, 0},
    {CONVOY_REDUCE_ALL_EQUAL, 0, {5, 5, 5}, 3, 5, 1},
    {CONVOY_REDUCE_ALL_EQUAL, 0, {5, 4, 5}, 3, 5, 0},
    {CONVOY_REDUCE_ALL_EQUAL, 0, {4, 4, 4}, 3, 4, 1},
    {CONVOY_REDUCE_ALL_EQUAL, IGNORED, {4, 2, 4}, 3, 2, 1},
    {CONVOY_REDUCE_ALL_EQUAL, IGNORED, {1, 4, 2}, 3, 1, 0},
    {CONVOY_REDUCE_ALL_EQUAL, IGNORED, {4, 4, 4}, 3, 4, 0}, /* all idle: idle, but not agreed */
    {CONVOY_REDUCE_ALL_EQUAL, IGNORED, {0}, 0, 4, 0},
    {CONVOY_REDUCE_ALL_EQUAL, 0, {0}, 0, 9, 0},
};

static void test_derive_every_reduction_gives_value_and_agreement(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_schema_column column = {
            .reduction = rows[i].reduction, .flags = rows[i].flags, .fallback = 9, .ignored = 4};
        struct convoy_derive derive;
        convoy_derive_begin(&derive, &column);
        convoy_derive_add(&derive, rows[i].values, 1, (uint32_t)rows[i].count);
        struct convoy_sync_reduced reduced = convoy_derive_end(&derive);
        if (reduced.value != rows[i].value || reduced.agreed != rows[i].agreed) {
            fail_msg("case %zu: {%lld, %u}", i, (long long)reduced.value, reduced.agreed);
        }
    }
}

/* Values of a table's column, in one piece or in two, give what they give alone. */
static void test_derive_values_in_pieces_and_strides_give_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_schema_column column = {
            .reduction = rows[i].reduction, .flags = rows[i].flags, .fallback = 9, .ignored = 4};
        int64_t table[6];
        struct convoy_derive derive;
        for (size_t j = 0; j < 3; j++) {
            table[2 * j] = rows[i].values[j];
            table[2 * j + 1] = -99;
        }
        convoy_derive_begin(&derive, &column);
        uint32_t half = (uint32_t)rows[i].count / 2;
        convoy_derive_add(&derive, table, 2, half);
        convoy_derive_add(&derive, table + 2 * half, 2, (uint32_t)rows[i].count - half);
        struct convoy_sync_reduced reduced = convoy_derive_end(&derive);
        assert_true(reduced.value == rows[i].value);
        assert_int_equal(reduced.agreed, rows[i].agreed);
        if (rows[i].count != 0) {
            reduced = convoy_derive_column(&column, table, 2, (uint32_t)rows[i].count);
            assert_true(reduced.value == rows[i].value);
            assert_int_equal(reduced.agreed, rows[i].agreed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derive_every_reduction_gives_value_and_agreement),
        cmocka_unit_test(test_derive_values_in_pieces_and_strides_give_the_same),
    };
    return cmocka_run_group_tests_name("derive", tests, NULL, NULL);
}
