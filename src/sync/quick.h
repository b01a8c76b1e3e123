/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking gather of plain rows (no mask, no slots, nothing cut) by members that are all there: over the engine's
 * short way (round/quick.h), and into a merge state that such a round has left as it must be.
 */
#ifndef CONVOY_SYNC_QUICK_H
#define CONVOY_SYNC_QUICK_H

#include "round/call_log.h"
#include "round/quick.h"
#include "sync/sync.h"

/* After a round that ended OK: whether the next one may go this way. */
void convoy_sync_quick_note(struct convoy_sync *sync);

/* CLOSED: nothing was sent, convoy_sync_gather is to be called. ENDED: status_out is what that would have returned,
 * values_out has tag, votes and row. OVER: the result is written; values_out has what the call log wants. Values and what
 * they refer to stay until the next call's how->idle. */
enum convoy_quick_end convoy_sync_quick(struct convoy_sync *sync, const struct convoy_sync_call *call,
                                        const struct convoy_quick_call *how, struct convoy_sync_result *result,
                                        const struct convoy_call_values **values_out, int32_t *status_out);

#endif
