/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, expected results, the measured loop, and the line that each measurement prints. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS_MIN 250000u
#define PAUSE_NS_SPAN 500001u

/* splitmix64: all processes draw the same numbers from the same seed. */
static uint64_t draw(uint64_t *seed)
{
    uint64_t value = (*seed += 0x9e3779b97f4a7c15u);
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

const uint8_t *bench_input(const struct bench_work *work, uint32_t pattern, uint32_t rank)
{
    return work->inputs + ((size_t)pattern * work->ranks + rank) * work->input_bytes;
}

static const uint8_t *expected(const struct bench_work *work, uint32_t pattern, uint32_t rank)
{
    return work->outputs + ((size_t)pattern * work->ranks + rank) * work->output_bytes;
}

uint32_t bench_identity(const struct bench_case *which, uint32_t pattern, uint32_t rank, uint32_t place)
{
    if (which->kind == BENCH_KEYED) {
        return (place + 5 * rank) % which->n;
    }
    if (which->kind == BENCH_FRESH) {
        uint32_t step = 2 * (pattern + rank) + 1; /* odd, so a permutation where n is a power of two */
        return (place * step + 5 * rank + pattern) % which->n;
    }
    return place;
}

static void fill_rows(struct bench_work *work, uint8_t *inputs, uint8_t *outputs, uint64_t *seed)
{
    for (uint32_t i = 0; i < work->ranks * work->which->n; i++) {
        int64_t value = (int64_t)(draw(seed) % 8192); /* token counts and flags of a scheduler step */
        (void)memcpy(inputs + i * sizeof value, &value, sizeof value);
    }
    for (uint32_t rank = 0; rank < work->ranks; rank++) {
        (void)memcpy(outputs + rank * work->output_bytes, inputs, work->output_bytes);
    }
}

/* Nothing ends: a keyed request that was Success or Failed on all ranks would not count any more. */
static uint8_t draw_state(uint64_t *seed)
{
    return draw(seed) % 8 == 0 ? 1 : (uint8_t)(2 + draw(seed) % 2);
}

static void fill_states(struct bench_work *work, uint32_t pattern, uint8_t *inputs, uint8_t *outputs, uint64_t *seed)
{
    uint8_t lowest[4096];
    size_t bytes = work->input_bytes;
    if (bytes > sizeof lowest) {
        bench_die("n is at most %zu", sizeof lowest);
    }
    (void)memset(lowest, 3, bytes);
    for (uint32_t i = 0; i < work->ranks * bytes; i++) {
        uint32_t identity = bench_identity(work->which, pattern, i / (uint32_t)bytes, i % (uint32_t)bytes);
        inputs[i] = draw_state(seed);
        lowest[identity] = inputs[i] < lowest[identity] ? inputs[i] : lowest[identity];
    }
    for (uint32_t i = 0; i < work->ranks * bytes; i++) {
        outputs[i] = lowest[bench_identity(work->which, pattern, i / (uint32_t)bytes, i % (uint32_t)bytes)];
    }
}

void bench_work_init(struct bench_work *work_out, const struct bench_case *which, uint32_t ranks)
{
    size_t lists = which->kind == BENCH_LISTS ? 3 : 1;
    bool is_row = which->kind == BENCH_ROW;
    *work_out = (struct bench_work){.which = which,
                                    .ranks = ranks,
                                    .input_bytes = is_row ? which->n * sizeof(int64_t) : which->n * lists};
    work_out->output_bytes = is_row ? work_out->input_bytes * ranks : work_out->input_bytes;
    work_out->inputs = calloc(BENCH_PATTERNS * ranks, work_out->input_bytes);
    work_out->outputs = calloc(BENCH_PATTERNS * ranks, work_out->output_bytes);
    if (work_out->inputs == NULL || work_out->outputs == NULL) {
        bench_die("out of memory");
    }
    uint64_t seed = 20240607;
    for (uint32_t pattern = 0; pattern < BENCH_PATTERNS; pattern++) {
        uint8_t *inputs = work_out->inputs + (size_t)pattern * ranks * work_out->input_bytes;
        uint8_t *outputs = work_out->outputs + (size_t)pattern * ranks * work_out->output_bytes;
        if (is_row) {
            fill_rows(work_out, inputs, outputs, &seed);
        } else {
            fill_states(work_out, pattern, inputs, outputs, &seed);
        }
    }
}

void bench_work_fini(struct bench_work *work)
{
    free(work->inputs);
    free(work->outputs);
}

/* -- measuring ----------------------------------------------------------------------------------------------------- */

size_t bench_stamps_bytes(uint32_t ranks, uint32_t rounds)
{
    return 2 * sizeof(uint64_t) * ranks * rounds;
}

void bench_stamps_place(struct bench_stamps *stamps_out, uint32_t ranks, uint32_t rounds, void *memory)
{
    *stamps_out = (struct bench_stamps){.ranks = ranks, .rounds = rounds, .enter = memory};
    stamps_out->leave = stamps_out->enter + (size_t)ranks * rounds;
}

static void pause_randomly(uint64_t *seed)
{
    const struct timespec pause = {.tv_nsec = (long)(PAUSE_NS_MIN + draw(seed) % PAUSE_NS_SPAN)};
    (void)nanosleep(&pause, NULL); /* this is the pace that is measured, it synchronises nothing */
}

void bench_measure(const struct bench_work *work, uint32_t rank, const struct bench_stamps *stamps,
                   bench_exchange_fn exchange, void *state)
{
    uint64_t *enter = stamps->enter + (size_t)rank * stamps->rounds;
    uint64_t *leave = stamps->leave + (size_t)rank * stamps->rounds;
    uint64_t seed = 77 + rank;
    uint8_t *output = calloc(1, work->output_bytes);
    if (output == NULL) {
        bench_die("out of memory");
    }
    (void)memset(enter, 0, stamps->rounds * sizeof *enter); /* touch the pages before they count */
    (void)memset(leave, 0, stamps->rounds * sizeof *leave);
    for (uint32_t round = 0; round < stamps->rounds; round++) {
        uint32_t pattern = round % BENCH_PATTERNS;
        const uint8_t *input = bench_input(work, pattern, rank);
        if (work->which->is_paced) {
            pause_randomly(&seed);
        }
        enter[round] = bench_now_ns();
        exchange(state, pattern, input, output);
        leave[round] = bench_now_ns();
        if (memcmp(output, expected(work, pattern, rank), work->output_bytes) != 0) {
            bench_die("rank %u, round %u of %s: wrong result", rank, round, work->which->text);
        }
    }
    free(output);
}

int bench_compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The mean call of a round: one rank's own figure would depend on whether it is the one that others wait for. */
static uint64_t mean_ns(const struct bench_stamps *stamps, uint32_t round)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < stamps->ranks; rank++) {
        size_t at = (size_t)rank * stamps->rounds + round;
        sum += stamps->leave[at] - stamps->enter[at];
    }
    return sum / stamps->ranks;
}

/* From the last entry to the last exit of a round. */
static uint64_t span_ns(const struct bench_stamps *stamps, uint32_t round)
{
    uint64_t enter = 0;
    uint64_t leave = 0;
    for (uint32_t rank = 0; rank < stamps->ranks; rank++) {
        size_t at = (size_t)rank * stamps->rounds + round;
        enter = stamps->enter[at] > enter ? stamps->enter[at] : enter;
        leave = stamps->leave[at] > leave ? stamps->leave[at] : leave;
    }
    return leave - enter;
}

void bench_print(const char *peer, const struct bench_case *which, const struct bench_stamps *stamps)
{
    uint32_t first = stamps->rounds / 10;
    uint32_t count = stamps->rounds - first;
    uint64_t *samples = calloc(count, sizeof *samples);
    if (samples == NULL || count < 2) {
        bench_die("too few rounds or no memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        samples[i] = which->is_paced ? span_ns(stamps, first + i) : mean_ns(stamps, first + i);
    }
    qsort(samples, count, sizeof *samples, bench_compare_u64);
    double period = (double)(stamps->leave[stamps->rounds - 1] - stamps->leave[first]) / (count - 1);
    (void)printf("{\"peer\": \"%s\", \"case\": \"%s\", \"mode\": \"%s\", \"ranks\": %u, \"median_us\": %.3f, "
                 "\"p99_us\": %.3f, \"period_us\": %.3f, \"rounds\": %u}\n",
                 peer, which->text, which->is_paced ? "paced" : "b2b", stamps->ranks, (double)samples[count / 2] / 1e3,
                 (double)samples[(size_t)count * 99 / 100] / 1e3, period / 1e3, count);
    (void)fflush(stdout);
    free(samples);
}

