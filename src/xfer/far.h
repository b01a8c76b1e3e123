/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers on other hosts. Notices go as frames of net/bulk.h, payloads as streams of chunks into memory that the receiver has
 * set aside first:
 *
 *   sender                                            receiver
 *   OFFER(request, bytes)           ------------->    takes a slot, or refuses (TAKEN: reason, figures, when to ask again)
 *                                   <-------------    ROOM(landing, generation)
 *   descriptor, payload in chunks   =============>    each checked against the landing before it lands
 *                                   <-------------    TAKEN: all is there, and checked
 *
 *   by descriptor (ASK, GRANT) and to addresses (RAW, RAW_LIST) the same, where ROOM answers GRANT or RAW; a list of parts
 *   comes as a descriptor does
 *
 * A sender that ends early stops its streams, which makes its source free at once, and says WITHDRAW; a receiver that does so
 * closes its landing, after which nothing lands any more. So neither side's memory waits for the other's word.
 *
 * Bulk is opened when the first such peer comes. Its callbacks only queue: whoever works on the engine takes from the queue,
 * under the engine's lock, which is never held while bulk makes progress. Lock order: engine, bulk, landings or queue.
 */
#ifndef CONVOY_XFER_FAR_H
#define CONVOY_XFER_FAR_H

#include "net/bulk.h"
#include "net/frame.h"
#include "xfer/landing.h"
#include "xfer/parts.h"

#define CONVOY_FAR_ADDRESS_BYTES (16u << 10) /* longest bulk address */
#define CONVOY_FAR_NOTE_BYTES (64u << 20)    /* longest descriptor */

struct convoy_far_item; /* what a callback has queued */

/* Bytes for an address here, on their way in. */
struct convoy_far_raw {
    struct convoy_far_raw *next;
    struct convoy_raw_order order; /* of a list: the cookie alone */
    struct convoy_slot slot;       /* lease NONE = registered memory */
    struct convoy_raw_copy *copy;  /* list: whose room they come into */
    uint32_t peer;
    uint64_t landing;
    uint64_t generation;
    uint64_t deadline_ns;
};

struct convoy_far {
    struct convoy_bulk *bulk;
    struct convoy_landings *landings;
    pthread_mutex_t lock; /* of the queue */
    struct convoy_far_item *first;
    struct convoy_far_item *last;
    struct convoy_far_raw *raws;
    uint32_t cut_count; /* peers whose connection has ended, but whose endpoint may still bring something */
};

extern const struct convoy_lane convoy_lane_far;

/* -- far.c -- */
/* Opens bulk, unless it is. UNSUPPORTED, INIT_FAILED: what it needs. [no lock] */
int32_t convoy_far_open(struct convoy_xfer *engine, struct convoy_error *error);
/* Gives what still waits a moment to leave. [no lock; nobody else is inside] */
void convoy_far_close(struct convoy_xfer *engine);
/* Works and takes what came; gives the lock up meanwhile. */
void convoy_far_pump(struct convoy_xfer *engine);
/* Ends what is over its time, and notes when to look again. */
void convoy_far_timers(struct convoy_xfer *engine, uint64_t now_ns);
/* The TCP connection has ended: what the peer has said before may still be on its way. */
void convoy_far_cut(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);

/* -- far_connect.c -- */
/* The connector's part, on the host's thread; takes the stream's descriptor on OK. [no lock] */
int32_t convoy_far_join(struct convoy_xfer *engine, struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                        const struct convoy_introduction *theirs, convoy_peer *peer_out, struct convoy_error *error);
/* The listener's, which has got the address; takes the descriptor on OK. [lock] */
int32_t convoy_far_admit(struct convoy_xfer *engine, struct convoy_frame_stream *stream,
                         const struct convoy_introduction *theirs, const struct convoy_frame *frame,
                         struct convoy_error *error);

/* -- far_push.c: bytes that go out -- */
void convoy_far_on_room(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_room *room);
void convoy_far_send_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
void convoy_far_stream_ended(struct convoy_xfer *engine, const struct convoy_bulk_event *event);
/* Ends an order that a host thread has waited for: its source is read no more. */
void convoy_far_order_ended(struct convoy_xfer *engine, struct convoy_xfer_order *order);

/* -- far_land.c: bytes that come in -- */
void convoy_far_load(struct convoy_xfer *engine, struct convoy_xfer_entry *load, const struct convoy_offer *offer);
void convoy_far_load_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *load);
/* Says ROOM again: since the time for that has come, or to a sender that has not heard it. */
void convoy_far_load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *load);
void convoy_far_load_repeat(struct convoy_xfer *engine, uint32_t peer, uint64_t serial);
/* All bytes of a landing are there. */
void convoy_far_landed(struct convoy_xfer *engine, uint64_t owner, uint64_t number);

/* -- far_raw.c: bytes that come in for an address -- */
/* One part, into a slot (lease NONE: registered memory). BUSY, NO_MEMORY. */
int32_t convoy_far_raw_begin(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *order,
                             const struct convoy_slot *slot);
/* A list, into the room of its copy; takes it on OK. */
int32_t convoy_far_raw_begin_list(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* Said again, to a sender that has not heard it. false: there is none. */
bool convoy_far_raw_again(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie);
bool convoy_far_raw_landed(struct convoy_xfer *engine, uint64_t number);
/* The sender has given it up. false: there is none. */
bool convoy_far_raw_withdraw(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie);
/* All of a peer, or all whose time has passed (peer NOBODY); UINT64_MAX: all there are. */
void convoy_far_raw_drop(struct convoy_xfer *engine, uint32_t peer, uint64_t now_ns);

#endif
