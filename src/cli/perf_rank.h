/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of `convoy perf`: makes the same call again and again and measures it. It runs in a process of its own that
 * was started as the hidden command `perf-rank`, so that it can be put into a network namespace, and answers with one
 * struct on a pipe.
 */
#ifndef CONVOY_CLI_PERF_RANK_H
#define CONVOY_CLI_PERF_RANK_H

#include "cli/plain_host.h"
#include "cli/options.h"

#define CONVOY_PERF_ENTRIES_MAX 4096u
#define CONVOY_PERF_PAUSE_NS_MIN 250000u
#define CONVOY_PERF_PAUSE_NS_MAX 750000u

/* What is measured; the same on all ranks. */
struct convoy_perf_load {
    bool is_sync;
    uint64_t ranks;
    uint64_t entries; /* of each list */
    uint64_t lists;
    uint64_t rounds;
    bool is_keyed;
    bool is_fresh; /* keyed: another order in each round */
    bool is_paced; /* sleeps a random 250 to 750 us before each round */
    bool is_pinned;
    const char *plugin;
};

/* Which rank this is, and where rank 0 listens. */
struct convoy_perf_place {
    uint64_t rank;
    const char *address;
    uint64_t port;
};

#define CONVOY_PERF_LOAD_OPTIONS 9u

/* Fills the options that `perf` and `perf-rank` share. */
void convoy_perf_load_options(struct convoy_perf_load *load, struct convoy_option table[CONVOY_PERF_LOAD_OPTIONS]);

/* "poll" or "sync" as the only operand, and what fits together. INVALID_ARGUMENT. */
int32_t convoy_perf_load_check(struct convoy_perf_load *load, const struct convoy_command_line *line,
                               struct convoy_error *error);

/* Answer of one rank; shorter than PIPE_BUF, so that answers do not mix. */
struct convoy_perf_answer {
    uint32_t rank;
    int32_t status;
    uint64_t median_ns; /* of the call */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t step_ns; /* whole time by rounds, pauses included */
    uint64_t rounds;
    char text[CONVOY_ERROR_TEXT_BYTES];
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES];
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
};

int convoy_cli_perf_rank(int argc, char **argv);

#endif
