/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/poll.h"

#include "core/hot.h"
#include "poll/positional.h"
#include "poll/result.h"
#include "poll/states_wide.h"
#include "poll/quick_round.h"

#include <string.h>

void convoy_poll_quick_place(struct convoy_poll_short *quick, size_t entries, size_t keyed, struct convoy_memory_plan *plan)
{
    quick->inputs[0] = convoy_memory_place(plan, entries, sizeof *quick->inputs[0]);
    quick->inputs[1] = convoy_memory_place(plan, entries, sizeof *quick->inputs[1]);
    quick->sorted = convoy_memory_place(plan, keyed, sizeof *quick->sorted);
}

void convoy_poll_quick_keep(struct convoy_poll *poll, const struct convoy_poll_call *call)
{
    poll->quick.list_count = call->list_count;
    poll->quick.entries = 0;
    for (size_t i = 0; i < call->list_count; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        poll->quick.entries += (uint32_t)list->count;
        poll->quick.lists[i] = (struct convoy_poll_short_list){list->name_length, list->count,  list->state_stride,
                                                               list->state_bytes, list->flags, list->digest,
                                                               list->stamp_stride};
    }
}

void convoy_poll_quick_note(struct convoy_poll *poll)
{
    struct convoy_poll_short *quick = &poll->quick;
    bool is_keyed = poll->shape.keyed_count != 0;
    if (!poll->is_plain || !poll->may_repeat || poll->level != CONVOY_POLL_LEVEL_ONLY ||
        (is_keyed && !convoy_keyed_is_agreed(&poll->keyed))) {
        return;
    }
    convoy_engine_quick_note(poll->engine, &quick->engine);
    quick->is_keyed = is_keyed;
    quick->is_packed = convoy_packed_pays(quick->entries);
    if (is_keyed || quick->is_packed) {
        size_t head = is_keyed ? sizeof(struct convoy_payload_same) : 0;
        convoy_engine_quick_shorten(&quick->engine, (uint32_t)(head + convoy_payload_short_bytes(quick->entries)));
    }
    poll->has_counts = true; /* the merge may have counted unknown states, whether or not its result is taken */
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
                    (result == NULL || result->list_capacity >= count);
    for (size_t i = 0; i < count && is_alike; i++) {
        is_alike = list_is_alike(poll, &call->lists[i], i) &&
                   (result == NULL || result_fits(&result->lists[i], call->lists[i].count));
    }
    return is_alike;
}

bool convoy_poll_quick_is_alike(const struct convoy_poll *poll, const struct convoy_poll_call *call)
{
    return call_is_alike(poll, call, NULL, poll->quick.list_count);
}

static inline bool is_wide(const struct convoy_poll *poll, size_t count)
{
    return count >= CONVOY_STATES_WIDE && poll->has_wide;
}

/* false: a state is out of range, which the whole way says in words. */
LISTS_INLINE bool states_take(const struct convoy_poll *poll, const struct convoy_poll_call *call, uint8_t *payload,
                              size_t count)
{
    bool is_known = true;
    for (size_t i = 0; i < count; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        is_known &= is_wide(poll, list->count) ? convoy_states_copy_wide(payload, list->states, list->count)
                                               : convoy_states_copy(payload, list->states, list->count);
        payload += list->count;
    }
    return is_known;
}

/* As states_take, into `input` and packed into the payload. */
LISTS_INLINE bool states_pack(const struct convoy_poll *poll, const struct convoy_poll_call *call, uint8_t *payload,
                              uint8_t *input, size_t count)
{
    bool is_known = states_take(poll, call, input, count);
    convoy_states_pack(payload, input, poll->quick.entries);
    return is_known;
}

LISTS_INLINE void list_write(struct convoy_poll_list_result *out, size_t count, uint32_t unknown)
{
    out->states_count = count;
    out->outcome_count = 0;
    out->foreign_count = out->injected_count = out->demoted_count = 0;
    out->unknown_count = unknown;
}

/* A peer is newer and has a state that this build does not know: what was merged and written is of no use. */
__attribute__((noinline)) static void merge_again(struct convoy_poll *poll, const struct convoy_quick_round *round,
                                                  const struct convoy_poll_call *call,
                                                  struct convoy_poll_result *result)
{
    struct convoy_positional *positional = &poll->keyed.positional;
    const uint8_t *states = poll->positional_states;
    poll->has_counts = true;
    convoy_positional_ops.begin(positional);
    for (uint32_t i = 0; i < round->count; i++) {
        (void)convoy_positional_ops.member(positional, i, round->payloads + i * round->stride,
                                           poll->quick.engine.payload_bytes); /* the length is right */
    }
    for (size_t i = 0; i < call->list_count; i++) {
        struct convoy_poll_list_result *out = &result->lists[i];
        if (out->states != NULL) {
            memcpy(out->states, states, call->lists[i].count);
        }
        list_write(out, call->lists[i].count, positional->unknown[i]);
        states += call->lists[i].count;
    }
}

LISTS_INLINE struct convoy_states_seen merge_into(struct convoy_poll *poll, uint8_t *copy,
                                                  const struct convoy_quick_round *round, size_t entries)
{
    const struct convoy_states_lists lists = {round->payloads, round->stride, round->count};
    if (poll->quick.is_packed) {
        return convoy_states_merge_packed(poll->positional_states, copy, &lists, entries);
    }
    return is_wide(poll, entries) ? convoy_states_merge_wide(poll->positional_states, copy, &lists, entries)
                                  : convoy_states_merge(poll->positional_states, copy, &lists, entries);
}

/* MIN over all lists, which lie one after the other, into the merge state and the caller's result. */
LISTS_INLINE enum convoy_poll_moved states_merge(struct convoy_poll *poll, const struct convoy_quick_round *round,
                                                 const struct convoy_poll_call *call,
                                                 struct convoy_poll_result *result, size_t count)
{
    uint8_t *states = poll->positional_states;
    uint8_t *copy = count == 1 && result->lists[0].states != NULL ? result->lists[0].states : states;
    if (__builtin_expect(poll->has_counts, 0)) { /* else what a merge without unknown states leaves is there already */
        convoy_positional_begin(&poll->keyed.positional);
        poll->has_counts = false;
    }
    struct convoy_states_seen seen = merge_into(poll, copy, round, poll->quick.entries);
    if (__builtin_expect((seen.unknown & CONVOY_STATES_HIGH_BITS) != 0 || CONVOY_MUTATED(min_is_max), 0)) {
        merge_again(poll, round, call, result);
        return CONVOY_POLL_MOVED_UNKNOWN;
    }
    for (size_t i = 0; i < count; i++) {
        struct convoy_poll_list_result *out = &result->lists[i];
        size_t entries = call->lists[i].count;
        if (count != 1 && out->states != NULL) {
            convoy_states_spread(out->states, states, entries);
        }
        list_write(out, entries, 0);
        states += entries;
    }
    return seen.moved != 0 ? CONVOY_POLL_MOVED_YES : CONVOY_POLL_MOVED_NO;
}

int32_t convoy_poll_quick_leave(struct convoy_poll *poll, const struct convoy_quick_round *round,
                                struct convoy_poll_result *result, struct convoy_error *error)
{
    poll->tag = poll->quick.engine.tag;
    poll->votes = poll->quick.engine.votes;
    poll->summary = *round->summary;
    memcpy(poll->capture.states, poll->quick.round.input, poll->quick.entries);
    poll->quick.round.input = NULL;
    poll->is_finished = poll->is_recorded = poll->has_own = false;
    poll->is_unseen = true;
    poll->quick.engine.generation = 0;
    return convoy_poll_reduce_end(poll, round->status, result, error);
}

void convoy_poll_quick_record(struct convoy_poll *poll)
{
    poll->tag = poll->quick.engine.tag;
    poll->votes = poll->quick.engine.votes;
    poll->summary = *convoy_engine_summary(poll->engine);
    memcpy(poll->capture.states, poll->quick.round.input, poll->quick.entries);
    convoy_result_record(poll, CONVOY_OK);
}

/* false: nothing was sent, the whole way is to be gone. */
LISTS_INLINE bool quick_lists(struct convoy_poll *poll, const struct convoy_poll_call *call,
                              const struct convoy_quick_call *how, struct convoy_poll_result *result,
                              int32_t *status_out, uint8_t *payload, size_t count)
{
    struct convoy_quick_round round;
    bool is_packed = poll->quick.is_packed;
    uint8_t *input = is_packed ? poll->quick.inputs[poll->engine->next_round & 1] : payload;
    if (!call_is_alike(poll, call, result, count) ||
        !(is_packed ? states_pack(poll, call, payload, input, count) : states_take(poll, call, input, count))) {
        return false;
    }
    enum convoy_quick_end end = convoy_poll_quick_round(poll, call, how, input, result, &round, status_out);
    if (__builtin_expect(end != CONVOY_QUICK_OVER, 0)) {
        return end == CONVOY_QUICK_ENDED;
    }
    poll->quick.round.moved = states_merge(poll, &round, call, result, count);
    poll->quick.round.output = poll->positional_states;
    result->votes_and = round.summary->votes_and;
    result->votes_or = round.summary->votes_or;
    result->round = round.summary->round;
    result->epoch = round.summary->epoch;
    return true;
}

CONVOY_HOT
int32_t convoy_poll_reduce(struct convoy_poll *poll, const struct convoy_poll_call *call, uint64_t timeout_ns,
                           struct convoy_poll_result *result, struct convoy_error *error)
{
    const struct convoy_quick_call how = {timeout_ns != 0 ? timeout_ns : poll->timeout_ns, error, poll->settle,
                                          poll->keep, poll->record_user};
    uint8_t *payload = convoy_engine_quick_begin(poll->engine, &poll->quick.engine);
    size_t count = poll->quick.list_count;
    int32_t status;
    poll->quick.round.input = NULL;
    if (payload != NULL && !poll->is_unseen && __builtin_expect(poll->quick.is_keyed, 0)) {
        if (convoy_poll_quick_keyed(poll, call, &how, result, &status, payload)) {
            return status;
        }
        payload = NULL;
    }
    if (payload != NULL && !poll->is_unseen &&
        (count == 1 ? quick_lists(poll, call, &how, result, &status, payload, 1)
                    : quick_lists(poll, call, &how, result, &status, payload, count))) {
        return status;
    }
    return convoy_poll_reduce_whole(poll, call, how.timeout_ns, result, error);
}
