/* SPDX-License-Identifier: Apache-2.0 */
#include "round/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

/* For every number of hosts and every set that takes part: peers are symmetric, and after all hops every host has heard
 * of every other. */
static void test_schedule_reaches_everybody_and_is_symmetric(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= 6; count++) {
        for (uint64_t set = 1; set < UINT64_C(1) << count; set++) {
            for (uint32_t a = 0; a < count; a++) {
                uint64_t heard = UINT64_C(1) << a;
                struct convoy_schedule mine = {.host_count = count, .own_host = a, .taking_part = set};
                for (uint32_t hop = 0; hop < convoy_schedule_hops(&mine); hop++) {
                    uint64_t peers = convoy_schedule_peers(&mine, hop);
                    heard |= peers;
                    for (uint32_t b = 0; b < count; b++) {
                        struct convoy_schedule theirs = {.host_count = count, .own_host = b, .taking_part = set};
                        bool both_take_part = (set >> a & 1) != 0 && (set >> b & 1) != 0;
                        if (both_take_part) {
                            assert_int_equal(peers >> b & 1, convoy_schedule_peers(&theirs, hop) >> a & 1);
                        }
                    }
                }
                assert_int_equal(heard | UINT64_C(1) << a, set | UINT64_C(1) << a);
            }
        }
    }
}

static void test_schedule_alone_has_no_hop(void **state)
{
    (void)state;
    struct convoy_schedule alone = {.host_count = 4, .own_host = 2, .taking_part = 4};
    assert_int_equal(convoy_schedule_hops(&alone), 0);
    assert_int_equal(convoy_schedule_peers(&alone, 0), 0);
}

static void test_schedule_hosts_that_do_not_exist_are_no_peers(void **state)
{
    (void)state;
    struct convoy_schedule schedule = {.host_count = 3, .own_host = 0, .taking_part = UINT64_MAX};
    assert_int_equal(convoy_schedule_peers(&schedule, 0), 6);
    assert_int_equal(convoy_schedule_peers(&schedule, 1), 0);
}

static void test_schedule_take_goes_through_a_set_upwards(void **state)
{
    (void)state;
    uint64_t set = 0x8012;
    assert_int_equal(convoy_schedule_take(&set), 1);
    assert_int_equal(convoy_schedule_take(&set), 4);
    assert_int_equal(convoy_schedule_take(&set), 15);
    assert_int_equal(set, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_reaches_everybody_and_is_symmetric),
        cmocka_unit_test(test_schedule_alone_has_no_hop),
        cmocka_unit_test(test_schedule_hosts_that_do_not_exist_are_no_peers),
        cmocka_unit_test(test_schedule_take_goes_through_a_set_upwards),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
