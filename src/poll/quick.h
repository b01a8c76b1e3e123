/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking call of a group whose calls are alike: the same positional lists as in the call before, apart from their
 * states. Over the engine's short way (round/quick.h).
 */
#ifndef CONVOY_POLL_QUICK_H
#define CONVOY_POLL_QUICK_H

#include "convoy/poll.h"
#include "round/call_log.h"
#include "round/quick.h"

struct convoy_poll;

/* A call that went the whole way, to compare others with. */
struct convoy_poll_short {
    struct convoy_quick engine; /* generation 0: there is none */
    struct convoy_call_values values; /* of the last such round */
    size_t list_count;
    struct convoy_poll_short_list {
        size_t name_length; /* the name is in the capture */
        size_t count;
        size_t state_stride;
        uint32_t state_bytes;
        uint32_t flags;
        uint64_t digest;
        size_t stamp_stride;
    } lists[CONVOY_POLL_LISTS_MAX];
};

enum convoy_poll_quick {
    CONVOY_POLL_QUICK_CLOSED, /* nothing was sent: the whole way is to be gone */
    CONVOY_POLL_QUICK_ENDED,  /* it was waited for the whole way: how that ended is in status */
    CONVOY_POLL_QUICK_DONE,   /* the result is written and recorded */
};

enum convoy_poll_quick convoy_poll_quick(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                         const struct convoy_quick_call *how, struct convoy_poll_result *result,
                                         int32_t *status_out);

/* After a call of plain lists was contributed the whole way: keeps what the next one will be compared with. */
void convoy_poll_quick_keep(struct convoy_poll *poll, const struct convoy_poll_call *call);

/* After its round ended OK and was recorded: whether the next one may go this way. */
void convoy_poll_quick_note(struct convoy_poll *poll);

#endif
