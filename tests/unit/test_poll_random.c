/* SPDX-License-Identifier: Apache-2.0 */
/* Random rounds of one to eight members, spread over hosts at random, against a plain reference. */
#include "tests/lib/poll_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GROUPS 400u
#define ROUNDS_PER_GROUP 50u

static void round_run(struct poll_ranks *ranks, struct scene_memory *memory, bool is_first, uint64_t *seed)
{
    static struct scene scene;
    static struct scene_outcome outcome;
    uint32_t hosts = 1 + scene_random(seed, ranks->count);
    /* Half of the time only the states are new: the lists of the round before come again. */
    if (is_first || scene_random(seed, 2) == 0) {
        scene_draw(&scene, ranks->count, seed);
    } else {
        scene_redraw(&scene, ranks->count, seed);
    }
    for (uint32_t i = 0; i < ranks->count; i++) {
        fake_group_place(ranks->group, i, scene_random(seed, hosts));
        scene_call(&scene, i, &ranks->rank[i], seed);
    }
    scene_reduce(&scene, ranks->count, memory, &outcome);
    poll_ranks_run(ranks, CONVOY_OK);
    for (uint32_t i = 0; i < ranks->count; i++) {
        scene_assert(&scene, i, &outcome, &ranks->rank[i], true);
    }
}

static void test_poll_random_rounds_equal_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 0x5eed5eed5eedull;
    for (uint32_t group = 0; group < GROUPS; group++) {
        struct poll_ranks *ranks = poll_ranks_create(1 + group % POLL_RANKS_MAX, 2048, NULL);
        struct scene_memory memory;
        scene_memory_reset(&memory);
        for (uint32_t round = 0; round < ROUNDS_PER_GROUP; round++) {
            round_run(ranks, &memory, round == 0, &seed);
        }
        assert_true(fake_group_partial_bytes(ranks->group) <= convoy_poll_partial_bytes_max(2048));
        poll_ranks_destroy(ranks);
    }
}

/* One member that differs in one thing that must agree: all diverge, and the group goes on. */
static void test_poll_random_disagreement_diverges_on_all(void **state)
{
    (void)state;
    static struct scene scene;
    uint64_t seed = 77;
    struct poll_ranks *ranks = poll_ranks_create(4, 0, NULL);
    for (uint32_t round = 0; round < 2000; round++) {
        scene_draw(&scene, 4, &seed);
        uint32_t odd = scene_random(&seed, 4);
        for (uint32_t i = 0; i < 4; i++) {
            scene_call(&scene, i, &ranks->rank[i], &seed);
        }
        struct convoy_poll_call *call = &ranks->rank[odd].call;
        uint32_t list = scene_random(&seed, scene.list_count + 1);
        if (list == scene.list_count) {
            (void)poll_rank_add(&ranks->rank[odd], NULL, NULL, 0);
        } else if (scene.flags[list] != 0) {
            ranks->rank[odd].lists[list].flags ^= CONVOY_POLL_ABSENT_SKIP;
        } else if (call->lists[list].count > 0) {
            ranks->rank[odd].lists[list].count--;
        } else {
            ranks->rank[odd].lists[list].digest = 1;
        }
        poll_ranks_run(ranks, CONVOY_DIVERGED);
    }
    poll_ranks_destroy(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_random_rounds_equal_the_reference),
        cmocka_unit_test(test_poll_random_disagreement_diverges_on_all),
    };
    return cmocka_run_group_tests_name("poll_random", tests, NULL, NULL);
}
