/* SPDX-License-Identifier: Apache-2.0 */
/* Registered ranges: the same again, overlaps, neighbours, a full table, what an address range touches. */
#include "device/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB 0x100000u

/* Report T18: [0,1M) twice is one range; [0.5M,1.5M) is refused; its neighbour [1M,2M) is not. */
static void test_device_ranges_same_again_overlap_and_neighbour(void **state)
{
    (void)state;
    struct convoy_ranges ranges = {0};
    uint32_t row = 99;
    assert_int_equal(convoy_ranges_add(&ranges, MIB, MIB, &row), CONVOY_RANGES_NEW);
    assert_int_equal(row, 0);
    assert_int_equal(convoy_ranges_add(&ranges, MIB, MIB, &row), CONVOY_RANGES_AGAIN);
    assert_int_equal(ranges.rows[row].count, 2);
    assert_int_equal(convoy_ranges_add(&ranges, MIB + MIB / 2, MIB, &row), CONVOY_RANGES_OVERLAP);
    assert_int_equal(convoy_ranges_add(&ranges, MIB / 2, MIB, &row), CONVOY_RANGES_OVERLAP);
    assert_int_equal(convoy_ranges_add(&ranges, MIB, MIB - 1, &row), CONVOY_RANGES_OVERLAP);
    assert_int_equal(convoy_ranges_add(&ranges, MIB + 1, 1, &row), CONVOY_RANGES_OVERLAP);
    assert_int_equal(convoy_ranges_add(&ranges, 2 * MIB, MIB, &row), CONVOY_RANGES_NEW);
    assert_int_equal(convoy_ranges_add(&ranges, 0, MIB, &row), CONVOY_RANGES_NEW);
    assert_int_equal(ranges.rows[0].count, 2);
}

static void test_device_ranges_at_the_end_of_the_address_space(void **state)
{
    (void)state;
    struct convoy_ranges ranges = {0};
    uint32_t row;
    bool is_held;
    assert_int_equal(convoy_ranges_add(&ranges, UINTPTR_MAX - 15, 15, &row), CONVOY_RANGES_NEW);
    assert_int_equal(convoy_ranges_add(&ranges, 1, UINTPTR_MAX - 16, &row), CONVOY_RANGES_NEW);
    assert_int_equal(convoy_ranges_add(&ranges, 2, UINTPTR_MAX - 16, &row), CONVOY_RANGES_OVERLAP);
    assert_int_equal(convoy_ranges_touched(&ranges, UINTPTR_MAX - 1, 1, &is_held), 1);
    assert_true(is_held);
}

static void test_device_ranges_full_table_is_refused(void **state)
{
    (void)state;
    struct convoy_ranges ranges = {0};
    uint32_t row;
    for (uint32_t i = 0; i < CONVOY_RANGES_MAX; i++) {
        assert_int_equal(convoy_ranges_add(&ranges, (i + 1) * MIB, MIB, &row), CONVOY_RANGES_NEW);
        assert_int_equal(row, i);
    }
    assert_int_equal(convoy_ranges_add(&ranges, 100 * MIB, MIB, &row), CONVOY_RANGES_FULL);
    assert_int_equal(convoy_ranges_add(&ranges, 3 * MIB, MIB, &row), CONVOY_RANGES_AGAIN);
    ranges.rows[7].bytes = 0;
    assert_int_equal(convoy_ranges_add(&ranges, 100 * MIB, MIB, &row), CONVOY_RANGES_NEW);
    assert_int_equal(row, 7);
}

static void test_device_ranges_touched_and_held(void **state)
{
    (void)state;
    struct convoy_ranges ranges = {0};
    uint32_t row;
    bool is_held = true;
    (void)convoy_ranges_add(&ranges, MIB, MIB, &row);
    (void)convoy_ranges_add(&ranges, 2 * MIB, MIB, &row);
    assert_int_equal(convoy_ranges_touched(&ranges, MIB - 1, 1, &is_held), 0);
    assert_false(is_held);
    assert_int_equal(convoy_ranges_touched(&ranges, MIB, MIB, &is_held), 1);
    assert_true(is_held);
    assert_int_equal(convoy_ranges_touched(&ranges, 2 * MIB - 1, 2, &is_held), 3); /* lies in two, in none alone */
    assert_false(is_held);
    assert_int_equal(convoy_ranges_touched(&ranges, 3 * MIB - 1, 2, &is_held), 2);
    assert_false(is_held);
    assert_int_equal(convoy_ranges_exact(&ranges, 2 * MIB, MIB), 1);
    assert_int_equal(convoy_ranges_exact(&ranges, 2 * MIB, MIB - 1), CONVOY_RANGES_MAX);
    assert_int_equal(convoy_ranges_exact(&ranges, 0, 0), CONVOY_RANGES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_ranges_same_again_overlap_and_neighbour),
        cmocka_unit_test(test_device_ranges_at_the_end_of_the_address_space),
        cmocka_unit_test(test_device_ranges_full_table_is_refused),
        cmocka_unit_test(test_device_ranges_touched_and_held),
    };
    return cmocka_run_group_tests_name("device_ranges", tests, NULL, NULL);
}
