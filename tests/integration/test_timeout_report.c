/* SPDX-License-Identifier: Apache-2.0 */
/* What the others report while members are stopped (SIGSTOP): alive, silent, and named. */
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u
#define STATES 8u
#define TAG 70u
#define TIMEOUT_NS 200000000ull
#define LONG_TIMEOUT_NS 20000000000ull

enum mark { MARK_FIRST_ROUND_DONE = 1, MARK_TIMED_OUT };

struct shared {
    uint32_t stopped_count; /* the members 1 or 2, or both */
    uint32_t is_stopped[MEMBERS];
    uint32_t go; /* futex word: the stopped members are stopped */
};

static void check_row(const struct plugin_member *member, const struct convoy_member_report *row, int32_t rank)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%d", rank);
    EXPECT_EQUAL(row->rank, rank);
    EXPECT_EQUAL(row->index, rank);
    EXPECT_EQUAL(row->condition, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(row->round, 1);
    EXPECT_EQUAL(row->operation, CONVOY_OPERATION_POLL);
    EXPECT_EQUAL(row->tag, TAG + 1);
    EXPECT(row->age_ns != UINT64_MAX);
    EXPECT_TEXT(member->error.text, name);
}

/* Exactly the stopped members, in member order, each with the last that was heard of it. */
static void check_report(const struct plugin_member *member, const struct exchange *exchange,
                         const struct shared *shared, uint32_t own_index)
{
    const struct convoy_report *report = &exchange->report;
    EXPECT_EQUAL(report->own_rank, own_index);
    EXPECT_EQUAL(report->round, 2);
    EXPECT(report->operation != 0);
    EXPECT(report->elapsed_ns >= TIMEOUT_NS);
    EXPECT_EQUAL(report->member_count, shared->stopped_count);
    size_t row = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (shared->is_stopped[i]) {
            check_row(member, &exchange->rows[row++], (int32_t)i);
        }
    }
}

static void time_out_then_finish(const struct rank *rank, struct plugin_member *member, struct exchange *exchange)
{
    const struct convoy_poll_table *poll = member->plugin.poll;
    convoy_operation operation = 0;
    EXPECT_OK(poll->reduce_start(member->group, &exchange->call, &operation, &member->error), &member->error);
    EXPECT_STATUS(poll->reduce_wait(member->group, operation, TIMEOUT_NS, &exchange->result, &member->error),
                  CONVOY_TIMED_OUT, &member->error);
    check_report(member, exchange, rank->shared, rank->index);
    rank_mark(rank, MARK_TIMED_OUT);
    EXPECT_OK(poll->reduce_wait(member->group, operation, LONG_TIMEOUT_NS, &exchange->result, &member->error),
              &member->error);
}

static void run(const struct rank *rank, void *port)
{
    struct shared *shared = rank->shared;
    struct exchange exchange;
    exchange_init(&exchange, STATES, CONVOY_STATE_TRANSFERRING);
    struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "stopped", *(const uint16_t *)port);
    plugin_member_open(member);
    exchange.call.tag = TAG + 1;
    EXPECT_OK(exchange_reduce(&exchange, member, LONG_TIMEOUT_NS), &member->error);
    rank_mark(rank, MARK_FIRST_ROUND_DONE);
    EXPECT(ranks_futex_wait(&shared->go, 0, RANKS_TIMEOUT_MS));
    exchange.call.tag = TAG + 2;
    if (shared->is_stopped[rank->index]) {
        EXPECT_OK(exchange_reduce(&exchange, member, LONG_TIMEOUT_NS), &member->error);
    } else {
        time_out_then_finish(rank, member, &exchange);
    }
    rank_barrier(rank);
    plugin_member_destroy(member);
}

/* Stops the members, lets the others time out and look, then lets all finish the same round. */
static void stop_and_look(uint32_t first, uint32_t last)
{
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct shared));
    struct shared *shared = ranks_shared(ranks);
    for (uint32_t i = first; i <= last; i++) {
        shared->is_stopped[i] = 1;
        shared->stopped_count++;
    }
    ranks_start(ranks, run, &port, 0);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        ranks_await_mark(ranks, i, MARK_FIRST_ROUND_DONE);
    }
    for (uint32_t i = first; i <= last; i++) {
        ranks_stop(ranks, i);
    }
    __atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
    ranks_futex_wake(&shared->go);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (!shared->is_stopped[i]) {
            ranks_await_mark(ranks, i, MARK_TIMED_OUT);
        }
    }
    for (uint32_t i = first; i <= last; i++) {
        ranks_signal(ranks, i, SIGCONT);
    }
    ranks_finish(ranks);
}

/* pytorch/gloo issue 511: a timeout names the own rank and exactly the rank that was waited for. */
static void test_timeout_one_member_stopped_is_named_by_all_others(void **state)
{
    (void)state;
    stop_and_look(2, 2);
}

/* pytorch/gloo issue 511: and with several silent ranks, all of them, not only the first. */
static void test_timeout_two_members_stopped_are_both_named(void **state)
{
    (void)state;
    stop_and_look(1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout_one_member_stopped_is_named_by_all_others),
        cmocka_unit_test(test_timeout_two_members_stopped_are_both_named),
    };
    return cmocka_run_group_tests_name("timeout_report", tests, NULL, NULL);
}
