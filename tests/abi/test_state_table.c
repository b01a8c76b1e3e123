/* SPDX-License-Identifier: Apache-2.0 */
/* The table at the top of convoy/core.h, cell by cell: every call of every family in every state of a group. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define SHORT_NS 1000000ull

enum state { OPENING = 0, READY, ENDED, ACTIVE, STUCK, BROKEN, FAILED, CLOSING, CLOSED, FORKED, STATES };

static const char *const state_names[STATES] = {"opening", "ready",  "ended",   "active", "stuck",
                                                "broken",  "failed", "closing", "closed", "forked"};

/* What group_info says in each state. */
static const uint32_t state_numbers[STATES] = {
    CONVOY_GROUP_OPENING, CONVOY_GROUP_READY,  CONVOY_GROUP_READY,   CONVOY_GROUP_ACTIVE, CONVOY_GROUP_STUCK,
    CONVOY_GROUP_BROKEN,  CONVOY_GROUP_FAILED, CONVOY_GROUP_CLOSING, CONVOY_GROUP_CLOSED, 0};

/* The table of convoy/core.h, as statuses. Where it says "ok" the call does its work: start in ready finds the peer's
 * contribution; test and wait in active and stuck do not, abandon seals. Ready is a group without a round yet, ended one
 * whose operation has finished. */
static const int32_t wanted[STATES][CALL_KINDS] = {
    [OPENING] = {CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_OK,
                 CONVOY_OK, CONVOY_OK, CONVOY_IN_PROGRESS},
    [READY] = {CONVOY_OK, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_OK, CONVOY_OK, CONVOY_OK, CONVOY_OK,
               CONVOY_OK},
    [ENDED] = {CONVOY_OK, CONVOY_OK, CONVOY_OK, CONVOY_CLOSED, CONVOY_OK, CONVOY_OK, CONVOY_OK, CONVOY_OK, CONVOY_OK},
    [ACTIVE] = {CONVOY_BUSY, CONVOY_IN_PROGRESS, CONVOY_TIMED_OUT, CONVOY_BROKEN, CONVOY_BUSY, CONVOY_OK, CONVOY_OK,
                CONVOY_OK, CONVOY_OK},
    [STUCK] = {CONVOY_BUSY, CONVOY_IN_PROGRESS, CONVOY_TIMED_OUT, CONVOY_BROKEN, CONVOY_BUSY, CONVOY_OK, CONVOY_OK,
               CONVOY_OK, CONVOY_OK},
    [BROKEN] = {CONVOY_BROKEN, CONVOY_BROKEN, CONVOY_BROKEN, CONVOY_CLOSED, CONVOY_OK, CONVOY_OK, CONVOY_OK, CONVOY_OK,
                CONVOY_OK},
    [FAILED] = {CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_BAD_STATE, CONVOY_OK,
                CONVOY_OK, CONVOY_OK, CONVOY_TIMED_OUT},
    [CLOSING] = {CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED,
                 CONVOY_DRAIN_TIMEOUT, CONVOY_OK, CONVOY_CLOSED},
    [CLOSED] = {CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_CLOSED, CONVOY_OK,
                CONVOY_OK, CONVOY_CLOSED},
    [FORKED] = {CONVOY_FORKED, CONVOY_FORKED, CONVOY_FORKED, CONVOY_FORKED, CONVOY_FORKED, CONVOY_FORKED, CONVOY_OK,
                CONVOY_FORKED, CONVOY_FORKED},
};

/* A thread that stays inside a call until it is let go. */
struct visitor {
    pthread_t thread;
    struct pair *pair;
    struct calls calls;
    int inside[2]; /* pipe: the thread is inside */
    int go[2];     /* pipe: the thread may leave */
};

static int32_t visitor_read(void *user, size_t list_index, size_t entry_index)
{
    struct visitor *visitor = user;
    char byte = 'i';
    (void)list_index;
    (void)entry_index;
    bool is_good = write(visitor->inside[1], &byte, 1) == 1 && read(visitor->go[0], &byte, 1) == 1;
    return is_good ? CONVOY_STATE_SUCCESS : -1;
}

static void *visitor_main(void *argument)
{
    struct visitor *visitor = argument;
    struct calls *calls = &visitor->calls;
    (void)calls->plugin.poll->reduce_start(calls->group, &calls->poll, &calls->operation, NULL);
    return NULL;
}

static void visitor_start(struct visitor *visitor, struct pair *pair)
{
    char byte;
    visitor->pair = pair;
    calls_init(&visitor->calls, &pair->own->plugin, pair->own->group, NULL);
    visitor->calls.list.states = NULL;
    visitor->calls.list.read = visitor_read;
    visitor->calls.list.user = visitor;
    EXPECT_EQUAL(pipe(visitor->inside), 0);
    EXPECT_EQUAL(pipe(visitor->go), 0);
    EXPECT_EQUAL(pthread_create(&visitor->thread, NULL, visitor_main, visitor), 0);
    EXPECT_EQUAL(read(visitor->inside[0], &byte, 1), 1);
}

static void visitor_stop(struct visitor *visitor)
{
    char byte = 'g';
    EXPECT_EQUAL(write(visitor->go[1], &byte, 1), 1);
    EXPECT_EQUAL(pthread_join(visitor->thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        (void)close(visitor->inside[i]);
        (void)close(visitor->go[i]);
    }
}

static enum call_family family_of(const struct call *call)
{
    return call->family == CALL_CORE ? CALL_POLL : call->family;
}

static int32_t run_wait(struct calls *calls, enum call_family family)
{
    const struct convoy_poll_table *poll = calls->plugin.poll;
    switch (family) {
    case CALL_POLL2:
        return poll->reduce2_wait(calls->group, calls->operation, calls->timeout_ns, &calls->poll_result, NULL);
    case CALL_SYNC:
        return calls->plugin.sync->gather_wait(calls->group, calls->operation, calls->timeout_ns, &calls->sync_result,
                                               NULL);
    case CALL_POLL:
    case CALL_FAMILIES:
    case CALL_CORE:
        break;
    }
    return poll->reduce_wait(calls->group, calls->operation, calls->timeout_ns, &calls->poll_result, NULL);
}

/* A whole round of the family. */
static void make_ended(struct pair *pair, enum call_family family)
{
    calls_start(&pair->peer_calls, family);
    calls_start(&pair->calls, family);
    pair->calls.timeout_ns = LONG_NS;
    EXPECT_EQUAL(run_wait(&pair->calls, family), CONVOY_OK);
    pair->calls.timeout_ns = SHORT_NS;
    pair->peer_calls.timeout_ns = LONG_NS;
    EXPECT_EQUAL(run_wait(&pair->peer_calls, family), CONVOY_OK);
}

static void make_open_state(struct pair *pair, enum state state, enum call_family family)
{
    struct calls *calls = &pair->calls;
    pair_open(pair);
    if (state == ENDED) {
        make_ended(pair, family);
    } else if (state == ACTIVE || state == STUCK || state == BROKEN) {
        calls_start(calls, family);
    }
    if (state == STUCK) {
        EXPECT_EQUAL(run_wait(calls, family), CONVOY_TIMED_OUT);
    }
    if (state == BROKEN) {
        EXPECT_EQUAL(calls->plugin.core->operation_abandon(calls->group, calls->operation, NULL), CONVOY_BROKEN);
    }
    if (state == CLOSED) {
        EXPECT_OK(calls->plugin.core->group_close(calls->group, LONG_NS, &calls->error), &calls->error);
    }
}

/* Brings the own group into the state, by an operation of the family where there is one. */
static void make(struct pair *pair, enum state state, enum call_family family, struct visitor *visitor)
{
    struct calls *calls = &pair->calls;
    if (state == OPENING) {
        pair_start_own(pair);
    } else if (state == FAILED) {
        pair->own->options.open_timeout_ns = SHORT_NS;
        pair_start_own(pair);
        EXPECT_EQUAL(calls->plugin.core->group_open_wait(calls->group, LONG_NS, NULL), CONVOY_TIMED_OUT);
    } else {
        make_open_state(pair, state, family);
    }
    if (state == CLOSING) {
        visitor_start(visitor, pair);
        EXPECT_EQUAL(calls->plugin.core->group_close(calls->group, SHORT_NS, NULL), CONVOY_DRAIN_TIMEOUT);
    }
    if (state != FORKED) {
        EXPECT_OK(calls->plugin.core->group_info(calls->group, &calls->info, &calls->error), &calls->error);
        EXPECT_EQUAL(calls->info.state, state_numbers[state]);
    }
}

/* Where "ok" needs more than the call itself. */
static void prepare(struct pair *pair, enum state state, const struct call *call)
{
    bool is_blocking = call->kind == CALL_START && strstr(call->name, "start") == NULL;
    if (is_blocking && (state == READY || state == ENDED)) {
        calls_start(&pair->peer_calls, call->family);
        pair->calls.timeout_ns = LONG_NS;
    }
    if (call->kind == CALL_CLOSE && state != CLOSING) {
        pair->calls.timeout_ns = LONG_NS;
    }
}

static int32_t wanted_status(enum state state, const struct call *call)
{
    if (state == OPENING && strcmp(call->name, "group_open_wait") == 0) {
        return CONVOY_TIMED_OUT;
    }
    return wanted[state][call->kind];
}

static int32_t run_in_child(struct pair *pair, const struct call *call)
{
    int fds[2];
    int32_t status = 0;
    EXPECT_EQUAL(pipe(fds), 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        status = call->run(&pair->calls);
        _exit(write(fds[1], &status, sizeof status) == sizeof status ? 0 : 1);
    }
    int ended = 0;
    EXPECT_EQUAL(waitpid(child, &ended, 0), child);
    EXPECT_EQUAL(ended, 0);
    EXPECT_EQUAL(read(fds[0], &status, sizeof status), sizeof status);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return status;
}

/* All wrong cells are told, not only the first. */
static bool check_cell(enum state state, const struct call *call)
{
    struct visitor visitor;
    struct pair *pair = pair_create();
    struct convoy_error *error = &pair->calls.error;
    make(pair, state, family_of(call), &visitor);
    prepare(pair, state, call);
    error->text[0] = '\0';
    int32_t status = state == FORKED ? run_in_child(pair, call) : call->run(&pair->calls);
    bool is_right = status == wanted_status(state, call);
    if (!is_right) {
        print_error("%s in state %s: %d instead of %d (%s)\n", call->name, state_names[state], status,
                    wanted_status(state, call), error->text);
    }
    if (status < 0 && state != FORKED) {
        EXPECT_EQUAL(error->status, status);
        EXPECT(error->text[0] != '\0');
    }
    if (state == CLOSING) {
        visitor_stop(&visitor);
        EXPECT_OK(pair->calls.plugin.core->group_close(pair->calls.group, LONG_NS, error), error);
    }
    pair_destroy(pair);
    return is_right;
}

static void test_state_table_every_call_in_every_state_answers_as_written(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (int row = 0; row < STATES; row++) {
        for (size_t i = 0; i < calls_count; i++) {
            wrong += check_cell((enum state)row, &calls_list[i]) ? 0 : 1;
        }
    }
    assert_int_equal(wrong, 0);
}

/* An operation that is not the last one is stale for every call that takes one, of its own family and of others. */
static void test_state_table_older_operation_is_closed(void **state)
{
    (void)state;
    for (int family = 0; family < CALL_FAMILIES; family++) {
        struct pair *pair = pair_create();
        pair_open(pair);
        make_ended(pair, (enum call_family)family);
        convoy_operation old = pair->calls.operation;
        make_ended(pair, (enum call_family)family);
        for (size_t i = 0; i < calls_count; i++) {
            const struct call *call = &calls_list[i];
            pair->calls.operation = old;
            if (call->kind == CALL_TEST || call->kind == CALL_WAIT || call->kind == CALL_ABANDON) {
                EXPECT_STATUS(call->run(&pair->calls), CONVOY_CLOSED, &pair->calls.error);
            }
        }
        pair_destroy(pair);
    }
}

static void close_both(struct pair *pair)
{
    const struct convoy_core_table *core = pair->own->plugin.core;
    EXPECT_OK(core->group_close(pair->own->group, LONG_NS, &pair->own->error), &pair->own->error);
    EXPECT_OK(core->group_close(pair->peer->group, LONG_NS, &pair->peer->error), &pair->peer->error);
}

/* The next group of a context may lie where a closed one lay, and its count starts again: the old value is stale.
 * inner: 2 = gathers are local. */
static void check_closed_group(enum call_family family, uint32_t inner)
{
    struct pair *pair = pair_create();
    pair->own->options.sync_inner = pair->peer->options.sync_inner = inner;
    pair_open(pair);
    calls_start(&pair->calls, family);
    convoy_operation old = pair->calls.operation;
    close_both(pair);
    pair_open(pair);
    calls_start(&pair->calls, family);
    EXPECT(pair->calls.operation != old);
    for (size_t i = 0; i < calls_count; i++) {
        const struct call *call = &calls_list[i];
        pair->calls.operation = old;
        if (call->kind == CALL_TEST || call->kind == CALL_WAIT || call->kind == CALL_ABANDON) {
            EXPECT_STATUS(call->run(&pair->calls), CONVOY_CLOSED, &pair->calls.error);
        }
    }
    pair_destroy(pair);
}

static void test_state_table_operation_of_a_closed_group_is_closed(void **state)
{
    (void)state;
    for (int family = 0; family < CALL_FAMILIES; family++) {
        check_closed_group((enum call_family)family, 1);
    }
    check_closed_group(CALL_SYNC, 2);
}

/* A live operation is only known to the calls of its own family, and stays open when others are asked. */
static void test_state_table_operation_of_another_family_is_refused(void **state)
{
    (void)state;
    for (int family = 0; family < CALL_FAMILIES; family++) {
        struct pair *pair = pair_create();
        pair_open(pair);
        calls_start(&pair->peer_calls, (enum call_family)family);
        calls_start(&pair->calls, (enum call_family)family);
        for (size_t i = 0; i < calls_count; i++) {
            const struct call *call = &calls_list[i];
            bool takes_one = call->kind == CALL_TEST || call->kind == CALL_WAIT || call->kind == CALL_ABANDON;
            if (!takes_one || call->family == CALL_CORE || call->family == (enum call_family)family) {
                continue;
            }
            int32_t status = call->run(&pair->calls);
            if (status != CONVOY_CLOSED && status != CONVOY_INVALID_ARGUMENT) {
                fail_msg("%s with an operation of family %d: %d", call->name, family, status);
            }
        }
        pair->calls.timeout_ns = LONG_NS;
        EXPECT_EQUAL(run_wait(&pair->calls, (enum call_family)family), CONVOY_OK);
        pair_destroy(pair);
    }
}

static void test_state_table_abandon_of_a_complete_round_is_ok_and_keeps_the_result(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    pair->peer_calls.state = CONVOY_STATE_BOOTSTRAPPING;
    calls_start(calls, CALL_POLL);
    calls_start(&pair->peer_calls, CALL_POLL);
    EXPECT_OK(calls->plugin.core->operation_abandon(calls->group, calls->operation, &calls->error), &calls->error);
    convoy_operation other = 0;
    EXPECT_EQUAL(calls->plugin.poll->reduce_start(calls->group, &calls->poll, &other, &calls->error), CONVOY_BUSY);
    EXPECT_OK(calls->plugin.poll->reduce_test(calls->group, calls->operation, &calls->poll_result, &calls->error),
              &calls->error);
    EXPECT_EQUAL(calls->state_out, CONVOY_STATE_BOOTSTRAPPING);
    calls_start(calls, CALL_POLL);
    pair_destroy(pair);
}

/* With nothing open the next wait is canceled, once, and the operation goes on. */
static void test_state_table_cancel_in_ready_ends_the_next_wait_once(void **state)
{
    (void)state;
    for (int family = 0; family < CALL_FAMILIES; family++) {
        struct pair *pair = pair_create();
        struct calls *calls = &pair->calls;
        pair_open(pair);
        EXPECT_OK(calls->plugin.core->group_cancel(calls->group, "enough", 6, &calls->error), &calls->error);
        calls_start(calls, (enum call_family)family);
        calls->timeout_ns = LONG_NS;
        EXPECT_EQUAL(run_wait(calls, (enum call_family)family), CONVOY_CANCELED);
        EXPECT_OK(calls->plugin.core->group_info(calls->group, &calls->info, &calls->error), &calls->error);
        EXPECT_EQUAL(calls->info.state, CONVOY_GROUP_STUCK);
        EXPECT_EQUAL(calls->info.operation, calls->operation);
        calls_start(&pair->peer_calls, (enum call_family)family);
        EXPECT_EQUAL(run_wait(calls, (enum call_family)family), CONVOY_OK);
        pair_destroy(pair);
    }
}

/* Every slot of the tables is in the list of calls, or is one of those that take no group. */
static void test_state_table_list_of_calls_is_complete(void **state)
{
    (void)state;
    size_t slots = sizeof(struct convoy_core_table) + sizeof(struct convoy_poll_table) +
                   sizeof(struct convoy_sync_table) - 3 * sizeof(struct convoy_table_header);
    size_t without_group = 5 + 1 + 2; /* context_*, group_open, group_open_start; consensus; padded_size, starts */
    size_t describe_topics = 4;
    assert_int_equal(slots / sizeof(void *), calls_count - (describe_topics - 1) + without_group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_table_list_of_calls_is_complete),
        cmocka_unit_test(test_state_table_older_operation_is_closed),
        cmocka_unit_test(test_state_table_operation_of_a_closed_group_is_closed),
        cmocka_unit_test(test_state_table_operation_of_another_family_is_refused),
        cmocka_unit_test(test_state_table_abandon_of_a_complete_round_is_ok_and_keeps_the_result),
        cmocka_unit_test(test_state_table_cancel_in_ready_ends_the_next_wait_once),
        cmocka_unit_test(test_state_table_every_call_in_every_state_answers_as_written),
    };
    return cmocka_run_group_tests_name("state_table", tests, NULL, NULL);
}
