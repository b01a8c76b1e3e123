/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of the pipeline, from opening its engine to closing it.
 *
 *   encoder    reads the file, sends each of its requests when it is due
 *   denoiser   stages anew, from where it lies, what came, and sends it on
 *   decoder    reads the file by itself, compares every byte that came with it, writes what came of request 0
 *
 * It works until its share of the requests is through, waits until its pool is empty again, notes the pool's figures, and
 * closes when all others have come so far. Who fails says why on the board and asks the others to stop.
 */
#ifndef CONVOY_CLI_PIPELINE_ROLE_H
#define CONVOY_CLI_PIPELINE_ROLE_H

#include "cli/pipeline_board.h"

#define CONVOY_PIPELINE_OUTPUT "out.safetensors" /* in the board's folder */

/* Returns the process's exit code. */
int convoy_pipeline_role_run(struct convoy_pipeline_board *board, uint32_t member);

/* `convoy pipeline-role --board FD --member N`, which the help does not list: the same in a process that was started anew
 * to be in another network namespace. */
int convoy_cli_pipeline_role(int argc, char **argv);

/* Where a member's engine writes its trace events. Returns path_out. */
const char *convoy_pipeline_role_trace_path(const struct convoy_pipeline_board *board, uint32_t member,
                                            char path_out[CONVOY_PLACE_PATH_BYTES + 48]);

#endif
