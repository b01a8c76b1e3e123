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

#endif
