/* SPDX-License-Identifier: Apache-2.0 */
/* The reduce of each shard in one step: inputs, agreed states, and what was committed and dropped. */
#ifndef REFERENCE_SHARD_H
#define REFERENCE_SHARD_H

#include "reference/walk.h"

enum reference_verdict reference_shard_check_all(struct reference_walk *walk);

#endif
