/* SPDX-License-Identifier: Apache-2.0 */
/* What `convoy perf transfer` prints of what both sides left on the board: a table, or one JSON object. */
#ifndef CONVOY_CLI_PERF_TRANSFER_REPORT_H
#define CONVOY_CLI_PERF_TRANSFER_REPORT_H

#include "cli/perf_transfer_side.h"

#include <stdio.h>

/* The path of a kind, told by who knows; 0 = it was not measured. */
uint32_t convoy_perf_transfer_report_path(const struct convoy_perf_transfer_board *board,
                                          enum convoy_perf_transfer_kind kind);

/* NO_MEMORY: nothing was printed. */
int32_t convoy_perf_transfer_report(FILE *out, const struct convoy_perf_transfer_load *load,
                                    const struct convoy_perf_transfer_board *board, struct convoy_error *error);

#endif
