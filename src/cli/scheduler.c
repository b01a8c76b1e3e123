/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scheduler.h"

#include "convoy/poll.h"
#include "core/memory.h"

#define MODE_EXTEND 1
#define MODE_DECODE 2
#define MODE_MIXED 3
#define MODE_IDLE 4

#define EXTEND_TOKENS_MAX 16384u /* a longer prompt is cut to this in the row */
#define DECODE_GRAPH_BATCH_MAX 256u
#define PREFILL_GRAPH_TOKENS_MAX 8192u

int32_t convoy_scheduler_init(struct convoy_scheduler *scheduler, const struct convoy_trace *trace,
                              const struct convoy_shape *shape, uint32_t rank, uint64_t seed)
{
    *scheduler = (struct convoy_scheduler){.trace = trace, .shape = *shape, .rank = rank, .seed = seed};
    scheduler->next = convoy_shape_dp_of(shape, rank);
    scheduler->running = convoy_memory_array(trace->count / shape->dp + 1, sizeof *scheduler->running);
    return scheduler->running != NULL ? CONVOY_OK : CONVOY_NO_MEMORY;
}

void convoy_scheduler_fini(struct convoy_scheduler *scheduler)
{
    convoy_memory_free(scheduler->running);
    scheduler->running = NULL;
}

static bool scheduler_has_arrival(const struct convoy_scheduler *scheduler, uint64_t step)
{
    return scheduler->next < scheduler->trace->count && convoy_trace_step(scheduler->trace, scheduler->next) <= step;
}

static void scheduler_retire(struct convoy_scheduler *scheduler, uint64_t step)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < scheduler->running_count; i++) {
        if (scheduler->running[i].end_step > step) {
            scheduler->running[kept++] = scheduler->running[i];
        }
    }
    scheduler->running_count = kept;
}

static void scheduler_admit(struct convoy_scheduler *scheduler, uint64_t step)
{
    while (scheduler->queue_count < CONVOY_SCHEDULER_QUEUE_MAX && scheduler_has_arrival(scheduler, step)) {
        struct convoy_plan_request request = {
            .seed = scheduler->seed,
            .request = scheduler->next,
            .input_tokens = scheduler->trace->requests[scheduler->next].input_tokens,
            .position = convoy_shape_position_of(&scheduler->shape, scheduler->rank),
            .shard_size = convoy_shape_shard(&scheduler->shape),
        };
        scheduler->queue[scheduler->queue_count++] = (struct convoy_scheduler_entry){
            .request = scheduler->next, .admitted_step = step, .times = convoy_plan_times_of(&request)};
        /* Requests are dealt to the data-parallel ranks in turn. */
        uint32_t left = scheduler->trace->count - scheduler->next;
        scheduler->next += left < scheduler->shape.dp ? left : scheduler->shape.dp;
    }
}

void convoy_scheduler_begin(struct convoy_scheduler *scheduler, uint64_t step)
{
    scheduler_retire(scheduler, step);
    scheduler_admit(scheduler, step);
}

bool convoy_scheduler_is_empty(const struct convoy_scheduler *scheduler, uint64_t step)
{
    return scheduler->queue_count == 0 && scheduler->running_count == 0 && !scheduler_has_arrival(scheduler, step);
}

/* Whether this rank's kernels fit a captured graph in this step: almost always, and not on all ranks alike. */
static int64_t scheduler_graph_vote(const struct convoy_scheduler *scheduler, uint64_t step, uint64_t salt)
{
    return convoy_plan_mix(scheduler->seed ^ convoy_plan_mix(step * 131 + scheduler->rank) ^ salt) % 64 != 0;
}

static void scheduler_row_extend(const struct convoy_scheduler *scheduler, uint64_t step, int64_t *row)
{
    uint64_t tokens = scheduler->fresh_tokens < EXTEND_TOKENS_MAX ? scheduler->fresh_tokens : EXTEND_TOKENS_MAX;
    bool is_mixed = scheduler->running_count > scheduler->fresh_count;
    uint32_t prefix = 0;
    for (uint32_t i = scheduler->running_count - scheduler->fresh_count; i < scheduler->running_count; i++) {
        prefix = scheduler->running[i].input_tokens > prefix ? scheduler->running[i].input_tokens : prefix;
    }
    row[0] = (int64_t)tokens + (is_mixed ? scheduler->running_count - scheduler->fresh_count : 0);
    row[1] = scheduler->running_count;
    row[3] = 1;
    row[4] = scheduler->running_count > 1;
    row[5] = is_mixed ? MODE_MIXED : MODE_EXTEND;
    row[6] = tokens <= PREFILL_GRAPH_TOKENS_MAX && scheduler_graph_vote(scheduler, step, 6);
    row[7] = prefix;
}

void convoy_scheduler_row(const struct convoy_scheduler *scheduler, uint64_t step,
                          int64_t row[CONVOY_SCHEDULER_COLUMNS])
{
    static const int64_t idle[CONVOY_SCHEDULER_COLUMNS] = {0, 0, 1, 0, 1, MODE_IDLE, 0, 0};
    for (uint32_t i = 0; i < CONVOY_SCHEDULER_COLUMNS; i++) {
        row[i] = idle[i];
    }
    if (scheduler->running_count == 0) {
        return;
    }
    row[2] = scheduler->running_count <= DECODE_GRAPH_BATCH_MAX && scheduler_graph_vote(scheduler, step, 2);
    if (scheduler->fresh_count != 0) {
        scheduler_row_extend(scheduler, step, row);
        return;
    }
    row[0] = scheduler->running_count;
    row[1] = scheduler->running_count;
    row[4] = scheduler->running_count > 1;
    row[5] = MODE_DECODE;
}

void convoy_scheduler_states(const struct convoy_scheduler *scheduler, uint64_t step, uint64_t *ids, uint8_t *states)
{
    for (uint32_t i = 0; i < scheduler->queue_count; i++) {
        const struct convoy_scheduler_entry *entry = &scheduler->queue[i];
        ids[i] = entry->request;
        states[i] = convoy_plan_state(&entry->times, step - entry->admitted_step);
    }
}

static void scheduler_commit(struct convoy_scheduler *scheduler, uint64_t step, uint32_t request)
{
    const struct convoy_trace_request *traced = &scheduler->trace->requests[request];
    scheduler->running[scheduler->running_count++] = (struct convoy_scheduler_running){
        .input_tokens = traced->input_tokens, .end_step = step + 2 + traced->output_tokens};
    scheduler->fresh_count++;
    scheduler->fresh_tokens += traced->input_tokens;
}

void convoy_scheduler_apply(struct convoy_scheduler *scheduler, uint64_t step, const uint8_t *states,
                            struct convoy_scheduler_outcome *outcome_out)
{
    uint32_t kept = 0;
    outcome_out->committed_count = 0;
    outcome_out->dropped_count = 0;
    scheduler->fresh_count = 0;
    scheduler->fresh_tokens = 0;
    for (uint32_t i = 0; i < scheduler->queue_count; i++) {
        uint32_t request = scheduler->queue[i].request;
        if (states[i] == CONVOY_STATE_SUCCESS) {
            outcome_out->committed[outcome_out->committed_count++] = request;
            scheduler_commit(scheduler, step, request);
        } else if (states[i] == CONVOY_STATE_FAILED) {
            outcome_out->dropped[outcome_out->dropped_count++] = request;
        } else {
            scheduler->queue[kept++] = scheduler->queue[i];
        }
    }
    scheduler->queue_count = kept;
}
