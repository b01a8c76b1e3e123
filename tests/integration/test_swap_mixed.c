/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of both builds in one group, and only some of them swap: a thousand rounds of each kind, engines of both builds in
 * both roles, over shared memory and over UCX. Who comes from where must not be seen in any result.
 */
#include "tests/lib/swap_host.h"

#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"
#include "tests/lib/scale.h"
#include "tests/lib/swap_rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u
#define ROUNDS 1000u
#define LIMIT_MS 120000u

struct plan {
    const char *settings;
    uint16_t port;
    bool is_keyed;
};

/* Who swaps when: bit per member. In between, whatever pair of builds two members can be of, they are. */
static uint32_t swapping_at(uint32_t round)
{
    static const uint32_t sets[] = {0x1, 0x8, 0x6, 0x3, 0xf, 0x5, 0x2};
    return round % 125 == 124 && round / 125 < 7 ? sets[round / 125] : 0;
}

static void run_rounds(const struct rank *rank, void *argument)
{
    const struct plan *plan = argument;
    struct swap_host host;
    uint32_t build = rank->index % 2;
    swap_host_open(&host, build, plan->settings);
    swap_host_join(&host, "mixed", plan->port, rank->index, rank->count);
    host.is_keyed = plan->is_keyed;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
        if ((swapping_at(round) >> rank->index & 1u) != 0) {
            build = 1 - build;
            swap_host_must_swap(&host, build);
        }
    }
    rank_barrier(rank);
    swap_host_close(&host);
}

static void rounds(bool is_keyed, const char *settings)
{
    struct plan plan = {.settings = settings, .port = plugin_port(), .is_keyed = is_keyed};
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run_rounds, &plan, LIMIT_MS);
    ranks_finish(ranks);
}

static void test_swap_mixed_positional_rounds_of_two_builds_are_as_of_one(void **state)
{
    (void)state;
    rounds(false, NULL);
    rounds(false, "{\"net\":\"ucx\"}");
}

static void test_swap_mixed_keyed_rounds_of_two_builds_are_as_of_one(void **state)
{
    (void)state;
    rounds(true, NULL);
    rounds(true, "{\"net\":\"ucx\"}");
}

/* Odd ranks begin with the other build; the last one never swaps, and the first does so more often. */
static void run_load(const struct rank *rank, void *argument)
{
    struct swap_plan plan = *(const struct swap_plan *)argument;
    plan.builds[0] = swap_host_build(rank->index % 2);
    plan.builds[1] = swap_host_build(1 - rank->index % 2);
    plan.swaps = rank->index + 1 == rank->count ? 0 : 2 + 2 * (rank->index == 0);
    swap_rank_run(rank, &plan);
}

static void load(const char *settings, uint32_t steps)
{
    struct swap_plan plan = {.steps = test_scaled(steps, 20000), .send_every = 10, .bytes = 30000, .settings = settings};
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct swap_shared));
    plan.ports[0] = plugin_port();
    plan.ports[1] = plugin_port();
    ranks_start(ranks, run_load, &plan, LIMIT_MS);
    ranks_finish(ranks);
}

static void test_swap_mixed_gathers_and_transfers_of_two_builds_lose_nothing(void **state)
{
    (void)state;
    load(NULL, ROUNDS);
    load("{\"net\":\"ucx\"}", ROUNDS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_mixed_positional_rounds_of_two_builds_are_as_of_one),
        cmocka_unit_test(test_swap_mixed_keyed_rounds_of_two_builds_are_as_of_one),
        cmocka_unit_test(test_swap_mixed_gathers_and_transfers_of_two_builds_lose_nothing),
    };
    return cmocka_run_group_tests_name("swap_mixed", tests, NULL, NULL);
}
