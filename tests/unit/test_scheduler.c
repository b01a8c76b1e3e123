/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scheduler.h"
#include "convoy/poll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS 600u

static struct convoy_trace_request requests[REQUESTS];
static const struct convoy_trace trace = {.requests = requests, .count = REQUESTS, .capacity = REQUESTS};
static struct convoy_scheduler scheduler;
static struct convoy_scheduler_outcome outcome;
static uint64_t ids[CONVOY_SCHEDULER_QUEUE_MAX];
static uint8_t states[CONVOY_SCHEDULER_QUEUE_MAX];
static int64_t row[CONVOY_SCHEDULER_COLUMNS];

/* All requests arrive in step 0, so that the queue's bound is met. */
static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        requests[i] = (struct convoy_trace_request){.timestamp_ms = 0, .input_tokens = 100, .output_tokens = 2};
    }
    const struct convoy_shape shape = {.dp = 2, .tp = 2, .cp = 1};
    return convoy_scheduler_init(&scheduler, &trace, &shape, 3, 1);
}

static int teardown(void **state)
{
    (void)state;
    convoy_scheduler_fini(&scheduler);
    return 0;
}

static void apply_all(uint64_t step, uint8_t state)
{
    memset(states, state, sizeof states);
    convoy_scheduler_apply(&scheduler, step, states, &outcome);
}

static void test_scheduler_admits_its_own_requests_up_to_the_bound(void **state)
{
    (void)state;
    convoy_scheduler_begin(&scheduler, 0);
    assert_int_equal(scheduler.queue_count, CONVOY_SCHEDULER_QUEUE_MAX);
    convoy_scheduler_states(&scheduler, 0, ids, states);
    for (uint32_t i = 0; i < scheduler.queue_count; i++) {
        assert_int_equal(ids[i], 2 * i + 1); /* dealt in turn to two data-parallel ranks; rank 3 is in the second */
    }
}

static void test_scheduler_idle_row_is_the_fallback(void **state)
{
    (void)state;
    static const int64_t idle[CONVOY_SCHEDULER_COLUMNS] = {0, 0, 1, 0, 1, 4, 0, 0};
    convoy_scheduler_begin(&scheduler, 0);
    convoy_scheduler_row(&scheduler, 0, row);
    assert_memory_equal(row, idle, sizeof idle);
    assert_false(convoy_scheduler_is_empty(&scheduler, 0));
}

static void test_scheduler_committed_requests_extend_once_then_decode(void **state)
{
    (void)state;
    convoy_scheduler_begin(&scheduler, 0);
    scheduler.queue_count = 3;
    apply_all(0, CONVOY_STATE_SUCCESS);
    assert_int_equal(outcome.committed_count, 3);
    convoy_scheduler_row(&scheduler, 1, row);
    assert_int_equal(row[0], 300);
    assert_int_equal(row[3], 1);
    assert_int_equal(row[5], 1);
    assert_int_equal(row[7], 100);
    apply_all(1, CONVOY_STATE_TRANSFERRING);
    convoy_scheduler_row(&scheduler, 2, row);
    assert_int_equal(row[0], 3);
    assert_int_equal(row[5], 2);
    scheduler.next = REQUESTS;
    convoy_scheduler_begin(&scheduler, 3);
    assert_int_equal(scheduler.running_count, 3); /* step 1 extends, 2 and 3 decode two tokens */
    convoy_scheduler_begin(&scheduler, 4);
    assert_true(convoy_scheduler_is_empty(&scheduler, 4));
}

static void test_scheduler_failed_requests_are_dropped_and_others_keep_their_order(void **state)
{
    (void)state;
    convoy_scheduler_begin(&scheduler, 0);
    scheduler.queue_count = 4;
    const uint8_t agreed[] = {CONVOY_STATE_TRANSFERRING, CONVOY_STATE_FAILED, CONVOY_STATE_SUCCESS,
                              CONVOY_STATE_BOOTSTRAPPING};
    convoy_scheduler_apply(&scheduler, 0, agreed, &outcome);
    assert_int_equal(outcome.dropped_count, 1);
    assert_int_equal(outcome.dropped[0], 3);
    assert_int_equal(outcome.committed_count, 1);
    assert_int_equal(outcome.committed[0], 5);
    assert_int_equal(scheduler.queue_count, 2);
    assert_int_equal(scheduler.queue[0].request, 1);
    assert_int_equal(scheduler.queue[1].request, 7);
}

static void test_scheduler_runs_all_requests_to_the_end(void **state)
{
    (void)state;
    uint32_t decided = 0;
    uint64_t step = 0;
    for (; step < 10000; step++) {
        convoy_scheduler_begin(&scheduler, step);
        if (convoy_scheduler_is_empty(&scheduler, step)) {
            break;
        }
        convoy_scheduler_states(&scheduler, step, ids, states);
        convoy_scheduler_apply(&scheduler, step, states, &outcome);
        decided += outcome.committed_count + outcome.dropped_count;
    }
    assert_int_equal(decided, REQUESTS / 2);
    assert_true(step < 200);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_scheduler_admits_its_own_requests_up_to_the_bound),
        CASE(test_scheduler_idle_row_is_the_fallback),
        CASE(test_scheduler_committed_requests_extend_once_then_decode),
        CASE(test_scheduler_failed_requests_are_dropped_and_others_keep_their_order),
        CASE(test_scheduler_runs_all_requests_to_the_end),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
