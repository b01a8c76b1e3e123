/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed when a pipeline has ended. */
#ifndef CONVOY_CLI_PIPELINE_REPORT_H
#define CONVOY_CLI_PIPELINE_REPORT_H

#include "cli/crew.h"
#include "cli/pipeline_figures.h"

#include <stdio.h>

/* Both tables, by hop, and what the pools say of leaks. NO_MEMORY. */
int32_t convoy_pipeline_report(FILE *out, struct convoy_pipeline_board *board, struct convoy_error *error);

/* One line for each member that did not finish: how it ended, and what it said. */
void convoy_pipeline_report_failures(FILE *out, const struct convoy_pipeline_board *board,
                                     const struct convoy_crew *crew);

/* Leases and references that are left in the pools that were looked at. unseen_out: those that were not; may be NULL. */
uint64_t convoy_pipeline_report_leaks(const struct convoy_pipeline_board *board, uint32_t *unseen_out);

/* "1.50 MB". Returns text_out. */
const char *convoy_pipeline_report_bytes(char text_out[32], uint64_t bytes);

#endif
