/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stall.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* vllm-project/vllm issue 57883: a key that never moves is told about, once for each interval. */
static void test_stall_ten_thousand_still_rounds_give_one_notice_per_interval(void **state)
{
    (void)state;
    struct convoy_stall stall;
    convoy_stall_init(&stall, 1000);
    for (uint64_t round = 1; round <= 10000; round++) {
        assert_int_equal(convoy_stall_round(&stall, false), round % 1000 == 0);
    }
    assert_int_equal(stall.still, 10000);
}

static void test_stall_progress_starts_the_interval_again(void **state)
{
    (void)state;
    struct convoy_stall stall;
    convoy_stall_init(&stall, 3);
    assert_false(convoy_stall_round(&stall, false));
    assert_false(convoy_stall_round(&stall, false));
    assert_false(convoy_stall_round(&stall, true));
    assert_int_equal(stall.still, 0);
    assert_false(convoy_stall_round(&stall, false));
    assert_false(convoy_stall_round(&stall, false));
    assert_true(convoy_stall_round(&stall, false));
    assert_false(convoy_stall_round(&stall, true));
}

static void test_stall_interval_zero_never_tells(void **state)
{
    (void)state;
    struct convoy_stall stall;
    convoy_stall_init(&stall, 0);
    for (int i = 0; i < 10; i++) {
        assert_false(convoy_stall_round(&stall, false));
    }
}

static void test_stall_counter_stops_at_its_end(void **state)
{
    (void)state;
    struct convoy_stall stall;
    convoy_stall_init(&stall, 2);
    stall.still = UINT64_MAX - 1;
    (void)convoy_stall_round(&stall, false);
    assert_true(convoy_stall_round(&stall, false));
    assert_true(stall.still == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stall_ten_thousand_still_rounds_give_one_notice_per_interval),
        cmocka_unit_test(test_stall_progress_starts_the_interval_again),
        cmocka_unit_test(test_stall_interval_zero_never_tells),
        cmocka_unit_test(test_stall_counter_stops_at_its_end),
    };
    return cmocka_run_group_tests_name("stall", tests, NULL, NULL);
}
