/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through a round: on one host, for a blocking call whose header is that of a round which went the whole
 * way before, and whose members all bring what this one brings. Nothing is decided here that the whole way would decide
 * otherwise: whatever is not as expected (a seal, another fingerprint, tag or length, an error row, a deadline) is left
 * to it, in the state that it expects. Late members are waited for as the whole way does.
 *
 *   note (once)   begin -------- round --OVER---> the payloads are there to be merged; the operation is over and read
 *                  |              |  \---ENDED--> as convoy_engine_wait: merged, over, or still open, as the status says
 *                 NULL          CLOSED ---------> nothing was sent: convoy_engine_begin
 */
#ifndef CONVOY_ROUND_QUICK_H
#define CONVOY_ROUND_QUICK_H

#include "round/engine.h"

#define CONVOY_QUICK_NOBODY UINT32_MAX

struct convoy_cell;

/* What begin looks at: the first member of the engine. */
struct convoy_quick_front {
    _Atomic uint32_t generation; /* in which rounds may start the short way now, or NOBODY: an operation is open or
                                    unread, a member is lost, there are several hosts. Atomic for the last alone, where
                                    other threads notice losses, and write what is there already. */
    uint8_t *payload;            /* of the next round */
};

/* What such rounds have in common. All zero: none was noted. */
struct convoy_quick {
    uint32_t generation;
    uint32_t votes; /* these three are the coming round's */
    uint64_t tag;
    uint32_t payload_bytes;
    uint32_t form; /* CONVOY_INFO_SHORT: the payload has the family's form for short rounds; else 0 */
    uint64_t fingerprint;
    struct convoy_contribution contribution; /* but for votes, tag and payload_bytes */
};

/* How a round went. OVER: payloads in member order, `stride` bytes apart; they stay until this member's next round. */
struct convoy_quick_round {
    convoy_operation operation;
    const struct convoy_round_summary *summary; /* of OVER, and of ENDED with OK; the engine's, until its next round */
    int32_t status;                             /* ENDED: as convoy_engine_wait */
    const uint8_t *payloads;
    size_t stride;
    uint32_t count;
};

enum convoy_quick_end {
    CONVOY_QUICK_CLOSED,
    CONVOY_QUICK_ENDED,
    CONVOY_QUICK_OVER,
};

/* What the coming round is called with. */
struct convoy_quick_call {
    uint64_t timeout_ns; /* 0 = the group's default */
    struct convoy_error *error;
    void (*idle)(void *user); /* called once the others have what they need, while their cells come; may be NULL. What
                                 the engine says of the round before is still there then. */
    void (*keep)(void *user); /* called instead by who comes late, as far as one can guess, so that others may be waiting
                                 for its return: puts that aside, in short. idle follows if it has to wait after all.
                                 May be NULL. */
    void *user;
};

/* What the others' cells say beside their payloads. */
struct convoy_quick_seen {
    uint32_t votes_and;
    uint32_t votes_or;
    bool is_alike; /* contributions like this member's own */
};

/* After an operation that ended OK: the next one may go the short way. Where none can, nothing is noted. */
void convoy_engine_quick_note(const struct convoy_engine *engine, struct convoy_quick *quick_out);

/* After note: the rounds have a form of their own, of payload_bytes. All members that go the short way give it the same
 * one; the merge operations take it too. */
void convoy_engine_quick_shorten(struct convoy_quick *quick, uint32_t payload_bytes);

/* A line that is to be written, and that others may have read last: its ownership is on its way from now on. */
static inline void convoy_engine_quick_own(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* As convoy_engine_begin; NULL: the short way is closed. Others who wait look at the cell all the time, so it has to be
 * taken from them while the payload is made. */
static inline uint8_t *convoy_engine_quick_begin(const struct convoy_engine *engine, const struct convoy_quick *quick)
{
    const struct convoy_quick_front *front = (const struct convoy_quick_front *)(const void *)engine;
    uint32_t generation = atomic_load_explicit(&front->generation, memory_order_relaxed);
    if (generation != quick->generation) {
        return NULL;
    }
    convoy_engine_quick_own(front->payload);
    return front->payload;
}

/* The round itself is in round/quick_path.h, so that it becomes a part of its callers. What it leaves to others: */

/* Pauses, then yields, until a cell holds the word. false: who waits longer than that needs a clock. */
bool convoy_engine_quick_wait(struct convoy_engine *engine, const struct convoy_cell *cell, uint64_t word,
                              const struct convoy_quick_call *call);

/* Waits as the whole way does, but comes back when all are there. OVER: they are, and `seen_out` is as expected. ENDED:
 * with round_out->status. */
enum convoy_quick_end convoy_engine_quick_wait_long(struct convoy_engine *engine, const struct convoy_quick *quick,
                                                    const struct convoy_quick_call *call,
                                                    struct convoy_quick_seen *seen_out, int32_t *status_out);

/* Wakes members that sleep; how many wakes that took. */
uint32_t convoy_engine_quick_wake(struct convoy_engine *engine);

#endif
