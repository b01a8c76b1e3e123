/* SPDX-License-Identifier: Apache-2.0 */
/* The short round as both kinds of lists go it, inlined in their files (quick.c, quick_keyed.c). */
#ifndef CONVOY_POLL_QUICK_ROUND_H
#define CONVOY_POLL_QUICK_ROUND_H

#include "poll/poll.h"
#include "round/quick_path.h"

/* Sends what lies in the cell and waits. input: what it was made of. CLOSED: nothing was sent. ENDED: status_out is the
 * call's. OVER: the payloads are there to be merged. */
CONVOY_QUICK_INLINE enum convoy_quick_end convoy_poll_quick_round(struct convoy_poll *poll,
                                                                  const struct convoy_poll_call *call,
                                                                  const struct convoy_quick_call *how,
                                                                  const uint8_t *input,
                                                                  struct convoy_poll_result *result,
                                                                  struct convoy_quick_round *round_out,
                                                                  int32_t *status_out)
{
    poll->quick.engine.tag = call->tag;
    poll->quick.engine.votes = call->votes;
    enum convoy_quick_end end = convoy_engine_quick_round(poll->engine, &poll->quick.engine, how, round_out);
    if (__builtin_expect(end == CONVOY_QUICK_CLOSED, 0)) {
        return end;
    }
    poll->operation = round_out->operation;
    poll->two.phase = CONVOY_TWO_LEVEL_NONE;
    poll->quick.round.input = input;
    *status_out = CONVOY_OK;
    if (__builtin_expect(end == CONVOY_QUICK_ENDED, 0)) {
        *status_out = convoy_poll_quick_leave(poll, round_out, result, how->error);
    }
    return end;
}

#endif
