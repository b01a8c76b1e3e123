/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a pipeline are to do, on a board of their own: requests, file, sizes of pools, deadlines. */
#ifndef CONVOY_CLI_PIPELINE_SETUP_H
#define CONVOY_CLI_PIPELINE_SETUP_H

#include "cli/pipeline.h"
#include "cli/pipeline_board.h"

/* Writes the default tensors into the folder when no file is given. As convoy_safetensors_read and convoy_parcel_init;
 * SYSTEM, LIMIT: a path too long. board_out: gives (convoy_pipeline_board_destroy) */
int32_t convoy_pipeline_setup_make(const struct convoy_pipeline_options *options,
                                   struct convoy_pipeline_board **board_out, struct convoy_error *error);

#endif
