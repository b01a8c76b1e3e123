/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of bulk, shared by the bulk_*.c files only. `_locked` is left out of the names: everything here is. */
#ifndef CONVOY_NET_BULK_PARTS_H
#define CONVOY_NET_BULK_PARTS_H

#include "net/bulk.h"
#include "net/bulk_wire.h"
#include "net/link.h"

#include <assert.h>

#define BULK_WINDOW_DEFAULT 16u /* 1 MB: for 10 GB/s at 0.1 ms; more only widens what the caches must hold */
#define BULK_ACK_EVERY 8u /* chunks; smaller windows push */
#define BULK_STREAM_NONE UINT32_MAX

enum bulk_stream_state {
    BULK_FREE = 0,
    BULK_QUEUED,
    BULK_SENDING,
    BULK_SENT,
    BULK_STOPPING,
    BULK_ENDED, /* its last event waits to be delivered */
};

#define BULK_STREAM_STATES 6

/* Something to deliver. Lies in what it is about; only frames and aborts are made for it. */
struct bulk_notice {
    struct bulk_notice *next;
    struct bulk_stream *stream; /* whose event it is, or NULL */
    bool is_frame;
    bool is_queued;
    bool is_made; /* to be freed */
    struct convoy_bulk_event event;
    const uint8_t *data; /* of a frame; lies behind it */
    size_t bytes;
};

struct bulk_stream {
    struct bulk_notice released;
    struct bulk_notice ended;
    struct bulk_stream *next; /* circle of those of a peer that have something to send */
    struct bulk_stream *previous;
    uint32_t state; /* enum bulk_stream_state */
    uint32_t generation_of_value;
    uint32_t peer;
    uint32_t flags;
    uint64_t transfer;
    uint64_t generation;
    uint64_t offset;
    uint64_t cookie;
    uint64_t deadline_ns; /* CONVOY_DEADLINE_NEVER = none */
    const _Atomic uint64_t *ready; /* NULL = all */
    struct convoy_bulk_piece one;
    const struct convoy_bulk_piece *pieces;
    uint32_t piece_count;
    uint32_t piece_index; /* where the next chunk begins */
    size_t piece_at;
    uint64_t bytes;
    uint64_t sent;     /* handed over */
    uint64_t applied;  /* known to be applied */
    uint32_t in_flight; /* chunks without an answer */
    bool is_released;
    bool is_abort_due;  /* the peer is still to be told that it stopped */
    int32_t status;     /* why it stopped */
};

/* A frame that could not go yet. */
struct bulk_waiting {
    struct bulk_waiting *next;
    size_t bytes;
    uint8_t data[];
};

/* A chunk without an answer. */
struct bulk_flight {
    uint32_t stream;
    uint32_t bytes;
};

struct bulk_peer_counts {
    uint64_t sent_bytes; /* payload */
    uint64_t sent_chunks;
    uint64_t sent_frames;
    uint64_t applied_bytes; /* of these, answered */
    uint64_t received_bytes;
    uint64_t received_chunks;
    uint64_t received_frames;
    uint64_t sent_acks;
    uint64_t received_acks;
    uint64_t dropped; /* chunks not applied: not wanted, or wrong checksum */
    uint64_t late;    /* repeated, or answered already */
    uint64_t stale;   /* of an earlier connection */
};

struct bulk_peer {
    struct bulk_notice down;
    uint64_t incarnation; /* 0 = never connected */
    bool is_up;
    bool is_busy; /* in bulk->busy */
    uint32_t epoch;
    /* outgoing */
    uint64_t sequence; /* of the next chunk */
    uint64_t answered;
    uint64_t answered_bytes; /* of all chunks, refused ones too */
    struct bulk_flight flights[CONVOY_BULK_WINDOW_MAX];
    struct bulk_stream *turn; /* whose chunk is next; NULL = nobody's */
    struct bulk_waiting *first_frame;
    struct bulk_waiting *last_frame;
    size_t frame_bytes; /* written under the lock, read by anyone */
    size_t chunk_bytes;  /* what a chunk may have here */
    size_t proven_bytes; /* the largest message that went through */
    /* incoming */
    uint32_t their_epoch;
    uint64_t processed; /* chunks */
    uint64_t processed_bytes;
    uint64_t acknowledged; /* of processed */
    bool is_ack_due;
    bool has_reasons;
    uint8_t reasons[CONVOY_BULK_WINDOW_MAX];
    struct bulk_peer_counts counts;
};

struct convoy_bulk {
    struct convoy_bulk_options options;
    struct convoy_link *link;
    pthread_mutex_t lock;
    uint64_t incarnation;
    uint8_t *address;
    size_t address_bytes;
    struct bulk_peer *peers;
    uint32_t *busy; /* peers that have something to send or to answer */
    uint32_t busy_count;
    uint32_t recent; /* peer of the last message */
    uint32_t epochs;
    struct bulk_stream *streams;
    uint32_t *free_streams;
    uint32_t free_count;
    struct bulk_notice *first_notice;
    struct bulk_notice *last_notice;
    size_t notice_bytes; /* of frames that wait for delivery */
    bool is_delivering;
    bool is_armed; /* somebody may sleep on the descriptor */
    bool is_rung;  /* event_fd is to be read */
    bool is_closing;
    bool is_deaf; /* everything has ended: nothing lands any more */
    uint64_t deadline_ns; /* not after the earliest one of a stream */
    int event_fd;
    int wait_fd; /* epoll over event_fd and the link's */
    uint8_t *gather; /* CONVOY_BULK_CHUNK_BYTES: pieces of one chunk */
    uint64_t stale;   /* messages for or from an incarnation that is not connected */
    uint64_t refused; /* messages that are none */
    uint64_t deliveries;
};

/* -- bulk_stream.c ------------------------------------------------------------------------------------------------- */

/* Whether the table has that edge. Pure. */
bool convoy_bulk_stream_may(enum bulk_stream_state from, enum bulk_stream_state to);
void convoy_bulk_stream_move(struct bulk_stream *stream, enum bulk_stream_state to);

/* NULL: none is free. */
struct bulk_stream *convoy_bulk_stream_take(struct convoy_bulk *bulk);
void convoy_bulk_stream_free(struct convoy_bulk *bulk, struct bulk_stream *stream);
uint64_t convoy_bulk_stream_value(const struct convoy_bulk *bulk, const struct bulk_stream *stream);
struct bulk_stream *convoy_bulk_stream_find(const struct convoy_bulk *bulk, uint64_t value);

/* Into and out of the circle of its peer. */
void convoy_bulk_stream_enlist(struct convoy_bulk *bulk, struct bulk_stream *stream);
void convoy_bulk_stream_delist(struct convoy_bulk *bulk, struct bulk_stream *stream);

/* The next `bytes` of the source, in one piece: its own memory, or gathered. Does not advance. */
const void *convoy_bulk_stream_look(struct convoy_bulk *bulk, const struct bulk_stream *stream, size_t bytes);
void convoy_bulk_stream_advance(struct bulk_stream *stream, size_t bytes);

/* How many bytes may be handed over by now; CONVOY_BULK_NEVER: the rest never may. */
uint64_t convoy_bulk_stream_ready(const struct bulk_stream *stream);

/* The last chunk is out; the stream is stopped for a reason; a chunk was answered; it ends. */
void convoy_bulk_stream_sent(struct convoy_bulk *bulk, struct bulk_stream *stream);
void convoy_bulk_stream_stop(struct convoy_bulk *bulk, struct bulk_stream *stream, int32_t status);
void convoy_bulk_stream_answer(struct convoy_bulk *bulk, struct bulk_stream *stream, uint32_t bytes,
                               enum bulk_reason reason);
void convoy_bulk_stream_end(struct convoy_bulk *bulk, struct bulk_stream *stream, int32_t status);

/* Stops what is over its deadline. Returns how many. */
uint32_t convoy_bulk_stream_expire(struct convoy_bulk *bulk, uint64_t now_ns);

/* -- bulk_peer.c --------------------------------------------------------------------------------------------------- */

void convoy_bulk_peer_busy(struct convoy_bulk *bulk, struct bulk_peer *peer);
/* Ends its streams and forgets its frames. tell: DOWN with that status. */
void convoy_bulk_peer_fail(struct convoy_bulk *bulk, uint32_t peer, int32_t status, bool tell);
void convoy_bulk_peer_drop_frames(struct bulk_peer *peer);
struct bulk_peer *convoy_bulk_peer_find(struct convoy_bulk *bulk, uint64_t incarnation);

/* -- bulk_pump.c --------------------------------------------------------------------------------------------------- */

/* Hands over what goes. is_idle: answers are given even when they could wait for more. Returns how much went. */
uint32_t convoy_bulk_pump(struct convoy_bulk *bulk, bool is_idle);
/* One frame at once; LIMIT: it must wait. */
int32_t convoy_bulk_pump_frame(struct convoy_bulk *bulk, struct bulk_peer *peer, const void *data, size_t bytes);

/* -- bulk_receive.c ------------------------------------------------------------------------------------------------ */

/* The link's callbacks. */
void convoy_bulk_receive(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes);
void convoy_bulk_down(void *user, uint32_t peer, int32_t ucx_status);

/* -- bulk_notice.c ------------------------------------------------------------------------------------------------- */

void convoy_bulk_notice_push(struct convoy_bulk *bulk, struct bulk_notice *notice);
/* A made one: a frame with its bytes, or an event (bytes 0). false: out of memory. */
bool convoy_bulk_notice_make(struct convoy_bulk *bulk, const struct convoy_bulk_event *event, const void *frame,
                             size_t bytes);
/* Not locked: delivers what waits, unless another thread does. Returns how many. */
uint32_t convoy_bulk_notice_deliver(struct convoy_bulk *bulk);
void convoy_bulk_notice_drop_all(struct convoy_bulk *bulk);
/* Not locked either, and only for what an armed thread would miss. */
void convoy_bulk_wake(struct convoy_bulk *bulk);

static inline uint32_t bulk_peer_index(const struct convoy_bulk *bulk, const struct bulk_peer *peer)
{
    return (uint32_t)(peer - bulk->peers);
}

static inline void bulk_set_frame_bytes(struct bulk_peer *peer, size_t bytes)
{
    __atomic_store_n(&peer->frame_bytes, bytes, __ATOMIC_RELAXED);
}

static inline uint32_t bulk_peer_in_flight(const struct bulk_peer *peer)
{
    return (uint32_t)(peer->sequence - peer->answered);
}

#endif
