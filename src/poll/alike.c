/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/alike.h"
#include "poll/check.h"
#include "poll/positional.h"

#include <string.h>

/* States as they are: into the payload, and capture keeps them for the call log. false: one is out of range. */
static inline bool positional_take(struct convoy_poll *poll, const struct convoy_poll_list *lists, uint8_t *payload)
{
    uint8_t *states = poll->capture.states;
    uint32_t start = 0; /* in both, as there are positional lists only */
    bool is_known = true;
    for (uint32_t i = 0; i < poll->shape.list_count; i++) {
        uint32_t count = poll->shape.counts[i];
        is_known &= convoy_positional_copy_twice(states + start, payload + start, lists[i].states, count);
        start += count;
    }
    return is_known;
}

__attribute__((noinline)) static bool keyed_take(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                                 uint8_t *payload)
{
    for (uint32_t i = 0; i < poll->shape.list_count; i++) {
        uint8_t *to = poll->capture.states + poll->capture.starts[i];
        if (!convoy_positional_copy(to, call->lists[i].states, poll->shape.counts[i])) {
            return false;
        }
    }
    if (convoy_contribute_keys(poll, call, NULL) != CONVOY_OK) {
        return false;
    }
    poll->plain.payload_bytes = (uint32_t)convoy_contribute_keyed(poll, payload);
    return true;
}

/* IN_PROGRESS: the whole way must be gone. */
static inline int32_t alike_publish(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                    struct convoy_error *error)
{
    uint8_t *payload;
    if (convoy_engine_begin(poll->engine, &payload, NULL) != CONVOY_OK) {
        return CONVOY_IN_PROGRESS;
    }
    bool is_taken = poll->shape.keyed_count == 0 ? positional_take(poll, call->lists, payload)
                                                 : keyed_take(poll, call, payload);
    if (!is_taken) {
        return CONVOY_IN_PROGRESS;
    }
    poll->two.phase = CONVOY_TWO_LEVEL_NONE;
    poll->plain.tag = poll->tag = call->tag;
    poll->plain.votes = poll->votes = call->votes;
    return convoy_contribute_publish(poll, &poll->plain, error);
}

int32_t convoy_contribute_call(struct convoy_poll *poll, const struct convoy_poll_call *call,
                               enum convoy_poll_level level, const struct convoy_poll_result *result,
                               struct convoy_error *error)
{
    if (convoy_alike_call(poll, call, level) && (result == NULL || convoy_check_result_fits(result, &poll->shape))) {
        int32_t status = alike_publish(poll, call, error);
        if (status != CONVOY_IN_PROGRESS) {
            return status;
        }
    }
    return convoy_contribute_whole(poll, call, level, result, error);
}
