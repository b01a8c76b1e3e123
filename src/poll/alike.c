/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/check.h"
#include "poll/contribute.h"
#include "poll/positional.h"

#include <string.h>

/*
 * A scheduler asks about the same number of requests step after step, so most calls differ from the one before in
 * nothing but their states and keys. What was checked, laid out and put into the header for that one then holds for
 * this one. Only plain lists (bytes without gaps; no callbacks, entry flags, gate or injected faults) go this way, and
 * whatever is not as expected on it is left to the whole one, which knows how to refuse.
 */
static inline bool list_is_alike(const struct convoy_poll *poll, const struct convoy_poll_list *list, uint32_t index)
{
    uint64_t different = (list->count ^ poll->shape.counts[index]) | (list->flags ^ poll->shape.flags[index]) |
                         (list->digest ^ poll->digests[index]) |
                         (list->name_length ^ poll->capture.name_lengths[index]);
    bool has_data = list->states != NULL && (list->keys != NULL || (list->flags & CONVOY_POLL_KEYED) == 0);
    return different == 0 && convoy_contribute_is_plain(list) && (has_data || list->count == 0) &&
           (list->name_length == 0 || memcmp(list->name, poll->capture.names[index], list->name_length) == 0);
}

static inline bool call_is_alike(const struct convoy_poll *poll, const struct convoy_poll_call *call,
                                 enum convoy_poll_level level)
{
    if (!poll->is_plain || poll->two.is_open || poll->level != level || (call->critical_flags | call->reserved) != 0 ||
        call->list_count != poll->shape.list_count) {
        return false;
    }
    bool is_alike = call->lists != NULL || call->list_count == 0;
    for (uint32_t i = 0; i < poll->shape.list_count && is_alike; i++) {
        is_alike = list_is_alike(poll, &call->lists[i], i);
    }
    return is_alike;
}

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
    if (call_is_alike(poll, call, level) && (result == NULL || convoy_check_result_fits(result, &poll->shape))) {
        int32_t status = alike_publish(poll, call, error);
        if (status != CONVOY_IN_PROGRESS) {
            return status;
        }
    }
    return convoy_contribute_whole(poll, call, level, result, error);
}
