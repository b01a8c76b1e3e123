/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t states_4[] = {4};
static const uint8_t states_434[] = {4, 3, 4};

static const uint64_t keys_79[] = {7, 9};
static const uint64_t keys_779[] = {7, 7, 9};

static void keyed_call(struct poll_rank *rank, const uint8_t *states, const uint64_t *keys, size_t count)
{
    poll_rank_reset(rank);
    (void)poll_rank_add(rank, states, keys, count);
}

/* sgl-project/sglang PR 37909: the same requests in another order are no divergence when they have keys. */
static void test_poll_keyed_order_does_not_matter(void **state)
{
    (void)state;
    const uint64_t forth[] = {30, 10, 20};
    const uint64_t back[] = {20, 10, 30};
    struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
    keyed_call(&ranks->rank[0], (const uint8_t[]){3, 4, 2}, forth, 3);
    keyed_call(&ranks->rank[1], (const uint8_t[]){4, 4, 4}, back, 3);
    poll_ranks_run(ranks, CONVOY_OK);
    assert_memory_equal(ranks->rank[0].states[0], ((const uint8_t[]){3, 4, 2}), 3);
    assert_memory_equal(ranks->rank[1].states[0], ((const uint8_t[]){2, 4, 3}), 3);
    assert_int_equal(ranks->rank[1].outcomes[0][0].key, 10);
    assert_int_equal(ranks->rank[1].outcomes[0][2].listed_by, 2);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang issue 26912, PR 27028: what one rank fails is failed everywhere in that round, listed there or not,
 * and everyone can drop it. */
static void test_poll_keyed_failure_of_one_rank_reaches_all_in_one_round(void **state)
{
    (void)state;
    uint64_t keys[50];
    uint8_t failed[50] = {0};
    uint8_t running[50];
    memset(running, 3, sizeof running);
    for (uint64_t i = 0; i < 50; i++) {
        keys[i] = 1000 + i;
    }
    struct poll_ranks *ranks = poll_ranks_create(4, 0, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        keyed_call(&ranks->rank[i], failed, keys, i == 3 ? 50 : 0);
    }
    poll_ranks_run(ranks, CONVOY_OK);
    assert_int_equal(ranks->rank[0].list_results[0].outcome_count, 50);
    assert_int_equal(ranks->rank[0].outcomes[0][49].state, CONVOY_STATE_FAILED);
    assert_int_equal(ranks->rank[0].outcomes[0][49].listed_by, 1);
    for (uint32_t i = 0; i < 4; i++) {
        keyed_call(&ranks->rank[i], running, keys, i == 0 ? 50 : 0); /* rank 0 lists them only now */
    }
    poll_ranks_run(ranks, CONVOY_OK);
    for (uint32_t k = 0; k < 50; k++) {
        assert_int_equal(ranks->rank[0].states[0][k], CONVOY_STATE_FAILED);
        assert_int_equal(ranks->rank[0].outcomes[0][k].flags, CONVOY_OUTCOME_DECIDED);
    }
    poll_ranks_destroy(ranks);
}

/* SemiAnalysisAI/InferenceX issue 2151: one rank's list is empty; the others see "not yet", and by how many listed. */
static void test_poll_keyed_empty_list_of_one_rank_counts_as_not_yet(void **state)
{
    (void)state;
    const uint64_t keys[] = {1, 2, 3};
    struct poll_ranks *ranks = poll_ranks_create(4, 0, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        keyed_call(&ranks->rank[i], states_434, keys, i == 1 ? 0 : 3);
    }
    poll_ranks_run(ranks, CONVOY_OK);
    assert_memory_equal(ranks->rank[0].states[0], ((const uint8_t[]){1, 1, 1}), 3);
    assert_int_equal(ranks->rank[1].list_results[0].outcome_count, 3);
    assert_int_equal(ranks->rank[1].outcomes[0][2].listed_by, 3);
    for (uint32_t i = 0; i < 4; i++) {
        ranks->rank[i].lists[0].flags |= CONVOY_POLL_ABSENT_SKIP;
    }
    poll_ranks_run(ranks, CONVOY_OK);
    assert_memory_equal(ranks->rank[0].states[0], ((const uint8_t[]){4, 3, 4}), 3);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang issue 40125: a duplicate is an error of that call only, named; another generation is no duplicate. */
static void test_poll_keyed_duplicate_key_is_refused_by_name(void **state)
{
    (void)state;
    struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
    struct poll_rank *rank = &ranks->rank[1];
    keyed_call(&ranks->rank[0], (const uint8_t[]){4, 4}, keys_79, 2);
    keyed_call(rank, (const uint8_t[]){4, 4, 4}, keys_779, 3);
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, &rank->error),
                     CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(rank->error.text, "key 7, generation 0"));
    rank->lists[0].generations = (const uint32_t[]){1, 0, 0};
    poll_ranks_run(ranks, CONVOY_OK);
    assert_memory_equal(rank->states[0], ((const uint8_t[]){1, 4, 4}), 3);
    assert_memory_equal(ranks->rank[0].states[0], ((const uint8_t[]){4, 4}), 2);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang issue 40125: key 7 is used again after Success, and a late Failed for the old one comes in. */
static void test_poll_keyed_reused_key_is_told_apart_by_generation(void **state)
{
    (void)state;
    const uint64_t keys[] = {7, 7};
    const uint32_t generations[] = {0, 1};
    struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        keyed_call(&ranks->rank[i], states_4, keys, 1);
    }
    poll_ranks_run(ranks, CONVOY_OK);
    keyed_call(&ranks->rank[0], (const uint8_t[]){3}, keys + 1, 1);
    ranks->rank[0].lists[0].generations = generations + 1;
    keyed_call(&ranks->rank[1], (const uint8_t[]){0, 3}, keys, 2);
    ranks->rank[1].lists[0].generations = generations;
    poll_ranks_run(ranks, CONVOY_OK);
    assert_int_equal(ranks->rank[0].states[0][0], 3);
    assert_memory_equal(ranks->rank[1].states[0], ((const uint8_t[]){4, 3}), 2); /* the late Failed does not count */
    assert_int_equal(ranks->rank[1].outcomes[0][0].flags, CONVOY_OUTCOME_DECIDED);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang issue 34572, PR 34569: cancellations reach each rank at another time; every rank applies the same
 * (round, identity, end) list. */
static void test_poll_keyed_abort_storms_end_alike_on_all_ranks(void **state)
{
    (void)state;
    enum { RANKS = 8, KEYS = 64, ROUNDS = 2000 };
    static uint64_t keys[KEYS];
    static uint32_t generations[KEYS];
    static uint8_t states[RANKS][KEYS];
    uint64_t hashes[RANKS] = {0};
    uint64_t random = 17;
    struct poll_ranks *ranks = poll_ranks_create(RANKS, 0, NULL);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < RANKS; i++) {
            for (uint32_t k = 0; k < KEYS; k++) {
                random = random * 6364136223846793005ull + 1442695040888963407ull;
                keys[k] = k;
                states[i][k] = (random >> 33) % 400 == 0 ? 0 : (random >> 40) % 8 == 0 ? 3 : 4;
            }
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            keyed_call(&ranks->rank[i], states[i], keys, KEYS);
            ranks->rank[i].lists[0].generations = generations;
        }
        poll_ranks_run(ranks, CONVOY_OK);
        for (uint32_t i = 0; i < RANKS; i++) {
            for (uint32_t k = 0; k < KEYS; k++) {
                const struct convoy_poll_outcome *outcome = &ranks->rank[i].outcomes[0][k];
                uint64_t end = (uint64_t)outcome->state << 32 | outcome->generation;
                hashes[i] = (hashes[i] ^ (end + round * KEYS + k)) * 0x100000001b3ull;
            }
            assert_true(hashes[i] == hashes[0]);
        }
        for (uint32_t k = 0; k < KEYS; k++) {
            uint8_t ended = ranks->rank[0].outcomes[0][k].state;
            generations[k] += ended == 0 || ended == 4; /* the slot goes to another request */
        }
    }
    assert_int_equal(ranks->rank[0].poll->decided.count, 4096); /* it has forgotten some by now */
    poll_ranks_destroy(ranks);
}

/* An outcome beyond the bound is LIMIT on all, says the size, and the group goes on; also when hosts merge in parts. */
static void test_poll_keyed_outcome_beyond_the_bound_is_limit_on_all(void **state)
{
    (void)state;
    enum { RANKS = 4, KEYS = 40 };
    uint64_t keys[RANKS][KEYS];
    uint8_t states[KEYS];
    memset(states, 3, sizeof states);
    for (uint32_t hosts = 1; hosts <= RANKS; hosts++) {
        struct poll_ranks *ranks = poll_ranks_create(RANKS, 1024, NULL);
        for (uint32_t i = 0; i < RANKS; i++) {
            fake_group_place(ranks->group, i, i % hosts);
            for (uint64_t k = 0; k < KEYS; k++) {
                keys[i][k] = k * RANKS + i;
            }
            keyed_call(&ranks->rank[i], states, keys[i], KEYS);
        }
        poll_ranks_run(ranks, CONVOY_LIMIT);
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_non_null(strstr(ranks->rank[i].error.text, "160 identities"));
            assert_non_null(strstr(ranks->rank[i].error.text, "blob_bytes_max is 1024"));
            assert_int_equal(ranks->rank[i].states[0][0], 0xa5);
            ranks->rank[i].lists[0].count = 10;
        }
        poll_ranks_run(ranks, CONVOY_OK);
        assert_int_equal(ranks->rank[0].list_results[0].outcome_count, 40);
        poll_ranks_destroy(ranks);
    }
}

static void test_poll_keyed_own_list_beyond_the_bound_is_limit_before_sending(void **state)
{
    (void)state;
    static uint64_t keys[200];
    static uint8_t states[200];
    for (uint64_t k = 0; k < 200; k++) {
        keys[k] = k;
    }
    struct poll_ranks *ranks = poll_ranks_create(2, 1024, NULL);
    struct poll_rank *rank = &ranks->rank[0];
    keyed_call(rank, states, keys, 200);
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, &rank->error), CONVOY_LIMIT);
    assert_non_null(strstr(rank->error.text, "blob_bytes_max is 1024"));
    assert_int_equal(rank->operation, 0);
    poll_ranks_destroy(ranks);
}

/* More outcomes than the caller has room for: the count says how many, the rest is cut. */
static void test_poll_keyed_outcomes_are_cut_at_the_callers_room(void **state)
{
    (void)state;
    const uint64_t keys[] = {1, 2, 3};
    struct poll_ranks *ranks = poll_ranks_create(1, 0, NULL);
    struct poll_rank *rank = &ranks->rank[0];
    keyed_call(rank, (const uint8_t[]){3, 3, 3}, keys, 3);
    memset(rank->outcomes, 0xa5, sizeof rank->outcomes);
    rank->list_results[0].outcome_capacity = 2;
    rank->list_results[0].outcome_stride = 2 * sizeof(struct convoy_poll_outcome);
    poll_ranks_run(ranks, CONVOY_OK);
    assert_int_equal(rank->list_results[0].outcome_count, 3);
    assert_int_equal(rank->outcomes[0][2].key, 2);
    assert_int_equal(rank->outcomes[0][1].state, 0xa5);
    assert_int_equal(rank->outcomes[0][4].state, 0xa5);
    poll_ranks_destroy(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_keyed_order_does_not_matter),
        cmocka_unit_test(test_poll_keyed_failure_of_one_rank_reaches_all_in_one_round),
        cmocka_unit_test(test_poll_keyed_empty_list_of_one_rank_counts_as_not_yet),
        cmocka_unit_test(test_poll_keyed_duplicate_key_is_refused_by_name),
        cmocka_unit_test(test_poll_keyed_reused_key_is_told_apart_by_generation),
        cmocka_unit_test(test_poll_keyed_abort_storms_end_alike_on_all_ranks),
        cmocka_unit_test(test_poll_keyed_outcome_beyond_the_bound_is_limit_on_all),
        cmocka_unit_test(test_poll_keyed_own_list_beyond_the_bound_is_limit_before_sending),
        cmocka_unit_test(test_poll_keyed_outcomes_are_cut_at_the_callers_room),
    };
    return cmocka_run_group_tests_name("poll_keyed", tests, NULL, NULL);
}
