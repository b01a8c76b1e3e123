/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw transfers: addresses instead of requests, as hosts of today ask for them. The peer writes, since it is its memory: an
 * address must lie in exactly one slot that waits for bytes, or in memory that its host has registered.
 *
 *   host thread                                             peer
 *   a window of up to PARTS_MAX parts: each lies in the     checks every part, then holds what they go to;
 *   pool, or is gathered in a block of it     -- RAW_LIST --> its copier copies, or refuses all of them
 *   gives back what the window held          <-- RAW_DONE --  once
 *
 * Between hosts the list and the bytes come as streams (xfer/far.h), into memory that is nobody's; from there on it is the
 * same. A single part, or a large one, lands where it belongs at once.
 *
 * What a window holds is given back by the peer's answer, or its BACK, however late, or by proof that it is dead; never by a
 * deadline, nor by an end of the connection alone. Until then the window is held, and asked for again and again. Between hosts
 * nobody but this side reads there: a window whose bytes are still on their way out is held until they have stopped.
 */
#ifndef CONVOY_XFER_RAW_H
#define CONVOY_XFER_RAW_H

#include "net/bulk.h"
#include "xfer/parts.h"

#define CONVOY_RAW_LEASES_MAX 32u                  /* slots of the own pool that one window reads */
#define CONVOY_RAW_WINDOW_BYTES (UINT64_C(4) << 20) /* gathered, or brought in one stream */

/* One order of a host thread's. */
struct convoy_raw_window {
    struct convoy_raw_window *next; /* free, or held */
    struct convoy_xfer_order order;
    struct convoy_pool *pool; /* that its leases are of */
    bool is_far;
    bool is_direct; /* far: it has no list */
    bool is_said;
    bool is_given_room; /* far: its streams have begun */
    uint64_t bytes;     /* of all parts */
    struct convoy_pool_share share; /* near: the generation of the pool that its parts lie in */
    uint64_t last_from; /* the slot or range that the last part comes from */
    uint32_t count;
    uint32_t lease_count;
    convoy_lease leases[CONVOY_RAW_LEASES_MAX];
    struct convoy_slot block; /* what registered memory is gathered in; lease NONE = none */
    uint64_t block_used;
    struct convoy_slot note; /* the list, in the own notes */
    uint64_t streams[2];     /* far: of the list and the bytes; 0 = none, or ended */
    struct convoy_raw_part parts[CONVOY_RAW_PARTS_MAX];
    struct convoy_bulk_piece pieces[CONVOY_RAW_PARTS_MAX]; /* where each comes from; near: data NULL = from the pool */
    bool is_range[CONVOY_RAW_PARTS_MAX];                   /* from a registered range that is in use by it */
};

/* Where parts go. */
struct convoy_raw_target {
    struct convoy_slot slot;         /* lease NONE = registered memory */
    struct convoy_xfer_entry *owner; /* of the slot, until the copy has stopped; NULL = none yet */
    uint64_t from;
    uint64_t to;
    bool is_alone; /* whatever lies in it lies in nothing else */
    uint32_t extent_first;
    uint32_t extent_count;
};

struct convoy_raw_piece_in {
    struct convoy_raw_part part;
    uint32_t where; /* of the targets */
};

/* What a peer has ordered. Its memory is kept for the next one. */
struct convoy_raw_copy {
    struct convoy_raw_copy *next;
    uint64_t cookie;
    uint32_t peer;
    uint32_t generation;
    bool is_running;
    struct convoy_view *view; /* it comes from there; NULL = from `room` */
    uint32_t count;
    uint32_t target_count;
    uint32_t room_count; /* elements of each array */
    struct convoy_raw_piece_in *pieces;
    struct convoy_raw_target *targets;
    struct convoy_extent *extents;
    uint8_t *room; /* far: the list, and behind it the bytes */
    uint64_t room_bytes;
    uint64_t list_bytes;
    uint64_t bytes;
};

/* Everything here: with the engine's lock held. */

/* -- raw_window.c: what goes out -- */
/* NULL: out of memory. */
struct convoy_raw_window *convoy_raw_window_take(struct convoy_xfer *engine);
void convoy_raw_window_put(struct convoy_xfer *engine, struct convoy_raw_window *window);
/* Gives back all that it holds; it is empty then. */
void convoy_raw_window_clear(struct convoy_xfer *engine, struct convoy_raw_window *window);
/* Until the peer gives back what it may read, or is proven dead; far: until its bytes have stopped. It is nobody else's any
 * more. */
void convoy_raw_window_hold(struct convoy_xfer *engine, struct convoy_raw_window *window);
/* false: nothing is held under this cookie. */
bool convoy_raw_given_back(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie);
/* Bytes of one have stopped, which may be held for that. */
void convoy_raw_window_released(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie);
/* Whether a peer may still read, or is still sent to. */
bool convoy_raw_is_out(const struct convoy_xfer *engine, uint32_t peer);
/* It is proven that this one reads nothing any more. */
void convoy_raw_drop_peer(struct convoy_xfer *engine, uint32_t peer);
/* Asks for what is held. */
void convoy_raw_timers(struct convoy_xfer *engine, uint64_t now_ns);
void convoy_raw_destroy(struct convoy_xfer *engine);

/* -- raw_in.c: what peers order -- */
void convoy_raw_on_order(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw);
void convoy_raw_on_list(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_list *list);
/* Checks the list in its room, and lets it be copied, or refuses. */
void convoy_raw_arrived(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* Its sender has given it up. false: there is none. */
bool convoy_raw_withdraw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie);
/* Says how an order ended, and remembers it. */
void convoy_raw_done(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie, int32_t status);

/* -- raw_copy.c: and what becomes of it -- */
/* One without parts yet. NULL: out of memory. room_bytes: of what comes from another host. */
struct convoy_raw_copy *convoy_raw_copy_take(struct convoy_xfer *engine, uint32_t count, uint64_t room_bytes);
void convoy_raw_copy_put(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* Where one lies: in exactly one open slot, or one registered range. NOT_FOUND, INVALID_ARGUMENT. */
int32_t convoy_raw_resolve(struct convoy_xfer *engine, uint64_t address, uint64_t bytes, struct convoy_raw_target *target_out);
/* Adds a part if it may be written. */
int32_t convoy_raw_copy_add(struct convoy_xfer *engine, struct convoy_raw_copy *copy, const struct convoy_raw_part *part);
/* Holds what it goes to, and queues it. BUSY: not now; it holds nothing then. */
int32_t convoy_raw_copy_start(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* The oldest one that nobody runs, of up to so many bytes; NULL: there is none. */
struct convoy_raw_copy *convoy_raw_copy_next(const struct convoy_xfer *engine, uint64_t bytes_max);
/* Carries it out, and gives the lock up meanwhile. [copier; progress thread: small ones] */
void convoy_raw_copy_run(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* Takes one that does not run out of the list. */
void convoy_raw_copy_cancel(struct convoy_xfer *engine, struct convoy_raw_copy *copy);

/* -- orders.c -- */
void convoy_xfer_order_add(struct convoy_xfer *engine, struct convoy_xfer_order *order);
/* timeout_ns 0: the engine's. */
uint64_t convoy_xfer_order_deadline(const struct convoy_xfer *engine, uint64_t timeout_ns);
/* Takes it out of the list again, whatever comes. */
int32_t convoy_xfer_order_wait(struct convoy_xfer *engine, struct convoy_xfer_order *order, uint64_t deadline_ns,
                               struct convoy_error *error);
/* RAW_DONE, ANSWER */
void convoy_xfer_on_answer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply);
/* BACK of what is no transfer. false: it is no order either. */
bool convoy_xfer_order_back(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply);

/* -- ranges.c -- */
/* The registered range that holds all of it, or NULL. */
struct convoy_xfer_range *convoy_xfer_range_find(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes);
/* Whether any of it is registered. */
bool convoy_xfer_range_touches(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes);
/* Room for more of them. NO_MEMORY. */
int32_t convoy_xfer_range_room(struct convoy_xfer *engine, struct convoy_error *error);
/* One part more, or less, is read or written there. */
void convoy_xfer_range_use(const struct convoy_xfer *engine, uint64_t address, bool is_begun);

/* -- view.c -- (no lock) */
#define CONVOY_VIEW_PARTS_MAX 64u
struct convoy_view_part {
    uint64_t offset;
    void *to;
    uint64_t bytes;
};
/* Several at once, up to CONVOY_VIEW_PARTS_MAX. */
bool convoy_view_read_parts(const struct convoy_view *view, const struct convoy_view_part *parts, uint32_t count,
                            enum convoy_copy_way way);

#endif
