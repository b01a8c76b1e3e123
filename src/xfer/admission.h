/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of an engine's sends may be under way at a time, and who goes next. A send of the host's has a place, which follows
 * from its state; a loan to a reader with a descriptor has none. With the engine's lock held.
 *
 *   state, place, counted as           event                   what happens
 *   QUEUED, STAGING:                   stage STAGED, or early  goes if it is the next that has room, else WAITING; an early
 *     queued                                                   one asks again when it is staged
 *                                      stage failed, aborted   ends as the stage did
 *   QUEUED, WAITING: queued; waiting   room, limits changed    goes once it is the next
 *     of engine and peer, with bytes   deadline                FAILED, TIMED_OUT: for whose room, behind how many
 *                                      abort; of its stage     ABORTED
 *                                      release; of its stage   waits on and goes; the payload stays until then
 *                                      peer lost, disconnect   FAILED, PEER_LOST
 *                                      engine_close            ABORTED
 *                                      pool_resize             waits on: its payload keeps its generation
 *                                      move                    waits on there, in the same order
 *   OFFERED, UNDER_WAY: under way of   any end                 what waits has more room
 *     engine and peer, with bytes      move                    under way there
 *   an end, NONE: nothing              BACK comes late         nothing: what the peer still holds is no sending
 *
 * Every change that may let one go marks that as due; whoever gives up the engine's lock does what is due first (so at a place
 * where everything may change anyhow, never inside of a walk over entries). An end that comes of it only marks again.
 *
 * waiting_max counts what is queued, and the place of one that is being staged by its send before there is an entry.
 */
#ifndef CONVOY_XFER_ADMISSION_H
#define CONVOY_XFER_ADMISSION_H

#include "convoy/transfer.h"
#include "xfer/waiting.h"

struct convoy_xfer;
struct convoy_xfer_entry;

#define CONVOY_ADMISSION_TEXT_BYTES 128u
#define CONVOY_ADMISSION_WHY_BYTES 352u

enum convoy_xfer_place {
    CONVOY_XFER_PLACE_NONE = 0,
    CONVOY_XFER_PLACE_STAGING,
    CONVOY_XFER_PLACE_WAITING,
    CONVOY_XFER_PLACE_UNDER_WAY,
};

/* What there is of sends, of an engine or to a peer. */
struct convoy_admission_load {
    uint32_t under_way;
    uint32_t waiting;
    uint64_t under_way_bytes;
    uint64_t waiting_bytes;
};

/* Zero: no limit. */
struct convoy_admission_limit {
    uint32_t count;
    uint64_t bytes;
};

struct convoy_xfer_admission {
    struct convoy_admission limits;
    struct convoy_admission_load load;
    uint32_t queued;     /* sends that are QUEUED, and places taken */
    bool is_limited;     /* else nothing waits, but what did when the limits went */
    bool is_due;         /* some may go now */
    uint64_t order;      /* of the last one that began to wait */
    uint64_t longest_ns; /* that one has waited */
};

/* Of a peer; all zero at first. */
struct convoy_xfer_admission_peer {
    struct convoy_admission_load load;
    struct convoy_waiting_queue queue;
};

static inline struct convoy_admission_limit convoy_admission_of_engine(const struct convoy_xfer_admission *own)
{
    return (struct convoy_admission_limit){own->limits.under_way_max, own->limits.under_way_bytes};
}

static inline struct convoy_admission_limit convoy_admission_of_peer(const struct convoy_xfer_admission *own)
{
    return (struct convoy_admission_limit){own->limits.peer_under_way_max, own->limits.peer_under_way_bytes};
}

/* The rule: whether one of that size may go beside what is under way. One larger than the limit may, alone. */
bool convoy_admission_fits(const struct convoy_admission_load *load, struct convoy_admission_limit limit, uint64_t bytes);

/* Takes a place in the queue for a send to come. OVERLOADED, counted: there is none. */
int32_t convoy_xfer_admission_enter(struct convoy_xfer *engine, struct convoy_error *error);
bool convoy_xfer_admission_is_full(const struct convoy_xfer *engine);
/* Gives it back: there will be no send. Else it is the entry's. */
void convoy_xfer_admission_leave(struct convoy_xfer *engine);

/* Of a send whose payload is there, or may be offered early: whether it goes now. false: it waits, or (early) is to ask again. */
bool convoy_xfer_admission_ask(struct convoy_xfer *engine, struct convoy_xfer_entry *send, uint64_t bytes, bool is_early);
/* Its state is another now. */
void convoy_xfer_admission_moved(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
/* Offers, best first, whatever waits and has room. Not while the engine is parked. */
void convoy_xfer_admission_run(struct convoy_xfer *engine);

/* After a move: places, counters and queues from what the entries say. */
void convoy_xfer_admission_restore(struct convoy_xfer *engine);

/* -- admission_text.c -- */
/* "3 of 3 are under way with 64 MiB of 64 MiB" */
void convoy_admission_text(const struct convoy_admission_load *load, struct convoy_admission_limit limit,
                           char text[CONVOY_ADMISSION_TEXT_BYTES]);
/* Why one that waits has not gone yet: for whose room, behind how many, with the figures. */
void convoy_xfer_admission_why(const struct convoy_xfer *engine, const struct convoy_xfer_entry *send,
                               char text[CONVOY_ADMISSION_WHY_BYTES]);

#endif
