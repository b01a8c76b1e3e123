/* SPDX-License-Identifier: Apache-2.0 */
/* A host that waits in slices, to handle signals in between, gets what one long wait gives: the same statuses, one time-out
 * in the counters, times since the operation started, and a member that sleeps. */
#include "tests/lib/crowd.h"
#include "tests/lib/describe.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/rows.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define STATES 8u
#define NS_PER_MS 1000000ull
#define SLICE_NS (20 * NS_PER_MS)
#define SLICES 40u
#define COARSE_NS (20 * NS_PER_MS) /* the start is taken from a coarse clock */
#define MARK_SLICED 1u
/* Yields as long as a slice: who would begin anew in each never sleeps. */
#define PATIENT "{\"yield_us\":20000}"

static uint64_t clock_of(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void count_line(void *user, uint32_t level, const char *text, size_t length)
{
    (void)level, (void)text, (void)length;
    __atomic_add_fetch((uint32_t *)user, 1, __ATOMIC_RELAXED);
}

static convoy_operation open_operation(struct plugin_member *member)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_STUCK);
    EXPECT(info.operation != 0);
    return info.operation;
}

/* The words and the report of a slice that passed say how long the operation is open. */
static void check_time(const struct plugin_member *member, const struct convoy_report *report, uint64_t started_ns)
{
    uint64_t taken_ns = clock_of(CLOCK_MONOTONIC) - started_ns;
    const char *at = strstr(member->error.text, "waited ");
    EXPECT(at != NULL);
    uint64_t said_ns = strtoull(at + strlen("waited "), NULL, 10) * NS_PER_MS;
    EXPECT(said_ns + COARSE_NS >= taken_ns / 10 * 9);
    EXPECT(said_ns <= taken_ns + COARSE_NS);
    EXPECT_EQUAL(report->elapsed_ns / NS_PER_MS, said_ns / NS_PER_MS);
    EXPECT_TEXT(member->error.text, "did not hear from rank 1");
}

static long long stats_of(struct plugin_member *member, const char *path)
{
    json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
    long long number = describe_number(stats, path);
    json_decref(stats);
    return number;
}

/* -- poll -- */

static void poll_in_slices(const struct rank *rank, struct plugin_member *member, struct exchange *exchange)
{
    uint64_t started_ns = clock_of(CLOCK_MONOTONIC);
    uint64_t cpu_ns = clock_of(CLOCK_THREAD_CPUTIME_ID);
    EXPECT_STATUS(exchange_reduce(exchange, member, SLICE_NS), CONVOY_TIMED_OUT, &member->error);
    check_time(member, &exchange->report, started_ns);
    convoy_operation operation = open_operation(member);
    for (uint32_t i = 1; i < SLICES; i++) {
        EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, SLICE_NS, &exchange->result, &member->error),
                      CONVOY_TIMED_OUT, &member->error);
        check_time(member, &exchange->report, started_ns);
    }
    cpu_ns = clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    EXPECT(cpu_ns < SLICES * SLICE_NS / 2);
    EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.TIMED_OUT"), 1);
    rank_mark(rank, MARK_SLICED);
    EXPECT_OK(member->plugin.poll->reduce_wait(member->group, operation, CROWD_WAIT_NS, &exchange->result, &member->error),
              &member->error);
}

static void run_poll(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    uint32_t lines = 0;
    exchange_init(&exchange, STATES, CONVOY_STATE_TRANSFERRING);
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "sliced",
                                                        ((const struct crowd *)crowd)->ports[0]);
    member->config.settings = PATIENT;
    member->config.settings_length = strlen(PATIENT);
    member->config.log = count_line;
    member->config.log_user = &lines;
    member->config.log_level = CONVOY_LOG_INFO;
    plugin_member_open(member);
    for (uint32_t i = 0; i < 3; i++) { /* the short way from then on */
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    }
    uint32_t lines_before = lines;
    if (rank->index == 0) {
        poll_in_slices(rank, member, &exchange);
        long long longest_ns = stats_of(member, "operations.poll.wait_ns.max");
        EXPECT(longest_ns >= (long long)(SLICES * SLICE_NS / 10 * 9)); /* of the operation, not of a slice */
    } else {
        rank_await_mark(rank, 0, MARK_SLICED);
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    }
    for (uint32_t i = 0; i < 3; i++) { /* as ever */
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(exchange.result.round, 5 + i);
    }
    EXPECT_EQUAL(lines, lines_before);
    EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.OK"), 7);
    EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.TIMED_OUT"), rank->index == 0);
    json_t *log = describe_group(member, CONVOY_TOPIC_CALL_LOG);
    EXPECT_EQUAL(json_array_size(log), 7); /* one for each round */
    json_decref(log);
    crowd_close(rank, member);
}

static void test_slices_of_a_reduce_are_one_wait(void **state)
{
    (void)state;
    crowd_run(2, run_poll, 0);
}

/* -- sync -- */

static void run_sync(const struct rank *rank, void *crowd)
{
    struct rows rows;
    rows_reset(&rows);
    struct plugin_member *member = rows_open(rank, crowd, "sliced", 1);
    EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    if (rank->index == 0) {
        uint64_t started_ns = clock_of(CLOCK_MONOTONIC);
        EXPECT_STATUS(rows_gather(&rows, member, SLICE_NS), CONVOY_TIMED_OUT, &member->error);
        convoy_operation operation = open_operation(member);
        for (uint32_t i = 1; i < SLICES / 4; i++) {
            EXPECT_STATUS(member->plugin.sync->gather_wait(member->group, operation, SLICE_NS, &rows.result, &member->error),
                          CONVOY_TIMED_OUT, &member->error);
            check_time(member, &rows.report, started_ns);
        }
        EXPECT_EQUAL(stats_of(member, "operations.sync.rounds.TIMED_OUT"), 1);
        rank_mark(rank, MARK_SLICED);
        EXPECT_OK(member->plugin.sync->gather_wait(member->group, operation, CROWD_WAIT_NS, &rows.result, &member->error),
                  &member->error);
    } else {
        rank_await_mark(rank, 0, MARK_SLICED);
        EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    }
    EXPECT_EQUAL(rows.result.round, 2);
    EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    EXPECT_EQUAL(stats_of(member, "operations.sync.rounds.OK"), 3);
    EXPECT_EQUAL(stats_of(member, "operations.sync.rounds.TIMED_OUT"), rank->index == 0);
    crowd_close(rank, member);
}

static void test_slices_of_a_gather_are_one_wait(void **state)
{
    (void)state;
    crowd_run(2, run_sync, 0);
}

/* -- two levels -- */

/* Rank 3 is late: rank 1 waits for it at level 1, rank 2 at level 2, rank 0 for rank 1 at level 2. */
static void run_levels(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    struct crowd_levels levels;
    exchange_init(&exchange, STATES, CONVOY_STATE_TRANSFERRING);
    crowd_levels_open(rank, crowd, &levels);
    struct plugin_member *first = levels.first;
    const struct convoy_poll_table *poll = first->plugin.poll;
    convoy_operation operation = 0;
    for (uint32_t other = 0; rank->index == 3 && other < 3; other++) {
        rank_await_mark(rank, other, MARK_SLICED);
    }
    EXPECT_OK(poll->reduce2_start(first->group, levels.second->group, &exchange.call, &operation, &first->error),
              &first->error);
    for (uint32_t i = 0; rank->index != 3 && i < SLICES / 4; i++) {
        EXPECT_STATUS(poll->reduce2_wait(first->group, operation, SLICE_NS, &exchange.result, &first->error),
                      CONVOY_TIMED_OUT, &first->error);
    }
    rank_mark(rank, MARK_SLICED);
    EXPECT_OK(poll->reduce2_wait(first->group, operation, CROWD_WAIT_NS, &exchange.result, &first->error), &first->error);
    EXPECT_EQUAL(stats_of(first, "operations.poll.rounds.TIMED_OUT"), rank->index != 3);
    crowd_levels_close(rank, &levels);
}

static void test_slices_of_two_levels_are_one_wait(void **state)
{
    (void)state;
    crowd_run(4, run_levels, 0);
}

/* -- how else it ends -- */

/* Slices that are shorter than the time to the first look for dead peers. */
#define SHORT_SLICE_NS (NS_PER_MS / 5)

static int32_t slice_until_other_than_time_out(struct plugin_member *member, struct exchange *exchange,
                                               convoy_operation operation, uint64_t slice_ns)
{
    int32_t status = CONVOY_TIMED_OUT;
    uint64_t end_ns = clock_of(CLOCK_MONOTONIC) + CROWD_WAIT_NS;
    while (status == CONVOY_TIMED_OUT && clock_of(CLOCK_MONOTONIC) < end_ns) {
        status = member->plugin.poll->reduce_wait(member->group, operation, slice_ns, &exchange->result, &member->error);
    }
    return status;
}

static void run_killed(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    exchange_init(&exchange, STATES, CONVOY_STATE_TRANSFERRING);
    struct plugin_member *member = crowd_open(rank, crowd, "sliced");
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    if (rank->index == 1) {
        rank_mark(rank, MARK_SLICED);
        rank_await_parent(rank, 1); /* killed in there */
    }
    EXPECT_STATUS(exchange_reduce(&exchange, member, SHORT_SLICE_NS), CONVOY_TIMED_OUT, &member->error);
    rank_mark(rank, MARK_SLICED);
    EXPECT_STATUS(slice_until_other_than_time_out(member, &exchange, open_operation(member), SHORT_SLICE_NS),
                  CONVOY_PEER_LOST, &member->error);
    EXPECT_EQUAL(member->error.rank, 1);
    EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.PEER_LOST"), 1);
    plugin_member_destroy(member);
}

static void test_slices_end_when_the_peer_is_killed(void **state)
{
    (void)state;
    struct ranks *ranks = crowd_start(2, run_killed, 0);
    ranks_await_mark(ranks, 0, MARK_SLICED);
    ranks_await_mark(ranks, 1, MARK_SLICED);
    ranks_signal(ranks, 1, SIGKILL);
    ranks_finish(ranks);
}

/* A cancel between two slices, or in one, ends one of them; the operation stays and can be given up. */
static void run_canceled(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    exchange_init(&exchange, STATES, CONVOY_STATE_TRANSFERRING);
    struct plugin_member *member = crowd_open(rank, crowd, "sliced");
    const struct convoy_core_table *core = member->plugin.core;
    if (rank->index == 0) {
        EXPECT_STATUS(exchange_reduce(&exchange, member, SLICE_NS), CONVOY_TIMED_OUT, &member->error);
        convoy_operation operation = open_operation(member);
        EXPECT_OK(core->group_cancel(member->group, "signal", 6, &member->error), &member->error);
        EXPECT_STATUS(slice_until_other_than_time_out(member, &exchange, operation, SLICE_NS), CONVOY_CANCELED,
                      &member->error);
        EXPECT_TEXT(member->error.text, "signal");
        EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, SLICE_NS, &exchange.result, &member->error),
                      CONVOY_TIMED_OUT, &member->error);
        EXPECT_STATUS(core->operation_abandon(member->group, operation, &member->error), CONVOY_BROKEN, &member->error);
        EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.TIMED_OUT"), 1);
        EXPECT_EQUAL(stats_of(member, "operations.poll.rounds.CANCELED"), 1);
        rank_mark(rank, MARK_SLICED);
    } else {
        rank_await_mark(rank, 0, MARK_SLICED);
        EXPECT_STATUS(exchange_reduce(&exchange, member, CROWD_WAIT_NS), CONVOY_BROKEN, &member->error);
    }
    EXPECT_OK(core->group_reopen(member->group, CROWD_WAIT_NS, NULL, &member->error), &member->error);
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    crowd_close(rank, member);
}

static void test_slices_can_be_canceled_and_abandoned(void **state)
{
    (void)state;
    crowd_run(2, run_canceled, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_of_a_reduce_are_one_wait),
        cmocka_unit_test(test_slices_of_a_gather_are_one_wait),
        cmocka_unit_test(test_slices_of_two_levels_are_one_wait),
        cmocka_unit_test(test_slices_end_when_the_peer_is_killed),
        cmocka_unit_test(test_slices_can_be_canceled_and_abandoned),
    };
    return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}
