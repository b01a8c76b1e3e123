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
 * A sender that ends early stops its streams, which makes its source free as soon as the chunk under its hands is out, and says
 * WITHDRAW; a receiver that does so closes its landing, after which nothing lands any more but a chunk that is just being
 * copied. So neither side's memory waits for the other's word.
 *
 * A large payload with a stage of its own is offered while it is being staged, and goes as far as it is; its descriptor follows
 * when all of it is staged.
 *
 * Bulk is opened when the first such peer comes. Its lock owns UCX's worker, and is never waited for under the engine's lock:
 * what the engine wants is written down (xfer/far_outbox.c) and carried out by whoever gives the engine's lock up, and bulk's
 * callbacks only queue what whoever works on the engine takes. Lock order: engine, then landings or queue; bulk, then landings
 * or queue.
 */
#ifndef CONVOY_XFER_FAR_H
#define CONVOY_XFER_FAR_H

#include "core/bundle.h"
#include "net/bulk.h"
#include "net/bulk_rma.h"
#include "net/frame.h"
#include "net/link_rma.h"
#include "xfer/far_rewire.h"
#include "xfer/landing.h"
#include "xfer/parts.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define CONVOY_FAR_ADDRESS_BYTES (16u << 10) /* longest bulk address */
#define CONVOY_FAR_NOTE_BYTES (64u << 20)    /* longest descriptor */

struct convoy_far_item; /* what a callback has queued */
struct convoy_far_landing_put; /* xfer/far_rma.c */

enum convoy_far_wish {
    CONVOY_FAR_FRAME = 0,
    CONVOY_FAR_START,
    CONVOY_FAR_STOP,
    CONVOY_FAR_MORE, /* a piece of a put is done */
    CONVOY_FAR_PART,
    CONVOY_FAR_POKE,
    CONVOY_FAR_KEY,
    CONVOY_FAR_WIRE,
};

/* Something that bulk is to do. Lies in what it is about. */
struct convoy_far_command {
    struct convoy_far_command *next;
    enum convoy_far_wish kind;
    uint32_t peer;
    bool is_queued;
};

#define CONVOY_FAR_OF(command, type, member) ((type *)(void *)((char *)(command)-offsetof(type, member)))
#define CONVOY_FAR_FRAME_HEAD_BYTES 16u /* type 2 | length 2 | zero 4 | incarnation of the sender 8 */
#define CONVOY_FAR_KEY_TYPE 0x4b65u     /* no notice: the key of the sender's pool (net/bulk_rma.h) */

struct convoy_far_frame {
    struct convoy_far_command command;
    struct convoy_far_frame *spare;
    size_t bytes;
    uint8_t data[CONVOY_FAR_FRAME_HEAD_BYTES + CONVOY_RING_DATA_BYTES];
};

/* What is pushed, and where to. */
struct convoy_far_source {
    uint32_t peer;
    uint64_t owner; /* whose it is: a transfer's handle, or the cookie of an order */
    uint64_t landing;
    uint64_t generation;
    uint64_t offset;
    const void *data;
    const struct convoy_bulk_piece *pieces; /* instead of data: several, which stay until it was released */
    uint32_t piece_count;
    uint64_t bytes; /* of all */
    const _Atomic uint64_t *ready; /* as in convoy_bulk_send */
    bool is_put;                   /* into the receiver's memory, at put */
    uint64_t put;
};

struct convoy_far_push {
    struct convoy_far_command start;
    struct convoy_far_command stop;
    struct convoy_far_command more;
    struct convoy_far_source source;
    uint32_t generation; /* of its id */
    /* under the engine's lock */
    bool is_used;
    bool is_reading; /* the source */
    bool is_told;    /* to its owner, that it has ended */
    struct convoy_far_push *next_free;
    /* of the one thread that carries out */
    uint64_t stream;
    uint64_t started; /* bytes of a put */
    bool is_over;
    struct convoy_far_push *next_put;
    /* under the lock of the queue */
    uint32_t flying; /* pieces of a put */
    int32_t put_status;
    bool is_listed;
    bool is_released;
    bool has_ended;
    int32_t status;
    uint64_t lost_bytes;
    struct convoy_far_push *next_news;
};

/* News of a push. */
struct convoy_far_end {
    uint32_t peer;
    uint64_t owner;
    uint64_t push;
    uint64_t bytes;
    uint64_t lost_bytes;
    int32_t status;
    bool has_ended;
    bool is_released;
    bool is_put;
    uint64_t landing;
    uint64_t generation;
};

/* One peer's place. Under the lock of the queue. */
struct convoy_far_place {
    struct convoy_far_command part;
    struct convoy_far_command say_key;
    struct convoy_far_command wire_again;
    struct convoy_far_wire wire; /* of the engine's lock */
    struct convoy_bulk_key *key; /* of the peer's pool; of the one thread that carries out */
    bool must_part;              /* the same's: something of it is still under way, */
    bool must_wire;              /* and then the next endpoint is made */
    bool has_ours;               /* it was given the key of the own pool */
    size_t packed_bytes;         /* of its key, 0 = none came */
    uint8_t packed[CONVOY_BULK_KEY_BYTES_MAX];
    size_t queued_bytes; /* frames written down */
    bool is_down;        /* bulk says so */
    bool is_gone;        /* it was parted with: nothing of ours is touched any more */
    bool is_wired;       /* the endpoint to that bulk of the peer's was made, or not */
    int32_t wired_status;
    uint64_t wired_number;
};

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
    bool is_closing; /* it is over, but a chunk is still on its way in */
    uint64_t written_bytes;
};

struct convoy_far {
    struct convoy_bulk *bulk;
    uint64_t number; /* of this bulk (xfer/far_rewire.h) */
    struct convoy_landings *landings;
    enum convoy_link_rma rma;
    struct convoy_bulk_memory *memory; /* what peers may put into, the pool's; NULL = none */
    uint8_t *memory_at;
    uint64_t memory_bytes;
    struct convoy_far_landing_put *landing_puts; /* slots that peers may put into */
    struct convoy_far_push *puts; /* under way; of the one thread that carries out, */
    uint32_t part_count;          /* as what it has to try again */
    pthread_mutex_t lock; /* of the queues, there and back */
    struct convoy_far_item *first;
    struct convoy_far_item *last;
    struct convoy_far_command *first_command;
    struct convoy_far_command **last_command;
    struct convoy_far_command poke;
    struct convoy_far_frame *spare_frames;
    struct convoy_far_place *peers; /* [options.peer_max] */
    uint32_t peer_count;
    struct convoy_far_push *pushes;
    uint32_t push_count;
    struct convoy_far_push *free_pushes;
    struct convoy_far_push *news;
    bool is_halting;  /* no put is begun: the engine moves */
    bool has_words;   /* some peer is down, gone or wired again */
    bool has_parts;   /* some connection is still being ended */
    bool is_flushing; /* a thread carries out what was written down */
    struct convoy_far_raw *raws;
    uint32_t cut_count; /* peers whose connection has ended, but whose endpoint may still bring something */
};

extern const struct convoy_lane convoy_lane_far;

/* -- far.c -- */
/* Opens bulk, unless it is. UNSUPPORTED, INIT_FAILED: what it needs. [no lock] */
int32_t convoy_far_open(struct convoy_xfer *engine, struct convoy_error *error);
/* All but its bulk; that, too. far is nobody else's yet. [no lock] */
int32_t convoy_far_make(struct convoy_xfer *engine, struct convoy_far **far_out, struct convoy_error *error);
int32_t convoy_far_open_bulk(struct convoy_xfer *engine, struct convoy_far *far, struct convoy_error *error);
/* Its bulk is closed, or was never opened. */
void convoy_far_destroy(struct convoy_far *far);
/* far_open.c: says once, of an engine with a device, how its memory goes to other hosts, and what this UCX takes. [no lock] */
void convoy_far_tell_device(struct convoy_xfer *engine);
/* Gives what still waits a moment to leave. [no lock; nobody else is inside] */
void convoy_far_close(struct convoy_xfer *engine);
/* Works and takes what came; gives the lock up meanwhile. */
void convoy_far_pump(struct convoy_xfer *engine);
/* Ends what is over its time, and notes when to look again. */
void convoy_far_timers(struct convoy_xfer *engine, uint64_t now_ns);
/* The TCP connection has ended: what the peer has said before may still be on its way. */
void convoy_far_cut(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);

/* -- far_open.c: opening by a thread of its own -- */
/* OK: it is open. IN_PROGRESS: it is being opened; the progress thread is kicked when that is over. Else as far_open, once for
 * each time that it was tried. [progress thread, no lock] */
int32_t convoy_far_open_elsewhere(struct convoy_xfer *engine, struct convoy_error *error);
/* Waits for the thread, if there is one. [no lock] */
void convoy_far_opener_join(struct convoy_xfer *engine);

/* -- far_connect.c -- */
/* The connector's part, on the host's thread; takes the stream's descriptor on OK. [no lock] */
int32_t convoy_far_join(struct convoy_xfer *engine, struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                        const struct convoy_introduction *theirs, convoy_peer *peer_out, struct convoy_error *error);
/* The listener's, which has got the address; takes the descriptor on OK. [no lock] */
int32_t convoy_far_admit(struct convoy_xfer *engine, struct convoy_frame_stream *stream,
                         const struct convoy_introduction *theirs, const struct convoy_frame *frame,
                         struct convoy_error *error);

/* -- far_outbox.c: what bulk is to do -- */
/* false: there is no room for it now. */
bool convoy_far_frame(struct convoy_xfer *engine, uint32_t peer, const uint8_t *data, size_t bytes);
/* Ends the connection; is_gone follows. */
void convoy_far_part(struct convoy_xfer *engine, uint32_t peer);
/* More of some source is ready, or none will be. */
void convoy_far_poke(struct convoy_xfer *engine);
/* LIMIT: too many. Its news come by convoy_far_push_released and _ended, each once, in this order. */
int32_t convoy_far_push_start(struct convoy_xfer *engine, const struct convoy_far_source *source, uint64_t *id_out,
                              struct convoy_error *error);
void convoy_far_push_stop(struct convoy_xfer *engine, uint64_t id);
bool convoy_far_push_reads(const struct convoy_xfer *engine, uint64_t id);
void convoy_far_push_event(struct convoy_far *far, const struct convoy_bulk_event *event); /* [no lock] */
void convoy_far_take_news(struct convoy_xfer *engine);
void convoy_far_say_key(struct convoy_xfer *engine, uint32_t peer);
/* Makes the endpoint to the peer's newest bulk; convoy_far_wired follows. */
void convoy_far_wire_again(struct convoy_xfer *engine, uint32_t peer);
/* Makes bulk progress and carries out what that has brought about. [no lock] */
void convoy_far_work(struct convoy_xfer *engine);
/* The same for who stages: more of a source is ready. [no lock] */
void convoy_far_staged(struct convoy_xfer *engine);
/* -- for far_put.c */
uint64_t convoy_far_push_id(const struct convoy_far *far, const struct convoy_far_push *push);
void convoy_far_push_tell(struct convoy_far *far, struct convoy_far_push *push, const struct convoy_bulk_event *event);

/* -- far_put.c: [the one thread that carries out] -- */
void convoy_far_put_start(struct convoy_far *far, struct convoy_far_push *push);
void convoy_far_put_more(struct convoy_far *far, struct convoy_far_push *push);
void convoy_far_put_stop(struct convoy_far *far, struct convoy_far_push *push);
void convoy_far_put_poke(struct convoy_far *far);
/* Stops all to a peer whose connection is over, and forgets its key. false: some are still under way. */
bool convoy_far_put_drop(struct convoy_far *far, uint32_t peer);

/* -- far_rma.c: the pool as memory that peers put into -- */
/* What the transports here offer, if it is wanted. [no lock] */
enum convoy_link_rma convoy_far_rma_kind(struct convoy_xfer *engine);
void convoy_far_rma_register(struct convoy_xfer *engine, struct convoy_far *far);
/* Memory of UCX's making for the pool, NULL: it is made as usual. [the engine is being opened] */
void *convoy_far_rma_pool(struct convoy_xfer *engine);
void convoy_far_rma_hello(struct convoy_xfer *engine, uint32_t peer);
void convoy_far_hello(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
void convoy_far_run_key(struct convoy_xfer *engine, uint32_t peer); /* [no lock] */
void convoy_far_take_key(struct convoy_far *far, uint32_t peer, const uint8_t *data, size_t bytes); /* [no lock] */
bool convoy_far_has_key(struct convoy_far *far, uint32_t peer);
/* What peers may still be putting, for who takes the engine over. */
void convoy_far_rma_save(const struct convoy_far *far, struct convoy_bundle_writer *writer, uint16_t tag);
int32_t convoy_far_rma_restore(struct convoy_far *far, const struct convoy_bundle_item *item, struct convoy_error *error);
/* Where its payload may be put from now on, until the peer says PUT or is gone. CONVOY_ROOM_NO_PUT: it may not. */
uint64_t convoy_far_rma_room(struct convoy_xfer *engine, const struct convoy_xfer_entry *load);
void convoy_far_on_put(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_put *said);
/* Nothing that the peer has put over an earlier endpoint is under way any more. */
void convoy_far_rma_settle(struct convoy_xfer *engine, uint32_t peer);
/* All of a peer, or of all (NOBODY): it is gone. */
void convoy_far_rma_forget(struct convoy_xfer *engine, uint32_t peer);
void convoy_far_say_put(struct convoy_xfer *engine, uint32_t peer, uint64_t landing, uint64_t generation, uint64_t bytes,
                        int32_t status);

/* -- far_push.c: bytes that go out -- */
void convoy_far_on_room(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_room *room);
void convoy_far_send_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
/* Its stage, which was followed, is done or has failed. */
void convoy_far_source_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
/* Whether this is the receiver's word on a loan that has ended with its last byte; each has one. */
bool convoy_far_loan_answered(struct convoy_xfer *engine, uint32_t peer, uint64_t serial);
/* Whether its source is still read; then it stops that, and the send is given back when it has. */
bool convoy_far_send_holds(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
void convoy_far_push_released(struct convoy_xfer *engine, const struct convoy_far_end *end);
void convoy_far_push_ended(struct convoy_xfer *engine, const struct convoy_far_end *end);
/* Ends an order that a host thread has waited for, and waits for nothing: what is still read of its source is held until that
 * has stopped (xfer/raw.h). Gives the lock up meanwhile. */
void convoy_far_order_ended(struct convoy_xfer *engine, struct convoy_xfer_order *order);
bool convoy_far_order_reads(const struct convoy_xfer *engine, const struct convoy_raw_window *window);

/* -- far_land.c: bytes that come in -- */
void convoy_far_load(struct convoy_xfer *engine, struct convoy_xfer_entry *load, const struct convoy_offer *offer);
void convoy_far_load_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *load);
/* Says ROOM again: since the time for that has come, or to a sender that has not heard it. */
void convoy_far_load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *load);
/* Says ROOM for its landing as it is. */
/* A restored load's landing: with all its bytes there, or to begin anew. BUSY. */
int32_t convoy_far_load_restore(struct convoy_xfer *engine, struct convoy_xfer_entry *load, bool is_whole);
void convoy_far_load_room(struct convoy_xfer *engine, struct convoy_xfer_entry *load);
void convoy_far_load_repeat(struct convoy_xfer *engine, uint32_t peer, uint64_t serial);
/* All bytes of a landing are there. */
void convoy_far_landed(struct convoy_xfer *engine, uint64_t owner, uint64_t number);
/* One that was closed under a chunk: nothing lands there any more. */
void convoy_far_quiet(struct convoy_xfer *engine, uint64_t owner, uint64_t number);

/* -- far_raw.c: bytes that come in for an address -- */
/* One part, into a slot (lease NONE: registered memory). BUSY, NO_MEMORY. */
int32_t convoy_far_raw_begin(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *order,
                             const struct convoy_slot *slot);
/* A list, into the room of its copy; takes it on OK. */
int32_t convoy_far_raw_begin_list(struct convoy_xfer *engine, struct convoy_raw_copy *copy);
/* Said again, to a sender that has not heard it. false: there is none. */
bool convoy_far_raw_again(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie);
bool convoy_far_raw_landed(struct convoy_xfer *engine, uint64_t number);
void convoy_far_raw_quiet(struct convoy_xfer *engine, uint64_t number);
/* The sender has given it up. false: there is none. */
bool convoy_far_raw_withdraw(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie);
/* All of a peer, or all whose time has passed (peer NOBODY); UINT64_MAX: all there are. */
void convoy_far_raw_drop(struct convoy_xfer *engine, uint32_t peer, uint64_t now_ns);
/* Says ROOM again for all of a peer's. */
void convoy_far_raw_rooms(struct convoy_xfer *engine, uint32_t peer);
/* Frees them and leaves what they hold: it is another engine's. */
void convoy_far_raw_forget(struct convoy_xfer *engine);
/* All that there are: bulk is closed, nothing lands any more. */
void convoy_far_raw_finish(struct convoy_xfer *engine);

#endif
