/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight ranks that step, gather, reduce and carry payloads while each swaps its plugin to and fro: nothing is lost, nothing
 * is applied twice, no round is repeated, and nobody waits for long. 100,000 steps and 50 swaps of each rank at full scale.
 */
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"
#include "tests/lib/scale.h"
#include "tests/lib/swap_rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 8u
#define STEPS_SMALL 2000u
#define STEPS_FULL 100000u
#define SWAPS_SMALL 6u
#define SWAPS_FULL 50u
#define LIMIT_MS 600000u
#define PAUSE_MAX_NS UINT64_C(2000000000) /* an upper bound for a loaded machine; the benchmark has the figure */

static void run_rank(const struct rank *rank, void *argument)
{
    swap_rank_run(rank, argument);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the largest. */
static uint64_t tell(const char *what, uint64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    print_message("%-32s p50 %8.3f ms, p99 %8.3f ms, max %8.3f ms of %zu\n", what, (double)values[count / 2] / 1e6,
                  (double)values[count * 99 / 100] / 1e6, (double)values[count - 1] / 1e6, count);
    return values[count - 1];
}

/* One time of every second swap of every rank; offset: of it in a result; first: 0 of those of one rank after another, 1 of
 * those of all at the same time. */
static uint64_t tell_part(const struct swap_shared *shared, const struct swap_plan *plan, const char *what, size_t offset,
                          uint32_t first)
{
    uint64_t values[SWAP_RANKS_MAX * SWAP_SWAPS_MAX];
    size_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t swap = first; swap < plan->swaps; swap += 2) {
            memcpy(&values[count++], (const char *)&shared->results[rank][swap] + offset, sizeof values[0]);
        }
    }
    return tell(what, values, count);
}

#define TELL(part) tell_part(shared, plan, #part, offsetof(struct convoy_swap_result, part), first)

static uint64_t tell_parts(const struct swap_shared *shared, const struct swap_plan *plan, uint32_t first)
{
    uint64_t steps[SWAP_RANKS_MAX * SWAP_SWAPS_MAX];
    size_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t swap = first; swap < plan->swaps; swap += 2) {
            steps[count++] = shared->step_ns[rank][swap];
        }
    }
    print_message("%s\n", first == 0 ? "one rank after another:" : "all ranks at the same time:");
    (void)tell("longest step during a swap", steps, count);
    uint64_t pause_max_ns = TELL(pause_ns);
    (void)TELL(quiesce_ns);
    (void)TELL(export_ns);
    (void)TELL(import_ns);
    (void)TELL(switch_ns);
    (void)TELL(prepare_ns);
    (void)TELL(load_ns);
    (void)TELL(retire_ns);
    return pause_max_ns;
}

static void check_pauses(const struct swap_shared *shared, const struct swap_plan *plan)
{
    uint64_t usual[SWAP_RANKS_MAX];
    uint64_t cpu[SWAP_RANKS_MAX * SWAP_SWAPS_MAX];
    uint64_t faults = 0;
    size_t count = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(shared->swaps[rank], plan->swaps);
        usual[rank] = shared->usual_ns[rank];
        for (uint32_t swap = 0; swap < plan->swaps; swap++) {
            faults += shared->faults[rank][swap];
            cpu[count++] = shared->cpu_ns[rank][swap];
        }
    }
    (void)tell("mean of a step without a swap", usual, RANKS);
    (void)tell("processor time of a swap", cpu, count);
    print_message("page faults of a swap: %.0f\n", (double)faults / (double)count);
    for (uint32_t first = 0; first < 2; first++) {
        assert_true(tell_parts(shared, plan, first) < PAUSE_MAX_NS);
    }
}

static void load(struct swap_plan *plan)
{
    struct ranks *ranks = ranks_create(RANKS, sizeof(struct swap_shared));
    plan->steps = test_scaled(STEPS_SMALL, STEPS_FULL);
    plan->swaps = test_scaled(SWAPS_SMALL, SWAPS_FULL);
    plan->builds[0] = plugin_path();
    plan->builds[1] = moving_second_path();
    plan->ports[0] = plugin_port();
    plan->ports[1] = plugin_port();
    ranks_start(ranks, run_rank, plan, LIMIT_MS);
    const struct swap_shared *shared = ranks_shared(ranks);
    struct swap_shared *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks_await_exit(ranks, i);
    }
    *copy = *shared;
    ranks_finish(ranks);
    check_pauses(copy, plan);
    free(copy);
}

static void test_swap_under_rounds_loses_and_repeats_none(void **state)
{
    (void)state;
    struct swap_plan plan = {0};
    load(&plan);
}

static void test_swap_under_rounds_and_transfers_loses_and_repeats_none(void **state)
{
    (void)state;
    struct swap_plan plan = {.send_every = 10, .bytes = 40000};
    load(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_under_rounds_loses_and_repeats_none),
        cmocka_unit_test(test_swap_under_rounds_and_transfers_loses_and_repeats_none),
    };
    return cmocka_run_group_tests_name("swap_load", tests, NULL, NULL);
}
