/* SPDX-License-Identifier: Apache-2.0 */
/* The same for keyed lists, of which the short way sends the states alone. */
#include "tests/lib/expect.h"
#include "tests/lib/poll_pair.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The second member has the same identities in another order. */
static void side_key(struct poll_side *side, size_t entries, uint64_t salt)
{
    uint32_t shift = side->member->options.own_index * 5;
    for (size_t i = 0; i < entries; i++) {
        side->keys[i] = ((i + shift) % entries + 1) * 0x9e3779b97f4a7c15u + salt;
    }
    side->lists[0].flags = CONVOY_POLL_KEYED;
    side->lists[0].keys = side->keys;
}

static void pair_key(struct poll_pair *pair, size_t entries, uint64_t salt)
{
    poll_pair_fill(pair, 1, entries, 2, 3);
    side_key(&pair->sides[0], entries, salt);
    side_key(&pair->sides[1], entries, salt);
}

static struct poll_pair *pair_create_keyed(size_t entries)
{
    struct poll_pair *pair = poll_pair_create(NULL, 1, entries, true);
    pair_key(pair, entries, 0);
    poll_pair_round(pair, false, 2);
    return pair;
}

static void *keyed_main(void *argument)
{
    struct poll_side *side = argument;
    side->result.round = 0;
    for (uint32_t round = 0; round < POLL_PAIR_ROUNDS; round++) {
        poll_side_round_fill(side, round);
        int32_t status = convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error);
        side->result.round--; /* one more went before */
        if (status != CONVOY_OK || !poll_side_round_is_right(side, round) ||
            side->list_results[0].outcome_count != side->lists[0].count) {
            return side;
        }
    }
    return side->poll->quick.round.input == NULL ? side : NULL;
}

static void test_poll_quick_keyed_rounds_of_all_sizes(void **state)
{
    (void)state;
    for (size_t entries = 1; entries < 72; entries += entries < 30 ? 7 : 1) {
        struct poll_pair *pair = pair_create_keyed(entries);
        pthread_t thread;
        void *failed = NULL;
        EXPECT_EQUAL(pthread_create(&thread, NULL, keyed_main, &pair->sides[1]), 0);
        void *own = keyed_main(&pair->sides[0]);
        EXPECT_EQUAL(pthread_join(thread, &failed), 0);
        EXPECT(own == NULL && failed == NULL);
        poll_pair_destroy(pair);
    }
}

/* `whole` brings its identities, the other member refers to the last ones. */
static void keyed_meeting(struct poll_pair *pair, uint32_t whole)
{
    struct poll_side *side = &pair->sides[1 - whole];
    struct poll_side *other = &pair->sides[whole];
    EXPECT_OK(poll_side_start(other), &other->member->error);
    EXPECT_OK(convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error), &side->member->error);
    EXPECT_OK(convoy_poll_test(other->poll, other->operation, &other->result, NULL), NULL);
}

/* The two go the short way now. */
static void pair_warm_up(struct poll_pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        keyed_meeting(pair, side);
        keyed_meeting(pair, side);
        EXPECT(pair->sides[1 - side].poll->quick.engine.generation != 0);
    }
}

/* One of them may have others now. */
static void test_poll_quick_keyed_meets_the_whole_way(void **state)
{
    (void)state;
    for (size_t entries = 5; entries < 72; entries += 29) {
        for (uint32_t whole = 0; whole < 2; whole++) {
            struct poll_pair *pair = pair_create_keyed(entries);
            pair_warm_up(pair);
            side_key(&pair->sides[whole], entries, 77); /* each lacks what the other lists */
            keyed_meeting(pair, whole);
            for (uint32_t side = 0; side < 2; side++) {
                EXPECT_EQUAL(pair->sides[side].list_results[0].outcome_count, 2 * entries);
                for (size_t i = 0; i < entries; i++) {
                    EXPECT_EQUAL(pair->sides[side].out[0][i], CONVOY_STATE_BOOTSTRAPPING);
                }
            }
            pair_key(pair, entries, 0); /* and back */
            poll_pair_round(pair, false, 2);
            poll_pair_round(pair, false, 2);
            poll_pair_destroy(pair);
        }
    }
}

/* What one member refers to is what all had agreed on, not what there was before. */
static void test_poll_quick_keyed_identities_change_together(void **state)
{
    (void)state;
    struct poll_pair *pair = pair_create_keyed(40);
    for (uint64_t salt = 1; salt < 5; salt++) {
        pair_warm_up(pair);
        pair_key(pair, 40, salt);
        poll_pair_round(pair, false, 2);
        EXPECT_EQUAL(pair->sides[0].list_results[0].outcome_count, 40);
    }
    poll_pair_destroy(pair);
}

/* An end is told once, and answered from then on. */
static void test_poll_quick_keyed_ends_are_remembered(void **state)
{
    (void)state;
    struct poll_pair *pair = pair_create_keyed(5);
    memset(pair->sides[0].states[0], 4, POLL_PAIR_ENTRIES);
    memset(pair->sides[1].states[0], 4, POLL_PAIR_ENTRIES);
    poll_pair_round(pair, false, 4);
    memset(pair->sides[0].states[0], 2, POLL_PAIR_ENTRIES);
    poll_pair_round(pair, false, 4);
    poll_pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_quick_keyed_rounds_of_all_sizes),
        cmocka_unit_test(test_poll_quick_keyed_meets_the_whole_way),
        cmocka_unit_test(test_poll_quick_keyed_identities_change_together),
        cmocka_unit_test(test_poll_quick_keyed_ends_are_remembered),
    };
    return cmocka_run_group_tests_name("poll_quick_keyed", tests, NULL, NULL);
}
