/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random lives of a group: rounds that members come late to, give up on, cancel, are stopped in or die in, by a plan
 * that follows from a seed and is known to all. Whatever happens, the survivors must tell the same story, and every
 * result must be that of its round, from members that were there.
 */
#include "tests/fault/party.h"

#include "core/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANDOM_ROUNDS 60u
#define RANDOM_LATE_NS 2000000ull /* a deadline that a late member often misses */
#define RANDOM_FAILURES_MAX 200u

enum random_deed {
    DEED_COME = 0, /* an ordinary round */
    DEED_LATE,     /* comes some milliseconds late */
    DEED_GIVE_UP,  /* abandons the round at once */
    DEED_HASTY,    /* a short deadline, then gives up */
    DEED_PATIENT,  /* a short deadline, then waits on */
    DEED_CANCEL,   /* cancels itself, then waits on */
    DEED_STOP,     /* is stopped and continued by the parent: asks for it */
    DEED_DIE,
    DEED_COUNT,
};

struct random_run {
    struct party_plan plan;
    uint64_t seed;
    uint32_t victims;    /* bit per member that may die */
    uint32_t quarrels;   /* one round in so many has deeds */
};

/* A number that all members agree on: splitmix64 of what it is about. */
static uint64_t random_number(uint64_t seed, uint64_t about)
{
    uint64_t mixed = seed + (about + 1) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
}

/* What a member does in a round; `failures` so far makes a repeated round a different one. */
static enum random_deed random_deed_of(const struct random_run *run, uint32_t member, uint64_t round, uint32_t failures)
{
    uint64_t number = random_number(run->seed, (round * 64 + failures % 64) * PARTY_MAX + member);
    if (random_number(run->seed ^ 77, round * 64 + failures % 64) % run->quarrels != 0) {
        return DEED_COME;
    }
    enum random_deed deed = (enum random_deed)(number % DEED_COUNT);
    bool may_die = (run->victims >> member & 1) != 0 && number >> 40 & 1;
    return deed == DEED_DIE && !may_die ? DEED_LATE : deed;
}

static void random_dawdle(const struct party *party, uint32_t ms)
{
    (void)ranks_futex_wait(&party->shared->go, 0, ms); /* nobody sets it */
}

/* A cancel hits the next wait that has to wait, maybe rounds later. */
static int32_t random_finish(struct party *party, convoy_operation operation, uint64_t timeout_ns)
{
    int32_t status = party_finish(party, operation, timeout_ns);
    return status == CONVOY_CANCELED ? party_finish(party, operation, timeout_ns) : status;
}

static int32_t random_give_up(struct party *party, convoy_operation operation, bool is_hasty)
{
    int32_t status = is_hasty ? random_finish(party, operation, RANDOM_LATE_NS) : CONVOY_TIMED_OUT;
    return status == CONVOY_TIMED_OUT ? party_abandon(party, operation) : status;
}

static int32_t random_wait_twice(struct party *party, convoy_operation operation, bool does_cancel)
{
    struct plugin_member *member = party->member;
    if (does_cancel) {
        EXPECT_OK(member->plugin.core->group_cancel(member->group, "so", 2, &member->error), &member->error);
    }
    int32_t status = random_finish(party, operation, does_cancel ? PARTY_LONG_NS : RANDOM_LATE_NS);
    return status == CONVOY_TIMED_OUT ? random_finish(party, operation, PARTY_LONG_NS) : status;
}

/* The same in one call, as far as there is one. */
static int32_t random_do_at_once(struct party *party, enum random_deed deed)
{
    struct plugin_member *member = party->member;
    if (deed == DEED_CANCEL) {
        EXPECT_OK(member->plugin.core->group_cancel(member->group, "so", 2, &member->error), &member->error);
    }
    bool is_short = deed == DEED_HASTY || deed == DEED_PATIENT;
    int32_t status = party_round(party, is_short ? RANDOM_LATE_NS : PARTY_LONG_NS);
    if (status != CONVOY_TIMED_OUT && status != CONVOY_CANCELED) {
        return status;
    }
    convoy_operation operation = party_operation(party);
    return deed == DEED_HASTY ? random_give_up(party, operation, status == CONVOY_CANCELED)
                              : random_finish(party, operation, PARTY_LONG_NS);
}

static int32_t random_do(struct party *party, enum random_deed deed)
{
    convoy_operation operation = 0;
    if (deed == DEED_LATE) {
        random_dawdle(party, 5);
    }
    bool is_split = deed == DEED_GIVE_UP || deed == DEED_STOP || deed == DEED_DIE;
    if (!is_split && (party->next + party->rank->index) % 4 != 0) {
        return random_do_at_once(party, deed);
    }
    int32_t status = party_start(party, &operation);
    if (deed == DEED_DIE) {
        (void)raise(SIGKILL);
    }
    if (deed == DEED_STOP) {
        (void)__atomic_add_fetch(&party->shared->words[party->rank->index], 1, __ATOMIC_SEQ_CST);
        rank_mark(party->rank, (uint32_t)party->shared->words[party->rank->index]);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    if (deed == DEED_GIVE_UP || deed == DEED_HASTY) {
        return random_give_up(party, operation, deed == DEED_HASTY);
    }
    if (deed == DEED_PATIENT || deed == DEED_CANCEL) {
        return random_wait_twice(party, operation, deed == DEED_CANCEL);
    }
    return random_finish(party, operation, PARTY_LONG_NS);
}

static void random_rank(const struct rank *rank, void *argument)
{
    const struct random_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    uint32_t failures = 0;
    uint32_t last = party_scaled(RANDOM_ROUNDS);
    EXPECT_OK(party_open(party), &party->member->error);
    while (party->next <= last) {
        int32_t status = random_do(party, random_deed_of(run, rank->index, party->next, failures));
        if (status == CONVOY_OK) {
            continue;
        }
        if (status != CONVOY_PEER_LOST && status != CONVOY_BROKEN) {
            expect_fail(EXPECT_SITE("round"), "%llu ended with %d: %s", (unsigned long long)party->next, status,
                        party->member->error.text);
        }
        failures++;
        EXPECT(failures <= party_scaled(RANDOM_FAILURES_MAX));
        EXPECT_OK(party_reopen(party), &party->member->error);
    }
    party_leave(party);
}

/* Who died is known afterwards: it has not finished. */
static uint32_t random_survivors(const struct party_shared *shared, uint32_t count)
{
    uint32_t survivors = 0;
    for (uint32_t i = 0; i < count; i++) {
        survivors |= shared->logs[i].is_done != 0 ? 1u << i : 0;
    }
    return survivors;
}

/* Stops and continues whoever asks, until all have ended or should have. */
static void random_serve_stops(struct ranks *ranks, uint32_t count)
{
    struct party_shared *shared = ranks_shared(ranks);
    uint32_t served[PARTY_MAX] = {0};
    uint64_t until = convoy_now_ns() + (uint64_t)party_timeout_ms() * party_scaled(1) * CONVOY_NS_PER_MS;
    bool is_over = false;
    while (!is_over && convoy_now_ns() < until) {
        is_over = true;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t asked = __atomic_load_n(&shared->words[i], __ATOMIC_SEQ_CST);
            bool has_ended = !party_is_running(ranks, i);
            bool is_leaving = __atomic_load_n(&shared->logs[i].is_done, __ATOMIC_SEQ_CST) != 0;
            if (asked != served[i] && !has_ended && !is_leaving) { /* a sanitizer's check at exit hangs when stopped */
                served[i] = asked;
                (void)kill(ranks_pid(ranks, i), SIGSTOP);
                (void)kill(ranks_pid(ranks, i), SIGCONT);
            }
            is_over = is_over && has_ended;
        }
        (void)ranks_futex_wait(&shared->go, 0, 1);
    }
}

static void random_life(const struct random_run *given)
{
    struct random_run run = *given;
    struct party_shared *seen = malloc(sizeof *seen);
    EXPECT(seen != NULL);
    struct ranks *ranks = party_ranks(&run.plan);
    print_message("seed %llu\n", (unsigned long long)run.seed);
    ranks_start(ranks, random_rank, &run, party_timeout_ms() * party_scaled(1));
    random_serve_stops(ranks, run.plan.count);
    (void)memcpy(seen, ranks_shared(ranks), sizeof *seen);
    uint32_t survivors = random_survivors(seen, run.plan.count);
    for (uint32_t i = 0; i < run.plan.count; i++) {
        if ((survivors >> i & 1) == 0 && (run.victims >> i & 1) != 0) {
            ranks_expect_signal(ranks, i, SIGKILL);
        }
    }
    ranks_finish(ranks);
    EXPECT(survivors != 0);
    party_check(seen, &run.plan, survivors, party_scaled(RANDOM_ROUNDS));
    free(seen);
}

/* CONVOY_SEED makes a failed life happen again. */
static uint64_t random_seed(uint64_t otherwise)
{
    const char *text = getenv("CONVOY_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_lives_over_shared_memory(void **state)
{
    (void)state;
    for (uint32_t life = 0; life < 12; life++) {
        random_life(&(const struct random_run){
            .plan = {.place = PARTY_MEMORY, .count = 2 + life % 7},
            .seed = random_seed(1000 + life),
            .victims = life % 3 == 0 ? 0 : 6,
            .quarrels = 4,
        });
    }
}

static void test_random_lives_over_ucx(void **state)
{
    (void)state;
    for (uint32_t life = 0; life < 4; life++) {
        random_life(&(const struct random_run){
            .plan = {.place = PARTY_UCX, .count = 2 + life},
            .seed = random_seed(2000 + life),
            .victims = life == 3 ? 2 : 0, /* two lost hosts of four are no minority */
            .quarrels = 6,
        });
    }
}

/* -- two fixed cases of who wins a cell --------------------------------------------------------------------------- */

static void complete_rank(const struct rank *rank, void *argument)
{
    const struct random_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    convoy_operation operation = 0;
    EXPECT_OK(party_open(party), &party->member->error);
    EXPECT_OK(party_start(party, &operation), &party->member->error);
    rank_barrier(rank);
    if (rank->index == 0) { /* reads its result then */
        EXPECT_OK(party_abandon(party, operation), &party->member->error);
    } else {
        EXPECT_OK(party_finish(party, operation, PARTY_LONG_NS), &party->member->error);
    }
    EXPECT_OK(party_round(party, PARTY_LONG_NS), &party->member->error);
    party_leave(party);
}

/* Everybody has contributed: there is nothing left to seal. */
static void test_random_complete_round_cannot_be_given_away(void **state)
{
    (void)state;
    struct random_run run = {.plan = {.place = PARTY_MEMORY, .count = 3}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, complete_rank, &run, party_timeout_ms());
    ranks_finish(ranks);
}

static void given_up_rank(const struct rank *rank, void *argument)
{
    const struct random_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    convoy_operation operation = 0;
    EXPECT_OK(party_open(party), &party->member->error);
    if (rank->index != 2) {
        EXPECT_OK(party_start(party, &operation), &party->member->error);
    }
    rank_barrier(rank);
    if (rank->index == 0) {
        EXPECT_STATUS(party_abandon(party, operation), CONVOY_BROKEN, &party->member->error);
    } else if (rank->index == 1) {
        EXPECT_STATUS(party_finish(party, operation, PARTY_LONG_NS), CONVOY_BROKEN, &party->member->error);
    }
    rank_barrier(rank);
    if (rank->index == 2) { /* all others have contributed, and so would it */
        EXPECT_STATUS(party_round(party, PARTY_LONG_NS), CONVOY_BROKEN, &party->member->error);
    }
    rank_barrier(rank);
    EXPECT_OK(party_reopen(party), &party->member->error);
    EXPECT_OK(party_round(party, PARTY_LONG_NS), &party->member->error);
    party_leave(party);
}

static void test_random_round_given_up_is_so_for_a_late_member_too(void **state)
{
    (void)state;
    struct random_run run = {.plan = {.place = PARTY_MEMORY, .count = 3}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, given_up_rank, &run, party_timeout_ms());
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives_over_shared_memory),
        cmocka_unit_test(test_random_lives_over_ucx),
        cmocka_unit_test(test_random_complete_round_cannot_be_given_away),
        cmocka_unit_test(test_random_round_given_up_is_so_for_a_late_member_too),
    };
    return party_main("random", tests, sizeof tests / sizeof tests[0]);
}
