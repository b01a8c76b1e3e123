/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/check.h"

#include "reference/shard.h"
#include "reference/table.h"
#include "reference/walk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define VOTE_EMPTY 1u
#define VOTE_STOP 2u
#define END_FINISHED 0u
#define END_STOPPED 1u

/* -- gather -------------------------------------------------------------------------------------------------------- */

static enum reference_verdict check_gather_rank(struct reference_walk *walk, uint32_t rank)
{
    const struct reference_record *inputs[REFERENCE_RANKS_MAX];
    const struct reference_record *result = &walk->results[rank];
    char text[200];
    for (uint32_t i = 0; i < walk->check->ranks; i++) {
        inputs[i] = &walk->inputs[i];
        if (inputs[i]->trace_step != inputs[0]->trace_step) {
            return reference_walk_wrong(walk, i, "is at trace step %" PRIu64 ", rank 0 at %" PRIu64,
                                        inputs[i]->trace_step, inputs[0]->trace_step);
        }
    }
    if (walk->check->steps != 0 && (inputs[0]->trace_step <= walk->trace_step || result->round != walk->round + 1)) {
        return reference_walk_wrong(
            walk, rank, "trace step %" PRIu64 " round %" PRIu64 " after trace step %" PRIu64 " round %" PRIu64,
            inputs[0]->trace_step, result->round, walk->trace_step, walk->round);
    }
    if (reference_table_check(walk->check->logs, inputs, result, text, sizeof text) != 0) {
        return reference_walk_wrong(walk, rank, "%s", text);
    }
    return REFERENCE_GO_ON;
}

static enum reference_verdict check_gather(struct reference_walk *walk)
{
    struct reference_span world = {.first = 0, .count = walk->check->ranks, .input_tag = 'G'};
    uint32_t missing = 0;
    if (reference_walk_call(walk, &world, &missing) != REFERENCE_GO_ON) {
        return REFERENCE_WRONG;
    }
    for (uint32_t rank = 0; missing == 0 && rank < world.count; rank++) {
        if (reference_walk_is_ok(walk, rank) && check_gather_rank(walk, rank) != REFERENCE_GO_ON) {
            return REFERENCE_WRONG;
        }
    }
    if (reference_walk_count_ok(walk, &world) != world.count) {
        return reference_walk_incomplete(walk, &world, missing);
    }
    walk->trace_step = walk->inputs[0].trace_step;
    walk->round = walk->results[0].round;
    for (uint32_t rank = 1; rank < world.count; rank++) {
        if (walk->results[rank].round != walk->round) {
            return reference_walk_wrong(walk, rank, "round %" PRIu64 ", rank 0 has %" PRIu64, walk->results[rank].round,
                                        walk->round);
        }
    }
    return REFERENCE_GO_ON;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static enum reference_verdict check_end(struct reference_walk *walk, uint64_t reason)
{
    for (uint32_t rank = 0; rank < walk->check->ranks; rank++) {
        struct reference_record *record = &walk->results[rank];
        if (reference_walk_next(walk, rank, record) != REFERENCE_GO_ON) {
            return REFERENCE_WRONG;
        }
        if (record->tag != 'E' || record->reason != reason) {
            return reference_walk_wrong(walk, rank, "the replay should have ended here with reason %" PRIu64, reason);
        }
        if (reference_log_peek(&walk->check->logs[rank]) != 0) {
            return reference_walk_wrong(walk, rank, "goes on after its end");
        }
    }
    for (uint32_t id = 0; reason == END_FINISHED && id < walk->check->logs[0].request_count; id++) {
        if (!walk->is_decided[id]) {
            return reference_walk_wrong(walk, 0, "request %u was neither committed nor dropped", id);
        }
    }
    return REFERENCE_ENDED;
}

static enum reference_verdict check_step(struct reference_walk *walk)
{
    enum reference_verdict verdict = check_gather(walk);
    if (verdict != REFERENCE_GO_ON) {
        return verdict;
    }
    uint64_t votes_and = walk->results[0].votes_and;
    uint64_t votes_or = walk->results[0].votes_or;
    if ((votes_or & VOTE_STOP) != 0) {
        walk->check->steps++;
        return check_end(walk, END_STOPPED);
    }
    if ((votes_and & VOTE_EMPTY) == 0) {
        verdict = reference_shard_check_all(walk);
    }
    walk->check->steps += verdict == REFERENCE_GO_ON;
    if (verdict == REFERENCE_GO_ON && (votes_and & VOTE_EMPTY) != 0 &&
        reference_log_peek(&walk->check->logs[0]) == 'E' && !walk->check->may_end_early) {
        return check_end(walk, END_FINISHED);
    }
    return verdict;
}

int reference_check_run(struct reference_check *check)
{
    struct reference_walk walk = {.check = check};
    walk.inputs = calloc(check->ranks, sizeof *walk.inputs);
    walk.results = calloc(check->ranks, sizeof *walk.results);
    walk.is_decided = calloc(check->logs[0].request_count + 1ul, 1);
    enum reference_verdict verdict = REFERENCE_WRONG;
    if (walk.inputs == NULL || walk.results == NULL || walk.is_decided == NULL) {
        (void)fprintf(stderr, "reference: out of memory\n");
    } else {
        do {
            verdict = check_step(&walk);
        } while (verdict == REFERENCE_GO_ON);
    }
    free(walk.inputs);
    free(walk.results);
    free(walk.is_decided);
    return verdict == REFERENCE_ENDED ? 0 : -1;
}
