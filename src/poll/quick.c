/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/poll.h"

#include "core/fault.h"
#include "poll/positional.h"
#include "poll/result.h"
#include "poll/states_wide.h"

#include <string.h>

void convoy_poll_quick_keep(struct convoy_poll *poll, const struct convoy_poll_call *call)
{
    poll->quick.list_count = call->list_count;
    for (size_t i = 0; i < call->list_count; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        poll->quick.lists[i] = (struct convoy_poll_short_list){list->name_length, list->count,  list->state_stride,
                                                               list->state_bytes, list->flags, list->digest,
                                                               list->stamp_stride};
    }
}

void convoy_poll_quick_note(struct convoy_poll *poll)
{
    if (poll->is_plain && poll->may_repeat && poll->shape.keyed_count == 0 && poll->level == CONVOY_POLL_LEVEL_ONLY) {
        convoy_engine_quick_note(poll->engine, &poll->quick.engine);
        poll->has_counts = true; /* the merge may have counted unknown states, whether or not its result is taken */
    }
}

/* The kept list is plain (contribute.h), so one that does not differ from it in these fields is plain too. */
static inline bool list_is_alike(const struct convoy_poll *poll, const struct convoy_poll_list *list, size_t index)
{
    const struct convoy_poll_short_list *kept = &poll->quick.lists[index];
    uint64_t different = (list->name_length ^ kept->name_length) | (list->count ^ kept->count) |
                         (list->state_stride ^ kept->state_stride) | (list->state_bytes ^ kept->state_bytes) |
                         (list->flags ^ kept->flags) | (list->digest ^ kept->digest) |
                         (uintptr_t)list->entry_flags | list->gate | list->reserved |
                         (list->stamp_stride ^ kept->stamp_stride) | (uintptr_t)list->read;
    bool has_name = list->name_length == 0 ||
                    (different == 0 && list->name != NULL &&
                     memcmp(list->name, poll->capture.names[index], list->name_length) == 0);
    return different == 0 && (list->states != NULL || list->count == 0) && has_name;
}

static inline bool result_fits(const struct convoy_poll_list_result *list, size_t count)
{
    return (list->states == NULL || list->states_capacity >= count) && list->outcomes == NULL;
}

/* What two callers below make of a constant: with one list, which is the usual call, there are no loops. */
#define LISTS_INLINE static inline __attribute__((always_inline))

LISTS_INLINE bool call_is_alike(const struct convoy_poll *poll, const struct convoy_poll_call *call,
                                const struct convoy_poll_result *result, size_t count)
{
    bool is_alike = (call->critical_flags | call->reserved | (call->list_count ^ count)) == 0 &&
                    result->list_capacity >= count;
    for (size_t i = 0; i < count && is_alike; i++) {
        is_alike = list_is_alike(poll, &call->lists[i], i) && result_fits(&result->lists[i], call->lists[i].count);
    }
    return is_alike;
}

/* false: a state is out of range, which the whole way says in words. */
LISTS_INLINE bool states_take(const struct convoy_poll *poll, const struct convoy_poll_call *call, uint8_t *payload,
                              size_t count)
{
    bool is_known = true;
    for (size_t i = 0; i < count; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        bool is_wide = list->count >= CONVOY_STATES_WIDE && poll->has_wide;
        is_known &= is_wide ? convoy_states_copy_wide(payload, list->states, list->count)
                            : convoy_states_copy(payload, list->states, list->count);
        payload += list->count;
    }
    return is_known;
}

/* A peer is newer and has a state that this build does not know. */
__attribute__((noinline)) static void merge_each(struct convoy_poll *poll, const struct convoy_quick_round *round)
{
    poll->has_counts = true;
    convoy_positional_begin(&poll->keyed.positional);
    for (uint32_t i = 0; i < round->count; i++) {
        convoy_positional_add(&poll->keyed.positional, round->payloads + i * round->stride, 1);
    }
}

/* Returns whether the outcome differs from that of the round before. */
static inline enum convoy_poll_moved states_merge(struct convoy_poll *poll, const struct convoy_quick_round *round)
{
    const struct convoy_states_lists lists = {round->payloads, round->stride, round->count};
    if (poll->has_counts) { /* else what a merge without unknown states leaves is there already */
        convoy_positional_begin(&poll->keyed.positional);
        poll->has_counts = false;
    }
    size_t count = poll->quick.engine.contribution.payload_bytes;
    struct convoy_states_seen seen = count >= CONVOY_STATES_WIDE && poll->has_wide
                                         ? convoy_states_merge_wide(poll->positional_states, &lists, count)
                                         : convoy_states_merge(poll->positional_states, &lists, count);
    if (__builtin_expect((seen.unknown & CONVOY_STATES_HIGH_BITS) != 0 || CONVOY_MUTATED(min_is_max), 0)) {
        merge_each(poll, round);
        return CONVOY_POLL_MOVED_UNKNOWN;
    }
    return seen.moved != 0 ? CONVOY_POLL_MOVED_YES : CONVOY_POLL_MOVED_NO;
}

LISTS_INLINE void result_write(const struct convoy_poll *poll, const struct convoy_poll_call *call,
                               const struct convoy_round_summary *summary, struct convoy_poll_result *result,
                               size_t count)
{
    const uint8_t *states = poll->positional_states;
    for (size_t i = 0; i < count; i++) {
        struct convoy_poll_list_result *out = &result->lists[i];
        size_t entries = call->lists[i].count;
        if (out->states != NULL && entries != 0) {
            memcpy(out->states, states, entries);
        }
        states += entries;
        out->states_count = entries;
        out->outcome_count = 0;
        out->foreign_count = out->injected_count = out->demoted_count = 0;
        out->unknown_count = poll->keyed.positional.unknown[i];
    }
    result->votes_and = summary->votes_and;
    result->votes_or = summary->votes_or;
    result->round = summary->round;
    result->epoch = summary->epoch;
}

/* What the whole way would have left after contributing. */
__attribute__((noinline)) static enum convoy_poll_quick quick_leave(struct convoy_poll *poll, const uint8_t *payload)
{
    memcpy(poll->capture.states, payload, poll->shape.positional_bytes);
    poll->is_finished = poll->is_recorded = poll->has_own = false;
    poll->is_unseen = true;
    poll->quick.engine.generation = 0;
    return CONVOY_POLL_QUICK_ENDED;
}

/* The record has no form to repeat: lists longer than the call log keeps. */
__attribute__((noinline)) static void record_any(struct convoy_poll *poll, const struct convoy_round_summary *summary,
                                                 const uint8_t *payload)
{
    poll->summary = *summary;
    memcpy(poll->capture.states, payload, poll->shape.positional_bytes);
    convoy_result_record(poll, CONVOY_OK);
}

static inline void quick_record(struct convoy_poll *poll, const struct convoy_round_summary *summary,
                                const uint8_t *payload, enum convoy_poll_moved moved)
{
    struct convoy_call_values *values = &poll->quick.values; /* `repeat` may keep it until `settle` */
    values->round = summary->round;
    values->epoch = summary->epoch;
    values->tag = poll->tag;
    values->votes = poll->votes;
    values->votes_and = summary->votes_and;
    values->votes_or = summary->votes_or;
    values->input = payload;
    values->output = poll->positional_states;
    if (!poll->repeat(poll->record_user, values, moved)) {
        record_any(poll, summary, payload);
    }
}

LISTS_INLINE enum convoy_poll_quick quick_lists(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                                const struct convoy_quick_call *how, struct convoy_poll_result *result,
                                                int32_t *status_out, uint8_t *payload, size_t count)
{
    struct convoy_quick_round round;
    if (!call_is_alike(poll, call, result, count) || !states_take(poll, call, payload, count)) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    poll->quick.engine.contribution.tag = poll->tag = call->tag;
    poll->quick.engine.contribution.votes = poll->votes = call->votes;
    enum convoy_quick_end end = convoy_engine_quick_round(poll->engine, &poll->quick.engine, how, &round);
    if (__builtin_expect(end == CONVOY_QUICK_CLOSED, 0)) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    poll->operation = round.operation;
    poll->two.phase = CONVOY_TWO_LEVEL_NONE;
    if (__builtin_expect(end == CONVOY_QUICK_ENDED, 0)) {
        *status_out = round.status;
        poll->summary = *round.summary;
        return quick_leave(poll, payload);
    }
    enum convoy_poll_moved moved = states_merge(poll, &round);
    result_write(poll, call, round.summary, result, count);
    quick_record(poll, round.summary, payload, moved);
    return CONVOY_POLL_QUICK_DONE;
}

enum convoy_poll_quick convoy_poll_quick(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                         const struct convoy_quick_call *how, struct convoy_poll_result *result,
                                         int32_t *status_out)
{
    uint8_t *payload = convoy_engine_quick_begin(poll->engine, &poll->quick.engine);
    if (payload == NULL || poll->is_unseen) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    size_t count = poll->quick.list_count;
    return count == 1 ? quick_lists(poll, call, how, result, status_out, payload, 1)
                      : quick_lists(poll, call, how, result, status_out, payload, count);
}
