/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of one group move to another build between their rounds. Each member does the same mixed rounds (poll by position
 * and by key, in one call and in two; gathers) once without and once with moves, and every byte that comes out is the same.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"
#include "tests/lib/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u
#define ROUNDS 240u
#define STATES 40u
#define KEYS 9u
#define TEXT_BYTES 262144u

/* What a run is made of. */
struct plan {
    struct crowd crowd;
    uint32_t movers; /* bit for each rank that moves */
    uint32_t moves;  /* of each of them */
    uint32_t inner;
    uint32_t critical_flags;
};

/* What one rank saw in each round, as one number. */
struct seen {
    uint64_t digests[2][MEMBERS][ROUNDS];
};

static uint64_t fold(uint64_t into, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        into = (into ^ at[i]) * 0x100000001b3ull;
    }
    return into;
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */

struct round {
    uint32_t number;
    uint32_t rank;
    bool is_split;
    bool is_keyed;
    convoy_operation operation; /* of the last poll in two calls; 0 = the round was another */
    uint8_t states[STATES];
    uint64_t keys[KEYS];
    uint32_t generations[KEYS];
    struct convoy_poll_list list;
    struct convoy_poll_call call;
    uint8_t out[STATES];
    struct convoy_poll_outcome outcomes[MEMBERS * KEYS];
    struct convoy_poll_list_result list_result;
    struct convoy_poll_result result;
};

static void round_fill(struct round *round, bool is_keyed)
{
    round->list = (struct convoy_poll_list){.states = round->states, .name = "requests", .name_length = 8};
    round->list_result = (struct convoy_poll_list_result){.states = round->out, .states_capacity = STATES};
    for (uint32_t i = 0; i < STATES; i++) {
        round->states[i] = (uint8_t)((round->number + i * 3 + round->rank * (round->number / 8 % 2)) % 5);
    }
    round->list.count = is_keyed ? KEYS : round->number % 16 < 8 ? STATES : 7;
    if (is_keyed) { /* most of them the same for a while on all members, one of each member's own now and then */
        for (uint32_t i = 0; i < KEYS; i++) {
            round->keys[i] = 1000 + round->number / 40 * 4 + (i * 5 + round->rank) % KEYS;
            round->generations[i] = round->number / 100;
        }
        if (round->number % 10 == 7) {
            round->keys[round->rank] = 500 + round->rank;
        }
        round->list.keys = round->keys;
        round->list.generations = round->generations;
        round->list.flags = CONVOY_POLL_KEYED;
        round->list_result.outcomes = round->outcomes;
        round->list_result.outcome_stride = sizeof round->outcomes[0];
        round->list_result.outcome_capacity = sizeof round->outcomes / sizeof round->outcomes[0];
    }
    round->call = (struct convoy_poll_call){.struct_size = sizeof round->call,
                                            .lists = &round->list,
                                            .list_stride = sizeof round->list,
                                            .list_count = 1,
                                            .votes = round->number * 77 | 1u << round->rank,
                                            .tag = round->number + 1};
    round->result = (struct convoy_poll_result){.struct_size = sizeof round->result,
                                                .lists = &round->list_result,
                                                .list_stride = sizeof round->list_result,
                                                .list_capacity = 1};
}

static uint64_t poll_digest(const struct round *round)
{
    uint64_t digest = fold(round->result.round, round->out, round->list.count);
    digest = fold(digest, &round->result.votes_and, sizeof round->result.votes_and);
    digest = fold(digest, &round->result.votes_or, sizeof round->result.votes_or);
    for (size_t i = 0; round->is_keyed && i < round->list_result.outcome_count; i++) {
        digest = fold(digest, &round->outcomes[i].key, sizeof round->outcomes[i].key);
        digest = fold(digest, &round->outcomes[i].generation, sizeof round->outcomes[i].generation);
        digest = fold(digest, &round->outcomes[i].listed_by, sizeof round->outcomes[i].listed_by);
        digest = fold(digest, &round->outcomes[i].state, 1);
        digest = fold(digest, &round->outcomes[i].flags, 1);
    }
    return digest;
}

static uint64_t poll_round(struct plugin_member *member, struct round *round, bool is_keyed)
{
    const struct convoy_poll_table *poll = member->plugin.poll;
    round->is_keyed = is_keyed;
    round_fill(round, is_keyed);
    if (round->is_split) {
        EXPECT_OK(poll->reduce_start(member->group, &round->call, &round->operation, &member->error), &member->error);
        EXPECT_OK(poll->reduce_wait(member->group, round->operation, CROWD_WAIT_NS, &round->result, &member->error),
                  &member->error);
    } else {
        EXPECT_OK(poll->reduce(member->group, &round->call, CROWD_WAIT_NS, &round->result, &member->error),
                  &member->error);
    }
    return poll_digest(round);
}

/* The end of the last round once more, after the move. */
static void expect_same_end(struct plugin_member *member, struct round *round, uint64_t digest)
{
    if (round->operation == 0) {
        return;
    }
    memset(round->out, 0x5a, sizeof round->out);
    memset(round->outcomes, 0x5a, sizeof round->outcomes);
    EXPECT_OK(member->plugin.poll->reduce_test(member->group, round->operation, &round->result, &member->error),
              &member->error);
    EXPECT(poll_digest(round) == digest);
}

static uint64_t sync_round(struct plugin_member *member, const struct round *round)
{
    struct rows *rows = malloc(sizeof *rows);
    EXPECT(rows != NULL);
    rows_reset(rows);
    rows->row[ROWS_TOKENS] = (int64_t)round->number * 1000 + round->rank;
    rows->call.votes = 1u << round->rank | 256;
    rows->call.tag = round->number + 1;
    if (round->is_split) {
        convoy_operation operation = 0;
        EXPECT_OK(member->plugin.sync->gather_start(member->group, &rows->call, &operation, &member->error), &member->error);
        EXPECT_OK(member->plugin.sync->gather_wait(member->group, operation, CROWD_WAIT_NS, &rows->result, &member->error),
                  &member->error);
    } else {
        rows->result.report = round->number % 2 == 0 ? NULL : rows->result.report;
        EXPECT_OK(rows_gather(rows, member, CROWD_WAIT_NS), &member->error);
    }
    uint64_t digest = fold(rows->result.round, rows->table, sizeof rows->table);
    digest = fold(digest, rows->presence, sizeof rows->presence);
    digest = fold(digest, &rows->result.votes_or, sizeof rows->result.votes_or);
    free(rows);
    return digest;
}

/* Blocks of calls that are alike, so that they get short, and changes between them. */
static uint64_t one_round(struct plugin_member *member, struct round *round)
{
    uint32_t kind = round->number / 10 % 4;
    round->is_split = round->number % 5 == 3 + round->rank % 2;
    round->operation = 0;
    return kind == 0 || kind == 2 ? poll_round(member, round, kind == 2)
           : kind == 1            ? sync_round(member, round)
                                  : poll_round(member, round, round->number % 2 == 0);
}

/* -- runs ---------------------------------------------------------------------------------------------------------- */

static void expect_described(struct plugin_member *member, char *text, uint32_t topic, const char *part)
{
    struct convoy_text_buffer out = {.struct_size = sizeof out, .data = text, .capacity = TEXT_BYTES};
    EXPECT_OK(member->plugin.core->group_describe(member->group, topic, &out, &member->error), &member->error);
    EXPECT_TEXT(text, part);
}

/* Round, epoch and counters have gone on; the call log has rounds from before the last move. */
static void expect_end(struct plugin_member *member, uint64_t epoch)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_READY);
    EXPECT_EQUAL(info.round, ROUNDS);
    EXPECT(info.epoch == epoch);
    char *text = malloc(TEXT_BYTES);
    char part[64];
    EXPECT(text != NULL);
    expect_described(member, text, CONVOY_TOPIC_PROMETHEUS, "convoy");
    (void)snprintf(part, sizeof part, "\"round\":%u,", ROUNDS - 30);
    expect_described(member, text, CONVOY_TOPIC_CALL_LOG, part);
    (void)snprintf(part, sizeof part, "\"OK\":%u", ROUNDS / 4);
    expect_described(member, text, CONVOY_TOPIC_STATS, part); /* every fourth block of ten is a gather */
    free(text);
}

static uint64_t epoch_of(struct plugin_member *member)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    return info.epoch;
}

static void run(const struct rank *rank, const struct plan *plan, uint32_t movers, uint64_t *digests)
{
    struct plugin_member *member = rows_create(rank, &plan->crowd, movers == 0 ? "stays" : "moves", plan->inner);
    struct round round = {.rank = rank->index};
    uint32_t seed = rank->index * 977 + 5;
    uint32_t moved = 0;
    member->options.critical_flags = plan->critical_flags;
    plugin_member_open(member);
    uint64_t epoch = epoch_of(member);
    for (round.number = 0; round.number < ROUNDS; round.number++) {
        digests[round.number] = one_round(member, &round);
        bool is_mover = (movers >> rank->index & 1) != 0 && moved < plan->moves;
        if (is_mover && draw(&seed) % (ROUNDS - round.number) < plan->moves - moved) {
            moving_member(member, moved % 2 == 0 ? moving_first_build() : moving_second_build(),
                          moved % 2 == 0 ? moving_second_build() : moving_first_build());
            moved++;
            expect_same_end(member, &round, digests[round.number]);
        }
    }
    EXPECT_EQUAL(moved, (movers >> rank->index & 1) != 0 ? plan->moves : 0);
    expect_end(member, epoch);
    crowd_close(rank, member);
}

static void run_both(const struct rank *rank, void *argument)
{
    const struct plan *plan = argument;
    struct seen *seen = rank->shared;
    run(rank, plan, 0, seen->digests[0][rank->index]);
    run(rank, plan, plan->movers, seen->digests[1][rank->index]);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (seen->digests[0][rank->index][i] != seen->digests[1][rank->index][i]) {
            expect_fail(EXPECT_SITE("outcome"), "of round %u is another one after moves", i + 1);
        }
    }
}

static void check(struct plan plan, uint32_t count, bool by_threads)
{
    for (uint32_t i = 0; i < CROWD_PORTS; i++) {
        plan.crowd.ports[i] = plugin_port();
    }
    struct ranks *ranks = ranks_create(count, sizeof(struct seen));
    if (by_threads) {
        ranks_start_threads(ranks, run_both, &plan, CROWD_TIMEOUT_MS);
    } else {
        ranks_start(ranks, run_both, &plan, CROWD_TIMEOUT_MS);
    }
    ranks_finish(ranks);
}

static void test_move_one_process_of_four_sees_the_same(void **state)
{
    (void)state;
    check((struct plan){.movers = 1u << 2, .moves = 8, .inner = 1}, MEMBERS, false);
}

static void test_move_all_processes_twenty_times_see_the_same(void **state)
{
    (void)state;
    check((struct plan){.movers = 0xf, .moves = 20, .inner = 1}, MEMBERS, false);
}

static void test_move_all_threads_see_the_same(void **state)
{
    (void)state;
    check((struct plan){.movers = 0xf, .moves = 6, .inner = 2}, MEMBERS, true);
}

static void test_move_with_degrade_sees_the_same(void **state)
{
    (void)state;
    check((struct plan){.movers = 3, .moves = 10, .inner = 1, .critical_flags = CONVOY_GROUP_DEGRADE}, 2, false);
}

static void test_move_alone_sees_the_same(void **state)
{
    (void)state;
    check((struct plan){.movers = 1, .moves = 20, .inner = 1}, 1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_one_process_of_four_sees_the_same),
        cmocka_unit_test(test_move_all_processes_twenty_times_see_the_same),
        cmocka_unit_test(test_move_all_threads_see_the_same),
        cmocka_unit_test(test_move_with_degrade_sees_the_same),
        cmocka_unit_test(test_move_alone_sees_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
