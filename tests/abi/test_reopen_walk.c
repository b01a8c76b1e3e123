/* SPDX-License-Identifier: Apache-2.0 */
/* Two members start, test, abandon and reopen in random order, as hosts in trouble do. Whatever they do, a round of an epoch
 * has one outcome: it never ends OK on one member and BROKEN on the other; and in the end both agree on the epoch and the
 * next round, and go on. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define WALKS 600
#define STEPS_MAX 40
#define KEPT 64 /* outcomes looked at: epochs and rounds of a walk are few */

struct walker {
    struct calls *calls;
    convoy_operation operation; /* the last that was started */
    uint64_t epoch;             /* in which it was */
};

struct walk {
    struct pair *pair;
    struct walker walkers[2];
    uint32_t seed;
    uint64_t first_epoch;
    int32_t outcomes[2][KEPT]; /* [member][epoch and round]: 1 = none yet */
};

static uint32_t draw(struct walk *walk, uint32_t count)
{
    walk->seed = walk->seed * 1664525u + 1013904223u;
    return (walk->seed >> 10) % count;
}

/* An outcome is only OK or BROKEN: nobody dies, closes or differs here. */
static void note(struct walk *walk, uint32_t member, uint64_t round, int32_t status)
{
    uint64_t at = (walk->walkers[member].epoch - walk->first_epoch) * 8 + round;
    if (status != CONVOY_OK && status != CONVOY_BROKEN) {
        fail_msg("member %u: status %d", member, status);
    }
    if (at >= KEPT || round >= 8) {
        return;
    }
    walk->outcomes[member][at] = status;
    int32_t other = walk->outcomes[1 - member][at];
    if (other != 1 && other != status) {
        fail_msg("round %llu of epoch first+%llu ended %d on member %u and %d on member %u", (unsigned long long)round,
                 (unsigned long long)(walk->walkers[member].epoch - walk->first_epoch), status, member, other,
                 1 - member);
    }
}

static void look(struct calls *calls)
{
    EXPECT_OK(calls->plugin.core->group_info(calls->group, &calls->info, &calls->error), &calls->error);
}

static void start(struct walk *walk, uint32_t member)
{
    struct walker *walker = &walk->walkers[member];
    struct calls *calls = walker->calls;
    look(calls);
    walker->epoch = calls->info.epoch;
    int32_t status = calls->plugin.poll->reduce_start(calls->group, &calls->poll, &walker->operation, &calls->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_BUSY || status == CONVOY_BROKEN);
}

static void test(struct walk *walk, uint32_t member)
{
    struct walker *walker = &walk->walkers[member];
    struct calls *calls = walker->calls;
    look(calls);
    int32_t status =
        calls->plugin.poll->reduce_test(calls->group, walker->operation, &calls->poll_result, &calls->error);
    if (status == CONVOY_OK) {
        walker->epoch = calls->poll_result.epoch;
        note(walk, member, calls->poll_result.round, status);
    } else if (status == CONVOY_BROKEN && calls->info.state == CONVOY_GROUP_ACTIVE) {
        note(walk, member, calls->info.round + 1, status);
    }
}

static void give_up(struct walk *walk, uint32_t member)
{
    struct walker *walker = &walk->walkers[member];
    struct calls *calls = walker->calls;
    look(calls);
    int32_t status = calls->plugin.core->operation_abandon(calls->group, walker->operation, &calls->error);
    if (status == CONVOY_BROKEN) {
        note(walk, member, calls->info.round + 1, status);
    } else if (status == CONVOY_OK) {
        test(walk, member);
    }
}

static void reopen(struct walk *walk, uint32_t member)
{
    struct calls *calls = walk->walkers[member].calls;
    int32_t status = calls->plugin.core->group_reopen(calls->group, LONG_NS, &calls->reopened, &calls->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_BUSY);
}

static void (*const steps[])(struct walk *, uint32_t) = {start, test, give_up, reopen, test};

/* Everybody gives up what is open and reopens, until both have adopted the last epoch; then a round works. */
static void settle(struct walk *walk)
{
    for (uint32_t turn = 0; turn < 4; turn++) {
        give_up(walk, turn % 2);
        reopen(walk, turn % 2);
    }
    struct calls *own = walk->walkers[0].calls;
    struct calls *peer = walk->walkers[1].calls;
    EXPECT_EQUAL(own->reopened.epoch, peer->reopened.epoch);
    EXPECT_EQUAL(own->reopened.next_round, peer->reopened.next_round);
    pair_round(walk->pair);
}

static void test_reopen_walk_a_round_has_one_outcome_for_all(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= WALKS; seed++) {
        struct walk walk = {.pair = pair_create(), .seed = seed * 7919u};
        pair_open(walk.pair);
        walk.walkers[0].calls = &walk.pair->calls;
        walk.walkers[1].calls = &walk.pair->peer_calls;
        look(walk.walkers[0].calls);
        walk.first_epoch = walk.walkers[0].calls->info.epoch;
        for (uint32_t i = 0; i < KEPT; i++) {
            walk.outcomes[0][i] = walk.outcomes[1][i] = 1;
        }
        for (uint32_t step = 0; step < seed % STEPS_MAX; step++) {
            uint32_t member = draw(&walk, 2);
            steps[draw(&walk, sizeof steps / sizeof steps[0])](&walk, member);
        }
        settle(&walk);
        pair_destroy(walk.pair);
    }
}

/* The shortest such walk: one member reopens and gives up the first round of the new epoch before the other has reopened.
 * The other must find its cell sealed, instead of contributing to a round that has ended. */
static void test_reopen_walk_late_member_finds_the_first_round_abandoned(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *own = &pair->calls;
    struct calls *peer = &pair->peer_calls;
    const struct convoy_core_table *core = pair->own->plugin.core;
    pair_open(pair);
    for (int i = 0; i < 2; i++) { /* the second time in the new epoch */
        calls_start(own, CALL_POLL);
        EXPECT_EQUAL(core->operation_abandon(own->group, own->operation, NULL), CONVOY_BROKEN);
        if (i == 0) {
            EXPECT_OK(core->group_reopen(own->group, LONG_NS, &own->reopened, &own->error), &own->error);
        }
    }
    EXPECT_OK(core->group_reopen(peer->group, LONG_NS, &peer->reopened, &peer->error), &peer->error);
    EXPECT_STATUS(peer->plugin.poll->reduce_start(peer->group, &peer->poll, &peer->operation, &peer->error),
                  CONVOY_BROKEN, &peer->error);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopen_walk_late_member_finds_the_first_round_abandoned),
        cmocka_unit_test(test_reopen_walk_a_round_has_one_outcome_for_all),
    };
    return cmocka_run_group_tests_name("reopen_walk", tests, NULL, NULL);
}
