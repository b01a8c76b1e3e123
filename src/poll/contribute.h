/* SPDX-License-Identifier: Apache-2.0 */
/* From a call to a contribution: check, capture, payload, header, publish. */
#ifndef CONVOY_POLL_CONTRIBUTE_H
#define CONVOY_POLL_CONTRIBUTE_H

#include "poll/poll.h"

/* Starts a round of that level (ONLY or FIRST). result: checked for room before anything is sent; NULL = later. Refused
 * arguments post an error row if the call asks for that. */
int32_t convoy_contribute_call(struct convoy_poll *poll, const struct convoy_poll_call *call,
                               enum convoy_poll_level level, const struct convoy_poll_result *result,
                               struct convoy_error *error);

/* The whole way of it, which every call can go; the one above goes a short one where it may (alike.c). */
int32_t convoy_contribute_whole(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                enum convoy_poll_level level, const struct convoy_poll_result *result,
                                struct convoy_error *error);

/* Starts the second level's round with the first level's outcome. */
int32_t convoy_contribute_second(struct convoy_poll *second, struct convoy_poll *first, struct convoy_error *error);

/* What an error row says. */
struct convoy_contribute_row {
    int32_t reason;
    uint32_t votes;
    uint64_t tag;
    const struct convoy_poll *call_of; /* the group whose call this row stands for: header and shape are that call's as
                                          far as they are known; NULL = not known at all */
};

/* Posts an error row whose end nobody reads. Returns what the engine says. */
int32_t convoy_contribute_error(struct convoy_poll *poll, const struct convoy_contribute_row *row,
                                struct convoy_error *error);

/* -- for contribute.c and alike.c --------------------------------------------------------------------------------- */

/* Takes over the keys of a call's keyed lists. INVALID_ARGUMENT, LIMIT. */
int32_t convoy_contribute_keys(struct convoy_poll *poll, const struct convoy_poll_call *call,
                               struct convoy_error *error);

/* Writes the payload of captured lists, some of which are keyed. Returns its length. */
size_t convoy_contribute_keyed(const struct convoy_poll *poll, uint8_t *payload);

/* Whether a list is bytes without gaps, and no callbacks, entry flags or gate. */
static inline bool convoy_contribute_is_plain(const struct convoy_poll_list *list)
{
    uint64_t unusual = (list->state_bytes >> 1) | (list->state_stride >> 1) | list->gate | list->reserved |
                       list->stamp_stride | (uintptr_t)list->entry_flags;
    return unusual == 0 && list->read == NULL && (list->name != NULL || list->name_length == 0);
}

/* Hands it to the engine as this group's next operation. */
static inline int32_t convoy_contribute_publish(struct convoy_poll *poll,
                                                const struct convoy_contribution *contribution,
                                                struct convoy_error *error)
{
    poll->is_finished = poll->is_recorded = poll->has_own = false;
    poll->is_unseen = true;
    poll->quick.engine.generation = 0; /* until this round has ended OK */
    poll->operation = 0;
    return convoy_engine_publish(poll->engine, contribution, &poll->operation, error);
}

#endif
