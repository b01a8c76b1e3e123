/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the pipeline puts another build behind its engine while requests are under way: when half of its share is
 * through, and back to what it began with at three quarters, if that is wished.
 */
#ifndef CONVOY_CLI_PIPELINE_SWAP_H
#define CONVOY_CLI_PIPELINE_SWAP_H

#include "cli/pipeline_work.h"

/* A turn of the member's loop: begins a swap that is due, and notes one that is over. */
int32_t convoy_pipeline_swap_turn(struct convoy_pipeline_worker *worker);

/* All requests are through: makes what was not begun yet, and waits for it. */
int32_t convoy_pipeline_swap_end(struct convoy_pipeline_worker *worker);

#endif
