/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/transfer.h: staged transfer, one request's tensors from role to role. Family "transfer", version 1.1.
 *
 * An engine owns a pool and talks to other engines, its peers. A host stages tensors (one copy into its own pool), tells
 * the other role, directly (send, accept) or through its own broker (descriptor, load_start), and forgets them (release).
 * On one host the receiver reads in place: views into the sender's pool, read-only, or copies from there. Between hosts the
 * receiver sets aside memory of its own pool, or the destination of the load, and the sender brings the bytes there.
 *
 *   sender                                              receiver
 *   STAGING --copied--> STAGED                          WAITING --offered, granted--> LOADING --checked--> LOADED
 *                         | send (any number)           RESERVED --a peer writes--> FILLING --written--> FILLED
 *                         v
 *   QUEUED --staged, admitted--> OFFERED --receiver has it--> SENT
 *
 *   From every state that is not an end (STAGED, SENT, LOADED, FILLED are ends, and STAGED may still be aborted):
 *   deadline, refusal, peer lost --> FAILED; abort --> ABORTED. No state is left twice, no end is left but by release.
 *
 *   staged memory returns when: it was released (or aborted, or its lease expired) AND every reader gave it back or is
 *   proven dead. Until then it is quarantined: counted, and not given to anyone else. Deadlines end requests, never that.
 *   Between hosts it is read no more once its send has ended, and nothing lands in a receiver's memory once its load has
 *   ended, whatever the other side does.
 *
 * Every transfer ends with exactly one status, on both sides, neither waiting for the other's notice: each has a
 * deadline of its own. Messages carry (request, attempt, the sender's transfer); late and repeated ones are counted and dropped.
 *
 * What lending gives away: every peer that knows the context's secret can read the whole shared pool. An engine opened
 * with CONVOY_ENGINE_PRIVATE gives that to nobody, and lends nothing: it is on another host to everybody.
 *
 * Admission (since 1.1, admission_set): how much may be under way at a time. Sends that are staged wait as QUEUED until there
 * is room, those with the highest priority first; without it all go at once.
 *
 * No thread of convoy ever calls the host: what ended is read from a ring (completions), with a descriptor to sleep on.
 */
#ifndef CONVOY_TRANSFER_H
#define CONVOY_TRANSFER_H

#include "convoy/payload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_TRANSFER_MAJOR 1
#define CONVOY_TRANSFER_MINOR 1

#define CONVOY_SESSION_BYTES 128 /* room for a session id and its zero */

/* -- engines ------------------------------------------------------------------------------------------------------ */

/*
 * convoy_transfer_options.pool_kind, a CONVOY_MEMORY_* (convoy/device.h):
 *   SHARED  shared memory that convoy makes
 *   HOST    memory of the host's; peers read it out of this process (process_vm_readv) if allowed
 *   DEVICE  device memory of the host's, which needs `device`. Peers cannot map it: what is staged there lies, as a whole,
 *           in a pinned shared pool of bounce_bytes as well, and goes to peers from there. reserve gives slots of that one,
 *           and pool_resize makes it larger
 *
 * convoy_transfer_options.device: what copies device memory for this engine. Tensors to stage and destinations of a COPY
 * may then be device memory; what each pointer is, the device is asked.
 */
#define CONVOY_DEVICE_NONE 0
#define CONVOY_DEVICE_CUDA 1  /* the driver on this machine (libcuda.so.1), opened by engine_open */
#define CONVOY_DEVICE_TABLE 2 /* functions of the host's. They run on threads that call into this engine, and on no other: its
                                 copies begin and end in start, test, wait, completions and engine_close */

#define CONVOY_ENGINE_PRIVATE 1u /* critical: no peer gets the pool to read */
#define CONVOY_ENGINE_NOTIFY 2u  /* hint: engine_info has a descriptor that is readable while completions wait */

/* IN. All zero is valid: a shared pool of 256 MiB, reached by loopback. */
struct convoy_transfer_options {
    uint32_t struct_size;
    uint32_t critical_flags; /* CONVOY_ENGINE_PRIVATE */
    uint32_t hint_flags;     /* CONVOY_ENGINE_NOTIFY */
    uint32_t pool_kind;      /* CONVOY_MEMORY_* */
    const char *address;     /* "tcp://host:port" where peers reach it; port 0 picks one; NULL = "tcp://127.0.0.1:0" */
    size_t address_length;
    void *pool_memory;         /* HOST, DEVICE: keeps, until the engine is closed, and after a lost copy for ever */
    uint64_t pool_bytes;       /* 0 = 256 MiB, with pool_memory NULL only; SHARED: rounded up to whole blocks, else down */
    uint64_t pool_block_bytes; /* smallest block, a power of two; 0 = 1 MiB */
    uint64_t lease_ns;         /* how long staged bytes wait for readers, slots for bytes; 0 = 60 s */
    uint32_t transfer_max;     /* live at a time; 0 = 1,024; at most 65,536 */
    uint32_t peer_max;         /* 0 = 64; at most 1,024 */
    uint32_t prealloc_count;   /* receive slots made at open and used again; 0 = none; at most 256 */
    uint32_t reserved;
    uint64_t prealloc_bytes; /* of each */
    uint32_t device;        /* CONVOY_DEVICE_* */
    uint32_t device_number; /* CUDA: from 1, its ordinal + 1; 0 = that of the context current on this thread, else the first */
    const struct convoy_device_table *device_table; /* TABLE; copied, but for name and user */
    uint64_t bounce_bytes; /* pool_kind DEVICE: of the pinned pool; 0 = pool_bytes, at most 256 MiB */
};

#define CONVOY_ENGINE_OPEN 1
#define CONVOY_ENGINE_CLOSING 2
#define CONVOY_ENGINE_CLOSED 3

/* OUT */
struct convoy_engine_info {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state; /* CONVOY_ENGINE_* */
    uint32_t peer_count;
    uint32_t transfer_count; /* not released */
    int32_t completion_fd;   /* readable while completions wait; -1 = not asked for. Stays the engine's: poll it only. The same
                                number for the engine's whole life, also over a swap (convoy/move.h) */
    uint64_t incarnation;
    const void *pool_memory; /* where offsets count from */
    uint64_t pool_bytes;
    uint64_t pool_generation; /* from 1; each resize makes the next */
    char session[CONVOY_SESSION_BYTES]; /* "host:port+incarnation", for peer_connect; ends in a zero */
    /* Since 1.1: sends, see admission_set. */
    uint32_t admitted_count;   /* under way: OFFERED */
    uint32_t waiting_count;    /* that could go and wait for room */
    uint64_t admitted_bytes;   /* their payload */
    uint64_t waiting_bytes;
    uint64_t overloaded_count; /* sends refused with OVERLOADED since the engine was opened */
};

/* OUT: the pool in figures, all in bytes but for the counts. Of an engine with a pool of device memory: that one; what is
 * quarantined or read of the pinned pool counts as well. */
struct convoy_engine_figures {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint64_t capacity;
    uint64_t block;        /* the smallest */
    uint64_t asked;        /* by what is live */
    uint64_t taken;        /* asked, rounded up to blocks of a power of two */
    uint64_t free;         /* capacity - taken */
    uint64_t largest_free; /* block */
    uint64_t quarantined;  /* taken by what has ended and is still referred to */
    uint64_t taken_count;  /* leases without their bytes yet */
    uint64_t ready_count;
    uint64_t quarantined_count;
    uint64_t reader_count; /* references of readers */
    uint64_t exhausted_count; /* requests refused since then for want of room */
    uint64_t expired_count;   /* leases taken back at their deadline */
    uint64_t stale_count;     /* calls by a handle of an earlier owner, refused */
    double fragmentation;     /* 1 - largest_free / free; 0 when nothing is free */
    uint64_t old_generations; /* before a resize, whose memory is not returned yet; capacity to largest_free: without them */
    uint64_t old_bytes;       /* that they hold */
    uint64_t old_taken;       /* of that by transfers that are not released, or quarantined */
};

/* convoy_peer_info.locality: proven by a token that is read through the mapping, never by addresses */
#define CONVOY_LOCALITY_PROCESS 1 /* an engine of the same context */
#define CONVOY_LOCALITY_HOST 2    /* its memory is mapped here */
#define CONVOY_LOCALITY_REMOTE 3

#define CONVOY_PEER_IS_CONNECTED 1
#define CONVOY_PEER_IS_CLOSED 2 /* said goodbye; lent views stay valid */
#define CONVOY_PEER_IS_LOST 3   /* its process is proven dead, or broke the protocol; lent views stay valid */

/* OUT */
struct convoy_peer_info {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state;    /* CONVOY_PEER_IS_* */
    uint32_t locality; /* CONVOY_LOCALITY_* */
    uint64_t incarnation;
    uint64_t pool_bytes; /* mapped here, 0 = none */
    uint64_t sent_bytes; /* payload of sends that ended OK */
    uint64_t received_bytes;
    char session[CONVOY_SESSION_BYTES];
};

/* -- receive slots ------------------------------------------------------------------------------------------------- */

#define CONVOY_PREALLOC_FIRST 0 /* a free preallocated slot that fits, the smallest; else from the pool */
#define CONVOY_PREALLOC_NEVER 1
#define CONVOY_PREALLOC_ONLY 2

/* IN: slots of the own pool for one request, all or none. */
struct convoy_reserve {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t hint_flags;     /* none defined */
    uint32_t attempt;        /* 0 = 1 */
    const char *request;     /* 1 to 255 bytes; copies */
    size_t request_length;
    const uint64_t *bytes; /* of each; 0 is legal and takes no memory */
    size_t count;          /* 1 to 256 */
    uint32_t prealloc;     /* CONVOY_PREALLOC_* */
    uint32_t slot_id;      /* this preallocated slot and no other; 0 = any */
    uint64_t lease_ns;     /* until it must be FILLED; 0 = the engine's */
};

/* One slot. Element of the caller's array; the stride is its struct_size. */
struct convoy_reserved_slot {
    convoy_transfer transfer; /* RESERVED; for load_start, release, abort */
    void *address;
    uint64_t offset;
    uint64_t bytes;   /* of the block */
    uint32_t slot_id; /* preallocated: from 1; 0 = none */
    uint32_t reserved;
};

/* OUT: yes, or why not. Written also on POOL_EXHAUSTED and LIMIT. */
struct convoy_reservation {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_reserved_slot *slots; /* in */
    size_t slot_stride;                 /* in */
    size_t slot_capacity;               /* in: at least count */
    size_t slot_count;                  /* out: 0 when refused */
    uint64_t free_bytes;                /* out, when refused */
    uint64_t largest_free_bytes;
    uint32_t retry_after_ms; /* when to ask again; 0 = never: it does not fit into this pool */
    uint32_t reserved;
};

/* -- asking, completions, raw addresses ----------------------------------------------------------------------------- */

/* IN: about a request, here or at a peer. */
struct convoy_transfer_query {
    uint32_t struct_size;
    uint32_t attempt;    /* 0 = the latest */
    const char *request; /* 1 to 255 bytes */
    size_t request_length;
    convoy_peer peer; /* 0 = here */
};

/* OUT: every asker is answered, also about what is unknown (state 0, drained). */
struct convoy_transfer_answer {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state;   /* CONVOY_TRANSFER_*; 0 = unknown there */
    uint32_t attempt; /* the latest seen */
    int32_t status;
    uint32_t is_drained;      /* 1 = that side touches no memory of it any more */
    convoy_transfer transfer; /* here only */
};

/* OUT: one transfer that ended. Element of the caller's array; the stride is its struct_size. */
struct convoy_completion {
    convoy_transfer transfer;
    int32_t status;
    uint32_t state; /* CONVOY_TRANSFER_* */
};

/* IN: one piece of a raw transfer. Element of an array with a stride. */
struct convoy_raw_piece {
    const void *source; /* in memory of this engine: its pool, or registered */
    uint64_t target;    /* address in the peer's process: inside one live slot of it, or registered there */
    uint64_t bytes;     /* 0: dropped */
};

/* IN: pieces for one peer. */
struct convoy_raw {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    convoy_peer peer;
    const struct convoy_raw_piece *pieces;
    size_t piece_stride;
    size_t piece_count; /* neighbours are moved as one */
};

/*
 * IN: what may be under way at a time, since 1.1. Zero is no limit, as before the first call. A send is under way from OFFERED
 * until its end; what counts is its payload. One that is larger than a limit in bytes goes when nothing else is under way
 * there. What is under way already stays so.
 *
 * Who goes next: the highest priority; among equals, who could go first. A send whose peer has no room is passed over, so that
 * a receiver that stands still holds up nobody else's, as long as the peer's limits are below the engine's; one that
 * waits for the engine's room is not overtaken by smaller ones behind it.
 *
 * Limits hold for sends. What a peer asks for by a descriptor (load_start) and raw transfers are that side's to limit.
 */
struct convoy_admission {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t hint_flags;     /* none defined */
    uint32_t under_way_max;      /* sends of this engine */
    uint64_t under_way_bytes;    /* of this engine */
    uint32_t peer_under_way_max; /* sends to each peer */
    uint32_t waiting_max;        /* QUEUED sends, for whatever they wait: one more is refused with OVERLOADED */
    uint64_t peer_under_way_bytes; /* to each peer */
    uint64_t age_ns; /* a waiting send gains one step of priority each time this has passed, so that none waits for ever
                        behind higher ones; 0 = never */
};

/* engine_describe: beside CONVOY_TOPIC_DUMP, CONVOY_TOPIC_STATS and CONVOY_TOPIC_PROMETHEUS */
#define CONVOY_TOPIC_TIMELINE 7 /* JSON: phases of the last requests */
#define CONVOY_TOPIC_TRACE 8    /* the same for trace viewers (Chrome trace events) */

#define CONVOY_DESCRIPTOR_BINARY 1
#define CONVOY_DESCRIPTOR_JSON 2 /* the hosts' transfer_staged message */

/*
 *   state     open, start, connect, reserve, raw   test, wait, payload   release, abort   info, describe   close
 *   open      ok                                   ok                    ok               ok               ok
 *   closing   CLOSED                               ok                    ok               ok               ok
 *   closed    CLOSED                               CLOSED                CLOSED           info             ok
 *   forked    FORKED                               FORKED                FORKED           FORKED           ok, no effect
 *
 *   admission_set counts as a start. A closed engine stays a tombstone until its context is closed.
 */
struct convoy_transfer_table {
    struct convoy_table_header header;

    /* Opens an engine: its pool, its port, its threads. engine_out: gives (engine_close, then context_close).
     * INVALID_ARGUMENT: text names option, value, range. UNSUPPORTED: an unknown critical flag; a pool of
     * device memory without `device`. INIT_FAILED: no driver for `device`, or not this one; text says what it needs. LIMIT,
     * NO_MEMORY, SYSTEM. CLOSED, FORKED.
     * [any thread; never blocks; allocates; open context; since 1.0] */
    int32_t (*engine_open)(convoy_context *context, const struct convoy_transfer_options *options,
                           convoy_transfer_engine **engine_out, struct convoy_error *error);

    /* Refuses new work, ends what is open (CANCELED), tells the peers, waits until copies have stopped and views that
     * the host holds are released, then frees the pool; views that peers hold stay theirs.
     * DRAIN_TIMEOUT: text says what is still in use; the engine stays closing, call again. timeout_ns 0 =
     * close_timeout_ms. [one thread; blocks up to timeout_ns; any state; since 1.0] */
    int32_t (*engine_close)(convoy_transfer_engine *engine, uint64_t timeout_ns, struct convoy_error *error);

    /* [any thread; never blocks; any state; since 1.0] */
    int32_t (*engine_info)(convoy_transfer_engine *engine, struct convoy_engine_info *info_out,
                           struct convoy_error *error);

    /* Topics DUMP, STATS, PROMETHEUS, TIMELINE, TRACE. BUFFER_TOO_SMALL: see text_out->length. INVALID_ARGUMENT: another
     * topic. NO_MEMORY.
     * [any thread; never blocks; allocates; open, closing; since 1.0] */
    int32_t (*engine_describe)(convoy_transfer_engine *engine, uint32_t topic, struct convoy_text_buffer *text_out,
                               struct convoy_error *error);

    /* Figures of the pool; a debug build checks its invariants (INVARIANT).
     * [any thread; never blocks; open; since 1.0] */
    int32_t (*pool_figures)(convoy_transfer_engine *engine, struct convoy_engine_figures *figures_out,
                            struct convoy_error *error);

    /* Whether slots of these sizes fit together now. POOL_EXHAUSTED: not now; LIMIT: never; text has the figures.
     * [any thread; never blocks; open; since 1.0] */
    int32_t (*pool_fits)(convoy_transfer_engine *engine, const uint64_t *bytes, size_t count,
                         struct convoy_error *error);

    /* Goes on with a new pool of this size, rounded up to whole blocks (generation + 1); a device pins it first. With
     * pool_kind DEVICE that is the pinned pool, and the device memory stays as it is. What is staged, loaded or reserved
     * keeps its memory until it is released, peers go on to read it there, and raw transfers into its slots are served; an
     * old generation's memory is returned once its last slot is, with device TABLE by the next thread of the host that looks.
     * Peers on this host are handed the new one at once; what is sent to them meanwhile waits for that, within its own
     * deadline, and so does one that stands still. Preallocated slots are made anew; one that no request has ends, with what
     * was written there. INVALID_ARGUMENT: the size, or it does not hold the preallocated slots. LIMIT: 7 old generations are
     * alive; text has the figures. NO_MEMORY. BAD_STATE: another thread resizes. UNSUPPORTED: pool_kind HOST, whose memory
     * the host gives. On failure nothing has changed.
     * [any thread; blocks while memory is made, and pinned; never waits for peers; allocates; open; since 1.0] */
    int32_t (*pool_resize)(convoy_transfer_engine *engine, uint64_t bytes, struct convoy_error *error);

    /* Connects to the engine of a session id; one that is connected already is returned. peer_out: until
     * peer_disconnect. INVALID_ARGUMENT: no session id, or the engine's own. STALE_EPOCH: another incarnation is there
     * now. UNAUTHENTICATED: another secret. UNREACHABLE, TIMED_OUT, VERSION_MISMATCH, PEER_LOST. LIMIT: peer_max.
     * TRUNCATED: the connection ended in the middle of a frame. UNKNOWN_MESSAGE, MALFORMED: no engine answers there.
     * UNSUPPORTED, INIT_FAILED: the peer shares no memory with this process, and UCX, which is needed then, is not there or
     * not wanted (setting net).
     * [any thread; blocks up to timeout_ns; allocates; open; since 1.0] */
    int32_t (*peer_connect)(convoy_transfer_engine *engine, const char *session, size_t session_length,
                            uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error);

    /* Ends the connection: what is not at an end fails with PEER_LOST, here and there; views stay valid until released.
     * CLOSED: stale. [any thread; never blocks; open; since 1.0] */
    int32_t (*peer_disconnect)(convoy_transfer_engine *engine, convoy_peer peer, struct convoy_error *error);

    /* CLOSED: stale. [any thread; never blocks; open; since 1.0] */
    int32_t (*peer_info)(convoy_transfer_engine *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                         struct convoy_error *error);

    /* Takes room for the exact bytes and starts to copy. staged_out: STAGING or STAGED, until release.
     * INVALID_ARGUMENT: path of the field, value, range. POOL_EXHAUSTED, LIMIT: text has the figures.
     * [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*stage_start)(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                           convoy_transfer *staged_out, struct convoy_error *error);

    /* What another engine needs to load a STAGED transfer, for the host's broker; form: CONVOY_DESCRIPTOR_*. Binary text
     * may hold zeros. BAD_STATE: not STAGED. BUFFER_TOO_SMALL. [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*descriptor)(convoy_transfer_engine *engine, convoy_transfer staged, uint32_t form,
                          struct convoy_text_buffer *text_out, struct convoy_error *error);

    /* Offers to a peer what is staged, or stages it first (stage not NULL); it goes on by itself. OK at its end: the
     * receiver has loaded and checked it. transfer_out: until release. As stage_start; CLOSED: stale peer or staged.
     * UNSUPPORTED: no such path to this peer. PEER_LOST: the peer has gone. OVERLOADED (since 1.1): admission_set's
     * waiting_max sends are waiting; nothing was staged. Its deadline runs while it waits for room, and TIMED_OUT
     * then says for what.
     * [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*send_start)(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                          const struct convoy_send *send, convoy_transfer *transfer_out, struct convoy_error *error);

    /* Waits for an offer (the oldest that matches), then loads it.
     * [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*accept_start)(convoy_transfer_engine *engine, const struct convoy_load *load,
                            convoy_transfer *transfer_out, struct convoy_error *error);

    /* Loads what a descriptor names from its sender, or what lies in an own slot that a peer has filled. MALFORMED: field
     * path. UNREACHABLE: its session is not connected. Ends: NOT_FOUND: unknown there; INVALID_ARGUMENT: beyond its
     * slot; CLOSED: its memory belongs to another by now; TIMED_OUT: its lease has expired; STALE_EPOCH: a later attempt
     * is known. [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*load_start)(convoy_transfer_engine *engine, const struct convoy_load *load,
                          convoy_transfer *transfer_out, struct convoy_error *error);

    /* One look, after doing what can be done now. IN_PROGRESS; OK or why it failed, as often as asked until release;
     * CLOSED: stale. result_out may be NULL. [any thread; never blocks; never allocates; open, closing; since 1.0] */
    int32_t (*transfer_test)(convoy_transfer_engine *engine, convoy_transfer transfer,
                             struct convoy_transfer_result *result_out, struct convoy_error *error);

    /* As transfer_test, but waits. IN_PROGRESS: timeout_ns passed, the transfer has a deadline of its own. Slices are as
     * good as one long wait. engine_close ends it: CANCELED.
     * [any thread; blocks up to timeout_ns; never allocates; open, closing; since 1.0] */
    int32_t (*transfer_wait)(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                             struct convoy_transfer_result *result_out, struct convoy_error *error);

    /* send_start and transfer_wait in one, or accept_start and transfer_wait; the transfer stays until release when
     * transfer_out was written: OK, and every failure after start. Both deadlines count from the start: until staged that of
     * the stage, until the end that of the send. [any thread; blocks up to the struct's timeout_ns; since 1.0] */
    int32_t (*send)(convoy_transfer_engine *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                    convoy_transfer *transfer_out, struct convoy_error *error);
    int32_t (*accept)(convoy_transfer_engine *engine, const struct convoy_load *load, convoy_transfer *transfer_out,
                      struct convoy_error *error);

    /* Tensors, lists, scalars and where they lie. BAD_STATE: neither LOADED nor STAGED.
     * [any thread; never blocks; never allocates; open, closing; since 1.0] */
    int32_t (*payload)(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_payload *payload_out,
                       struct convoy_error *error);

    /* The host looks at it no more: views are void, a slot or staged bytes return as soon as nobody else refers to them.
     * One that is under way goes on without the host (sends), or is aborted (all others). CLOSED: stale.
     * [any thread; never blocks; open, closing; since 1.0] */
    int32_t (*release)(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_error *error);

    /* Ends it as ABORTED with CANCELED and this reason, and tells the peer; its end stays if it has one, but STAGED becomes
     * ABORTED: nobody new may read. Release it afterwards. reason: at most 120 bytes are kept. CLOSED: stale.
     * [any thread; never blocks; open, closing; since 1.0] */
    int32_t (*abort)(convoy_transfer_engine *engine, convoy_transfer transfer, const char *reason,
                     size_t reason_length, struct convoy_error *error);

    /* Receive slots for a request. POOL_EXHAUSTED, LIMIT: reservation_out says with which figures and when to ask again.
     * NOT_FOUND: no such preallocated slot, or it is taken. [any thread; never blocks; never allocates; open; since 1.0] */
    int32_t (*reserve)(convoy_transfer_engine *engine, const struct convoy_reserve *reserve,
                       struct convoy_reservation *reservation_out, struct convoy_error *error);

    /* What is known of a request. CLOSED: stale peer. TIMED_OUT: the peer does not answer. PEER_LOST.
     * [any thread; blocks up to timeout_ns with a peer; open; since 1.0] */
    int32_t (*query)(convoy_transfer_engine *engine, const struct convoy_transfer_query *query, uint64_t timeout_ns,
                     struct convoy_transfer_answer *answer_out, struct convoy_error *error);

    /* Takes up to `capacity` transfers that ended since, oldest first, each once; not those that were released, and
     * of a send that staged for itself that one alone.
     * completions_out: elements lie `stride` bytes apart.
     * [any thread; never blocks; never allocates; open, closing; since 1.0] */
    int32_t (*completions)(convoy_transfer_engine *engine, struct convoy_completion *completions_out, size_t stride,
                           size_t capacity, size_t *count_out, struct convoy_error *error);

    /* Memory of the host's that raw transfers may touch. The same range again counts; BUSY: it overlaps another, or, at
     * deregister, it is read or written by one right now. [any thread; never blocks; allocates; open; since 1.0] */
    int32_t (*memory_register)(convoy_transfer_engine *engine, void *memory, uint64_t bytes,
                               struct convoy_error *error);
    int32_t (*memory_deregister)(convoy_transfer_engine *engine, void *memory, uint64_t bytes,
                                 struct convoy_error *error);

    /* Writes pieces into a peer's memory and returns once they are there. Pieces go together, up to 1,024 or 4 MiB of
     * registered memory at a time, each time all of them or none. NOT_FOUND: a target lies in no live slot and no registered
     * range of the peer, or in more than one. INVALID_ARGUMENT: a source that is none of this engine's. LIMIT: the pieces are
     * there, but leave a slot written in more than 16,384 separate parts, so that some of it counts as not written. Memory
     * that a peer may still read after TIMED_OUT or PEER_LOST stays quarantined until it has answered or is proven dead.
     * A push that begins after the target was given to another owner cannot be told apart: send knows owners, this does not.
     * [any thread; blocks up to timeout_ns in all; allocates; open; since 1.0] */
    int32_t (*transfer_sync)(convoy_transfer_engine *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                             struct convoy_error *error);

    /* Sets what may be under way at a time, for all sends from now on; those that wait and now have room go at once.
     * INVALID_ARGUMENT: NULL, or its size. UNSUPPORTED: an unknown critical flag; of the loader: a build before 1.1.
     * [any thread; never blocks; never allocates; open; since 1.1] */
    int32_t (*admission_set)(convoy_transfer_engine *engine, const struct convoy_admission *admission,
                             struct convoy_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
