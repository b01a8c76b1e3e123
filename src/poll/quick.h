/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking call of a group whose calls are alike: the same lists as in the call before, apart from their states. Over
 * the engine's short way (round/quick.h); convoy_poll_reduce goes it where it can. All lists are positional, or all are
 * keyed with identities that all members have agreed on in the round before, so that nothing but states is sent.
 */
#ifndef CONVOY_POLL_QUICK_H
#define CONVOY_POLL_QUICK_H

#include "core/memory.h"
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
    const uint8_t *input; /* contributed states in own order; NULL: it went the whole way, and was recorded there. They
                             stay until the round after the next */
    const uint8_t *output; /* as input; they stay until the next round has all cells */
    enum convoy_poll_moved moved;
};

/* A call that went the whole way, to compare others with. */
struct convoy_poll_short {
    struct convoy_poll_short_round round;
    struct convoy_quick engine; /* generation 0: there is none */
    bool is_packed;             /* states go by the half byte */
    bool is_keyed;
    uint8_t *inputs[2]; /* what was contributed, where the cell does not have it as it is; by the parity of the round */
    uint8_t *sorted;    /* is_keyed: the states in ascending order of identity */
    uint32_t entries;   /* of all lists */
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

/* entries: room for the states of all lists; keyed: of keyed ones. Its tables are placed as in core/memory.h: twice, the second
 * time for use. */
void convoy_poll_quick_place(struct convoy_poll_short *quick, size_t entries, size_t keyed, struct convoy_memory_plan *plan);

/* After a call of plain lists was contributed the whole way: keeps what the next one will be compared with. */
void convoy_poll_quick_keep(struct convoy_poll *poll, const struct convoy_poll_call *call);

/* After its round ended OK and was recorded: whether the next one may go this way. */
void convoy_poll_quick_note(struct convoy_poll *poll);

/* Records a short round that nothing can be built on: by convoy_poll_record_fn, as one that went the whole way. */
void convoy_poll_quick_record(struct convoy_poll *poll);

/* -- between quick.c and quick_keyed.c ----------------------------------------------------------------------------- */

/* The same for keyed lists whose payload begins at `payload`. false: nothing was sent, the whole way is to be gone. */
bool convoy_poll_quick_keyed(struct convoy_poll *poll, const struct convoy_poll_call *call,
                             const struct convoy_quick_call *how, struct convoy_poll_result *result,
                             int32_t *status_out, uint8_t *payload);

/* What the whole way would have left after contributing, and its end. */
int32_t convoy_poll_quick_leave(struct convoy_poll *poll, const struct convoy_quick_round *round,
                                struct convoy_poll_result *result, struct convoy_error *error);

/* After keep: whether a call has the lists of the one that was kept, apart from keys and states. */
bool convoy_poll_quick_is_alike(const struct convoy_poll *poll, const struct convoy_poll_call *call);

#endif
