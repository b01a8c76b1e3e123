/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor: what the machine itself needs to exchange the same payload bytes among forked, pinned processes through
 * bare sequence numbers in shared memory. Two cells per rank, by parity of the round, suffice: who has begun round r+1
 * has read everything of round r-1. MIN and the gather of rows are done for real, and every result is checked.
 *
 * --policy spin | pauses (100, then yield) | yield. --mode machine: figures that tell machines apart.
 */
#include "tests/bench/bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64u
#define PAUSES 100u
#define BATCHES 1000u
#define BATCH_STEPS 50u

enum policy { POLICY_SPIN, POLICY_PAUSES, POLICY_YIELD };

/* One rank's contribution of one parity; cells start on cache lines, the payload follows the number. */
struct cell {
    uint64_t round;
    uint8_t payload[];
};

/* One rank in one case. */
struct floor {
    const struct bench_work *work;
    uint8_t *cells; /* [2][ranks] of cell_bytes */
    size_t cell_bytes;
    uint32_t rank;
    enum policy policy;
    uint64_t round;
};

struct job {
    const struct bench_options *options;
    const struct bench_case *which;
    enum policy policy;
    uint64_t *barrier;
    uint8_t *cells;
    size_t cell_bytes;
    void *stamps;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline struct cell *cell_of(const struct floor *floor, uint32_t rank)
{
    size_t parity = floor->round & 1;
    return (struct cell *)(void *)(floor->cells + (parity * floor->work->ranks + rank) * floor->cell_bytes);
}

static inline const uint8_t *await(const struct floor *floor, uint32_t rank)
{
    const struct cell *cell = cell_of(floor, rank);
    uint32_t pauses = floor->policy == POLICY_YIELD ? PAUSES : 0;
    while (__atomic_load_n(&cell->round, __ATOMIC_ACQUIRE) != floor->round) {
        if (floor->policy == POLICY_SPIN || pauses++ < PAUSES) {
            relax();
        } else {
            (void)sched_yield();
        }
    }
    return cell->payload;
}

static void publish(struct floor *floor, const uint8_t *input)
{
    floor->round++;
    struct cell *cell = cell_of(floor, floor->rank);
    (void)memcpy(cell->payload, input, floor->work->input_bytes);
    __atomic_store_n(&cell->round, floor->round, __ATOMIC_RELEASE);
}

static void exchange_states(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    struct floor *floor = state;
    (void)pattern;
    publish(floor, input);
    size_t n = floor->work->input_bytes;
    (void)memcpy(output, input, n);
    for (uint32_t rank = 0; rank < floor->work->ranks; rank++) {
        if (rank == floor->rank) {
            continue;
        }
        const uint8_t *payload = await(floor, rank);
        for (size_t i = 0; i < n; i++) {
            output[i] = payload[i] < output[i] ? payload[i] : output[i];
        }
    }
}

static void exchange_rows(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    struct floor *floor = state;
    (void)pattern;
    publish(floor, input);
    size_t bytes = floor->work->input_bytes;
    for (uint32_t rank = 0; rank < floor->work->ranks; rank++) {
        (void)memcpy(output + rank * bytes, rank == floor->rank ? input : await(floor, rank), bytes);
    }
}

static void run_rank(uint32_t rank, void *context)
{
    const struct job *job = context;
    struct bench_work work;
    struct bench_stamps stamps;
    bench_work_init(&work, job->which, job->options->ranks);
    bench_stamps_place(&stamps, work.ranks, bench_rounds(job->options, job->which), job->stamps);
    struct floor floor = {
        .work = &work, .cells = job->cells, .cell_bytes = job->cell_bytes, .rank = rank, .policy = job->policy};
    bench_barrier(job->barrier, work.ranks);
    bench_measure(&work, rank, &stamps, job->which->kind == BENCH_ROW ? exchange_rows : exchange_states, &floor);
}

static void run_case(const struct bench_options *options, const struct bench_case *which, enum policy policy)
{
    static const char *const peers[] = {"floor-spin", "floor-pauses", "floor-yield"};
    struct bench_work work;
    struct bench_stamps stamps;
    bench_work_init(&work, which, options->ranks);
    uint32_t rounds = bench_rounds(options, which);
    size_t cell_bytes = (sizeof(struct cell) + work.input_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct job job = {.options = options,
                      .which = which,
                      .policy = policy,
                      .barrier = bench_share(LINE_BYTES, NULL),
                      .cells = bench_share(2 * options->ranks * cell_bytes, NULL),
                      .cell_bytes = cell_bytes,
                      .stamps = bench_share(bench_stamps_bytes(options->ranks, rounds), NULL)};
    bench_fork(0, options->ranks, run_rank, &job);
    bench_stamps_place(&stamps, options->ranks, rounds, job.stamps);
    bench_print(peers[policy], which, &stamps);
    bench_work_fini(&work);
}

/* -- figures of the machine ---------------------------------------------------------------------------------------- */

/* Batches are short and the median counts, so that other processes and ticks do not show. */
struct ping {
    uint64_t words[2][LINE_BYTES / sizeof(uint64_t)]; /* one line each way */
    uint64_t barrier[LINE_BYTES / sizeof(uint64_t)];
    uint64_t samples_ns[BATCHES];
};

/* Round trip of one cache line between two cores. */
static void run_ping(uint32_t rank, void *context)
{
    struct ping *ping = context;
    bench_barrier(ping->barrier, 2);
    for (uint64_t batch = 0, i = 1; batch < BATCHES; batch++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < BATCH_STEPS; step++, i++) {
            if (rank == 0) {
                __atomic_store_n(ping->words[0], i, __ATOMIC_RELEASE);
            }
            while (__atomic_load_n(ping->words[1 - rank], __ATOMIC_ACQUIRE) != i) {
                relax();
            }
            if (rank == 1) {
                __atomic_store_n(ping->words[1], i, __ATOMIC_RELEASE);
            }
        }
        if (rank == 0) {
            ping->samples_ns[batch] = bench_now_ns() - start_ns;
        }
    }
}

/* The same between two processes on one core, each of which yields to the other while it waits. */
static void run_yields(uint32_t rank, void *context)
{
    struct ping *ping = context;
    bench_barrier(ping->barrier, 2);
    for (uint64_t batch = 0, i = 1; batch < BATCHES; batch++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < BATCH_STEPS; step++, i++) {
            __atomic_store_n(ping->words[rank], i, __ATOMIC_RELEASE);
            while (__atomic_load_n(ping->words[1 - rank], __ATOMIC_ACQUIRE) < i) {
                (void)sched_yield();
            }
        }
        if (rank == 0) {
            ping->samples_ns[batch] = bench_now_ns() - start_ns;
        }
    }
}

/* sched_yield with nobody to yield to: the bare system call. */
static void run_lone_yields(uint32_t rank, void *context)
{
    struct ping *ping = context;
    (void)rank;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < BATCH_STEPS; step++) {
            (void)sched_yield();
        }
        ping->samples_ns[batch] = bench_now_ns() - start_ns;
    }
}

static double median_us(void (*run)(uint32_t rank, void *context), uint32_t ranks)
{
    struct ping *ping = bench_share(sizeof *ping, NULL);
    bench_fork(0, ranks, run, ping);
    qsort(ping->samples_ns, BATCHES, sizeof ping->samples_ns[0], bench_compare_u64);
    return (double)ping->samples_ns[BATCHES / 2] / BATCH_STEPS / 1e3;
}

static double clock_read_us(void)
{
    uint64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; i < BATCHES * BATCH_STEPS; i++) {
        (void)bench_now_ns();
    }
    return (double)(bench_now_ns() - start_ns) / (BATCHES * BATCH_STEPS) / 1e3;
}

static void print_machine(void)
{
    uint32_t cores = bench_cores();
    double line_us = cores >= 2 ? median_us(run_ping, 2) : 0;
    bench_pin(0); /* the ranks inherit it: from here on they all share one core */
    (void)printf("{\"peer\": \"machine\", \"case\": \"machine\", \"cores\": %u, \"line_round_trip_us\": %.3f, "
                 "\"yield_round_trip_us\": %.3f, \"yield_alone_us\": %.3f, \"clock_read_us\": %.3f}\n",
                 cores, line_us, median_us(run_yields, 2), median_us(run_lone_yields, 1), clock_read_us());
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_parse(argc, argv, &options);
    if (options.mode != NULL && strcmp(options.mode, "machine") == 0) {
        print_machine();
        return 0;
    }
    const char *policy = options.policy == NULL ? "yield" : options.policy;
    enum policy chosen = strcmp(policy, "spin") == 0     ? POLICY_SPIN
                         : strcmp(policy, "pauses") == 0 ? POLICY_PAUSES
                                                         : POLICY_YIELD;
    for (uint32_t i = 0; i < options.case_count; i++) {
        run_case(&options, &options.cases[i], chosen);
    }
    return 0;
}
