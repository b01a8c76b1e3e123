/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that a device makes: out of device memory when something is staged, into it when something is loaded, and into the
 * pool of device memory. A job is an entry's one such copy. It counts as copying (entry->is_copying) from the moment it is
 * queued until convoy's own event behind it has fired, so that its source, its slot and what a peer has lent stay where they
 * are whatever becomes of the request.
 *
 *              a thread that may                 own event fired
 *   [pending] ------------------> [running] ------------------------> end (staged, loaded, failed, or ended long since)
 *       |                             |
 *       | ended before                | nobody knows whether it has stopped
 *       v                             v
 *    end (canceled)                 lost: counts as copying for ever, and its memory stays mapped when the engine is gone
 *
 * Who may: any thread of the engine with the driver; with functions of the host only threads of the host. Stages begin on the
 * thread that brought them, so that what the host puts on its stream afterwards comes behind the copy.
 *
 * Loads first get their bytes into host memory, in a sender's mapped pool or a slot of the own one, by the ways that all
 * loads go; the device then copies from there.
 */
#ifndef CONVOY_XFER_DEVICE_JOBS_H
#define CONVOY_XFER_DEVICE_JOBS_H

#include "device/device.h"
#include "xfer/parts.h"

enum convoy_view_pin {
    CONVOY_VIEW_PIN_NOT = 0, /* never tried */
    CONVOY_VIEW_PIN_NOW,     /* a thread is at it */
    CONVOY_VIEW_PIN_DONE,
    CONVOY_VIEW_PIN_REFUSED, /* copies of it may wait for the stream */
};

struct convoy_xfer_device {
    struct convoy_device *device;
    struct convoy_pool *pool; /* of the host's device memory; NULL: none was given */
    bool calls_host;
    bool is_pool_pinned; /* the shared pool, */
    bool is_next_pinned; /* and the generation of it that is being made */
    bool is_warned;      /* that a view cannot be pinned */
    uint32_t first;      /* jobs, */
    uint32_t last;
    uint32_t count;
    uint32_t lost_count;
    uint64_t copied_bytes;
    uint64_t ucx_memory; /* what the bound UCX takes (net/ucx.h); 0 = nobody has asked yet, or it does not say */
    struct convoy_view *dead_views; /* to be unpinned and unmapped */
};

/* -- device_open.c -- */
/* Whether the options can be; of the host's table nothing is called. */
int32_t convoy_xfer_device_check_options(const struct convoy_transfer_options *options, struct convoy_error *error);
/* Opens what the options ask for, if anything. UNSUPPORTED, INIT_FAILED: what is missing. [no lock] */
int32_t convoy_xfer_device_open(struct convoy_xfer *engine, struct convoy_error *error);
/* The pool of device memory, and the shared one pinned; engine->pool is there. [no lock] */
int32_t convoy_xfer_device_pools(struct convoy_xfer *engine, struct convoy_error *error);
/* Of an engine that was restored: opens its device here. UNSUPPORTED, INIT_FAILED: what is missing. [no lock] */
int32_t convoy_xfer_device_again(struct convoy_xfer *engine, struct convoy_error *error);
/* One generation of the shared pool; what cannot be pinned is warned of. [no lock] */
bool convoy_xfer_device_pin_pool(struct convoy_xfer *engine, void *memory, uint64_t bytes);
/* Pins the next generation of the shared pool; what cannot be pinned is warned of, as at open. [no lock; a thread of the
 * host that resizes] */
void convoy_xfer_device_pin_next(struct convoy_xfer *engine);
/* From now on that is the pool. */
void convoy_xfer_device_pool_switched(struct convoy_xfer *engine);
/* A convoy_pool_let_go_fn of the shared pool. [no lock; a thread that may] */
bool convoy_xfer_device_unpin_pool(void *engine, void *memory, uint64_t bytes);
/* Before the pools: nobody is left who copies. [no lock; a thread of the host] */
void convoy_xfer_device_close(struct convoy_xfer *engine);
/* Unpins what bury has taken, on a thread that may; gives the lock up meanwhile. */
void convoy_xfer_device_unpin(struct convoy_xfer *engine);
/* Makes the entry's view known to the device, once. false: another thread is at it. Gives the lock up meanwhile. */
bool convoy_xfer_device_pin(struct convoy_xfer *engine, struct convoy_view *view);
/* The pool that the host counts from. */
struct convoy_pool *convoy_xfer_device_own_pool(const struct convoy_xfer *engine);

/* What of the pinned pool is still referred to counts beside the pool of device memory. */
void convoy_xfer_device_add_figures(const struct convoy_xfer *engine, struct convoy_pool_figures *figures);

/* -- device_jobs.c -- */
/* UNSUPPORTED, with `what` in the text: the engine has no device. */
int32_t convoy_xfer_device_check(const struct convoy_xfer *engine, const char *what, struct convoy_error *error);
/* Whether this thread may call the device. */
bool convoy_xfer_device_may_call(const struct convoy_xfer *engine);
void convoy_xfer_device_queue(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* One look at an entry's job, if it has one; gives the lock up meanwhile. */
void convoy_xfer_device_run(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* The same for all jobs, some at a time. */
void convoy_xfer_device_pump(struct convoy_xfer *engine);
/* Whether it must be looked at again soon, since nobody wakes whoever waits. */
bool convoy_xfer_device_is_asking(const struct convoy_xfer *engine);
/* Copies that were lost. */
uint32_t convoy_xfer_device_lost(const struct convoy_xfer *engine);
/* Room for so many pieces. [no lock; the entry counts as copying] */
int32_t convoy_xfer_device_piece_room(struct convoy_xfer_entry *entry, size_t count, struct convoy_error *error);
/* Gives the slot of device memory back, if there is one and nothing is copied there. */
void convoy_xfer_device_let_go(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* Keeps a view that is pinned until the device has let go of it. */
void convoy_xfer_device_bury(struct convoy_view *view);

/* -- device_stage.c -- */
/* Keeps stream and event, and takes a slot of device memory where there is a pool of it. */
int32_t convoy_xfer_device_stage_room(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                      const struct convoy_stage *stage, struct convoy_error *error);
/* Its producer is ready. false: nothing of it is the device's business. Gives the lock up meanwhile. */
bool convoy_xfer_device_stage(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
/* Begins the copy. [no lock; the entry counts as copying] */
int32_t convoy_xfer_device_stage_copy(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                      struct convoy_error *error);
void convoy_xfer_device_staged(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status,
                               const struct convoy_error *error);

/* -- device_load.c -- */
/* Whether what is asked for goes where the device writes. [no lock; a thread of the host] */
int32_t convoy_xfer_device_judge_load(struct convoy_xfer *engine, const struct convoy_load *load, bool *is_target_out,
                                      struct convoy_error *error);
void convoy_xfer_device_load_wish(struct convoy_xfer_entry *entry, const struct convoy_load *load);
/* Its bytes are in host memory. */
void convoy_xfer_device_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry);
int32_t convoy_xfer_device_load_copy(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                     struct convoy_error *error);
void convoy_xfer_device_loaded(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status,
                               const struct convoy_error *error);
/* INVALID_ARGUMENT: it is memory that only the device touches, which no peer writes or reads by address. [no lock] */
int32_t convoy_xfer_device_check_range(struct convoy_xfer *engine, const void *memory, uint64_t bytes,
                                       struct convoy_error *error);

#endif
