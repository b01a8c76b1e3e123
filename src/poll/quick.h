/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking call of a group whose calls are alike: the same positional lists as in the call before, apart from their
 * states. Over the engine's short way (round/quick.h); convoy_poll_reduce goes it where it can.
 */
#ifndef CONVOY_POLL_QUICK_H
#define CONVOY_POLL_QUICK_H

#include "convoy/poll.h"
#include "round/quick.h"

struct convoy_poll;

enum convoy_poll_moved {
    CONVOY_POLL_MOVED_NO = 0, /* the outcome is that of the round before */
    CONVOY_POLL_MOVED_YES,
    CONVOY_POLL_MOVED_UNKNOWN, /* whoever asks is to look */
};

/* How the last call went, for whoever records it. */
struct convoy_poll_short_round {
    const uint8_t *input; /* contributed states; NULL: it went the whole way, and was recorded there. They stay until the
                             round after the next */
    enum convoy_poll_moved moved;
};

/* A call that went the whole way, to compare others with. */
struct convoy_poll_short {
    struct convoy_poll_short_round round;
    struct convoy_quick engine; /* generation 0: there is none */
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

/* After a call of plain lists was contributed the whole way: keeps what the next one will be compared with. */
void convoy_poll_quick_keep(struct convoy_poll *poll, const struct convoy_poll_call *call);

/* After its round ended OK and was recorded: whether the next one may go this way. */
void convoy_poll_quick_note(struct convoy_poll *poll);

/* Records a short round that nothing can be built on: by convoy_poll_record_fn, as one that went the whole way. */
void convoy_poll_quick_record(struct convoy_poll *poll);

#endif
