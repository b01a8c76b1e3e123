/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The swap that `convoy run --swap` asks for: FILE@STEP[:rank=N][:every=N][:back=STEP].
 *
 *   FILE@100                 every rank puts FILE behind its groups when it has executed 100 steps
 *   FILE@100:rank=2          rank 2 alone
 *   FILE@100:every=10        one after another: rank 0 at 100, rank 1 at 110, ...
 *   FILE@100:back=300        and back to the plugin that it began with, at 300 (with every: 300, 310, ...)
 *
 * The processes of the pipeline do the same when half of their requests are through, and go back at three quarters.
 * Pure.
 */
#ifndef CONVOY_CLI_RUN_SWAP_H
#define CONVOY_CLI_RUN_SWAP_H

#include "cli/place.h"
#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_RUN_SWAP_EVERYBODY UINT32_MAX
#define CONVOY_RUN_SWAP_NEVER UINT64_MAX

struct convoy_run_swap {
    char path[CONVOY_PLACE_PATH_BYTES]; /* "" = no swap */
    uint64_t step; /* counts executed steps from 0 */
    uint64_t back; /* NEVER */
    uint64_t every;
    uint32_t rank; /* EVERYBODY */
};

/* INVALID_ARGUMENT: the text has the word and what is allowed. */
int32_t convoy_run_swap_parse(struct convoy_run_swap *swap_out, const char *text, uint32_t rank_count,
                              struct convoy_error *error);

/* Before which step a rank goes there, and back; NEVER. */
uint64_t convoy_run_swap_there(const struct convoy_run_swap *swap, uint32_t rank);
uint64_t convoy_run_swap_back(const struct convoy_run_swap *swap, uint32_t rank);

/* How many swaps a rank is to make in all. */
uint32_t convoy_run_swap_count(const struct convoy_run_swap *swap, uint32_t rank);

#endif
