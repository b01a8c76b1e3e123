/* SPDX-License-Identifier: Apache-2.0 */
/* Members that go: closed in an orderly way, killed, stopped. */
#include "tests/conformance/suite.h"
#include "tests/lib/describe.h"

#include <signal.h>
#include <string.h>

enum loss_mark { LOSS_READY = 1 };

/* Who closes is named as closed in the next round of the others, who go on without it. */
static void case_closed_member(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 3) {
        EXPECT_OK(suite->member->plugin.core->group_close(suite->member->group, 0, &suite->member->error),
                  &suite->member->error);
        EXPECT_EQUAL(suite_info(suite).state, CONVOY_GROUP_CLOSED);
        exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, 0), CONVOY_CLOSED, &suite->member->error);
        return;
    }
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_PEER_LOST, &suite->member->error);
    EXPECT_EQUAL(suite->member->error.rank, 3);
    exchange_expect_untouched(exchange);
    EXPECT_EQUAL(suite_reopen(suite).lost_count, 1);
    for (uint8_t i = 0; i < 10; i++) {
        suite_expect_round(suite, 8, i % 5);
    }
    rank_barrier_of(suite->rank, 1, 3);
}

static void loss_kill(struct ranks *ranks, uint32_t index)
{
    ranks_await_mark(ranks, index, LOSS_READY);
    ranks_signal(ranks, index, SIGKILL);
}

static void loss_wait_for_death(struct suite *suite)
{
    rank_mark(suite->rank, LOSS_READY);
    for (;;) { /* ends by SIGKILL, or with the test's deadline */
        (void)ranks_futex_wait((uint32_t *)suite->rank->shared, 0, 1000);
    }
}

/* What the survivors see when `victim` dies between two rounds, and that they go on. */
static void loss_survive(struct suite *suite, int32_t victim, uint32_t left)
{
    struct exchange *exchange = &suite->exchange;
    if (suite_is_neighbour(suite, (uint32_t)victim)) { /* the dump knows before anybody has waited for it */
        while (!suite_link_is(suite, (uint32_t)victim, "lost")) { /* ends with the rank's deadline */
        }
    }
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_PEER_LOST, &suite->member->error);
    EXPECT_EQUAL(suite->member->error.rank, victim);
    const struct convoy_member_report *row = exchange_row(exchange, victim);
    EXPECT(row != NULL);
    EXPECT_EQUAL(row->condition, CONVOY_MEMBER_LOST);
    EXPECT(row->noticed_by != CONVOY_NOTICED_NONE);
    exchange_expect_untouched(exchange);
    EXPECT(suite_link_is(suite, (uint32_t)victim, "lost"));
    struct convoy_reopen_result result = suite_reopen(suite);
    EXPECT_EQUAL(result.lost_count, SUITE_MEMBERS - left);
    EXPECT(suite_link_is(suite, (uint32_t)victim, "lost"));
    for (uint8_t i = 0; i < 20; i++) {
        suite_expect_round(suite, 8, i % 5);
    }
    rank_barrier_of(suite->rank, 1, left);
}

/* sgl-project/sglang issue 29123. Rank 3 is no leader of any host. */
static void case_killed_member(struct suite *suite)
{
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 3) {
        loss_wait_for_death(suite);
    }
    loss_survive(suite, 3, 3);
}

static void parent_kill_last(struct ranks *ranks)
{
    loss_kill(ranks, 3);
}

/* vllm-project/vllm issues 39942 and 40567: rank 0, who listened and leads its host, is the one who dies. */
static void case_killed_leader(struct suite *suite)
{
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 0) {
        loss_wait_for_death(suite);
    }
    loss_survive(suite, 0, 3);
}

static void parent_kill_first(struct ranks *ranks)
{
    loss_kill(ranks, 0);
}

/* Policy degrade: the dead member's row is a fallback in that very round, nobody has to reopen. */
static void case_degrade(struct suite *suite)
{
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    suite->member->options.schema = &schema;
    suite->member->options.critical_flags = CONVOY_GROUP_DEGRADE;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 3) {
        loss_wait_for_death(suite);
    }
    for (int64_t i = 1; i <= 50; i++) {
        const int64_t row[8] = {i, 0, 1, 0, 1, 2, 0, 0};
        int64_t table[SUITE_MEMBERS * 8];
        uint8_t presence[SUITE_MEMBERS];
        const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
        struct convoy_sync_result result = {.struct_size = sizeof result,
                                            .table = table,
                                            .table_capacity = SUITE_MEMBERS * 8,
                                            .presence = presence,
                                            .presence_capacity = SUITE_MEMBERS};
        EXPECT_OK(suite->member->plugin.sync->gather(suite->member->group, &call, SUITE_LONG_NS, &result,
                                                     &suite->member->error),
                  &suite->member->error);
        EXPECT_EQUAL(table[0], i);
        EXPECT_EQUAL(table[16], i);
        EXPECT_EQUAL(presence[3], CONVOY_PRESENT_LOST);
        EXPECT_EQUAL(table[3 * 8 + 5], 4); /* IDLE, the fallback of the mode */
    }
    EXPECT_EQUAL(suite_info(suite).lost_count, 1); /* also on the host that it was not on */
    rank_barrier_of(suite->rank, 1, 3);
}

/* SIGSTOP and SIGCONT: late, not lost. */
static void case_stopped_member(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    if (suite->rank->index == 3) {
        rank_mark(suite->rank, LOSS_READY);
        while (!ranks_futex_wait((uint32_t *)suite->rank->shared, 0, 1000)) {
        }
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
        return;
    }
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LATE_NS), CONVOY_TIMED_OUT, &suite->member->error);
    EXPECT(exchange_row(exchange, 3) != NULL);
    rank_mark(suite->rank, LOSS_READY);
    EXPECT_OK(suite->member->plugin.poll->reduce_wait(suite->member->group, suite_info(suite).operation, SUITE_LONG_NS,
                                                      &exchange->result, &suite->member->error),
              &suite->member->error);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

static void parent_stop_last(struct ranks *ranks)
{
    ranks_await_mark(ranks, 3, LOSS_READY);
    ranks_stop(ranks, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ranks_await_mark(ranks, i, LOSS_READY);
    }
    uint32_t *go = ranks_shared(ranks);
    __atomic_store_n(go, 1, __ATOMIC_SEQ_CST);
    ranks_signal(ranks, 3, SIGCONT);
    ranks_futex_wake(go);
}

/* Rank 0 gives up on a round, and rank 3 closes after that: the others see the first and agree on the second. */
static void unseen_break(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    convoy_operation operation = 0;
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    EXPECT_OK(member->plugin.poll->reduce_start(member->group, &exchange->call, &operation, &member->error),
              &member->error);
    rank_barrier_of(suite->rank, 1, 3);
    if (suite->rank->index == 0) {
        EXPECT_STATUS(member->plugin.core->operation_abandon(member->group, operation, &member->error), CONVOY_BROKEN,
                      &member->error);
        rank_mark(suite->rank, LOSS_READY);
        rank_await_mark(suite->rank, 3, LOSS_READY);
        EXPECT_EQUAL(suite_reopen(suite).lost_count, 1);
    }
    rank_barrier_of(suite->rank, 2, 3);
    if (suite->rank->index != 0) {
        EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &exchange->result,
                                                       &member->error),
                      CONVOY_BROKEN, &member->error);
        EXPECT_EQUAL(suite_reopen(suite).lost_count, 1);
    }
}

/* Who agreed on a loss without having seen it does not wait for the lost: when the others are there, it is through. */
static void case_unseen_loss(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    if (suite->transport != SUITE_THREADS && suite->transport != SUITE_SHARED_MEMORY) {
        return;
    }
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 3) {
        rank_await_mark(suite->rank, 0, LOSS_READY);
        EXPECT_OK(member->plugin.core->group_close(member->group, 0, &member->error), &member->error);
        rank_mark(suite->rank, LOSS_READY);
        return;
    }
    unseen_break(suite);
    for (uint32_t round = 0; round < 10; round++) {
        convoy_operation operation = 0;
        exchange_init(exchange, 8, (uint8_t)(round % 5));
        if (suite->rank->index != 1) {
            EXPECT_OK(member->plugin.poll->reduce_start(member->group, &exchange->call, &operation, &member->error),
                      &member->error);
            rank_barrier_of(suite->rank, 3, 3);
            EXPECT_OK(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &exchange->result,
                                                       &member->error),
                      &member->error);
        } else {
            rank_barrier_of(suite->rank, 3, 3);
            EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
        }
        EXPECT_EQUAL(exchange->states_out[7], round % 5);
    }
    if (suite->rank->index == 1) {
        json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
        EXPECT(describe_number(stats, "operations.poll.waits.none") >= 10);
        json_decref(stats);
    }
    rank_barrier_of(suite->rank, 4, 3);
}

const struct suite_case suite_loss_cases[] = {
    {.name = "test_conformance_loss_that_was_not_seen_is_not_waited_for", .run = case_unseen_loss},
    {.name = "test_conformance_closed_member_is_named", .run = case_closed_member},
    {.name = "test_conformance_killed_member_is_lost_and_the_rest_goes_on",
     .run = case_killed_member,
     .parent = parent_kill_last,
     .needs_processes = true},
    {.name = "test_conformance_killed_leader_is_lost_and_the_rest_goes_on",
     .run = case_killed_leader,
     .parent = parent_kill_first,
     .needs_processes = true},
    {.name = "test_conformance_degrade_fills_in_for_the_dead",
     .run = case_degrade,
     .parent = parent_kill_last,
     .needs_processes = true},
    {.name = "test_conformance_stopped_member_is_late_and_not_lost",
     .run = case_stopped_member,
     .parent = parent_stop_last,
     .needs_processes = true},
};
const size_t suite_loss_count = sizeof suite_loss_cases / sizeof suite_loss_cases[0];
