/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is behind the opaque handles, and the gate that every call passes: alive, not forked, not closed, nobody else
 * inside. Closed groups stay as tombstones until their context is freed.
 *
 * Locks: context->lock before group->lock; no lock is held while a host callback runs or a call waits.
 */
#ifndef CONVOY_PLUGIN_HANDLE_H
#define CONVOY_PLUGIN_HANDLE_H

#include "debug.h"
#include "handover.h"
#include "record.h"

#include "poll/poll.h"
#include "round/engine.h"
#include "sync/grid.h"
#include "sync/sync.h"
#include "xfer/engine.h"

/*
 * The word that tells a process from its forked children: CONVOY_ALIVE_HERE on a page of its own that the kernel wipes
 * in a child. Where it cannot wipe, the word is the owner's process id with CONVOY_ALIVE_ASK on top, and each look asks
 * for the own one.
 */
#define CONVOY_ALIVE_HERE 1u
#define CONVOY_ALIVE_ASK 0x80000000u /* above every process id */

struct convoy_context {
    const _Atomic uint32_t *alive; /* own page */
    struct convoy_runtime *runtime;
    pthread_mutex_t lock; /* protects groups */
    struct convoy_group *groups;
    struct convoy_transfer_engine *engines; /* under the same lock */
    _Atomic uint32_t is_closing;
    _Atomic uint32_t move; /* CONVOY_CONTEXT_RUNNING to _RETIRED (convoy/move.h) */
    struct convoy_handover handover; /* of what was exported or imported here, and not resumed since */
    _Atomic uint32_t opening; /* calls that are opening a group right now, and need the context until they end */
    struct convoy_context *buried; /* debug build: the context that was closed before this one */
};

/* Phases of a group as a handle; what happens between open and close is the engine's state. */
enum convoy_group_phase {
    CONVOY_PHASE_OPENING = 0,
    CONVOY_PHASE_OPEN,
    CONVOY_PHASE_FAILED,
    CONVOY_PHASE_CLOSING,
    CONVOY_PHASE_CLOSED,
    CONVOY_PHASE_HALTED,  /* open, and nothing begins any more (plugin/move.h) */
    CONVOY_PHASE_FROZEN,  /* open, and nothing but looking is possible; or restored of another build's */
    CONVOY_PHASE_RETIRED, /* another build has it */
};

struct convoy_group {
    const _Atomic uint32_t *alive; /* the context's */
    struct convoy_context *context;
    struct convoy_group *next; /* in context->groups; never unlinked */
    _Atomic uint32_t phase;    /* under the lock when it changes, except where a move compares and swaps */
    _Atomic uint32_t inside; /* 1 while a serialized call runs, 2 while a reader settles the record */
    struct convoy_engine *engine; /* the thread that opens sets it without the lock: look at the phase first */
    struct convoy_poll *poll;
    struct convoy_sync *sync; /* NULL without a schema */
    uint32_t sync_cells;      /* rows of its table */
    bool is_restored;         /* by an import, and not thawed since */
    struct convoy_group *second; /* of the last two-level operation that this group is the first of, or NULL */
    struct convoy_record record; /* counters, histograms, call log */

    /* opening */
    struct convoy_group_options options; /* full-size; all pointers are own copies */
    struct convoy_schema schema;
    bool has_schema;
    convoy_debug_owner caller; /* of the serialized call that runs */
    convoy_debug_owner opener; /* of group_open_test or _wait */
    uint64_t open_started_ns;
    uint64_t open_deadline_ns;
    _Atomic uint32_t opening; /* calls of group_open_test and _wait that are inside */
    pthread_mutex_t lock; /* protects what follows, and the engine's life against calls from any thread */
    pthread_cond_t opened;
    struct convoy_bootstrap *bootstrap;
    pthread_t open_thread;
    bool has_open_thread;
    bool is_open_done;
    int32_t open_status;
    struct convoy_error open_error;
    struct convoy_group_info last; /* of a group whose engine is not asked (any more): see convoy_group_keep_info */
};

/* An engine on its way to another build (plugin/move.h). All but STAYS send calls away. */
enum convoy_engine_moving {
    CONVOY_ENGINE_STAYS = 0,
    CONVOY_ENGINE_HALTED,
    CONVOY_ENGINE_FROZEN, /* or restored */
    CONVOY_ENGINE_THAWED, /* has all it needs to go on */
    CONVOY_ENGINE_RETIRED,
};

/* A transfer engine as a handle: any number of threads are inside at once; close waits for them. */
struct convoy_transfer_engine {
    const _Atomic uint32_t *alive; /* the context's */
    struct convoy_context *context;
    struct convoy_transfer_engine *next; /* in context->engines; never unlinked */
    struct convoy_xfer *xfer;            /* NULL once closed */
    _Atomic uint32_t state;              /* CONVOY_ENGINE_* */
    _Atomic uint32_t moving;             /* enum convoy_engine_moving */
    _Atomic uint32_t inside;             /* calls */
    char session[CONVOY_SESSION_BYTES];  /* for error texts: stays as it is, whatever other threads do */
    struct convoy_engine_info last;      /* what info says of a closed one */
};

/* transfer_engine.c */
int32_t convoy_transfer_engine_shut(struct convoy_transfer_engine *engine, uint64_t timeout_ns,
                                    struct convoy_error *error);
void convoy_transfer_engine_free(struct convoy_transfer_engine *engine);

/* Before something begins. OK, FORKED, CLOSED (context closing), or MOVED. NULL is INVALID_ARGUMENT. */
int32_t convoy_context_check(const struct convoy_context *context, struct convoy_error *error);
/* The same before a look: MOVED only when all it had is another build's. */
int32_t convoy_context_check_look(const struct convoy_context *context, struct convoy_error *error);

/* True in a process that inherited the handle through fork. */
bool convoy_handle_is_forked(const _Atomic uint32_t *alive);

/* The opposite, inline for the calls that count every nanosecond: one comparison where the kernel wipes. */
static inline bool convoy_handle_is_here(const _Atomic uint32_t *alive)
{
    return __builtin_expect(atomic_load_explicit(alive, memory_order_relaxed) == CONVOY_ALIVE_HERE, 1) ||
           !convoy_handle_is_forked(alive);
}

/* The slow half of convoy_group_enter: says what is wrong. */
int32_t convoy_group_refuse(struct convoy_group *group, struct convoy_error *error);
/* The same of convoy_group_enter_open, which a halted group lets in. */
int32_t convoy_group_refuse_open(struct convoy_group *group, struct convoy_error *error);

/* Enters after a reader; false: another call is inside. */
bool convoy_group_wait_reader(struct convoy_group *group);

/* [any thread] Brings call log and counters up to date with the last round, before they are read. */
void convoy_group_settle(struct convoy_group *group);

/* Whether there is an engine to be looked at. Under the group's lock. */
static inline bool convoy_group_has_engine(const struct convoy_group *group)
{
    uint32_t phase = atomic_load(&group->phase); /* before the engine: the thread that opens sets that without the lock */
    return (phase == CONVOY_PHASE_OPEN || phase == CONVOY_PHASE_HALTED || phase == CONVOY_PHASE_FROZEN) &&
           group->engine != NULL;
}

/* Of convoy_group_enter and _enter_open: the phase beside OPEN that is let in. */
static inline int32_t convoy_group_enter_phase(struct convoy_group *group, uint32_t also, struct convoy_error *error)
{
    uint32_t free = 0;
    if (__builtin_expect(group != NULL, 1) && convoy_handle_is_here(group->alive) &&
        (__builtin_expect(atomic_compare_exchange_strong(&group->inside, &free, 1), 1) ||
         convoy_group_wait_reader(group))) {
        uint32_t phase = atomic_load(&group->phase);
        if (__builtin_expect(phase == CONVOY_PHASE_OPEN, 1) || phase == also) {
            (void)convoy_debug_take(&group->caller);
            return CONVOY_OK;
        }
        atomic_store(&group->inside, 0);
    }
    return also == CONVOY_PHASE_OPEN ? convoy_group_refuse(group, error) : convoy_group_refuse_open(group, error);
}

/* Enters a serialized call that begins something. OK: leave afterwards. Else: FORKED, CLOSED, BAD_STATE, MOVED, BUSY
 * (another thread is inside). `inside` is set before the phase is read: whoever halts the group sees this call, or this
 * call the halt. */
static inline int32_t convoy_group_enter(struct convoy_group *group, struct convoy_error *error)
{
    return convoy_group_enter_phase(group, CONVOY_PHASE_OPEN, error);
}

/* The same for a call on what is open: also of a halted group. */
static inline int32_t convoy_group_enter_open(struct convoy_group *group, struct convoy_error *error)
{
    return convoy_group_enter_phase(group, CONVOY_PHASE_HALTED, error);
}

static inline void convoy_group_leave(struct convoy_group *group)
{
    convoy_debug_give(&group->caller);
    atomic_store_explicit(&group->inside, 0, memory_order_release);
}

/* What a call that was let in returns: a wait that close has ended says CLOSED. Hands queued log lines to the host
 * when something went wrong. */
int32_t convoy_group_status(struct convoy_group *group, int32_t status, struct convoy_error *error);

/* group.c: keeps what group_info says once the engine is gone. Called with the lock held, while the engine is there. */
void convoy_group_keep_info(struct convoy_group *group);

/* group_open.c */
int32_t convoy_group_open_run(struct convoy_group *group);
/* A group of that context, not linked to it; all but the handle's own fields is zero. NULL: no memory. */
struct convoy_group *convoy_group_new(struct convoy_context *context);
/* Poll, and sync where the grid has columns, on the group's engine. */
int32_t convoy_group_open_families(struct convoy_group *group, const struct convoy_grid *grid,
                                   struct convoy_error *error);
/* Bytes that an engine of this group has to keep for what a host has merged. */
size_t convoy_group_partial_bytes_max(const struct convoy_group *group, const struct convoy_grid *grid);
void convoy_group_free(struct convoy_group *group); /* the memory; everything else is closed */

/* group_close.c: see group_close in convoy/core.h. */
int32_t convoy_group_shut(struct convoy_group *group, uint64_t timeout_ns, struct convoy_error *error);

/* group_options.c: full-size copy with own pointers, checked. INVALID_ARGUMENT names parameter, value and range. */
int32_t convoy_group_options_load(struct convoy_group *group, const struct convoy_group_options *given,
                                  struct convoy_error *error);
/* group_options.c: the same of options that another build has checked and filled; has_schema and schema are set before, and
 * given->schema is NULL. MALFORMED in place of INVALID_ARGUMENT, TOO_NEW in place of UNSUPPORTED. */
int32_t convoy_group_options_adopt(struct convoy_group *group, const struct convoy_group_options *given,
                                   struct convoy_error *error);
void convoy_group_options_fini(struct convoy_group_options *options);

#endif
