/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ticks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_clock_deadlines_saturate(void **state)
{
    (void)state;
    assert_int_equal(convoy_deadline_after(10, 5), 15);
    assert_true(convoy_deadline_after(10, UINT64_MAX) == CONVOY_DEADLINE_NEVER);
    assert_true(convoy_deadline_after(UINT64_MAX - 1, 2) == CONVOY_DEADLINE_NEVER);
    assert_int_equal(convoy_deadline_left(10, 15), 5);
    assert_int_equal(convoy_deadline_left(15, 15), 0);
    assert_int_equal(convoy_deadline_left(16, 15), 0);
}

static void test_clock_poll_milliseconds_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(convoy_deadline_poll_ms(0, 0), 0);
    assert_int_equal(convoy_deadline_poll_ms(0, 1), 1);
    assert_int_equal(convoy_deadline_poll_ms(0, CONVOY_NS_PER_MS), 1);
    assert_int_equal(convoy_deadline_poll_ms(0, CONVOY_NS_PER_MS + 1), 2);
    assert_int_equal(convoy_deadline_poll_ms(5, 4), 0);
    assert_int_equal(convoy_deadline_poll_ms(0, CONVOY_DEADLINE_NEVER), INT32_MAX);
}

/* By the rule of three between two moments that both clocks know; whatever does not lie between them is one of them. */
static void test_clock_ticks_lie_between_their_moments(void **state)
{
    (void)state;
    const struct convoy_ticks base = {.ticks = 3000, .ns = 1000000};
    const struct convoy_ticks now = {.ticks = 9000, .ns = 1002000};
    assert_int_equal(convoy_ticks_ns(&base, &now, 3000), 1000000);
    assert_int_equal(convoy_ticks_ns(&base, &now, 6000), 1001000);
    assert_int_equal(convoy_ticks_ns(&base, &now, 8997), 1001999);
    assert_int_equal(convoy_ticks_ns(&base, &now, 9000), 1002000);
    assert_int_equal(convoy_ticks_ns(&base, &now, 2999), 1000000);
    assert_int_equal(convoy_ticks_ns(&base, &now, 0), 1000000);
    assert_int_equal(convoy_ticks_ns(&base, &now, UINT64_MAX), 1002000);
    assert_int_equal(convoy_ticks_ns(&now, &base, 5000), 1002000); /* a counter that was set back */
}

/* The machine's own: a year in between, as far as 64 bits go, is not lost in the arithmetic. */
static void test_clock_ticks_hold_a_year(void **state)
{
    (void)state;
    const uint64_t year = 365ull * 24 * 3600;
    const struct convoy_ticks base = {.ticks = 1, .ns = 1};
    const struct convoy_ticks now = {.ticks = 1 + year * 5000000000ull, .ns = 1 + year * CONVOY_NS_PER_S};
    uint64_t half = convoy_ticks_ns(&base, &now, 1 + year * 2500000000ull);
    assert_in_range(half, year * CONVOY_NS_PER_S / 2 - CONVOY_NS_PER_MS, year * CONVOY_NS_PER_S / 2 + CONVOY_NS_PER_MS);
}

static void test_clock_ticks_of_this_machine_go_on(void **state)
{
    (void)state;
    struct convoy_ticks base = convoy_ticks_both();
    uint64_t between = convoy_ticks_now();
    uint64_t after_ns = convoy_now_ns();
    struct convoy_ticks now = convoy_ticks_both();
    while (now.ticks == base.ticks) {
        now = convoy_ticks_both();
    }
    assert_in_range(convoy_ticks_ns(&base, &now, between), base.ns, now.ns);
    assert_true(after_ns >= base.ns && after_ns <= now.ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_deadlines_saturate),
        cmocka_unit_test(test_clock_poll_milliseconds_are_rounded_up),
        cmocka_unit_test(test_clock_ticks_lie_between_their_moments),
        cmocka_unit_test(test_clock_ticks_hold_a_year),
        cmocka_unit_test(test_clock_ticks_of_this_machine_go_on),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
