/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/check.h"

#include "reference/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOTE_EMPTY 1u
#define VOTE_STOP 2u
#define STATE_FAILED 0u
#define STATE_SUCCESS 4u
#define END_FINISHED 0u
#define END_STOPPED 1u

enum verdict {
    WRONG = -1,
    GO_ON = 0,
    ENDED = 1, /* and all is well */
};

struct walk {
    struct reference_check *check;
    struct reference_record *inputs;  /* one per rank */
    struct reference_record *results; /* one per rank */
    uint8_t *is_decided;              /* one per request */
    uint64_t trace_step;
    uint64_t round;
};

static enum verdict wrong(const struct walk *walk, uint32_t rank, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fprintf(stderr, "reference: step %" PRIu64 ", rank %u: %s\n", walk->check->steps, rank, text);
    return WRONG;
}

static enum verdict next_record(struct walk *walk, uint32_t rank, struct reference_record *record)
{
    struct reference_log *log = &walk->check->logs[rank];
    size_t at = log->at;
    if (reference_log_next(log, record) != 0) {
        return wrong(walk, rank, "no record at byte %zu", at);
    }
    return GO_ON;
}

/* -- one call over some of the ranks ------------------------------------------------------------------------------ */

/* Ranks first, first + 1, ... that make one call together. */
struct span {
    uint32_t first;
    uint32_t count;
    uint8_t input_tag;
};

/* Reads input and result of every rank that made the call. missing_out: ranks that did not. */
static enum verdict read_call(struct walk *walk, const struct span *span, uint32_t *missing_out)
{
    *missing_out = 0;
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        struct reference_record *result = &walk->results[rank];
        walk->inputs[rank].tag = 0;
        result->tag = 0;
        if (reference_log_peek(&walk->check->logs[rank]) != span->input_tag) {
            *missing_out += 1;
            continue;
        }
        if (next_record(walk, rank, &walk->inputs[rank]) != GO_ON) {
            return WRONG;
        }
        if (walk->inputs[rank].step != walk->check->steps) {
            return wrong(walk, rank, "a call of step %" PRIu64 " is out of order", walk->inputs[rank].step);
        }
        if (next_record(walk, rank, result) != GO_ON) {
            return WRONG;
        }
        if (result->tag != 0 && result->tag != span->input_tag + ('g' - 'G')) {
            return wrong(walk, rank, "a call is followed by '%c'", result->tag);
        }
    }
    return GO_ON;
}

static int is_ok(const struct walk *walk, uint32_t rank)
{
    return walk->results[rank].tag != 0 && walk->results[rank].status == 0;
}

static uint32_t count_ok(const struct walk *walk, const struct span *span)
{
    uint32_t count = 0;
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        count += is_ok(walk, rank) != 0;
    }
    return count;
}

/* A call that not every rank made, or that did not end OK everywhere. */
static enum verdict check_incomplete(struct walk *walk, const struct span *span, uint32_t missing)
{
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        if (missing != 0 && is_ok(walk, rank)) {
            return wrong(walk, rank, "has a result although %u ranks did not make the call", missing);
        }
        if (!walk->check->may_end_early && !is_ok(walk, rank)) {
            return wrong(walk, rank, "the call is missing or ended with status %" PRId64, walk->results[rank].status);
        }
    }
    walk->check->has_ended_early = 1;
    return ENDED;
}

/* -- gather -------------------------------------------------------------------------------------------------------- */

static enum verdict check_gather_rank(struct walk *walk, uint32_t rank)
{
    const struct reference_record *inputs[REFERENCE_RANKS_MAX];
    const struct reference_record *result = &walk->results[rank];
    char text[200];
    for (uint32_t i = 0; i < walk->check->ranks; i++) {
        inputs[i] = &walk->inputs[i];
        if (inputs[i]->trace_step != inputs[0]->trace_step) {
            return wrong(walk, i, "is at trace step %" PRIu64 ", rank 0 at %" PRIu64, inputs[i]->trace_step,
                         inputs[0]->trace_step);
        }
    }
    if (walk->check->steps != 0 && (inputs[0]->trace_step <= walk->trace_step || result->round != walk->round + 1)) {
        return wrong(walk, rank, "trace step %" PRIu64 " round %" PRIu64 " after trace step %" PRIu64 " round %" PRIu64,
                     inputs[0]->trace_step, result->round, walk->trace_step, walk->round);
    }
    if (reference_table_check(walk->check->logs, inputs, result, text, sizeof text) != 0) {
        return wrong(walk, rank, "%s", text);
    }
    return GO_ON;
}

static enum verdict check_gather(struct walk *walk)
{
    struct span world = {.first = 0, .count = walk->check->ranks, .input_tag = 'G'};
    uint32_t missing = 0;
    if (read_call(walk, &world, &missing) != GO_ON) {
        return WRONG;
    }
    for (uint32_t rank = 0; missing == 0 && rank < world.count; rank++) {
        if (is_ok(walk, rank) && check_gather_rank(walk, rank) != GO_ON) {
            return WRONG;
        }
    }
    if (count_ok(walk, &world) != world.count) {
        return check_incomplete(walk, &world, missing);
    }
    walk->trace_step = walk->inputs[0].trace_step;
    walk->round = walk->results[0].round;
    for (uint32_t rank = 1; rank < world.count; rank++) {
        if (walk->results[rank].round != walk->round) {
            return wrong(walk, rank, "round %" PRIu64 ", rank 0 has %" PRIu64, walk->results[rank].round, walk->round);
        }
    }
    return GO_ON;
}

/* -- reduce -------------------------------------------------------------------------------------------------------- */

/* MIN over all ranks of the shard; they must list the same requests. */
static enum verdict agree(struct walk *walk, const struct span *shard, uint8_t states_out[REFERENCE_ENTRIES_MAX])
{
    const struct reference_record *first = &walk->inputs[shard->first];
    memcpy(states_out, first->states, first->count);
    for (uint32_t rank = shard->first; rank < shard->first + shard->count; rank++) {
        const struct reference_record *own = &walk->inputs[rank];
        if (own->count != first->count || memcmp(own->ids, first->ids, first->count * sizeof first->ids[0]) != 0) {
            return wrong(walk, rank, "its queue differs from that of rank %u", shard->first);
        }
        for (uint64_t i = 0; i < own->count; i++) {
            if (own->states[i] > STATE_SUCCESS) {
                return wrong(walk, rank, "brought state %u", own->states[i]);
            }
            states_out[i] = own->states[i] < states_out[i] ? own->states[i] : states_out[i];
        }
    }
    return GO_ON;
}

static enum verdict check_agreed(struct walk *walk, uint32_t rank, const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[rank];
    const struct reference_record *result = &walk->results[rank];
    if (result->count != input->count) {
        return wrong(walk, rank, "got %" PRIu64 " states for %" PRIu64 " requests", result->count, input->count);
    }
    for (uint64_t i = 0; i < input->count; i++) {
        if (result->states[i] != states[i]) {
            return wrong(walk, rank, "request %" PRIu64 " is in state %u, expected %u%s", input->ids[i],
                         result->states[i], states[i],
                         result->states[i] == STATE_SUCCESS ? ": it commits ahead of its peers" : "");
        }
    }
    return GO_ON;
}

/* The requests that this rank must commit, or drop, in this step: exactly those, in queue order. */
static enum verdict check_decision(struct walk *walk, uint32_t rank, uint8_t tag, const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[rank];
    struct reference_record *decision = &walk->results[rank];
    uint8_t wanted_state = tag == 'C' ? STATE_SUCCESS : STATE_FAILED;
    const char *verb = tag == 'C' ? "commits" : "drops";
    uint64_t at = 0;
    decision->count = 0;
    if (reference_log_peek(&walk->check->logs[rank]) == tag && next_record(walk, rank, decision) != GO_ON) {
        return WRONG;
    }
    for (uint64_t i = 0; i < input->count; i++) {
        if (states[i] != wanted_state) {
            continue;
        }
        if (at == decision->count || decision->ids[at] != input->ids[i]) {
            return wrong(walk, rank, "does not %.*s request %" PRIu64, (int)strlen(verb) - 1, verb, input->ids[i]);
        }
        at++;
    }
    if (at != decision->count || (decision->count != 0 && decision->step != walk->check->steps)) {
        return wrong(walk, rank, "%s request %" PRIu64 " that is not agreed", verb,
                     decision->ids[at < decision->count ? at : 0]);
    }
    return GO_ON;
}

/* Marks what the shard decided: each request once, and only by the shard it was dealt to. */
static enum verdict mark_decided(struct walk *walk, const struct span *shard, const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[shard->first];
    uint32_t dp = shard->first / shard->count;
    for (uint64_t i = 0; i < input->count; i++) {
        uint64_t id = input->ids[i];
        if (id >= walk->check->logs[0].request_count || id % walk->check->logs[0].dp != dp || walk->is_decided[id]) {
            return wrong(walk, shard->first, "request %" PRIu64 " is not this shard's, or was decided before", id);
        }
        walk->check->committed += states[i] == STATE_SUCCESS;
        walk->check->dropped += states[i] == STATE_FAILED;
        walk->is_decided[id] = states[i] == STATE_SUCCESS || states[i] == STATE_FAILED;
    }
    return GO_ON;
}

static enum verdict check_shard(struct walk *walk, const struct span *shard)
{
    uint8_t states[REFERENCE_ENTRIES_MAX];
    uint32_t missing = 0;
    if (read_call(walk, shard, &missing) != GO_ON) {
        return WRONG;
    }
    if (missing == shard->count) {
        return GO_ON; /* its queue is empty */
    }
    if (missing == 0 && agree(walk, shard, states) != GO_ON) {
        return WRONG;
    }
    for (uint32_t rank = shard->first; missing == 0 && rank < shard->first + shard->count; rank++) {
        if (is_ok(walk, rank) && (check_agreed(walk, rank, states) != GO_ON ||
                                  check_decision(walk, rank, 'C', states) != GO_ON ||
                                  check_decision(walk, rank, 'D', states) != GO_ON)) {
            return WRONG;
        }
        walk->results[rank].tag = is_ok(walk, rank) ? 'p' : 0;
    }
    if (count_ok(walk, shard) != shard->count) {
        return check_incomplete(walk, shard, missing);
    }
    walk->check->reductions++;
    return mark_decided(walk, shard, states);
}

static enum verdict check_shards(struct walk *walk)
{
    uint32_t count = walk->check->logs[0].tp * walk->check->logs[0].cp;
    enum verdict last = GO_ON;
    for (uint32_t first = 0; first < walk->check->ranks && last != WRONG; first += count) {
        struct span shard = {.first = first, .count = count, .input_tag = 'P'};
        enum verdict verdict = check_shard(walk, &shard);
        last = verdict == GO_ON ? last : verdict;
    }
    return last;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static enum verdict check_end(struct walk *walk, uint64_t reason)
{
    for (uint32_t rank = 0; rank < walk->check->ranks; rank++) {
        struct reference_record *record = &walk->results[rank];
        if (next_record(walk, rank, record) != GO_ON) {
            return WRONG;
        }
        if (record->tag != 'E' || record->reason != reason) {
            return wrong(walk, rank, "the replay should have ended here with reason %" PRIu64, reason);
        }
        if (reference_log_peek(&walk->check->logs[rank]) != 0) {
            return wrong(walk, rank, "goes on after its end");
        }
    }
    for (uint32_t id = 0; reason == END_FINISHED && id < walk->check->logs[0].request_count; id++) {
        if (!walk->is_decided[id]) {
            return wrong(walk, 0, "request %u was neither committed nor dropped", id);
        }
    }
    return ENDED;
}

static enum verdict check_step(struct walk *walk)
{
    enum verdict verdict = check_gather(walk);
    if (verdict != GO_ON) {
        return verdict;
    }
    uint64_t votes_and = walk->results[0].votes_and;
    uint64_t votes_or = walk->results[0].votes_or;
    if ((votes_or & VOTE_STOP) != 0) {
        walk->check->steps++;
        return check_end(walk, END_STOPPED);
    }
    if ((votes_and & VOTE_EMPTY) == 0) {
        verdict = check_shards(walk);
    }
    walk->check->steps += verdict == GO_ON;
    if (verdict == GO_ON && (votes_and & VOTE_EMPTY) != 0 && reference_log_peek(&walk->check->logs[0]) == 'E' &&
        !walk->check->may_end_early) {
        return check_end(walk, END_FINISHED);
    }
    return verdict;
}

int reference_check_run(struct reference_check *check)
{
    struct walk walk = {.check = check};
    walk.inputs = calloc(check->ranks, sizeof *walk.inputs);
    walk.results = calloc(check->ranks, sizeof *walk.results);
    walk.is_decided = calloc(check->logs[0].request_count + 1ul, 1);
    enum verdict verdict = WRONG;
    if (walk.inputs == NULL || walk.results == NULL || walk.is_decided == NULL) {
        (void)fprintf(stderr, "reference: out of memory\n");
    } else {
        do {
            verdict = check_step(&walk);
        } while (verdict == GO_ON);
    }
    free(walk.inputs);
    free(walk.results);
    free(walk.is_decided);
    return verdict == ENDED ? 0 : -1;
}
