/* SPDX-License-Identifier: Apache-2.0 */
/* The trace events of all engines of a pipeline as one file for trace viewers: each member is a process of its own there. */
#ifndef CONVOY_CLI_PIPELINE_TRACE_H
#define CONVOY_CLI_PIPELINE_TRACE_H

#include "cli/pipeline_board.h"

#include <jansson.h>

/* Adds the events of one engine's text, an array or an object with the array "traceEvents", as process `member`.
 * MALFORMED: the text is neither. NO_MEMORY. */
int32_t convoy_pipeline_trace_add(json_t *events, uint32_t member, const char *name, const char *text, size_t length,
                                  struct convoy_error *error);

/* Reads what the members wrote, removes it, and writes path. events_out: how many there are. SYSTEM: path and errno. */
int32_t convoy_pipeline_trace_write(const struct convoy_pipeline_board *board, const char *path, size_t *events_out,
                                    struct convoy_error *error);

#endif
