/* SPDX-License-Identifier: Apache-2.0 */
/* openucx/ucx issue 10039, open-mpi/ompi issue 8927: several threads that progress one worker end in an internal check.
 * Here calls of one group are serialized by BUSY, looks are allowed at any time, and close may come from anywhere; over
 * shared memory and over UCX. CONVOY_SCALE multiplies the calls. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define THREADS 8
#define STEPS 600
#define STEPS_FULL 30000
#define CLOSES 10
#define CLOSES_FULL 500
#define OVER_UCX "{\"net\":\"ucx\"}"
#define GROUPS 24

struct worker {
    struct pair *pair;
    struct calls calls;
    pthread_t thread;
    uint32_t seed;
    uint32_t steps;
    const char *wrong; /* call with a status that is not documented for it */
    int32_t status;
};

static bool is_documented(int32_t status)
{
    static const int32_t statuses[] = {CONVOY_OK,       CONVOY_IN_PROGRESS, CONVOY_BUSY,      CONVOY_CLOSED,
                                       CONVOY_TIMED_OUT, CONVOY_CANCELED,    CONVOY_BROKEN,    CONVOY_DIVERGED,
                                       CONVOY_PEER_LOST, CONVOY_LIMIT,       CONVOY_PEER_ERROR, CONVOY_UNREACHABLE};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (status == statuses[i]) {
            return true;
        }
    }
    return false;
}

/* A test, wait or abandon of the operation that is open now, whoever started it. */
static void take_operation(struct calls *calls, const struct call *call)
{
    if (call->kind == CALL_TEST || call->kind == CALL_WAIT || call->kind == CALL_ABANDON) {
        (void)calls->plugin.core->group_info(calls->group, &calls->info, NULL);
        calls->operation = calls->info.operation;
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct calls *calls = &worker->calls;
    for (uint32_t step = 0; step < worker->steps; step++) {
        worker->seed = worker->seed * 1664525u + 1013904223u;
        const struct call *call = &calls_list[(worker->seed >> 8) % calls_count];
        if (call->kind == CALL_CLOSE) {
            continue;
        }
        take_operation(calls, call);
        int32_t status = call->run(calls);
        /* an operation of another family may also be named as such */
        bool is_other = status == CONVOY_INVALID_ARGUMENT && (call->kind == CALL_TEST || call->kind == CALL_WAIT);
        if (!is_documented(status) && !is_other) {
            worker->wrong = call->name;
            worker->status = status;
        }
    }
    return NULL;
}

static void start_workers(struct worker *workers, struct pair *pair, uint32_t steps)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        struct plugin_member *member = i % 4 == 3 ? pair->peer : pair->own; /* the peer takes part, too */
        convoy_group *alone = i % 4 == 3 ? pair->peer_alone : pair->own_alone;
        workers[i] = (struct worker){.pair = pair, .seed = i * 77777u + 1, .steps = steps};
        calls_init(&workers[i].calls, &member->plugin, member->group, alone);
        workers[i].calls.timeout_ns = 50000;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
}

static void join_workers(struct worker *workers)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (workers[i].wrong != NULL) {
            fail_msg("thread %u: %s gave %d", i, workers[i].wrong, workers[i].status);
        }
    }
}

static void call_everything(const char *settings)
{
    static struct worker workers[THREADS];
    struct pair *pair = pair_create_with(settings);
    pair_open(pair);
    start_workers(workers, pair, test_scaled(STEPS, STEPS_FULL));
    join_workers(workers);
    pair_destroy(pair);
}

static void close_while_calling(const char *settings)
{
    static struct worker workers[THREADS];
    for (uint32_t i = 0; i < test_scaled(CLOSES, CLOSES_FULL); i++) {
        struct pair *pair = pair_create_with(settings);
        struct convoy_error *error = &pair->own->error;
        pair_open(pair);
        start_workers(workers, pair, STEPS);
        EXPECT_OK(pair->own->plugin.core->group_close(pair->own->group, LONG_NS, error), error);
        join_workers(workers);
        pair_destroy(pair);
    }
}

static void test_threads_eight_call_everything_on_one_handle(void **state)
{
    (void)state;
    call_everything(NULL);
}

static void test_threads_eight_call_everything_over_ucx(void **state)
{
    (void)state;
    call_everything(OVER_UCX);
}

static void test_threads_close_while_eight_are_calling(void **state)
{
    (void)state;
    close_while_calling(NULL);
}

static void test_threads_close_while_eight_are_calling_over_ucx(void **state)
{
    (void)state;
    close_while_calling(OVER_UCX);
}

/* -- many groups -- */

struct crowd {
    struct plugin_member *members[GROUPS][2]; /* names and lists; contexts and groups are elsewhere */
    convoy_group *groups[GROUPS][2];
    convoy_context *contexts[2];
};

static struct crowd *crowd_create(void)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    EXPECT(crowd != NULL);
    uint16_t port = plugin_port();
    for (uint32_t i = 0; i < GROUPS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "crowd%u", i);
        for (uint32_t side = 0; side < 2; side++) {
            crowd->members[i][side] = plugin_member_create(side, 2, name, port);
        }
    }
    for (uint32_t side = 0; side < 2; side++) {
        struct plugin_member *first = crowd->members[0][side];
        EXPECT_OK(first->plugin.core->context_open(&first->config, &crowd->contexts[side], &first->error),
                  &first->error);
    }
    return crowd;
}

/* Closes the contexts with all groups open in them. */
static void crowd_destroy(struct crowd *crowd)
{
    for (uint32_t side = 0; side < 2; side++) {
        struct plugin_member *first = crowd->members[0][side];
        EXPECT_OK(first->plugin.core->context_close(crowd->contexts[side], LONG_NS, &first->error), &first->error);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        free(crowd->members[i][0]);
        free(crowd->members[i][1]);
    }
    free(crowd);
}

static void crowd_start(struct crowd *crowd, uint32_t index, uint32_t side)
{
    struct plugin_member *member = crowd->members[index][side];
    EXPECT_OK(member->plugin.core->group_open_start(crowd->contexts[side], &member->options,
                                                    &crowd->groups[index][side], &member->error),
              &member->error);
}

static void crowd_wait(struct crowd *crowd, uint32_t index, uint32_t side)
{
    struct plugin_member *member = crowd->members[index][side];
    EXPECT_OK(member->plugin.core->group_open_wait(crowd->groups[index][side], LONG_NS, &member->error),
              &member->error);
}

/* Every group has rounds of its own. */
static void crowd_rounds(struct crowd *crowd)
{
    struct calls *calls = calloc(2, sizeof *calls);
    EXPECT(calls != NULL);
    for (uint32_t i = 0; i < GROUPS; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            calls_init(&calls[side], &crowd->members[i][side]->plugin, crowd->groups[i][side], NULL);
            calls[side].state = (uint8_t)(side == 0 ? CONVOY_STATE_SUCCESS : i % 4);
            calls_start(&calls[side], CALL_POLL);
        }
        EXPECT_OK(calls[0].plugin.poll->reduce_wait(calls[0].group, calls[0].operation, LONG_NS, &calls[0].poll_result,
                                                    &calls[0].error),
                  &calls[0].error);
        EXPECT_EQUAL(calls[0].state_out, i % 4);
    }
    free(calls);
}

/* Many groups at one rendezvous, started in opposite orders; the contexts are closed with all of them open. */
static void test_threads_many_groups_open_in_any_order_and_close_with_their_context(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_create();
    for (uint32_t i = 0; i < GROUPS; i++) {
        crowd_start(crowd, i, 0);
        crowd_start(crowd, GROUPS - 1 - i, 1);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        crowd_wait(crowd, GROUPS - 1 - i, 0);
        crowd_wait(crowd, i, 1);
    }
    crowd_rounds(crowd);
    crowd_destroy(crowd);
}

struct opener {
    struct crowd *crowd;
    uint32_t side;
    pthread_t thread;
};

static void *opener_main(void *argument)
{
    struct opener *opener = argument;
    for (uint32_t i = 0; i < GROUPS; i++) {
        crowd_start(opener->crowd, opener->side == 0 ? i : (i * 7) % GROUPS, opener->side);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        crowd_wait(opener->crowd, i, opener->side);
    }
    return NULL;
}

static void test_threads_two_open_the_same_groups_in_different_orders(void **state)
{
    (void)state;
    struct opener openers[2];
    struct crowd *crowd = crowd_create();
    for (uint32_t side = 0; side < 2; side++) {
        openers[side] = (struct opener){.crowd = crowd, .side = side};
        assert_int_equal(pthread_create(&openers[side].thread, NULL, opener_main, &openers[side]), 0);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pthread_join(openers[side].thread, NULL), 0);
    }
    crowd_rounds(crowd);
    crowd_destroy(crowd);
}

/* Groups that nobody will ever join: closing them, or their context, ends the open at once. */
static void test_threads_opening_groups_can_be_closed_at_any_time(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_create();
    for (uint32_t i = 0; i < GROUPS; i++) {
        crowd_start(crowd, i, i % 2);
    }
    for (uint32_t i = 0; i < GROUPS / 2; i++) {
        struct plugin_member *member = crowd->members[i][i % 2];
        EXPECT_OK(member->plugin.core->group_close(crowd->groups[i][i % 2], LONG_NS, &member->error), &member->error);
        EXPECT_EQUAL(member->plugin.core->group_open_wait(crowd->groups[i][i % 2], LONG_NS, NULL), CONVOY_CLOSED);
    }
    crowd_destroy(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_eight_call_everything_on_one_handle),
        cmocka_unit_test(test_threads_eight_call_everything_over_ucx),
        cmocka_unit_test(test_threads_close_while_eight_are_calling),
        cmocka_unit_test(test_threads_close_while_eight_are_calling_over_ucx),
        cmocka_unit_test(test_threads_many_groups_open_in_any_order_and_close_with_their_context),
        cmocka_unit_test(test_threads_two_open_the_same_groups_in_different_orders),
        cmocka_unit_test(test_threads_opening_groups_can_be_closed_at_any_time),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
