/* SPDX-License-Identifier: Apache-2.0 */
/* How far a replay is: one line that is redrawn on a terminal, a plain line every two seconds elsewhere. */
#ifndef CONVOY_CLI_PROGRESS_H
#define CONVOY_CLI_PROGRESS_H

#include "cli/board.h"
#include "cli/trace.h"

#include <stdio.h>

struct convoy_progress {
    FILE *out;
    bool is_terminal;
    uint64_t started_ns;
    uint64_t shown_ns;
    const struct convoy_board *board; /* borrows */
    const struct convoy_trace *trace; /* borrows */
    struct convoy_shape shape;
};

/* Whether to use colours and redrawing on this stream. */
bool convoy_progress_is_terminal(FILE *out);

/* Prints when it is time to. */
void convoy_progress_show(struct convoy_progress *progress, uint64_t now_ns);

/* Prints the last line, for good. */
void convoy_progress_end(struct convoy_progress *progress);

/* Writes 1234567 as 1,234,567. */
const char *convoy_progress_number(char text[32], uint64_t number);

#endif
