/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a move but for the items: see move.h. */
#include "xfer/move.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "pool/move.h"
#include "xfer/device_jobs.h"
#include "xfer/move_parts.h"

#include <stdio.h>
#include <unistd.h>

/* -- halting ------------------------------------------------------------------------------------------------------- */

void convoy_xfer_halt(struct convoy_xfer *engine)
{
    const uint64_t one = 1;
    convoy_xfer_lock(engine);
    engine->is_halted = true;
    (void)pthread_cond_broadcast(&engine->work); /* what a host thread was to copy */
    (void)pthread_cond_broadcast(&engine->changed);
    (void)!write(engine->wake_fd, &one, sizeof one);
    convoy_xfer_kick(engine);
    convoy_xfer_unlock(engine);
}

/* Those that end by themselves: not one that follows a peer which may stand still. */
static uint32_t count_jobs(const struct convoy_xfer *engine)
{
    uint32_t count = 0;
    for (uint32_t at = engine->job_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next_job) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        count += !(entry->kind == CONVOY_XFER_LOAD && entry->is_early);
    }
    return count;
}

bool convoy_xfer_is_still(struct convoy_xfer *engine, char *why_out)
{
    convoy_xfer_lock(engine);
    if (engine->device != NULL && !engine->is_parked) { /* some devices are only asked by threads of the host, as this is one */
        convoy_xfer_device_pump(engine);
    }
    uint32_t copying = engine->copying_count - convoy_xfer_device_lost(engine);
    uint32_t jobs = count_jobs(engine);
    bool is_still = copying == 0 && jobs == 0 && engine->copies == NULL && !engine->is_resizing;
    if (!is_still) {
        (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "engine %.60s: %u copies run, %u wait, %u ordered by peers%s",
                       engine->session, copying, jobs, engine->copy_count,
                       engine->is_resizing ? ", its pool is resized" : "");
    } else if (engine->far != NULL) {
        is_still = convoy_far_is_still(engine, why_out);
    }
    convoy_xfer_unlock(engine);
    return is_still;
}

/* -- what a device knows of ---------------------------------------------------------------------------------------- */

static int32_t unpin(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_xfer_views views;
    uint32_t cursor = 0;
    uint64_t bytes;
    void *memory;
    if (engine->device == NULL || engine->device->device == NULL) {
        return CONVOY_OK;
    }
    int32_t status = convoy_xfer_views_gather(engine, &views, error);
    for (uint32_t i = 0; status == CONVOY_OK && i < views.count; i++) {
        struct convoy_view *view = views.all[i];
        if (view->device != NULL) {
            status = convoy_device_unregister(engine->device->device, (void *)(uintptr_t)view->pool, view->pool_bytes, error);
        }
        view->device = status == CONVOY_OK ? NULL : view->device;
        view->pin = view->device == NULL ? CONVOY_VIEW_PIN_NOT : view->pin; /* tried again when it is needed */
    }
    convoy_memory_free(views.all);
    while (status == CONVOY_OK && convoy_pool_each(engine->pool, &cursor, &memory, &bytes)) {
        status = convoy_device_unregister(engine->device->device, memory, bytes, error);
        status = status == CONVOY_NOT_FOUND ? CONVOY_OK : status;
    }
    return status;
}

/* Opened where it is not, and told of the pool. */
static int32_t pin(struct convoy_xfer *engine, struct convoy_error *error)
{
    uint32_t cursor = 0;
    uint64_t bytes;
    void *memory;
    if (engine->device == NULL) {
        return CONVOY_OK;
    }
    if (engine->device->device == NULL) {
        int32_t status = convoy_xfer_device_again(engine, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    while (convoy_pool_each(engine->pool, &cursor, &memory, &bytes)) {
        bool is_pinned = convoy_xfer_device_pin_pool(engine, memory, bytes);
        engine->device->is_pool_pinned = memory == convoy_pool_memory(engine->pool) ? is_pinned : engine->device->is_pool_pinned;
    }
    return CONVOY_OK;
}

/* -- freezing ------------------------------------------------------------------------------------------------------ */

/* What peers have ordered in the last moment; nothing more comes. */
static void finish_orders(struct convoy_xfer *engine)
{
    struct convoy_raw_copy *copy;
    convoy_xfer_lock(engine);
    while ((copy = convoy_raw_copy_next(engine, UINT64_MAX)) != NULL) {
        convoy_raw_copy_run(engine, copy);
    }
    engine->is_parked = true;
    convoy_xfer_unlock(engine);
}

static int32_t start(struct convoy_xfer *engine, struct convoy_error *error)
{
    int32_t status = pin(engine, error);
    status = status == CONVOY_OK ? convoy_xfer_threads_start(engine, error) : status;
    if (status != CONVOY_OK) {
        (void)unpin(engine, NULL);
    }
    return status;
}

int32_t convoy_xfer_freeze(struct convoy_xfer *engine, struct convoy_error *error)
{
    if (engine->is_parked && !engine->has_threads) {
        return CONVOY_OK;
    }
    convoy_xfer_threads_stop(engine);
    convoy_xfer_door_drop(engine);
    finish_orders(engine);
    int32_t status = unpin(engine, error);
    if (status == CONVOY_OK && engine->far != NULL) {
        status = convoy_far_freeze(engine, error);
    }
    if (status != CONVOY_OK && start(engine, NULL) == CONVOY_OK) { /* as before */
        convoy_xfer_go(engine);
        convoy_xfer_halt(engine);
    }
    return status;
}

int32_t convoy_xfer_thaw(struct convoy_xfer *engine, struct convoy_error *error)
{
    if (engine->has_threads) {
        return CONVOY_OK;
    }
    int32_t status = start(engine, error);
    if (status == CONVOY_OK && engine->far != NULL) {
        status = convoy_far_thaw(engine, error);
        if (status != CONVOY_OK) {
            convoy_xfer_threads_stop(engine);
            (void)unpin(engine, NULL);
        }
    }
    return status;
}

/* Those that another build may have held back though they could go; whatever waits for room already stays in its turn. */
static void advance_sends(struct convoy_xfer *engine)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY;) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        at = entry->next;
        if (entry->kind == CONVOY_XFER_SEND && entry->state == CONVOY_TRANSFER_QUEUED) {
            convoy_xfer_send_advance(engine, entry);
        }
    }
}

void convoy_xfer_go(struct convoy_xfer *engine)
{
    convoy_xfer_lock(engine);
    engine->is_halted = engine->is_parked = false;
    advance_sends(engine);
    engine->attended_ns = 0; /* the progress thread looks at once: at the rings, and at deadlines */
    engine->timer_ns = 0;
    (void)pthread_cond_broadcast(&engine->changed);
    (void)pthread_cond_broadcast(&engine->work);
    convoy_xfer_kick(engine);
    convoy_xfer_unlock(engine); /* sends that wait and have room go first */
}

/* -- letting go ---------------------------------------------------------------------------------------------------- */

/* Nothing that the other side has is unmapped, unlinked or closed by its number when this is freed. */
static void leave_shared(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; engine->peers != NULL && i < engine->peer_top; i++) {
        engine->peers[i].ring_memory = NULL;
        for (struct convoy_view *view = engine->peers[i].view; view != NULL; view = view->older) {
            convoy_view_leave(view);
        }
    }
    engine->notify_fd = -1;
    engine->local.file[0] = '\0';
    convoy_pool_leave(engine->pool);
    convoy_pool_leave(engine->notes);
    engine->pool = engine->notes = NULL;
}

/* What the host was shown stays: it is the other's to free. */
static void leave_entry(struct convoy_xfer_entry *entry, bool is_handed)
{
    if (entry->view != NULL) {
        convoy_view_leave(entry->view);
        convoy_view_put(entry->view);
        entry->view = NULL;
    }
    convoy_memory_free(entry->kept);
    if (is_handed && entry->is_shown) {
        entry->room = NULL;
        entry->manifest_room.memory = NULL;
        return;
    }
    convoy_memory_free(entry->storage);
    if (entry->given != NULL) {
        convoy_manifest_destroy(entry->given);
    }
}

static void leave_all(struct convoy_xfer *engine, bool is_handed)
{
    for (uint32_t i = 0; engine->entries != NULL && i < engine->entry_top; i++) {
        if (engine->entries[i].kind != CONVOY_XFER_NONE) {
            leave_entry(&engine->entries[i], is_handed);
        }
    }
    leave_shared(engine);
    convoy_xfer_free(engine);
}

void convoy_xfer_retire(struct convoy_xfer *engine)
{
    if (engine->far != NULL) {
        convoy_far_retire(engine);
    }
    leave_all(engine, true);
}

void convoy_xfer_discard(struct convoy_xfer *engine)
{
    bool is_thawed = engine->has_threads;
    convoy_xfer_threads_stop(engine);
    if (is_thawed && engine->far != NULL) {
        (void)convoy_far_freeze(engine, NULL);
    }
    (void)unpin(engine, NULL);
    if (engine->far != NULL) {
        convoy_far_discard(engine);
    }
    leave_all(engine, false);
}
