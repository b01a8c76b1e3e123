/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users reported about queues that differ between ranks, replayed with real processes on keyed lists.
 * CONVOY_SCALE multiplies the number of rounds.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define KEYS_MAX 128u

/* One keyed list and its result. */
struct keyed {
    struct exchange exchange;
    uint64_t keys[KEYS_MAX];
    uint32_t generations[KEYS_MAX];
    struct convoy_poll_outcome outcomes[2 * KEYS_MAX];
};

static void keyed_reset(struct keyed *keyed)
{
    exchange_init(&keyed->exchange, 0, 0);
    memset(keyed->generations, 0, sizeof keyed->generations);
    keyed->exchange.list.flags = CONVOY_POLL_KEYED;
    keyed->exchange.list.keys = keyed->keys;
    keyed->exchange.list.generations = keyed->generations;
    keyed->exchange.list_result.outcomes = keyed->outcomes;
    keyed->exchange.list_result.outcome_stride = sizeof keyed->outcomes[0];
    keyed->exchange.list_result.outcome_capacity = 2 * KEYS_MAX;
}

static void keyed_add(struct keyed *keyed, uint64_t key, uint8_t state)
{
    size_t at = keyed->exchange.list.count++;
    EXPECT(at < KEYS_MAX);
    keyed->keys[at] = key;
    keyed->exchange.states[at] = state;
}

static void keyed_reduce(struct keyed *keyed, struct plugin_member *member)
{
    EXPECT_OK(exchange_reduce(&keyed->exchange, member, CROWD_WAIT_NS), &member->error);
}

static const struct convoy_poll_outcome *keyed_outcome(const struct keyed *keyed, uint64_t key, uint32_t generation)
{
    for (size_t i = 0; i < keyed->exchange.list_result.outcome_count; i++) {
        if (keyed->outcomes[i].key == key && keyed->outcomes[i].generation == generation) {
            return &keyed->outcomes[i];
        }
    }
    expect_fail(EXPECT_SITE("keyed_outcome"), "has no key %llu, generation %u", (unsigned long long)key, generation);
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 31) * 0x7fb5d329728ea185ull;
    value = (value ^ value >> 27) * 0x81dadef4bc2dd44dull;
    return value ^ value >> 33;
}

/* -- abort storms ---------------------------------------------------------------------------------------------- */

#define STORM_MEMBERS 8u
#define STORM_LIVE 64u
#define STORM_ROUNDS 500u
#define STORM_ROUNDS_FULL 10000u
#define STORM_EVERY 20u /* rounds from one storm to the next */
#define STORM_HIT 30u   /* requests that each cancels */

/* One rank's scheduler: its queue, and a hash over all that it has applied. */
struct storm {
    uint64_t live[STORM_LIVE];
    uint64_t born[STORM_LIVE];
    uint64_t next;
    uint64_t applied; /* requests that have ended */
    uint64_t hash;    /* over (round, key, outcome), in order */
};

/* Requests below this were canceled by a storm; each rank hears of a storm up to five rounds late. */
static bool storm_is_canceled(const struct storm *storm, uint32_t rank, uint64_t round, uint32_t at)
{
    uint64_t last = round / STORM_EVERY * STORM_EVERY;
    uint64_t delay = mix(last * STORM_MEMBERS + rank) % 5;
    bool is_hit = storm->born[at] < last && mix(storm->live[at] ^ last) % STORM_LIVE < STORM_HIT;
    return last != 0 && round >= last + delay && is_hit;
}

static uint8_t storm_state(const struct storm *storm, uint32_t rank, uint64_t round, uint32_t at)
{
    uint64_t pace = 6 + mix(storm->live[at] * STORM_MEMBERS + rank) % 8;
    uint64_t state = 1 + (round - storm->born[at]) / pace;
    return storm_is_canceled(storm, rank, round, at) ? 0 : (uint8_t)(state < 4 ? state : 4);
}

static void storm_apply(struct storm *storm, const struct keyed *keyed, uint64_t round)
{
    for (uint32_t i = 0; i < STORM_LIVE; i++) {
        const struct convoy_poll_outcome *outcome = keyed_outcome(keyed, storm->live[i], 0);
        EXPECT_EQUAL(outcome->state, keyed->exchange.states_out[i]);
        if (outcome->state == CONVOY_STATE_FAILED || outcome->state == CONVOY_STATE_SUCCESS) {
            storm->hash = mix(storm->hash ^ mix(round) ^ mix(storm->live[i]) ^ outcome->state);
            storm->applied += 1;
            storm->live[i] = storm->next++;
            storm->born[i] = round;
        }
    }
}

static void storm_run(const struct rank *rank, void *crowd)
{
    uint64_t *hashes = rank->shared;
    struct keyed keyed;
    struct storm storm = {.next = 1};
    struct plugin_member *member = crowd_open(rank, crowd, "storm");
    for (uint32_t i = 0; i < STORM_LIVE; i++) {
        storm.live[i] = storm.next++;
    }
    const uint64_t rounds = test_scaled(STORM_ROUNDS, STORM_ROUNDS_FULL);
    for (uint64_t round = 1; round <= rounds; round++) {
        keyed_reset(&keyed);
        for (uint32_t i = 0; i < STORM_LIVE; i++) {
            keyed_add(&keyed, storm.live[i], storm_state(&storm, rank->index, round, i));
        }
        keyed_reduce(&keyed, member);
        EXPECT_EQUAL(keyed.exchange.result.round, round);
        storm_apply(&storm, &keyed, round);
    }
    EXPECT(storm.applied > rounds);
    hashes[rank->index] = storm.hash;
    rank_barrier(rank);
    EXPECT_EQUAL(hashes[0], storm.hash);
    crowd_close(rank, member);
}

/* sgl-project/sglang issue 34572, PR 34569: cancellations reach each rank at another time; all apply the same
 * list of (round, key, outcome). */
static void test_reports_keyed_abort_storms_are_applied_alike(void **state)
{
    (void)state;
    crowd_run(STORM_MEMBERS, storm_run, STORM_MEMBERS * sizeof(uint64_t));
}

/* -- failures before a rank lists the key ------------------------------------------------------------------------ */

#define EARLY_KEYS 100u

/* Lists all keys from `first` on that have not ended here; returns how many are left afterwards. */
static uint32_t early_round(struct keyed *keyed, struct plugin_member *member, uint32_t first, uint8_t *states)
{
    uint32_t left = first;
    keyed_reset(keyed);
    for (uint32_t key = first; key < EARLY_KEYS; key++) {
        if (states[key] != 255) {
            keyed_add(keyed, key, states[key]);
        }
    }
    keyed_reduce(keyed, member);
    for (size_t i = 0; i < keyed->exchange.list.count; i++) {
        bool is_over = keyed->exchange.states_out[i] == 0 || keyed->exchange.states_out[i] == 4;
        states[keyed->keys[i]] = is_over ? 255 : states[keyed->keys[i]];
    }
    for (uint32_t key = first; key < EARLY_KEYS; key++) {
        left += states[key] != 255;
    }
    return left;
}

static void early_run(const struct rank *rank, void *crowd)
{
    struct keyed keyed;
    uint8_t states[EARLY_KEYS];
    struct plugin_member *member = crowd_open(rank, crowd, "early");
    for (uint32_t key = 0; key < EARLY_KEYS; key++) {
        states[key] = rank->index == 3 && key < EARLY_KEYS / 2 ? CONVOY_STATE_FAILED : CONVOY_STATE_SUCCESS;
    }
    uint32_t first = rank->index == 0 ? EARLY_KEYS / 2 : 0; /* rank 0 does not know the first half yet */
    EXPECT_EQUAL(early_round(&keyed, member, first, states), first);
    for (uint32_t key = 0; key < EARLY_KEYS / 2; key++) {
        EXPECT_EQUAL(keyed_outcome(&keyed, key, 0)->state, CONVOY_STATE_FAILED); /* visible to rank 0 as well */
    }
    EXPECT_EQUAL(early_round(&keyed, member, 0, states), 0);
    crowd_close(rank, member);
}

/* sgl-project/sglang issue 26912, PR 27028: rank 3 fails keys that rank 0 does not list yet. All see it in that round,
 * and after the next one, in which rank 0 brings them, nobody has any left. */
static void test_reports_keyed_early_failures_leave_no_rank_with_live_keys(void **state)
{
    (void)state;
    crowd_run(4, early_run, 0);
}

/* -- a key that becomes known at another time on each rank --------------------------------------------------------- */

#define LATE_KEY 77u

static void late_reduce(struct keyed *keyed, struct crowd_levels *levels)
{
    const struct convoy_poll_table *poll = levels->first->plugin.poll;
    struct convoy_error *error = &levels->first->error;
    convoy_operation operation = 0;
    EXPECT_OK(
        poll->reduce2_start(levels->first->group, levels->second->group, &keyed->exchange.call, &operation, error),
        error);
    EXPECT_OK(poll->reduce2_wait(levels->first->group, operation, CROWD_WAIT_NS, &keyed->exchange.result, error),
              error);
}

static void late_run(const struct rank *rank, void *crowd)
{
    static const uint32_t known_from[4] = {5, 6, 8, 12};
    struct keyed keyed;
    struct crowd_levels levels;
    crowd_levels_open(rank, crowd, &levels);
    for (uint32_t round = 1; round <= 12; round++) {
        keyed_reset(&keyed);
        keyed_add(&keyed, 5, CONVOY_STATE_TRANSFERRING);
        if (round >= known_from[rank->index]) {
            keyed_add(&keyed, LATE_KEY, CONVOY_STATE_SUCCESS);
        }
        late_reduce(&keyed, &levels);
        EXPECT_EQUAL(keyed.exchange.states_out[0], CONVOY_STATE_TRANSFERRING);
        uint8_t wanted = round < 12 ? CONVOY_STATE_BOOTSTRAPPING : CONVOY_STATE_SUCCESS;
        if (round >= known_from[rank->index]) {
            EXPECT_EQUAL(keyed.exchange.states_out[1], wanted);
        }
        if (round >= 5) {
            EXPECT_EQUAL(keyed_outcome(&keyed, 5, 0)->listed_by > 0, 1);
        }
    }
    EXPECT_EQUAL(keyed_outcome(&keyed, LATE_KEY, 0)->state, CONVOY_STATE_SUCCESS);
    crowd_levels_close(rank, &levels);
}

/* sgl-project/sglang issue 21297, PR 21299: known in rounds 5, 6, 8 and 12 on the four ranks of a 2 x 2 shard: "not
 * yet" until the last knows it, never Failed, never an error. */
static void test_reports_keyed_late_key_is_bootstrapping_until_all_know_it(void **state)
{
    (void)state;
    crowd_run(4, late_run, 0);
}

/* -- a rank whose list became empty ---------------------------------------------------------------------------- */

static void empty_run(const struct rank *rank, void *crowd)
{
    struct keyed keyed;
    struct plugin_member *member = crowd_open(rank, crowd, "empty");
    keyed_reset(&keyed);
    for (uint64_t key = 1; key <= 3 && rank->index != 1; key++) {
        keyed_add(&keyed, key, CONVOY_STATE_SUCCESS);
    }
    keyed_reduce(&keyed, member);
    EXPECT_EQUAL(keyed.exchange.list_result.outcome_count, 3);
    for (uint64_t key = 1; key <= 3; key++) {
        EXPECT_EQUAL(keyed_outcome(&keyed, key, 0)->state, CONVOY_STATE_BOOTSTRAPPING);
        EXPECT_EQUAL(keyed_outcome(&keyed, key, 0)->listed_by, 3);
    }
    struct exchange exchange;
    exchange_init(&exchange, rank->index == 1 ? 0 : 3, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(&exchange, member, CROWD_WAIT_NS), CONVOY_DIVERGED, &member->error);
    EXPECT_EQUAL(exchange.report.field, CONVOY_FIELD_COUNTS);
    EXPECT_EQUAL(exchange_row(&exchange, 1)->counts >> 8, 0);
    EXPECT_EQUAL(exchange_row(&exchange, 3)->counts >> 8, 3);
    crowd_close(rank, member);
}

/* SemiAnalysisAI/InferenceX issue 2151: {3, 0, 3, 3} entries: nobody hangs. With keys rank 1's are "not yet" and
 * listed_by says that three of four list them; by position it is a divergence that names rank 1's 0. */
static void test_reports_keyed_empty_list_of_one_rank_takes_part(void **state)
{
    (void)state;
    crowd_run(4, empty_run, 0);
}

/* -- keys that come twice ------------------------------------------------------------------------------------------ */

static void twice_refused(struct keyed *keyed, struct plugin_member *member, const struct rank *rank)
{
    keyed_reset(keyed);
    keyed_add(keyed, 7, CONVOY_STATE_SUCCESS);
    keyed_add(keyed, 7, CONVOY_STATE_SUCCESS);
    keyed_add(keyed, 9, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(&keyed->exchange, member, CROWD_LATE_NS), CONVOY_INVALID_ARGUMENT, &member->error);
    EXPECT_TEXT(member->error.text, "7");
    exchange_expect_untouched(&keyed->exchange);
    rank_barrier(rank);
    keyed_reset(keyed);
    keyed_add(keyed, 7, CONVOY_STATE_WAITING_FOR_INPUT);
    if (rank->index == 1) {
        keyed_add(keyed, 7, CONVOY_STATE_WAITING_FOR_INPUT);
        keyed->exchange.call.hint_flags = CONVOY_CALL_POST_ERROR;
    }
    keyed_add(keyed, 9, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(&keyed->exchange, member, CROWD_WAIT_NS),
                  rank->index == 1 ? CONVOY_INVALID_ARGUMENT : CONVOY_PEER_ERROR, &member->error);
}

static void twice_reused(struct keyed *keyed, struct plugin_member *member, const struct rank *rank)
{
    keyed_reset(keyed);
    keyed_add(keyed, 7, CONVOY_STATE_SUCCESS);
    keyed_reduce(keyed, member);
    EXPECT_EQUAL(keyed->exchange.states_out[0], CONVOY_STATE_SUCCESS);
    keyed_reset(keyed);
    keyed_add(keyed, 7, CONVOY_STATE_TRANSFERRING); /* the next request of that number */
    keyed->generations[0] = 1;
    if (rank->index == 1) {
        keyed_add(keyed, 7, CONVOY_STATE_FAILED); /* late, for the old one */
    }
    keyed_reduce(keyed, member);
    EXPECT_EQUAL(keyed_outcome(keyed, 7, 1)->state, CONVOY_STATE_TRANSFERRING);
    EXPECT_EQUAL(keyed_outcome(keyed, 7, 0)->state, CONVOY_STATE_SUCCESS);
    EXPECT_EQUAL(keyed_outcome(keyed, 7, 0)->flags, CONVOY_OUTCOME_DECIDED);
}

static void twice_run(const struct rank *rank, void *crowd)
{
    struct keyed keyed;
    struct plugin_member *member = crowd_open(rank, crowd, "twice");
    twice_refused(&keyed, member, rank);
    twice_reused(&keyed, member, rank);
    crowd_close(rank, member);
}

/* sgl-project/sglang issue 40125. The report wants an error for that key only; by design.md the whole call is
 * refused, with the key named, and the other rank learns of it at once. The old request's late failure does not
 * reach the new. */
static void test_reports_keyed_duplicate_is_refused_and_reuse_is_told_apart(void **state)
{
    (void)state;
    crowd_run(2, twice_run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_keyed_abort_storms_are_applied_alike),
        cmocka_unit_test(test_reports_keyed_early_failures_leave_no_rank_with_live_keys),
        cmocka_unit_test(test_reports_keyed_late_key_is_bootstrapping_until_all_know_it),
        cmocka_unit_test(test_reports_keyed_empty_list_of_one_rank_takes_part),
        cmocka_unit_test(test_reports_keyed_duplicate_is_refused_and_reuse_is_told_apart),
    };
    return cmocka_run_group_tests_name("reports_keyed", tests, NULL, NULL);
}
