/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking gather of plain rows (no mask, no slots, nothing cut) by members that are all there: over the engine's
 * short way (round/quick.h), and into a merge state that such a round has left as it must be.
 */
#ifndef CONVOY_SYNC_QUICK_H
#define CONVOY_SYNC_QUICK_H

#include "round/quick.h"
#include "sync/sync.h"

/* After a round that ended OK: whether the next one may go this way. */
void convoy_sync_quick_note(struct convoy_sync *sync);

/* What the call log wants of a short round; stays until the next call's how->idle. */
struct convoy_sync_short {
    const int64_t *row;   /* contributed */
    const int64_t *table; /* gathered */
    uint64_t tag;
    uint32_t votes;
};

/* CLOSED: nothing was sent, convoy_sync_gather is to be called. ENDED: status_out is what that would have returned,
 * short_out has row, tag and votes. OVER: the result is written. */
enum convoy_quick_end convoy_sync_quick(struct convoy_sync *sync, const struct convoy_sync_call *call,
                                        const struct convoy_quick_call *how, struct convoy_sync_result *result,
                                        struct convoy_sync_short *short_out, int32_t *status_out);

#endif
