/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk: large payloads and small frames between two processes of different hosts. One object per transfer engine, over
 * one link (net/link.h): its UCX workers, its choice of interfaces, its way to survive the death of a peer.
 *
 * A payload goes as a stream of chunks, active messages that fit one TCP segment. Each is checked and copied once, in
 * the receiver's callback: the sender's and the receiver's incarnation, the connection, the place in the sequence, the
 * bounds, the checksum if there is one, and whether the owner of the memory still wants it (resolve). Whatever fails a
 * check is counted and dropped before a byte lands. UCX copies a chunk before the send returns, so a stream refers to
 * its source only until its last chunk was handed over, and to nothing at all once it was stopped.
 *
 * One stream, as its sender sees it (bulk_stream.c has the table):
 *
 *   QUEUED -- first chunk handed over --> SENDING -- last chunk handed over --> SENT -- all answered --> ENDED, OK
 *     |                                      |        event RELEASED             |                       event ENDED
 *     |                                      |                                   |
 *     | abort, deadline          abort, deadline, refused        abort, deadline, refused
 *     |                                      |   event RELEASED                  |
 *     |                                      +----------> STOPPING <-------------+
 *     |                                                      | what was under way is answered: nothing more lands
 *     v                                                      v
 *   ENDED (never left)                                     ENDED, with the first cause
 *
 *   From every state but ENDED: the endpoint fails or is closed --> ENDED, PEER_LOST, lost_bytes exact.
 *
 * RELEASED (the source may be used again) comes exactly once, before ENDED. OK means that the peer has applied every
 * byte. A receiver that hears ABORTED gets nothing more of that stream; one that wants to be sure of itself lets resolve
 * refuse and then calls convoy_bulk_barrier.
 *
 * Chunks and frames to one peer share one connection and keep the order in which they were handed over: a frame given
 * after RELEASED arrives after the bytes. What still waits may be overtaken by frames.
 *
 * Threads: one lock over everything. Whoever calls progress works; frames and events are delivered by one thread at a
 * time, in order, with no lock held, and may call back into bulk. resolve and landed run under the lock: they must not.
 * A thread sleeps with arm, poll on the descriptor, progress.
 */
#ifndef CONVOY_NET_BULK_H
#define CONVOY_NET_BULK_H

#include "net/runtime.h"

#define CONVOY_BULK_CHUNK_BYTES 61440u /* with headers it fits a TCP segment of 64 KiB */
#define CONVOY_BULK_FRAME_BYTES 8192u
#define CONVOY_BULK_WINDOW_MAX 64u    /* chunks under way to one peer */
#define CONVOY_BULK_PEERS_MAX 1024u
#define CONVOY_BULK_STREAMS_MAX 65536u
#define CONVOY_BULK_PIECES_MAX 65536u
#define CONVOY_BULK_QUEUE_BYTES (1u << 20) /* of frames that wait for one peer */

#define CONVOY_BULK_CHECKSUM 1u /* XXH3 over every chunk and its place, checked before it lands */

struct convoy_bulk;

/* A piece of a transfer on its way in. */
struct convoy_bulk_chunk {
    uint64_t transfer;
    uint64_t generation;
    uint64_t offset;
    size_t bytes;
};

enum convoy_bulk_event_kind {
    CONVOY_BULK_RELEASED = 1, /* stream: its source is not read any more */
    CONVOY_BULK_ENDED,        /* stream: its value is given back */
    CONVOY_BULK_ABORTED,      /* the peer has stopped a stream of its own: nothing more of it comes */
    CONVOY_BULK_MOVED,        /* a put or get (net/bulk_rma.h) is done, or has failed */
    CONVOY_BULK_DOWN,         /* the endpoint to the peer has failed; its streams end */
};

struct convoy_bulk_event {
    enum convoy_bulk_event_kind kind;
    uint32_t peer;
    int32_t status;       /* ENDED, MOVED, DOWN */
    uint64_t transfer;    /* not MOVED, DOWN */
    uint64_t generation;
    uint64_t stream;      /* RELEASED, ENDED */
    uint64_t cookie;
    uint64_t bytes;       /* ENDED, MOVED: in all */
    uint64_t lost_bytes;  /* of these, not known to be applied */
};

struct convoy_bulk_ops {
    /* Where the chunk goes; false: it is not wanted, the stream is refused. [under the lock: must not call bulk, not
     * block, take only locks under which bulk is never called] */
    bool (*resolve)(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void **to_out);
    /* The bytes are there. May be NULL. [as resolve] */
    void (*landed)(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void *to);
    /* data: borrows. [no lock; one at a time] */
    void (*frame)(void *user, uint32_t peer, const void *data, size_t bytes);
    void (*event)(void *user, const struct convoy_bulk_event *event);
};

struct convoy_bulk_options {
    struct convoy_runtime *runtime; /* keeps */
    uint32_t peer_count;            /* 1 to CONVOY_BULK_PEERS_MAX; peers are numbered by the caller */
    uint32_t stream_count;          /* not ended, at a time; 0 = 1,024 */
    uint32_t window;                /* chunks under way to one peer, 4 to CONVOY_BULK_WINDOW_MAX; 0 = as measured best */
    bool with_rma;                  /* open UCX for put and get (net/bulk_rma.h) */
    bool without_peer_errors;       /* as in convoy_link_options: no DOWN then, but by what breaks the protocol */
    struct convoy_bulk_ops ops;
    void *user;
};

struct convoy_bulk_piece {
    const void *data;
    size_t bytes;
};

struct convoy_bulk_send {
    uint32_t peer;
    uint32_t flags; /* CONVOY_BULK_CHECKSUM */
    uint64_t transfer;
    uint64_t generation;
    uint64_t offset;                        /* in the receiver's transfer, of the first byte */
    const struct convoy_bulk_piece *pieces; /* keeps until RELEASED, unless it is one: that is copied */
    uint32_t piece_count;                   /* 0 = no bytes; they arrive as one dense range */
    const _Atomic uint64_t *ready; /* keeps until RELEASED: how many bytes of the source are final, only ever more; each goes
                                    * no earlier. CONVOY_BULK_NEVER: the rest never will be, the stream ends as CANCELED.
                                    * NULL: all are */
    uint64_t cookie;
    uint64_t deadline_ns;                   /* then it stops, TIMED_OUT; 0 = never */
};

#define CONVOY_BULK_NEVER UINT64_MAX

/* INVALID_ARGUMENT: parameter, value, range. NO_MEMORY; INIT_FAILED as convoy_link_open. */
int32_t convoy_bulk_open(const struct convoy_bulk_options *options, struct convoy_bulk **bulk_out,
                         struct convoy_error *error);

/* What peers need to connect to this one; valid until close. */
const void *convoy_bulk_address(const struct convoy_bulk *bulk, size_t *bytes_out);
uint64_t convoy_bulk_incarnation(const struct convoy_bulk *bulk);

/*
 * Makes the endpoint to the peer of this address; does not wait for it. A message from a peer that is not connected here
 * is dropped: send nothing before the peer has said, elsewhere, that it has connected too. Connecting a number again
 * ends what was under way on it. MALFORMED; INVALID_ARGUMENT: peer out of range, own address; BUSY: that incarnation
 * has another number; UNREACHABLE as convoy_link_connect. [any thread]
 */
int32_t convoy_bulk_connect(struct convoy_bulk *bulk, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error);

/* Ends the endpoint and all streams to it (PEER_LOST). Nothing from that peer lands after the return. [any thread] */
void convoy_bulk_disconnect(struct convoy_bulk *bulk, uint32_t peer);

/* copies. BAD_STATE: not connected; PEER_LOST; LIMIT: too much waits; NO_MEMORY; INVALID_ARGUMENT. [any thread] */
int32_t convoy_bulk_frame(struct convoy_bulk *bulk, uint32_t peer, const void *data, size_t bytes,
                          struct convoy_error *error);

/* Starts a stream and hands over what goes at once. INVALID_ARGUMENT: parameter, value, range; LIMIT: stream_count are
 * open; else as frame. On failure there are no events. [any thread] */
int32_t convoy_bulk_send(struct convoy_bulk *bulk, const struct convoy_bulk_send *send, uint64_t *stream_out,
                         struct convoy_error *error);

/* Stops a stream: its source is not read after the return. It ends as CANCELED, or as it was ending already.
 * CLOSED: it has ended. [any thread] */
int32_t convoy_bulk_abort(struct convoy_bulk *bulk, uint64_t stream, struct convoy_error *error);

/* More of a source is ready: hands over what goes, and wakes whoever sleeps. [any thread] */
void convoy_bulk_poke(struct convoy_bulk *bulk);

/* Bytes of frames that wait for this peer; those that are given at once or by other threads change it. [any thread] */
size_t convoy_bulk_waiting(const struct convoy_bulk *bulk, uint32_t peer);

/* After the return no resolve or landed that began before is running. [any thread] */
void convoy_bulk_barrier(struct convoy_bulk *bulk);

/* Works and delivers; returns the number of things done, 0 = nothing to do, or another thread is at it. [any thread] */
uint32_t convoy_bulk_progress(struct convoy_bulk *bulk);

/* True: the descriptor becomes readable when there is something to do; false: progress first. [any thread] */
bool convoy_bulk_arm(struct convoy_bulk *bulk);
int convoy_bulk_fd(const struct convoy_bulk *bulk);

/* The earliest deadline of a stream: a sleeper gets up by then. CONVOY_DEADLINE_NEVER = none. [any thread] */
uint64_t convoy_bulk_wake_ns(struct convoy_bulk *bulk);

/* Progress, then sleep until something happens or the deadline. [any thread] */
void convoy_bulk_sleep(struct convoy_bulk *bulk, uint64_t deadline_ns);

/* Whether the peer is connected; whether UCX has nothing of a connection to it any more. [any thread] */
bool convoy_bulk_is_up(struct convoy_bulk *bulk, uint32_t peer);
bool convoy_bulk_is_closed(struct convoy_bulk *bulk, uint32_t peer);

/* What the endpoint goes over, such as "tcp/eth0"; "" = there is none. [any thread] */
void convoy_bulk_transports(const struct convoy_bulk *bulk, uint32_t peer, char *text_out, size_t bytes);

/* JSON object: incarnation, counters, and per peer state, transports, bytes, messages, what is under way. gives */
json_t *convoy_bulk_describe(struct convoy_bulk *bulk);

/* Gives waiting frames and streams until the deadline, ends the rest as CANCELED, delivers the events, and closes the
 * link; returns at most about a second after the deadline whatever the peers do. Nobody else is inside. NULL: no-op. */
void convoy_bulk_close(struct convoy_bulk *bulk, uint64_t deadline_ns);

#endif
