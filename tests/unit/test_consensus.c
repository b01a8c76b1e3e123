/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/consensus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_consensus_bad_wins_over_good_and_neither_is_none(void **state)
{
    (void)state;
    const uint64_t ids[] = {1, 2, 3, 4, 1};
    const uint64_t good[] = {2, 3, 9};
    const uint64_t bad[] = {3, 1};
    struct convoy_poll_consensus input = {.struct_size = sizeof input, .success_state = 2, .ids = ids, .id_count = 5,
                                          .good = good, .good_count = 3, .bad = bad, .bad_count = 2};
    uint8_t states[5];
    assert_int_equal(convoy_consensus_states(&input, states, NULL), CONVOY_OK);
    assert_memory_equal(states, ((const uint8_t[]){0, 2, 0, CONVOY_CONSENSUS_NONE, 0}), 5);
}

/* Lists much longer than one piece, with ids that collide in the small hash set. */
static void test_consensus_long_lists_equal_a_plain_search(void **state)
{
    (void)state;
    static uint64_t ids[3000];
    static uint64_t good[2500];
    static uint64_t bad[1100];
    static uint8_t states[3000];
    for (size_t i = 0; i < 3000; i++) {
        ids[i] = (uint64_t)i << 40;
    }
    for (size_t i = 0; i < 2500; i++) {
        good[i] = (uint64_t)(2999 - i) << 40;
    }
    for (size_t i = 0; i < 1100; i++) {
        bad[i] = (uint64_t)(i * 2) << 40;
    }
    struct convoy_poll_consensus input = {.struct_size = sizeof input, .success_state = 4, .ids = ids,
                                          .id_count = 3000, .good = good, .good_count = 2500, .bad = bad,
                                          .bad_count = 1100};
    assert_int_equal(convoy_consensus_states(&input, states, NULL), CONVOY_OK);
    for (size_t i = 0; i < 3000; i++) {
        uint8_t expected = i % 2 == 0 && i < 2200 ? 0 : i >= 500 ? 4 : 255;
        assert_int_equal(states[i], expected);
    }
}

static void test_consensus_wrong_arguments_are_refused_and_nothing_is_written(void **state)
{
    (void)state;
    const uint64_t ids[] = {1};
    uint8_t states[] = {0xa5};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_poll_consensus input = {.struct_size = sizeof input, .success_state = 5, .ids = ids, .id_count = 1};
    assert_int_equal(convoy_consensus_states(&input, states, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "success_state is 5"));
    input.success_state = 4;
    input.bad_count = 3;
    assert_int_equal(convoy_consensus_states(&input, states, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "consensus.bad is NULL"));
    assert_int_equal(states[0], 0xa5);
    input.bad_count = 0;
    assert_int_equal(convoy_consensus_states(&input, NULL, &error), CONVOY_INVALID_ARGUMENT);
}

static void test_consensus_no_ids_is_success(void **state)
{
    (void)state;
    const uint64_t good[] = {1};
    struct convoy_poll_consensus input = {.struct_size = sizeof input, .success_state = 4, .good = good,
                                          .good_count = 1};
    assert_int_equal(convoy_consensus_states(&input, NULL, NULL), CONVOY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consensus_bad_wins_over_good_and_neither_is_none),
        cmocka_unit_test(test_consensus_long_lists_equal_a_plain_search),
        cmocka_unit_test(test_consensus_wrong_arguments_are_refused_and_nothing_is_written),
        cmocka_unit_test(test_consensus_no_ids_is_success),
    };
    return cmocka_run_group_tests_name("consensus", tests, NULL, NULL);
}
