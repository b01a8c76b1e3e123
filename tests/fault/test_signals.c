/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths that are hard to see, several at once, members that are stopped for a while, and a wake that must not be lost. */
#include "tests/fault/party.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIGNAL_ROUND 4u
#define SIGNAL_LAST 24u
#define WAKE_ROUNDS 60u

enum signal_mark { MARK_HERE = 1, MARK_GONE_ON };

/* What a test does to whom. */
struct signal_run {
    struct party_plan plan;
    uint32_t victims; /* bit per member: killed after SIGNAL_ROUND - 1 rounds */
    bool has_child;   /* the victims have forked a child that lives on and holds all their descriptors */
};

/* Wakes up when the signal comes, if it does. */
static void signal_wait_for_death(const struct party *party)
{
    rank_mark(party->rank, MARK_HERE);
    for (;;) { /* ends by SIGKILL, or with the test's deadline */
        (void)ranks_futex_wait(&party->shared->go, 0, 1000);
    }
}

static void signal_victim(const struct party *party, const struct signal_run *run)
{
    if (run->has_child && fork() == 0) {
        for (;;) { /* killed with its process group when the victim is reaped */
            (void)pause();
        }
    }
    signal_wait_for_death(party);
}

static void signal_rank(const struct rank *rank, void *argument)
{
    const struct signal_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, SIGNAL_ROUND - 1);
    if ((run->victims >> rank->index & 1) != 0) {
        signal_victim(party, run);
    }
    party_survive(party, SIGNAL_LAST);
    party_leave(party);
}

/* Nobody reaps the victims before the survivors are through: they stay zombies. */
static void signal_kill_and_check(const struct signal_run *given)
{
    struct signal_run run = *given;
    static struct party_shared seen;
    struct ranks *ranks = party_ranks(&run.plan);
    uint32_t all = (1u << run.plan.count) - 1;
    ranks_start(ranks, signal_rank, &run, party_timeout_ms());
    for (uint32_t i = 0; i < run.plan.count; i++) {
        if ((run.victims >> i & 1) != 0) {
            ranks_await_mark(ranks, i, MARK_HERE);
        }
    }
    for (uint32_t i = 0; i < run.plan.count; i++) {
        if ((run.victims >> i & 1) != 0) {
            ranks_signal(ranks, i, SIGKILL);
        }
    }
    for (uint32_t i = 0; i < run.plan.count; i++) {
        if ((run.victims >> i & 1) == 0) {
            ranks_await_exit(ranks, i);
        }
    }
    (void)memcpy(&seen, ranks_shared(ranks), sizeof seen);
    ranks_finish(ranks);
    party_check(&seen, &run.plan, all & ~run.victims, SIGNAL_LAST);
}

/* kill(pid, 0) calls an unreaped zombie alive; a pidfd does not. */
static void test_signals_dead_member_left_as_zombie_is_noticed(void **state)
{
    (void)state;
    signal_kill_and_check(&(const struct signal_run){.plan = {.place = PARTY_MEMORY, .count = 4}, .victims = 2});
}

/* The child holds every socket of its parent open. */
static void test_signals_dead_member_with_a_living_child_is_noticed(void **state)
{
    (void)state;
    signal_kill_and_check(
        &(const struct signal_run){.plan = {.place = PARTY_MEMORY, .count = 4}, .victims = 2, .has_child = true});
}

static void test_signals_two_deaths_at_once_others_go_on(void **state)
{
    (void)state;
    signal_kill_and_check(&(const struct signal_run){.plan = {.place = PARTY_MEMORY, .count = 5}, .victims = 9});
}

static void test_signals_two_deaths_at_once_over_ucx_others_go_on(void **state)
{
    (void)state;
    signal_kill_and_check(&(const struct signal_run){.plan = {.place = PARTY_UCX, .count = 5}, .victims = 9});
}

static void test_signals_all_but_one_dead_it_goes_on_alone(void **state)
{
    (void)state;
    signal_kill_and_check(&(const struct signal_run){.plan = {.place = PARTY_MEMORY, .count = 4}, .victims = 11});
}

/* -- stopped for a while ----------------------------------------------------------------------------------------- */

static void stop_rank(const struct rank *rank, void *argument)
{
    const struct signal_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    EXPECT_OK(party_open(party), &party->member->error);
    for (uint64_t round = 1; round <= 2000; round++) {
        EXPECT_OK(party_round(party, PARTY_LONG_NS), &party->member->error);
        party->log->count = 0; /* only that they end well matters */
        if (round % 50 == 0) {
            rank_mark(rank, (uint32_t)round / 50);
        }
    }
    party_leave(party);
}

/* Wherever the signal meets the member, in a wait, a merge or between two calls: it is late and never lost. */
static void stop_often(enum party_place place)
{
    struct signal_run run = {.plan = {.place = place, .count = 3}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, stop_rank, &run, party_timeout_ms());
    for (uint32_t mark = 1; mark < 40; mark++) {
        uint32_t index = mark % run.plan.count;
        ranks_await_mark(ranks, index, mark);
        ranks_stop(ranks, index);
        ranks_signal(ranks, index, SIGCONT);
    }
    ranks_finish(ranks);
}

static void test_signals_stopped_and_continued_in_any_phase_all_rounds_end_well(void **state)
{
    (void)state;
    stop_often(PARTY_MEMORY);
}

static void test_signals_stopped_and_continued_over_ucx_all_rounds_end_well(void **state)
{
    (void)state;
    stop_often(PARTY_UCX);
}

/* Stopped while the others open: they wait for it. */
static void open_rank(const struct rank *rank, void *argument)
{
    const struct signal_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    rank_mark(rank, MARK_HERE);
    if (rank->index == 1) {
        party_await_go(party);
    }
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, SIGNAL_LAST);
    rank_mark(rank, MARK_GONE_ON);
    uint32_t *may_close = &party->shared->words[0];
    while (rank->index == 0 && __atomic_load_n(may_close, __ATOMIC_SEQ_CST) == 0) {
        (void)ranks_futex_wait(may_close, 0, 1000);
    }
    party_leave(party);
}

static void test_signals_stopped_during_open_and_close_nobody_is_lost(void **state)
{
    (void)state;
    struct signal_run run = {.plan = {.place = PARTY_MEMORY, .count = 3}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, open_rank, &run, party_timeout_ms());
    ranks_await_mark(ranks, 2, MARK_HERE); /* rank 1 keeps the open from ending */
    ranks_stop(ranks, 2);
    party_go(ranks);
    ranks_signal(ranks, 2, SIGCONT);
    ranks_await_mark(ranks, 0, MARK_GONE_ON);
    ranks_stop(ranks, 0);
    ranks_await_exit(ranks, 1); /* closing does not wait for a member that stands still */
    uint32_t *may_close = &((struct party_shared *)ranks_shared(ranks))->words[0];
    __atomic_store_n(may_close, 1, __ATOMIC_SEQ_CST);
    ranks_signal(ranks, 0, SIGCONT);
    ranks_futex_wake(may_close);
    ranks_finish(ranks);
}

/* -- waking ------------------------------------------------------------------------------------------------------ */

static void wake_rank(const struct rank *rank, void *argument)
{
    const struct signal_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    /* Waiters go to sleep at once and look for themselves once a second only. */
    party->member->config.settings = "{\"yield_us\":0,\"spin_pauses\":0,\"liveness_ms\":1000}";
    party->member->config.settings_length = strlen(party->member->config.settings);
    EXPECT_OK(party_open(party), &party->member->error);
    for (uint32_t i = 0; i < WAKE_ROUNDS; i++) {
        EXPECT_OK(party_round(party, PARTY_LONG_NS), &party->member->error);
        if (i % 2 == rank->index) { /* by turns one is late, so that the other sleeps */
            (void)ranks_futex_wait(&party->shared->go, 0, 2);
        }
    }
    party_leave(party);
}

/* 60 rounds take a few milliseconds each; without a wake about a second each. */
static void test_signals_wake_reaches_a_sleeping_member(void **state)
{
    (void)state;
    struct signal_run run = {.plan = {.place = PARTY_MEMORY, .count = 2}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, wake_rank, &run, 10000);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_signals_dead_member_left_as_zombie_is_noticed),
        cmocka_unit_test(test_signals_dead_member_with_a_living_child_is_noticed),
        cmocka_unit_test(test_signals_two_deaths_at_once_others_go_on),
        cmocka_unit_test(test_signals_two_deaths_at_once_over_ucx_others_go_on),
        cmocka_unit_test(test_signals_all_but_one_dead_it_goes_on_alone),
        cmocka_unit_test(test_signals_stopped_and_continued_in_any_phase_all_rounds_end_well),
        cmocka_unit_test(test_signals_stopped_and_continued_over_ucx_all_rounds_end_well),
        cmocka_unit_test(test_signals_stopped_during_open_and_close_nobody_is_lost),
        cmocka_unit_test(test_signals_wake_reaches_a_sleeping_member),
    };
    return party_main("signals", all, sizeof all / sizeof all[0]);
}
