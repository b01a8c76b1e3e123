/* SPDX-License-Identifier: Apache-2.0 */
/* The short way for keyed lists: the identities are those that all members have agreed on, so that their states alone
 * are sent, in ascending order of identity. */
#include "poll/poll.h"

#include "core/hot.h"
#include "poll/check.h"
#include "poll/positional.h"
#include "poll/result.h"
#include "poll/states_wide.h"
#include "poll/quick_round.h"

#include <string.h>

static bool states_take(const struct convoy_poll *poll, const struct convoy_poll_call *call, uint8_t *input)
{
    bool is_known = true;
    for (size_t i = 0; i < call->list_count; i++) {
        is_known &= convoy_positional_copy(input, call->lists[i].states, call->lists[i].count);
        input += call->lists[i].count;
    }
    return is_known && convoy_order_is_same(&poll->order, call->lists, &poll->shape);
}

/* The identities, by their digest, and the states. */
static void payload_write(struct convoy_poll *poll, uint8_t *payload, const uint8_t *input)
{
    const struct convoy_payload_same same = {CONVOY_PAYLOAD_SAME, poll->keyed.agreed.digest};
    const struct convoy_order *order = &poll->order;
    uint8_t *states = payload + sizeof same;
    uint8_t *sorted = poll->quick.is_packed ? poll->quick.sorted : states;
    for (uint32_t slot = 0; slot < order->slots; slot++) {
        uint32_t start = order->starts[slot];
        convoy_order_sort(order, slot, sorted + start, input + start);
    }
    if (poll->quick.is_packed) {
        convoy_states_pack(states, sorted, poll->quick.entries);
    }
    memcpy(payload, &same, sizeof same);
}

/* What the merge operations would have made of it. */
static void states_merge(struct convoy_poll *poll, const struct convoy_quick_round *round)
{
    struct convoy_keyed *keyed = &poll->keyed;
    uint8_t *states = convoy_keyed_current(keyed)->states;
    const struct convoy_states_lists lists = {round->payloads + sizeof(struct convoy_payload_same), round->stride,
                                              round->count};
    struct convoy_states_seen seen = poll->quick.is_packed
                                         ? convoy_states_merge_packed(states, states, &lists, poll->quick.entries)
                                         : convoy_states_merge(states, states, &lists, poll->quick.entries);
    convoy_positional_begin(&keyed->positional);
    keyed->positional.members = round->count;
    keyed->is_fresh = false;
    if (__builtin_expect((seen.unknown & CONVOY_STATES_HIGH_BITS) != 0 || CONVOY_MUTATED(min_is_max), 0)) {
        convoy_keyed_ops.begin(keyed);
        for (uint32_t i = 0; i < round->count; i++) {
            (void)convoy_keyed_ops.member(keyed, i, round->payloads + i * round->stride,
                                          poll->quick.engine.payload_bytes); /* all refer to what is agreed on */
        }
    }
}

static void result_write(struct convoy_poll *poll, const struct convoy_quick_round *round,
                         struct convoy_poll_result *result)
{
    poll->tag = poll->quick.engine.tag;
    poll->votes = poll->quick.engine.votes;
    poll->summary = *round->summary;
    convoy_outcome_finish(&poll->outcome, &poll->keyed, &poll->decided);
    poll->has_own = convoy_outcome_own(&poll->outcome, &poll->keyed, &poll->order);
    convoy_result_write(poll, result);
}

CONVOY_HOT
bool convoy_poll_quick_keyed(struct convoy_poll *poll, const struct convoy_poll_call *call,
                             const struct convoy_quick_call *how, struct convoy_poll_result *result,
                             int32_t *status_out, uint8_t *payload)
{
    struct convoy_quick_round round;
    uint8_t *input = poll->quick.inputs[poll->engine->next_round & 1];
    if (!convoy_poll_quick_is_alike(poll, call) || !convoy_check_result_fits(result, &poll->shape) ||
        !states_take(poll, call, input)) {
        return false;
    }
    payload_write(poll, payload, input);
    enum convoy_quick_end end = convoy_poll_quick_round(poll, call, how, input, result, &round, status_out);
    if (__builtin_expect(end != CONVOY_QUICK_OVER, 0)) {
        return end == CONVOY_QUICK_ENDED;
    }
    states_merge(poll, &round);
    result_write(poll, &round, result);
    poll->quick.round.moved = CONVOY_POLL_MOVED_UNKNOWN;
    poll->quick.round.output = poll->outcome.states;
    return true;
}
