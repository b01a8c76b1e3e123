/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"
#include "convoy/poll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct convoy_plan_times times_of(uint64_t seed, uint32_t request, uint32_t position)
{
    struct convoy_plan_request plan = {
        .seed = seed, .request = request, .input_tokens = 5000, .position = position, .shard_size = 4};
    return convoy_plan_times_of(&plan);
}

static void test_plan_same_input_gives_same_times(void **state)
{
    (void)state;
    struct convoy_plan_times first = times_of(9, 3, 1);
    struct convoy_plan_times again = times_of(9, 3, 1);
    assert_memory_equal(&first, &again, sizeof first);
}

static void test_plan_ranks_and_seeds_differ(void **state)
{
    (void)state;
    uint32_t by_rank = 0;
    uint32_t by_seed = 0;
    for (uint32_t request = 0; request < 100; request++) {
        struct convoy_plan_times one = times_of(1, request, 0);
        by_rank += one.success != times_of(1, request, 1).success;
        by_seed += one.success != times_of(2, request, 0).success;
    }
    assert_in_range(by_rank, 50, 100);
    assert_in_range(by_seed, 50, 100);
}

static void test_plan_times_ascend_and_states_follow_them(void **state)
{
    (void)state;
    for (uint32_t request = 0; request < 1000; request++) {
        struct convoy_plan_times times = times_of(1, request, request % 4);
        assert_true(times.waiting <= times.transferring && times.transferring < times.success);
        times.failed = CONVOY_PLAN_NEVER;
        assert_int_equal(convoy_plan_state(&times, times.success), CONVOY_STATE_SUCCESS);
        assert_int_equal(convoy_plan_state(&times, times.success - 1), CONVOY_STATE_TRANSFERRING);
        for (uint32_t age = 1; age <= times.success; age++) {
            assert_true(convoy_plan_state(&times, age) >= convoy_plan_state(&times, age - 1));
        }
    }
}

static void test_plan_some_requests_fail_on_exactly_one_rank(void **state)
{
    (void)state;
    uint32_t failing = 0;
    for (uint32_t request = 0; request < 10000; request++) {
        uint32_t ranks = 0;
        for (uint32_t position = 0; position < 4; position++) {
            struct convoy_plan_times times = times_of(1, request, position);
            if (times.failed != CONVOY_PLAN_NEVER) {
                ranks++;
                assert_int_equal(convoy_plan_state(&times, times.failed), CONVOY_STATE_FAILED);
                assert_int_equal(convoy_plan_state(&times, times.failed + 1000), CONVOY_STATE_FAILED);
            }
        }
        assert_true(ranks <= 1);
        failing += ranks;
    }
    assert_in_range(failing, 200, 400); /* 3 % */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_same_input_gives_same_times),
        cmocka_unit_test(test_plan_ranks_and_seeds_differ),
        cmocka_unit_test(test_plan_times_ascend_and_states_follow_them),
        cmocka_unit_test(test_plan_some_requests_fail_on_exactly_one_rank),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
