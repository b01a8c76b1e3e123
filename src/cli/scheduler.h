/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's model of a serving scheduler: a bounded queue of requests whose transfer runs, and the batch that decodes.
 * Pure: no clock, no I/O. All ranks of a shard hold equal queues as long as they are given equal outcomes.
 *
 *   waiting (arrived) -> queue (transfer runs) -> committed: one EXTEND step, then one token a step -> done
 *                                              -> dropped
 */
#ifndef CONVOY_CLI_SCHEDULER_H
#define CONVOY_CLI_SCHEDULER_H

#include "cli/plan.h"
#include "cli/shape.h"
#include "cli/trace.h"

#include <stdbool.h>

#define CONVOY_SCHEDULER_QUEUE_MAX 256u
#define CONVOY_SCHEDULER_COLUMNS 8u /* of the built-in row "sglang-8" */

struct convoy_scheduler_entry {
    uint32_t request;
    uint64_t admitted_step;
    struct convoy_plan_times times;
};

struct convoy_scheduler_running {
    uint32_t input_tokens;
    uint64_t end_step; /* first step without it */
};

struct convoy_scheduler {
    const struct convoy_trace *trace; /* borrows */
    struct convoy_shape shape;
    uint32_t rank;
    uint64_t seed;
    uint32_t next; /* next request of this data-parallel rank that was not admitted */
    uint32_t queue_count;
    struct convoy_scheduler_entry queue[CONVOY_SCHEDULER_QUEUE_MAX]; /* in order of admission */
    struct convoy_scheduler_running *running;
    uint32_t running_count;
    uint32_t fresh_count; /* committed in the last step: their prompt runs in the next one */
    uint64_t fresh_tokens;
};

/* What one round decided. */
struct convoy_scheduler_outcome {
    uint32_t committed_count;
    uint32_t dropped_count;
    uint32_t committed[CONVOY_SCHEDULER_QUEUE_MAX];
    uint32_t dropped[CONVOY_SCHEDULER_QUEUE_MAX];
};

/* trace: keeps until fini. NO_MEMORY. */
int32_t convoy_scheduler_init(struct convoy_scheduler *scheduler, const struct convoy_trace *trace,
                              const struct convoy_shape *shape, uint32_t rank, uint64_t seed);
void convoy_scheduler_fini(struct convoy_scheduler *scheduler);

/* Begins a step: retires what has decoded its last token and admits what has arrived, as far as there is room. */
void convoy_scheduler_begin(struct convoy_scheduler *scheduler, uint64_t step);

/* Nothing to transfer, to run, or waiting for room. */
bool convoy_scheduler_is_empty(const struct convoy_scheduler *scheduler, uint64_t step);

/* Columns: tokens, logprob tokens, decode-graph vote, extend flag, two-batch vote, mode, prefill-graph vote, prefix. */
void convoy_scheduler_row(const struct convoy_scheduler *scheduler, uint64_t step,
                          int64_t row[CONVOY_SCHEDULER_COLUMNS]);

/* This rank's view of its queue; both arrays hold queue_count entries. */
void convoy_scheduler_states(const struct convoy_scheduler *scheduler, uint64_t step, uint64_t *ids, uint8_t *states);

/* Applies the agreed states: Success commits, Failed drops, all else stays in the queue. */
void convoy_scheduler_apply(struct convoy_scheduler *scheduler, uint64_t step, const uint8_t *states,
                            struct convoy_scheduler_outcome *outcome_out);

#endif
