/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through a round: on one host, for a blocking call whose header is that of a round which went the whole
 * way before, and whose members all bring what this one brings. Nothing is decided here that the whole way would decide
 * otherwise: whatever is not as expected (a late member, a seal, another fingerprint, tag or length, an error row) is
 * left to it, in the state that it expects.
 *
 *   note (once)  begin, publish, await --true---> the payloads are there to be merged, the operation is over and read
 *                  |       |       \----false---> convoy_engine_wait goes on with the operation, which is open
 *                NULL    false  ---------------> nothing was sent: convoy_engine_begin
 */
#ifndef CONVOY_ROUND_QUICK_H
#define CONVOY_ROUND_QUICK_H

#include "round/engine.h"

/* What does not change between such rounds. All zero: none was noted. */
struct convoy_quick {
    struct convoy_contribution contribution; /* votes, tag and payload_bytes are the coming round's */
    uint64_t fingerprint;
    uint32_t generation;
};

/* The payloads of a round, in member order; they stay until this member's next begin. */
struct convoy_quick_payloads {
    const uint8_t *first;
    size_t stride;
    uint32_t count;
};

/* After an operation that ended OK: the next one may go the short way. Where none can, nothing is noted. */
void convoy_engine_quick_note(const struct convoy_engine *engine, struct convoy_quick *quick_out);

/* As convoy_engine_begin; NULL: the short way is closed. */
uint8_t *convoy_engine_quick_begin(struct convoy_engine *engine, const struct convoy_quick *quick);

/* Contributes quick->contribution. Returns the operation, or 0: nothing was sent. */
convoy_operation convoy_engine_quick_publish(struct convoy_engine *engine, const struct convoy_quick *quick);

/* Waits a little for the others. */
bool convoy_engine_quick_await(struct convoy_engine *engine, const struct convoy_quick *quick,
                               struct convoy_round_summary *summary_out, struct convoy_quick_payloads *payloads_out);

#endif
