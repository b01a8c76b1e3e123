/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/shard.h"

#include <inttypes.h>
#include <string.h>

/* MIN over all ranks of the shard; they must list the same requests. */
static enum reference_verdict agree(struct reference_walk *walk, const struct reference_span *shard,
                                    uint8_t states_out[REFERENCE_ENTRIES_MAX])
{
    const struct reference_record *first = &walk->inputs[shard->first];
    memcpy(states_out, first->states, first->count);
    for (uint32_t rank = shard->first; rank < shard->first + shard->count; rank++) {
        const struct reference_record *own = &walk->inputs[rank];
        if (own->count != first->count || memcmp(own->ids, first->ids, first->count * sizeof first->ids[0]) != 0) {
            return reference_walk_wrong(walk, rank, "its queue differs from that of rank %u", shard->first);
        }
        for (uint64_t i = 0; i < own->count; i++) {
            if (own->states[i] > REFERENCE_STATE_SUCCESS) {
                return reference_walk_wrong(walk, rank, "brought state %u", own->states[i]);
            }
            states_out[i] = own->states[i] < states_out[i] ? own->states[i] : states_out[i];
        }
    }
    return REFERENCE_GO_ON;
}

static enum reference_verdict check_agreed(struct reference_walk *walk, uint32_t rank, const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[rank];
    const struct reference_record *result = &walk->results[rank];
    if (result->count != input->count) {
        return reference_walk_wrong(walk, rank, "got %" PRIu64 " states for %" PRIu64 " requests", result->count,
                                    input->count);
    }
    for (uint64_t i = 0; i < input->count; i++) {
        if (result->states[i] != states[i]) {
            return reference_walk_wrong(
                walk, rank, "request %" PRIu64 " is in state %u, expected %u%s", input->ids[i], result->states[i],
                states[i], result->states[i] == REFERENCE_STATE_SUCCESS ? ": it commits ahead of its peers" : "");
        }
    }
    return REFERENCE_GO_ON;
}

/* The requests that this rank must commit, or drop, in this step: exactly those, in queue order. */
static enum reference_verdict check_decision(struct reference_walk *walk, uint32_t rank, uint8_t tag,
                                             const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[rank];
    struct reference_record *decision = &walk->results[rank];
    uint8_t wanted_state = tag == 'C' ? REFERENCE_STATE_SUCCESS : REFERENCE_STATE_FAILED;
    const char *verb = tag == 'C' ? "commits" : "drops";
    uint64_t at = 0;
    decision->count = 0;
    if (reference_log_peek(&walk->check->logs[rank]) == tag &&
        reference_walk_next(walk, rank, decision) != REFERENCE_GO_ON) {
        return REFERENCE_WRONG;
    }
    for (uint64_t i = 0; i < input->count; i++) {
        if (states[i] != wanted_state) {
            continue;
        }
        if (at == decision->count || decision->ids[at] != input->ids[i]) {
            return reference_walk_wrong(walk, rank, "does not %.*s request %" PRIu64, (int)strlen(verb) - 1, verb,
                                        input->ids[i]);
        }
        at++;
    }
    if (at != decision->count || (decision->count != 0 && decision->step != walk->check->steps)) {
        return reference_walk_wrong(walk, rank, "%s request %" PRIu64 " that is not agreed", verb,
                                    decision->ids[at < decision->count ? at : 0]);
    }
    return REFERENCE_GO_ON;
}

/* Marks what the shard decided: each request once, and only by the shard it was dealt to. */
static enum reference_verdict mark_decided(struct reference_walk *walk, const struct reference_span *shard,
                                           const uint8_t *states)
{
    const struct reference_record *input = &walk->inputs[shard->first];
    uint32_t dp = shard->first / shard->count;
    for (uint64_t i = 0; i < input->count; i++) {
        uint64_t id = input->ids[i];
        if (id >= walk->check->logs[0].request_count || id % walk->check->logs[0].dp != dp || walk->is_decided[id]) {
            return reference_walk_wrong(walk, shard->first,
                                        "request %" PRIu64 " is not this shard's, or was decided before", id);
        }
        walk->check->committed += states[i] == REFERENCE_STATE_SUCCESS;
        walk->check->dropped += states[i] == REFERENCE_STATE_FAILED;
        walk->is_decided[id] = states[i] == REFERENCE_STATE_SUCCESS || states[i] == REFERENCE_STATE_FAILED;
    }
    return REFERENCE_GO_ON;
}

static enum reference_verdict check_shard(struct reference_walk *walk, const struct reference_span *shard)
{
    uint8_t states[REFERENCE_ENTRIES_MAX];
    uint32_t missing = 0;
    if (reference_walk_call(walk, shard, &missing) != REFERENCE_GO_ON) {
        return REFERENCE_WRONG;
    }
    if (missing == shard->count) {
        return REFERENCE_GO_ON; /* its queue is empty */
    }
    if (missing == 0 && agree(walk, shard, states) != REFERENCE_GO_ON) {
        return REFERENCE_WRONG;
    }
    for (uint32_t rank = shard->first; missing == 0 && rank < shard->first + shard->count; rank++) {
        if (reference_walk_is_ok(walk, rank) && (check_agreed(walk, rank, states) != REFERENCE_GO_ON ||
                                                 check_decision(walk, rank, 'C', states) != REFERENCE_GO_ON ||
                                                 check_decision(walk, rank, 'D', states) != REFERENCE_GO_ON)) {
            return REFERENCE_WRONG;
        }
        walk->results[rank].tag = reference_walk_is_ok(walk, rank) ? 'p' : 0;
    }
    if (reference_walk_count_ok(walk, shard) != shard->count) {
        return reference_walk_incomplete(walk, shard, missing);
    }
    walk->check->reductions++;
    return mark_decided(walk, shard, states);
}

enum reference_verdict reference_shard_check_all(struct reference_walk *walk)
{
    uint32_t count = walk->check->logs[0].tp * walk->check->logs[0].cp;
    enum reference_verdict last = REFERENCE_GO_ON;
    for (uint32_t first = 0; first < walk->check->ranks && last != REFERENCE_WRONG; first += count) {
        struct reference_span shard = {.first = first, .count = count, .input_tag = 'P'};
        enum reference_verdict verdict = check_shard(walk, &shard);
        last = verdict == REFERENCE_GO_ON ? last : verdict;
    }
    return last;
}
