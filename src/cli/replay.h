/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler loop of one rank, from opening its groups to the end of the trace. */
#ifndef CONVOY_CLI_REPLAY_H
#define CONVOY_CLI_REPLAY_H

#include "cli/rank.h"

/* Runs in a process of its own. Returns its exit code: 0 when the trace was finished or all agreed to stop. */
int convoy_replay_rank(const struct convoy_rank_setup *setup, uint32_t index);

#endif
