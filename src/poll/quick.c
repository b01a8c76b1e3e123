/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/quick.h"

#include "poll/alike.h"
#include "poll/check.h"
#include "poll/positional.h"

#include <string.h>

void convoy_poll_quick_note(struct convoy_poll *poll)
{
    if (poll->is_plain && poll->may_repeat && poll->shape.keyed_count == 0 && poll->level == CONVOY_POLL_LEVEL_ONLY) {
        convoy_engine_quick_note(poll->engine, &poll->quick);
    }
}

/* false: a state is out of range, which the whole way says in words. */
static inline bool states_take(const struct convoy_payload_shape *shape, const struct convoy_poll_list *lists,
                               uint8_t *payload)
{
    bool is_known = true;
    for (uint32_t i = 0; i < shape->list_count; i++) {
        is_known &= convoy_positional_copy(payload + shape->starts[i], lists[i].states, shape->counts[i]);
    }
    return is_known;
}

static inline void states_merge(struct convoy_poll *poll, const struct convoy_quick_payloads *payloads)
{
    struct convoy_positional *positional = &poll->keyed.positional;
    const uint8_t *payload = payloads->first;
    convoy_positional_begin(positional);
    for (uint32_t i = 0; i < payloads->count; i++, payload += payloads->stride) {
        convoy_positional_add(positional, payload, 1);
    }
}

static inline void result_write(const struct convoy_poll *poll, struct convoy_poll_result *result)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    for (uint32_t i = 0; i < shape->list_count; i++) {
        struct convoy_poll_list_result *out = &result->lists[i];
        if (out->states != NULL && shape->counts[i] != 0) {
            memcpy(out->states, poll->positional_states + shape->starts[i], shape->counts[i]);
        }
        out->states_count = shape->counts[i];
        out->outcome_count = 0;
        out->foreign_count = out->injected_count = out->demoted_count = 0;
        out->unknown_count = poll->keyed.positional.unknown[i];
    }
    result->votes_and = poll->summary.votes_and;
    result->votes_or = poll->summary.votes_or;
    result->round = poll->summary.round;
    result->epoch = poll->summary.epoch;
}

/* The operation goes on as one that was contributed the whole way. */
__attribute__((noinline)) static enum convoy_poll_quick quick_leave(struct convoy_poll *poll, const uint8_t *payload)
{
    memcpy(poll->capture.states, payload, poll->shape.positional_bytes);
    poll->is_finished = poll->is_recorded = poll->has_own = false;
    poll->is_unseen = true;
    return CONVOY_POLL_QUICK_OPEN;
}

static inline void quick_record(struct convoy_poll *poll, const uint8_t *payload)
{
    struct convoy_call_values values; /* all fields are set here or by `repeat` */
    values.round = poll->summary.round;
    values.epoch = poll->summary.epoch;
    values.tag = poll->tag;
    values.votes = poll->votes;
    values.votes_and = poll->summary.votes_and;
    values.votes_or = poll->summary.votes_or;
    values.input = payload;
    values.output = poll->positional_states;
    (void)poll->repeat(poll->record_user, &values);
}

enum convoy_poll_quick convoy_poll_quick(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                         struct convoy_poll_result *result)
{
    struct convoy_quick_payloads payloads;
    if (poll->quick.generation == 0) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    uint8_t *payload = convoy_engine_quick_begin(poll->engine, &poll->quick);
    if (payload == NULL || !convoy_alike_call(poll, call, CONVOY_POLL_LEVEL_ONLY) ||
        !convoy_check_result_fits(result, &poll->shape) || !states_take(&poll->shape, call->lists, payload)) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    poll->quick.contribution.tag = poll->tag = call->tag;
    poll->quick.contribution.votes = poll->votes = call->votes;
    convoy_operation operation = convoy_engine_quick_publish(poll->engine, &poll->quick);
    if (operation == 0) {
        return CONVOY_POLL_QUICK_CLOSED;
    }
    poll->operation = operation;
    poll->two.phase = CONVOY_TWO_LEVEL_NONE;
    if (!convoy_engine_quick_await(poll->engine, &poll->quick, &poll->summary, &payloads)) {
        return quick_leave(poll, payload);
    }
    states_merge(poll, &payloads);
    result_write(poll, result);
    quick_record(poll, payload);
    return CONVOY_POLL_QUICK_DONE;
}
