/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler asks about the same number of requests step after step, so most calls differ from the one before in
 * nothing but their states and keys. What was checked, laid out and put into the header for that one then holds for
 * this one. Only plain lists (bytes without gaps; no callbacks, entry flags, gate or injected faults) go this way, and
 * whatever is not as expected on it is left to the whole one, which knows how to refuse.
 */
#ifndef CONVOY_POLL_ALIKE_H
#define CONVOY_POLL_ALIKE_H

#include "poll/contribute.h"

#include <string.h>

static inline bool convoy_alike_list(const struct convoy_poll *poll, const struct convoy_poll_list *list, uint32_t index)
{
    uint64_t different = (list->count ^ poll->shape.counts[index]) | (list->flags ^ poll->shape.flags[index]) |
                         (list->digest ^ poll->digests[index]) |
                         (list->name_length ^ poll->capture.name_lengths[index]);
    bool has_data = list->states != NULL && (list->keys != NULL || (list->flags & CONVOY_POLL_KEYED) == 0);
    return different == 0 && convoy_contribute_is_plain(list) && (has_data || list->count == 0) &&
           (list->name_length == 0 || memcmp(list->name, poll->capture.names[index], list->name_length) == 0);
}

static inline bool convoy_alike_call(const struct convoy_poll *poll, const struct convoy_poll_call *call,
                                 enum convoy_poll_level level)
{
    if (!poll->is_plain || poll->two.is_open || poll->level != level || (call->critical_flags | call->reserved) != 0 ||
        call->list_count != poll->shape.list_count) {
        return false;
    }
    bool is_alike = call->lists != NULL || call->list_count == 0;
    for (uint32_t i = 0; i < poll->shape.list_count && is_alike; i++) {
        is_alike = convoy_alike_list(poll, &call->lists[i], i);
    }
    return is_alike;
}

#endif
