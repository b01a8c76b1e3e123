/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that serves while its plugin is swapped: two groups of all ranks, a transfer engine that sends to the next rank
 * and receives from the one before, through the loader's handles, and a second thread that swaps. Everything that comes is
 * compared with what it must be: rows and states with a local computation, round numbers one by one, every request once
 * and byte by byte. Failures are expectations, in the rank.
 */
#ifndef TESTS_LIB_SWAP_RANK_H
#define TESTS_LIB_SWAP_RANK_H

#include "convoy/loader.h"
#include "tests/lib/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define SWAP_RANKS_MAX 8u
#define SWAP_SWAPS_MAX 64u
#define SWAP_SESSION_BYTES 160u

/* What all ranks share with the parent. Zeroed at first. */
struct swap_shared {
    char sessions[SWAP_RANKS_MAX][SWAP_SESSION_BYTES];
    struct convoy_swap_result results[SWAP_RANKS_MAX][SWAP_SWAPS_MAX];
    uint64_t cpu_ns[SWAP_RANKS_MAX][SWAP_SWAPS_MAX];  /* of the thread that swapped; */
    uint64_t faults[SWAP_RANKS_MAX][SWAP_SWAPS_MAX];  /* and its page faults */
    uint64_t step_ns[SWAP_RANKS_MAX][SWAP_SWAPS_MAX]; /* longest step while it was under way */
    uint64_t usual_ns[SWAP_RANKS_MAX];                 /* mean of the steps in which no swap was */
    uint64_t usual_max_ns[SWAP_RANKS_MAX];
    uint32_t swaps[SWAP_RANKS_MAX];
};

struct swap_plan {
    uint32_t steps;
    uint32_t swaps;      /* of each rank, to and fro; at most SWAP_SWAPS_MAX */
    uint32_t send_every; /* steps; 0 = no transfers */
    uint32_t bytes;      /* of a payload */
    const char *settings; /* of the contexts, JSON; NULL = none */
    const char *builds[2]; /* files; it begins with the first */
    uint16_t ports[2];     /* of the rendezvous of the two groups */
};

/* The whole life of one rank. */
void swap_rank_run(const struct rank *rank, const struct swap_plan *plan);

#endif
