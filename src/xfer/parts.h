/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of an engine: what its files share. One lock guards all of it; it is held for bookkeeping only, never while bytes
 * are copied, a call waits or a host's callback runs. Nobody who holds it takes another lock but the pools'.
 *
 *   threads   host threads that call in; the progress thread (messages, deadlines, deaths, connections), which stays out
 *             of the way while a host thread polls; the copier (large copies that nobody waits for)
 *   entries   one per transfer, in a table made at open. A stage is used by sends; a send that is lent waits for BACK
 */
#ifndef CONVOY_XFER_PARTS_H
#define CONVOY_XFER_PARTS_H

#include "core/copy_choice.h"
#include "core/latency.h"
#include "net/host_map.h"
#include "net/local_socket.h"
#include "net/runtime.h"
#include "pool/pool.h"
#include "xfer/admission.h"
#include "xfer/counters.h"
#include "xfer/descriptor.h"
#include "xfer/device_part.h"
#include "xfer/engine.h"
#include "xfer/entry.h"
#include "xfer/extents.h"
#include "xfer/introduce.h"
#include "xfer/notice.h"
#include "xfer/share.h"
#include "xfer/state.h"
#include "xfer/view.h"
#include "xfer/window.h"

struct pollfd;
struct convoy_raw_copy;   /* xfer/raw.h: what peers have ordered */
struct convoy_raw_window; /* and what is ordered here */
struct convoy_far; /* xfer/far.h: what there is for peers on other hosts */
struct convoy_xfer_device; /* xfer/device_jobs.h: what copies device memory */
struct convoy_xfer;
struct convoy_xfer_peer;

/* What differs between peers on this host (xfer/near.c) and on others (xfer/far.c). */
struct convoy_lane {
    const char *name;
    bool is_far;
    bool may_be_early; /* what is still being staged may be offered */
    /* Says it, or drops it since the peer is gone. false: there is no room for it yet. */
    bool (*put)(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry);
    /* Gets the payload of a load that was offered, or granted (offer NULL: its descriptor is known). */
    void (*load)(struct convoy_xfer *engine, struct convoy_xfer_entry *load, const struct convoy_offer *offer);
    /* A send has ended, well or not. */
    void (*send_ended)(struct convoy_xfer *engine, struct convoy_xfer_entry *send);
    /* The peer is gone; its transfers end next. true: from now on it touches nothing of ours. */
    bool (*part)(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
};

extern const struct convoy_lane convoy_lane_near;

#define CONVOY_XFER_NOBODY UINT32_MAX /* no entry, no peer */
#define CONVOY_XFER_INLINE_BYTES (256u << 10) /* copied at once by whoever comes; more goes to the copier or a waiter */
#define CONVOY_XFER_EARLY_BYTES (1u << 20)  /* from here on a send with a stage of its own is offered before it is staged */
#define CONVOY_XFER_CHUNK_BYTES (128u << 10) /* that the mark moves by: in a cache of its own until its reader comes */
#define CONVOY_XFER_DEVICE_NAME_BYTES 32u
#define CONVOY_XFER_DIALS 16u
#define CONVOY_XFER_TIMELINE 256u /* requests that ended, kept for the timeline */

struct convoy_xfer_peer {
    uint32_t generation; /* of the handle; a free one has state 0 */
    uint32_t state;      /* CONVOY_PEER_IS_*, 0 = free */
    uint32_t locality;   /* CONVOY_LOCALITY_* */
    uint32_t entries;    /* that name it */
    bool is_held;        /* the host has its handle */
    bool is_dead;        /* proven */
    bool is_polled;      /* the progress thread sleeps on its descriptors, or has just done so */
    bool is_drained;     /* gone, and it touches nothing of ours any more */
    bool is_shy;         /* far: nothing may be said to it before its HELLO */
    bool is_parting;     /* far: its connection is being ended */
    const struct convoy_lane *lane; /* NULL: closed */
    uint64_t cut_ns;     /* far: its connection has ended, this is when to give it up; 0 = no */
    int tcp_fd;
    int wake_fd;
    int pid_fd;
    uint64_t incarnation;
    char session[CONVOY_SESSION_BYTES];
    struct convoy_view *view; /* near: of its newest generation, and those before that; never NULL */
    struct convoy_shares shares; /* near: which of the own ones it has */
    int share_fd; /* the last one has gone out by it, and is not answered; -1 = none */
    uint32_t share_tries;
    uint64_t share_retry_ns; /* not before */
    uint8_t nonce[CONVOY_INTRODUCE_NONCE_BYTES]; /* names the connection between the two, at either's local socket */
    uint8_t socket[CONVOY_INTRODUCE_TOKEN_BYTES];
    struct convoy_local_socket_target target;
    struct convoy_ring ring;
    void *ring_memory;
    uint64_t sequence; /* of the last offer to it */
    struct convoy_window window;
    struct convoy_xfer_admission_peer admission;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    struct convoy_ring_entry late; /* a test wants it said behind the next one; type 0 = none */
    struct convoy_ring_entry *backlog; /* what the ring had no room for, in order */
    uint32_t backlog_first;
    uint32_t backlog_count;
    uint32_t backlog_room;
};

/* An offer that nobody has accepted yet. */
struct convoy_xfer_waiting {
    struct convoy_offer offer;
    uint64_t came_ns;
    uint32_t peer;
    uint32_t generation;
};

/* What a host thread here waits for from a peer, in engine->orders meanwhile. */
struct convoy_xfer_order {
    struct convoy_xfer_order *next;
    uint64_t cookie;
    uint64_t since_ns;
    uint32_t peer;
    uint32_t generation;
    bool is_done;
    bool is_failed; /* far: the bytes were refused, or the connection failed */
    struct convoy_reply reply;
    struct convoy_raw_window *window; /* raw: what goes out; NULL = a question, */
    uint64_t digest;                  /* about this request */
    uint32_t attempt;
};

/* An order of a peer's that was carried out. */
struct convoy_xfer_done {
    uint64_t cookie;
    uint32_t peer;
    uint32_t generation;
    int32_t status;
};

#define CONVOY_XFER_DONE 256u /* the last ones, for orders that are said again */

/* Memory of the host's that raw transfers may touch. */
struct convoy_xfer_range {
    uint8_t *memory;
    uint64_t bytes;
    uint32_t references;
    uint32_t users; /* parts of orders that are read or written there now */
};

struct convoy_xfer_prealloc {
    struct convoy_slot slot;
    struct convoy_extents written; /* before a request took it */
    bool is_taken;
};

/* How long a host thread waits already. All zero at first. */
struct convoy_xfer_pausing {
    uint32_t looks;
    uint64_t since_ns;
};

/* One request that ended, for the timeline. */
struct convoy_xfer_past {
    char request[64];
    enum convoy_xfer_kind kind;
    uint32_t attempt;
    uint32_t state;
    int32_t status;
    uint32_t path;
    uint64_t bytes;
    uint64_t times_ns[CONVOY_TIMES];
};

/* The thread that opens far (xfer/far_open.c). */
struct convoy_far_opener {
    bool has_thread; /* the progress thread's to know */
    bool is_done;    /* under the engine's lock */
    pthread_t thread;
    struct convoy_error error;
};

struct convoy_xfer_pending; /* xfer/door.c: connections on their way in */

struct convoy_xfer {
    struct convoy_runtime *runtime;
    struct convoy_xfer_options options;
    pthread_mutex_t lock;
    uint32_t state; /* CONVOY_ENGINE_* */
    uint64_t incarnation;
    uint64_t generation; /* of the pool */
    char session[CONVOY_SESSION_BYTES];
    struct convoy_introduction introduction;
    struct convoy_pool *pool;
    bool is_resizing; /* a host thread makes the next generation */
    struct convoy_pool *notes;
    struct convoy_copy_choice copy_choice; /* which way large copies go; of whoever copies */

    struct convoy_xfer_entry *entries;
    uint32_t entry_count; /* of the table */
    uint32_t entry_top;   /* from here on none was ever used, and nothing of it was ever touched */
    uint32_t used_count;
    uint32_t free_first; /* list by next; last freed, first used: its memory is warm */
    uint32_t active_first;
    uint32_t active_last;
    uint32_t ended_first;
    uint32_t ended_last;
    uint32_t ended_count;
    uint32_t job_first;
    uint32_t job_last;
    uint32_t copying_count;
    uint32_t accepting_count; /* loads that wait for any offer */
    struct convoy_xfer_admission admission;

    struct convoy_xfer_waiting *waiting; /* ring of offers */
    uint32_t waiting_count;
    struct convoy_xfer_order *orders;
    uint64_t order_count;
    struct convoy_raw_window *windows; /* to be used again */
    struct convoy_raw_window *held;    /* what gone or silent peers may still read of */
    uint32_t window_count;             /* in both */
    uint64_t held_ns;                  /* when to ask for those again */
    struct convoy_raw_copy *copies;    /* oldest first */
    struct convoy_raw_copy *copies_free;
    uint32_t copy_count;       /* in the first */
    uint32_t copy_free_count;  /* and the second list */
    uint64_t copy_room_bytes;  /* of what comes from other hosts */
    struct convoy_xfer_done done[CONVOY_XFER_DONE];
    uint32_t done_count;
    struct convoy_xfer_done loans[CONVOY_XFER_DONE]; /* to other hosts, ended but for the receiver's word; cookie: serial */
    uint32_t loan_count;
    struct convoy_xfer_prealloc *preallocs; /* [options.prealloc_count] */

    struct convoy_xfer_peer *peers; /* [options.peer_max] */
    uint32_t peer_top;              /* slots that were ever used */
    uint64_t dials[CONVOY_XFER_DIALS]; /* incarnations that host threads are connecting to; 0 = free */

    struct convoy_xfer_range *ranges;
    uint32_t range_count;
    uint32_t range_room;

    uint64_t timer_ns;    /* the earliest deadline or retry */
    uint64_t attended_ns; /* when a host thread looked last */
    uint32_t waiters;     /* the host thread asleep on wake_fd: 0 or 1 */
    uint32_t followers;   /* others, asleep on `changed`: one of them is next on wake_fd */
    pthread_cond_t changed;
    bool is_dozing;          /* peers that say something wake this engine */
    bool is_progress_asleep; /* and nobody else will look */
    bool is_progress_at_it;  /* takes messages, and then does small copies itself */
    uint64_t progress_until_ns;
    int wake_fd;
    int kick_fd;
    int notify_fd; /* or -1 */
    bool is_notified;
    bool must_stop;
    bool is_halted; /* on its way to another build: host threads are sent away */
    bool is_parked; /* and no thread of its own does anything: what peers say stays in the rings (xfer/move.h) */
    bool has_threads; /* at least the first of the two */
    bool has_copier;
    pthread_t progress;
    pthread_t copier;
    pthread_cond_t work; /* for the copier */

    struct convoy_xfer_device *device; /* NULL: none was asked for */
    struct convoy_device_table device_table; /* of the host's, to open it once more */
    char device_name[CONVOY_XFER_DEVICE_NAME_BYTES];
    struct convoy_far *far; /* NULL until the first such peer comes */
    pthread_mutex_t far_opening;
    struct convoy_far_opener far_opener;
    bool must_flush; /* whoever gives the lock up has something to carry out */

    int tcp_fd;
    struct convoy_local_socket local;
    struct convoy_xfer_pending *pending;
    struct pollfd *polls; /* the progress thread's */
    int self_pid_fd;

    uint64_t counters[CONVOY_XFER_COUNTER_COUNT];
    struct convoy_latency phases[CONVOY_XFER_PHASE_COUNT][CONVOY_XFER_PATHS];
    struct convoy_xfer_past past[CONVOY_XFER_TIMELINE];
    uint32_t past_count;
};

#define CONVOY_XFER_NOTE(engine, name) ((engine)->counters[CONVOY_XFER_COUNT_##name]++)

static inline void convoy_xfer_lock(struct convoy_xfer *engine)
{
    (void)pthread_mutex_lock(&engine->lock);
}

/* Carries out what was written down for peers on other hosts. [no lock] */
void convoy_far_flush(struct convoy_xfer *engine);

/* Something that whoever gives the lock up does first, else it may stay undone for as long as that one sleeps. */
static inline bool convoy_xfer_is_owing(const struct convoy_xfer *engine)
{
    return engine->must_flush || (engine->admission.is_due && !engine->is_parked);
}

static inline void convoy_xfer_unlock(struct convoy_xfer *engine)
{
    if (engine->admission.is_due) {
        convoy_xfer_admission_run(engine);
    }
    bool must_flush = engine->must_flush;
    engine->must_flush = false;
    (void)pthread_mutex_unlock(&engine->lock);
    if (must_flush) {
        convoy_far_flush(engine);
    }
}

/* Everything below: with the lock held. */

/* -- entries.c -- */
/* A fresh one in its kind's first state, or NULL with LIMIT. */
struct convoy_xfer_entry *convoy_xfer_entry_new(struct convoy_xfer *engine, enum convoy_xfer_kind kind,
                                                struct convoy_error *error);
/* NULL with CLOSED: stale. */
struct convoy_xfer_entry *convoy_xfer_entry_find(struct convoy_xfer *engine, convoy_transfer transfer,
                                                 struct convoy_error *error);
convoy_transfer convoy_xfer_entry_handle(const struct convoy_xfer_entry *entry);
void convoy_xfer_entry_name(struct convoy_xfer_entry *entry, const char *request, size_t length, uint32_t attempt);
/* Binds it to a peer, which then stays known until the entry is freed. */
void convoy_xfer_entry_bind(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t peer);
/* The one mover: checks the edge. false: not allowed, nothing happened. */
bool convoy_xfer_entry_move(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t state);
/* Ends it early, with the reason (error may be NULL: none but the status). */
void convoy_xfer_entry_fail(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t state,
                            int32_t status, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Frees it if nothing needs it any more. */
void convoy_xfer_entry_settle(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);

/* Until a message is sent again: that many times in the time left, but not so often that nothing else is done. */
uint64_t convoy_xfer_retry_step(uint64_t left_ns, uint32_t retries);
/* How often a message is said again, from what the host asks for. */
uint32_t convoy_xfer_retries(uint32_t asked);
/* Frees what it holds whatever its state: the engine is being closed. */
void convoy_xfer_entry_drop(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_timer(struct convoy_xfer *engine, uint64_t at_ns);

/* -- stats.c -- */
/* What has just come to an end: its place in the timeline, and the phases that it has gone through. */
void convoy_xfer_record(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* One that was recorded as SENT has its payload back. */
void convoy_xfer_record_returned(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry);
/* An order to an address has ended; a good one is a push from when it was said on. */
void convoy_xfer_record_raw(struct convoy_xfer *engine, int32_t status, bool is_far, uint64_t began_ns);

/* -- peers.c -- */
struct convoy_xfer_peer *convoy_xfer_peer_find(struct convoy_xfer *engine, convoy_peer handle,
                                               struct convoy_error *error);
convoy_peer convoy_xfer_peer_handle(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer);
struct convoy_xfer_peer *convoy_xfer_peer_by_incarnation(struct convoy_xfer *engine, uint64_t incarnation);
/* What a connection has given; on OK the peer owns it all. */
struct convoy_xfer_joined {
    const struct convoy_introduction *introduction;
    const struct convoy_lane *lane;
    struct convoy_view *view;
    struct convoy_pool_share shared; /* near: the generation that was handed over; its file is none of its */
    const uint8_t *nonce;            /* near */
    struct convoy_local_socket_target target;
    void *ring_memory;
    uint32_t side;
    int tcp_fd;
    int wake_fd;
    int pid_fd;
};
int32_t convoy_xfer_peer_add(struct convoy_xfer *engine, const struct convoy_xfer_joined *joined,
                             struct convoy_xfer_peer **peer_out, struct convoy_error *error);
/* It is gone: how, and whether it is proven that it touches nothing any more. */
void convoy_xfer_peer_end(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint32_t state, bool is_dead);
/* Sends, or keeps for later; wakes the peer if it sleeps. */
void convoy_xfer_say(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_xfer_notice *notice);
void convoy_xfer_peer_check(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
void convoy_xfer_peer_flush(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
/* Room for more of what waits. false: there is none. */
bool convoy_xfer_backlog_grow(struct convoy_xfer_peer *peer);
/* Closes all it has, whatever its state. */
void convoy_xfer_peer_close(struct convoy_xfer_peer *peer);
void convoy_xfer_peer_free(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);

/* -- copying.c: copies outside of the lock -- */
void convoy_xfer_job_add(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_awaited);
/* Does this entry's copy on this thread if it waits for one; gives the lock up meanwhile. */
void convoy_xfer_job_run(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_job_drop(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void *convoy_xfer_copier_main(void *engine);
void convoy_copy_strided(uint8_t *to, const struct convoy_tensor_piece *piece);
/* Whether its elements lie in memory that there can be: steps that leave it are no strides of a tensor. */
bool convoy_copy_is_reachable(const struct convoy_tensor_piece *piece);
/* Zeroes what lies between the end of a tensor and the next one. Returns where that starts. */
uint64_t convoy_copy_clear_gap(uint8_t *slot, uint64_t end, uint64_t payload_bytes);

/* -- engine.c: for whoever moves it; no lock -- */
/* All but tables, pools, files and threads. NULL: out of memory. gives */
struct convoy_xfer *convoy_xfer_new(struct convoy_runtime *runtime);
/* Empty ones, as large as the options say. NO_MEMORY. */
int32_t convoy_xfer_tables(struct convoy_xfer *engine, struct convoy_error *error);
/* Of both, or of none: SYSTEM. They wait while it is parked. */
int32_t convoy_xfer_threads_start(struct convoy_xfer *engine, struct convoy_error *error);
void convoy_xfer_threads_stop(struct convoy_xfer *engine);
/* What open gets for the shared pool beside sizes: who is told of ends. */
struct convoy_pool_options convoy_xfer_pool_calls(struct convoy_xfer *engine);
/* The memory and all that is left in it; no thread looks at it. */
void convoy_xfer_free(struct convoy_xfer *engine);

/* The own one, as it is now. [no lock] */
struct convoy_introduction convoy_xfer_introduction(struct convoy_xfer *engine);
/* CLOSED unless the engine is open. */
int32_t convoy_xfer_check_open(const struct convoy_xfer *engine, struct convoy_error *error);

/* -- engine_options.c -- no lock */
int32_t convoy_xfer_options_load(const struct convoy_runtime *runtime, const struct convoy_transfer_options *given,
                                 struct convoy_xfer_options *options, struct convoy_error *error);

/* -- stage.c, send.c, load.c, slots.c -- */
struct convoy_xfer_stage_way {
    bool is_awaited; /* a host thread waits for it, and copies */
    bool may_defer;  /* the copy of a large one waits for stage_begin */
    bool is_owned;   /* by the send that makes it: the host hears of that one's end alone */
};
int32_t convoy_xfer_stage_locked(struct convoy_xfer *engine, const struct convoy_stage *stage,
                                 struct convoy_xfer_stage_way way, struct convoy_xfer_entry **entry_out,
                                 struct convoy_error *error);
void convoy_xfer_stage_begin(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_inline,
                             bool is_awaited);
/* -- stage_manifest.c: in the room, where the last one is found again if it is the same. */
int32_t convoy_xfer_stage_manifest(const struct convoy_stage *stage, struct convoy_manifest_room *manifest_room,
                                   struct convoy_manifest **manifest_out, struct convoy_error *error);
/* Where its texts lie, in the note. */
void convoy_xfer_stage_spans(struct convoy_xfer_entry *entry);
_Atomic uint64_t *convoy_xfer_stage_mark(const struct convoy_xfer_entry *entry);
/* Asks the producer of one that waits for it; gives the lock up meanwhile. [host threads] */
void convoy_xfer_stage_poll(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_inline);
void convoy_xfer_stage_copied(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_stage_retire(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, enum convoy_lease_end end);
/* The host has let go of one that is staged: its bytes return once no send of it waits for room. */
void convoy_xfer_stage_let_go(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* Its stage may have come to an end, or may be offered while it is copied. */
void convoy_xfer_send_advance(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* It goes: its peer hears of it. */
void convoy_xfer_send_offer(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* What it has offered early is there. */
void convoy_xfer_send_staged(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_send_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* Says what has no answer yet once more; a loan that it is granted. */
void convoy_xfer_send_repeat(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_send_withdraw(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_send_returned(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_on_reply(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, enum convoy_say type,
                          const struct convoy_reply *reply);
void convoy_xfer_on_ask(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ask *ask);
void convoy_xfer_on_query(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ask *ask);
void convoy_xfer_on_offer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_offer *offer);
/* A view of what was offered early is complete; says nothing of one that is not. */
void convoy_xfer_on_staged(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, uint64_t serial);
void convoy_xfer_on_withdraw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                             const struct convoy_reply *reply);
void convoy_xfer_on_grant(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply);
/* -- between load.c and load_start.c */
bool convoy_xfer_load_room(struct convoy_xfer_entry *entry, size_t bytes);
bool convoy_xfer_load_wants(const struct convoy_xfer_entry *entry, uint32_t peer, const struct convoy_offer *offer);
void convoy_xfer_load_near(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_offer *offer);
int32_t convoy_xfer_load_decode(struct convoy_xfer_entry *entry, size_t bytes, struct convoy_error *error);
void convoy_xfer_load_begin(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t index,
                            const struct convoy_offer *offer);
void convoy_xfer_load_finish(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_waiting_remove(struct convoy_xfer *engine, uint32_t position);
void convoy_xfer_load_copied(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status);
void convoy_xfer_load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_load_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_load_give_back(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
void convoy_xfer_waiting_drop_peer(struct convoy_xfer *engine, uint32_t peer);
void convoy_xfer_waiting_refuse_all(struct convoy_xfer *engine, int32_t status);
int32_t convoy_xfer_prealloc_open(struct convoy_xfer *engine, struct convoy_error *error);
/* Memory for a load from another host: a preallocated slot that fits, else from the pool. */
int32_t convoy_xfer_slot_take(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t bytes,
                              struct convoy_error *error);
bool convoy_xfer_slot_is_open(const struct convoy_xfer *engine, convoy_lease lease);
void convoy_xfer_slot_released(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* The request whose slot it is; NULL: none yet. */
struct convoy_xfer_entry *convoy_xfer_slot_owner(struct convoy_xfer *engine, convoy_lease lease);
/* Where peers have written into it, in order. false: not all of that can be kept in mind, so it counts as not written. */
bool convoy_xfer_slot_written(struct convoy_xfer *engine, const struct convoy_slot *slot, const struct convoy_extent *parts,
                              uint32_t count);

/* -- hear.c -- */
/* Only what peers on this host have said: never gives the lock up. */
void convoy_xfer_hear(struct convoy_xfer *engine);
/* The same of one that has a ring. */
void convoy_xfer_hear_peer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
/* One notice as it came. false: it is none, and the peer is lost. */
bool convoy_xfer_take(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry);

/* -- progress.c -- */
/* All that can be done now: messages, deadlines, retries. With far peers it gives the lock up meanwhile. */
void convoy_xfer_pump(struct convoy_xfer *engine);
/* Wakes host threads that wait for something to end. */
void convoy_xfer_wake(struct convoy_xfer *engine);
/* The same, and the progress thread. */
void convoy_xfer_kick(struct convoy_xfer *engine);
void *convoy_xfer_progress_main(void *engine);
/* Waits until something may have changed or the time has come; gives the lock up meanwhile. is_asking: a producer is to be
 * asked again soon. */
void convoy_xfer_pause(struct convoy_xfer *engine, uint64_t until_ns, bool is_asking,
                       struct convoy_xfer_pausing *pausing);

/* -- door.c -- the progress thread's own, no lock */
int32_t convoy_xfer_door_open(struct convoy_xfer *engine, struct convoy_error *error);
void convoy_xfer_door_close(struct convoy_xfer *engine);
/* Memory for it; open has it already. */
int32_t convoy_xfer_door_room(struct convoy_xfer *engine, struct convoy_error *error);
/* Drops those that are on their way in: whoever dialed dials again. [no thread of the engine's runs] */
void convoy_xfer_door_drop(struct convoy_xfer *engine);
uint32_t convoy_xfer_door_polls(struct convoy_xfer *engine, struct pollfd *polls, uint32_t room);
void convoy_xfer_door_step(struct convoy_xfer *engine);
uint32_t convoy_xfer_polls_max(uint32_t peer_max);

#endif
