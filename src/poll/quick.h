/* SPDX-License-Identifier: Apache-2.0 */
/* The blocking call of a group whose calls are alike (alike.h), over the engine's short way (round/quick.h). */
#ifndef CONVOY_POLL_QUICK_H
#define CONVOY_POLL_QUICK_H

#include "poll/poll.h"

enum convoy_poll_quick {
    CONVOY_POLL_QUICK_CLOSED, /* nothing was sent: the whole way is to be gone */
    CONVOY_POLL_QUICK_OPEN,   /* the operation is open: it is to be waited for */
    CONVOY_POLL_QUICK_DONE,   /* the result is written and recorded */
};

enum convoy_poll_quick convoy_poll_quick(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                         struct convoy_poll_result *result);

/* After a round that ended OK and was recorded: whether the next one may go this way. */
void convoy_poll_quick_note(struct convoy_poll *poll);

#endif
