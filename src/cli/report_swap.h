/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says about its swaps, one line for each host process. */
#ifndef CONVOY_CLI_REPORT_SWAP_H
#define CONVOY_CLI_REPORT_SWAP_H

#include "cli/swapper.h"

#include <stdio.h>

/* One host: its name, what it was to do, what came of it. */
struct convoy_swap_line {
    const char *name; /* such as "rank 3" */
    uint32_t wanted;
    const struct convoy_swap_tally *tally;
};

void convoy_report_swaps_head(FILE *out, const char *turn);
void convoy_report_swap(FILE *out, const struct convoy_swap_line *line);

/* Whether all that was wanted was made; else why_out says, in a few words, what was not. */
bool convoy_report_swap_is_right(const struct convoy_swap_line *line, char *why_out, size_t capacity);

#endif
