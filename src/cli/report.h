/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed when a replay has ended: one row per rank, and what each rank that failed has seen. */
#ifndef CONVOY_CLI_REPORT_H
#define CONVOY_CLI_REPORT_H

#include "cli/board.h"
#include "cli/crew.h"

#include <stdio.h>

struct convoy_run_report {
    const struct convoy_board *board;
    const struct convoy_crew *crew;
    struct convoy_shape shape;
    uint64_t wall_ns; /* of everything, opening included */
};

/* The table, totals, and which plugin it was. */
void convoy_report_table(FILE *out, const struct convoy_run_report *report);

/* Status, error text and member report of every rank that failed; how the others ended. */
void convoy_report_failures(FILE *out, const struct convoy_run_report *report);

#endif
