/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all benchmark programs share, so that they measure the same work in the same way: the cases, their inputs and
 * expected results, the measured loop, the statistics and the one line of JSON that each measurement prints.
 *
 * A case is "KIND:N:MODE".   KIND poll    MIN over N states (one byte each)
 *                                 row     gather of N int64 per rank
 *                                 lists   MIN over three lists of N states
 *                                 keyed   MIN over N states matched by key; every rank has an order of its own and
 *                                         keeps it
 *                                 fresh   the same, and every rank has another order on every round
 *                            MODE b2b     calls back to back; the figure is the mean call of all ranks in a round
 *                                 paced   each rank sleeps a random 250 to 750 us before each call; the figure is the
 *                                         span from the last rank's entry to the last rank's exit
 * Every result of every round is compared with what was computed beforehand, outside of the measured time.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_PATTERNS 16u /* different inputs, used in turn; a power of two */
#define BENCH_RANKS_MAX 16u
#define BENCH_CASES_MAX 64u

enum bench_kind { BENCH_POLL, BENCH_ROW, BENCH_LISTS, BENCH_KEYED, BENCH_FRESH };

struct bench_case {
    enum bench_kind kind;
    uint32_t n;
    bool is_paced;
    char text[32]; /* "poll:64" */
};

/* Command line of every program. */
struct bench_options {
    uint32_t ranks;       /* --ranks: of the whole group */
    uint32_t rounds;      /* --rounds: back to back */
    uint32_t paced_rounds; /* --paced-rounds */
    uint32_t first;       /* --first, --local: the ranks that this program starts; default all */
    uint32_t local;
    const char *policy;    /* --policy: floor only */
    const char *directory; /* --directory: where programs of two namespaces meet */
    const char *rendezvous; /* --rendezvous: "tcp://host:port" */
    const char *settings;   /* --settings: JSON for the plugin's context */
    const char *mode;       /* --mode: program-specific extra measurements */
    struct bench_case cases[BENCH_CASES_MAX];
    uint32_t case_count;
};

/* Inputs and expected results of one case for all ranks. Made alike in every process from the case alone. */
struct bench_work {
    const struct bench_case *which;
    uint32_t ranks;
    size_t input_bytes;  /* one rank's contribution */
    size_t output_bytes; /* the result */
    uint8_t *inputs;     /* [BENCH_PATTERNS][ranks][input_bytes] */
    uint8_t *outputs;    /* [BENCH_PATTERNS][ranks][output_bytes]; ranks differ only where their orders do */
};

/* Entry and exit of each round in CLOCK_MONOTONIC ns; [ranks][rounds]. */
struct bench_stamps {
    uint32_t ranks;
    uint32_t rounds;
    uint64_t *enter;
    uint64_t *leave;
};

/* One exchange: contributes input, leaves output_bytes at output. pattern: which inputs these are. */
typedef void (*bench_exchange_fn)(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output);

/* Ends the program with a message on bad usage. */
void bench_parse(int argc, char **argv, struct bench_options *options_out);
uint32_t bench_rounds(const struct bench_options *options, const struct bench_case *which);

void bench_work_init(struct bench_work *work_out, const struct bench_case *which, uint32_t ranks);
void bench_work_fini(struct bench_work *work);
const uint8_t *bench_input(const struct bench_work *work, uint32_t pattern, uint32_t rank);
/* keyed and fresh: which of the N requests is at this place in the rank's list. */
uint32_t bench_identity(const struct bench_case *which, uint32_t pattern, uint32_t rank, uint32_t place);

size_t bench_stamps_bytes(uint32_t ranks, uint32_t rounds);
void bench_stamps_place(struct bench_stamps *stamps_out, uint32_t ranks, uint32_t rounds, void *memory);

/* The measured loop of one rank. Ends the program when a result is wrong. */
void bench_measure(const struct bench_work *work, uint32_t rank, const struct bench_stamps *stamps,
                   bench_exchange_fn exchange, void *state);
/* Prints the line of JSON. The first tenth of the rounds does not count. */
void bench_print(const char *peer, const struct bench_case *which, const struct bench_stamps *stamps);

uint64_t bench_now_ns(void);
/* Pins the calling process to core `rank` modulo the number of cores it may use. */
void bench_pin(uint32_t rank);
uint32_t bench_cores(void);
/* Zeroed memory that forked processes share, or that programs share by `path`. Ends the program when it fails. */
void *bench_share(size_t bytes, const char *path);
void bench_unshare(void *memory, size_t bytes);
int bench_compare_u64(const void *left, const void *right);
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Runs run(rank, context) in a forked, pinned process for each rank first..first+local-1 (so this is host number
 * first/local); ends the program when one fails. The children die with it. */
void bench_fork(uint32_t first, uint32_t local, void (*run)(uint32_t rank, void *context), void *context);

/* A barrier on one word of shared memory; yields while it waits. Zero at first, for one set of parties. */
void bench_barrier(uint64_t *word, uint32_t parties);

#endif
