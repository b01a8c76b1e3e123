/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keyed rounds like the one before, of which a group sends the states alone: with everything in between that makes a
 * round another one for some of its members, against a plain computation over what all of them bring.
 */
#include "tests/conformance/suite.h"

#include <string.h>

#define KEYED_ROUNDS 480u
#define KEYED_PHASE 12u /* rounds with the same identities */
#define KEYED_MAX 70u

/* What a member lists in a round; all of it follows from the two. */
struct keyed_part {
    size_t count;
    uint64_t keys[KEYED_MAX];
    uint32_t generations[KEYED_MAX];
    uint8_t states[KEYED_MAX];
};

static size_t keyed_count(uint32_t round)
{
    static const size_t counts[] = {1, 7, 24, 32, 33, 47, 64, 65};
    return counts[round / KEYED_PHASE % (sizeof counts / sizeof counts[0])];
}

/* In the middle of a phase one member lacks an identity for a round. */
static bool keyed_lacks(uint32_t rank, uint32_t round)
{
    return round % KEYED_PHASE == 6 && rank == round / KEYED_PHASE % SUITE_MEMBERS && keyed_count(round) > 1;
}

static uint8_t keyed_state(uint32_t rank, uint32_t round, uint64_t key)
{
    uint64_t x = key * UINT64_C(0x9e3779b97f4a7c15) + round * UINT64_C(0xbf58476d1ce4e5b9) + rank * 77;
    x ^= x >> 29;
    x *= UINT64_C(0x94d049bb133111eb);
    bool may_end = round % KEYED_PHASE == KEYED_PHASE - 1; /* the identities are gone in the next round */
    return may_end ? (uint8_t)((x >> 40) % 5) : (uint8_t)(1 + (x >> 40) % 3);
}

static void keyed_fill(struct keyed_part *part, uint32_t rank, uint32_t round)
{
    size_t whole = keyed_count(round);
    uint32_t phase = round / KEYED_PHASE;
    part->count = whole - keyed_lacks(rank, round);
    for (size_t i = 0; i < part->count; i++) {
        uint64_t place = (i + rank * 5) % whole; /* each member in an order of its own */
        part->keys[i] = (place * 37 % whole) * UINT64_C(0x10000001) + phase * UINT64_C(1000000007);
        part->generations[i] = phase % 3 == 2 ? (uint32_t)place % 4 : 0;
        part->states[i] = keyed_state(rank, round, part->keys[i]);
    }
}

static const uint8_t *keyed_find(const struct keyed_part *part, uint64_t key, uint32_t generation)
{
    for (size_t i = 0; i < part->count; i++) {
        if (part->keys[i] == key && part->generations[i] == generation) {
            return &part->states[i];
        }
    }
    return NULL;
}

static uint8_t keyed_least(const struct keyed_part *parts, uint64_t key, uint32_t generation)
{
    uint8_t least = CONVOY_STATE_SUCCESS;
    for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
        const uint8_t *state = keyed_find(&parts[rank], key, generation);
        uint8_t theirs = state != NULL ? *state : CONVOY_STATE_BOOTSTRAPPING;
        least = theirs < least ? theirs : least;
    }
    return least;
}

/* The call of one member, in one of several forms that mean the same. */
struct keyed_round {
    struct keyed_part parts[SUITE_MEMBERS];
    uint8_t out[KEYED_MAX];
    struct convoy_poll_outcome outcomes[KEYED_MAX];
    struct convoy_poll_list list;
    struct convoy_poll_list_result list_result;
    struct convoy_poll_call call;
    struct convoy_poll_result result;
};

static void keyed_prepare(struct keyed_round *one, uint32_t rank, uint32_t round)
{
    const struct keyed_part *own = &one->parts[rank];
    for (uint32_t i = 0; i < SUITE_MEMBERS; i++) {
        keyed_fill(&one->parts[i], i, round);
    }
    bool has_generations = round / KEYED_PHASE % 3 == 2;
    bool wants_outcomes = round % 5 == rank;
    memset(one->out, 0xa5, sizeof one->out);
    one->list = (struct convoy_poll_list){.count = own->count, .states = own->states, .state_bytes = 1,
                                          .flags = CONVOY_POLL_KEYED, .keys = own->keys,
                                          .generations = has_generations ? own->generations : NULL};
    one->list_result = (struct convoy_poll_list_result){.states = one->out, .states_capacity = KEYED_MAX,
                                                        .outcomes = wants_outcomes ? one->outcomes : NULL,
                                                        .outcome_capacity = wants_outcomes ? KEYED_MAX : 0};
    one->call = (struct convoy_poll_call){.struct_size = sizeof one->call, .lists = &one->list,
                                          .list_stride = sizeof one->list, .list_count = 1, .tag = round + 1,
                                          .votes = 1u << rank | 0x100};
    one->result = (struct convoy_poll_result){.struct_size = sizeof one->result, .lists = &one->list_result,
                                              .list_stride = sizeof one->list_result, .list_capacity = 1};
}

static void keyed_expect(const struct keyed_round *one, uint32_t rank, uint32_t round)
{
    const struct keyed_part *own = &one->parts[rank];
    for (size_t i = 0; i < own->count; i++) {
        EXPECT_EQUAL(one->out[i], keyed_least(one->parts, own->keys[i], own->generations[i]));
    }
    EXPECT_EQUAL(one->out[own->count], 0xa5);
    EXPECT_EQUAL(one->list_result.states_count, own->count);
    EXPECT_EQUAL(one->list_result.outcome_count, keyed_count(round));
    EXPECT_EQUAL(one->list_result.unknown_count, 0);
    EXPECT_EQUAL(one->result.votes_and, 0x100);
    EXPECT_EQUAL(one->result.votes_or, 0x10f);
    EXPECT_EQUAL(one->result.round, round + 1);
    for (size_t i = 0; one->list_result.outcomes != NULL && i < one->list_result.outcome_count; i++) {
        const struct convoy_poll_outcome *outcome = &one->outcomes[i];
        uint32_t listed = 0;
        for (uint32_t member = 0; member < SUITE_MEMBERS; member++) {
            listed += keyed_find(&one->parts[member], outcome->key, outcome->generation) != NULL;
        }
        EXPECT_EQUAL(outcome->listed_by, listed);
        EXPECT_EQUAL(outcome->state, keyed_least(one->parts, outcome->key, outcome->generation));
    }
}

static void case_keyed(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    uint32_t rank = suite->rank->index;
    struct keyed_round one;
    suite_open(suite);
    for (uint32_t round = 0; round < KEYED_ROUNDS; round++) {
        convoy_operation operation = 0;
        keyed_prepare(&one, rank, round);
        if (round % 11 == rank) { /* the split call never goes a short way */
            EXPECT_OK(member->plugin.poll->reduce_start(member->group, &one.call, &operation, &member->error),
                      &member->error);
            EXPECT_OK(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &one.result,
                                                       &member->error),
                      &member->error);
        } else {
            EXPECT_OK(member->plugin.poll->reduce(member->group, &one.call, SUITE_LONG_NS, &one.result, &member->error),
                      &member->error);
        }
        keyed_expect(&one, rank, round);
    }
}

/* A round that fails in between leaves nothing behind that the members would see differently. */
static void case_keyed_disturbed(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    uint32_t rank = suite->rank->index;
    struct keyed_round one;
    suite_open(suite);
    for (uint32_t round = 0; round < KEYED_ROUNDS / 4; round++) {
        bool is_odd = rank == round % SUITE_MEMBERS;
        for (uint32_t turn = 0; turn < 3; turn++) { /* the third one can go a short way */
            keyed_prepare(&one, rank, round);
            EXPECT_OK(member->plugin.poll->reduce(member->group, &one.call, SUITE_LONG_NS, &one.result, &member->error),
                      &member->error);
        }
        keyed_prepare(&one, rank, round);
        int32_t wanted = CONVOY_DIVERGED;
        if (round % 3 == 0) {
            one.list.flags = is_odd ? 0 : CONVOY_POLL_KEYED;
        } else if (round % 3 == 1) {
            one.call.tag = is_odd ? 99 : 98;
        } else {
            one.call.critical_flags = is_odd ? CONVOY_CALL_ERROR_ROW : 0;
            wanted = CONVOY_PEER_ERROR;
        }
        EXPECT_STATUS(member->plugin.poll->reduce(member->group, &one.call, SUITE_LONG_NS, &one.result, &member->error),
                      wanted, &member->error);
    }
}

const struct suite_case suite_keyed_cases[] = {
    {.name = "test_conformance_keyed_rounds_alike", .run = case_keyed},
    {.name = "test_conformance_keyed_rounds_disturbed", .run = case_keyed_disturbed},
};
const size_t suite_keyed_count = sizeof suite_keyed_cases / sizeof suite_keyed_cases[0];
