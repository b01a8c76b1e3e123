/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/device_jobs.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/resize.h"

#include <pthread.h>

#define LOOKS_MAX 32u /* jobs that are asked in one go */
#define AGAIN_NS (CONVOY_NS_PER_MS / 2)

int32_t convoy_xfer_device_check(const struct convoy_xfer *engine, const char *what, struct convoy_error *error)
{
    return engine->device != NULL ? CONVOY_OK
                                  : convoy_error_set(error, CONVOY_UNSUPPORTED,
                                                     "%s.stream, %s.event: this engine has no device, see option device", what,
                                                     what);
}

bool convoy_xfer_device_may_call(const struct convoy_xfer *engine)
{
    return !engine->device->calls_host || pthread_equal(pthread_self(), engine->progress) == 0;
}

uint32_t convoy_xfer_device_lost(const struct convoy_xfer *engine)
{
    return engine->device != NULL ? engine->device->lost_count : 0;
}

bool convoy_xfer_device_is_asking(const struct convoy_xfer *engine)
{
    return engine->device != NULL && engine->device->count != 0;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

int32_t convoy_xfer_device_piece_room(struct convoy_xfer_entry *entry, size_t count, struct convoy_error *error)
{
    if (count <= entry->device_piece_room) {
        return CONVOY_OK;
    }
    struct convoy_copy_piece *pieces = convoy_memory_array(count, sizeof *pieces);
    if (pieces == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu copies of a device", count);
    }
    convoy_memory_free(entry->device_pieces);
    entry->device_pieces = pieces;
    entry->device_piece_room = count;
    return CONVOY_OK;
}

void convoy_xfer_device_let_go(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_slot *slot = &entry->device.slot;
    if (slot->lease != CONVOY_LEASE_NONE && !entry->is_copying) {
        (void)convoy_pool_retire(engine->device->pool, slot->lease, CONVOY_LEASE_END_RELEASED, NULL);
        *slot = (struct convoy_slot){.lease = CONVOY_LEASE_NONE};
    }
}

void convoy_xfer_device_bury(struct convoy_view *view)
{
    view->next = view->device->dead_views;
    view->device->dead_views = view;
}

/* -- the list ------------------------------------------------------------------------------------------------------ */

static void link_last(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_device *device = engine->device;
    entry->device.next = CONVOY_XFER_NOBODY;
    if (device->count++ != 0) {
        engine->entries[device->last].device.next = entry->index;
    } else {
        device->first = entry->index;
    }
    device->last = entry->index;
}

static void unlink_any(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_device *device = engine->device;
    uint32_t before = CONVOY_XFER_NOBODY;
    for (uint32_t at = device->first; at != entry->index; at = engine->entries[at].device.next) {
        before = at;
    }
    if (before == CONVOY_XFER_NOBODY) {
        device->first = entry->device.next;
    } else {
        engine->entries[before].device.next = entry->device.next;
    }
    device->last = device->last == entry->index ? before : device->last;
    device->count--;
}

/* Nobody wakes whoever waits for a device, so somebody looks again before long: a thread of the engine where it may. */
static void look_again(struct convoy_xfer *engine)
{
    if (!engine->device->calls_host) {
        convoy_xfer_timer(engine, convoy_deadline_after(convoy_now_ns(), AGAIN_NS));
    }
}

void convoy_xfer_device_queue(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    entry->is_copying = true;
    engine->copying_count++;
    entry->device.state = CONVOY_XFER_DEVICE_PENDING;
    link_last(engine, entry);
    look_again(engine);
    convoy_xfer_wake(engine);
}

/* -- one job ------------------------------------------------------------------------------------------------------- */

static void end_job(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status, bool is_quiet,
                    const struct convoy_error *error)
{
    struct convoy_xfer_device *device = engine->device;
    unlink_any(engine, entry);
    entry->device.state = CONVOY_XFER_DEVICE_NONE;
    if (is_quiet || CONVOY_MUTATED(device_lost_is_given)) {
        entry->is_copying = false;
        engine->copying_count--;
    } else {
        entry->device.is_lost = true;
        device->lost_count++;
    }
    if (status == CONVOY_OK) {
        entry->device.is_done = true;
        device->copied_bytes += entry->payload_bytes;
        engine->counters[CONVOY_XFER_COUNT_copied_bytes] += entry->payload_bytes;
    }
    if (entry->kind == CONVOY_XFER_STAGE) {
        convoy_xfer_device_staged(engine, entry, status, error);
    } else {
        convoy_xfer_device_loaded(engine, entry, status, error);
    }
    convoy_xfer_wake(engine);
    convoy_xfer_entry_settle(engine, entry);
}

static int32_t begin(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    int32_t status = entry->kind == CONVOY_XFER_STAGE ? convoy_xfer_device_stage_copy(engine, entry, error)
                                                      : convoy_xfer_device_load_copy(engine, entry, error);
    return status == CONVOY_OK ? CONVOY_IN_PROGRESS : status;
}

void convoy_xfer_device_run(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_device_part *part = &entry->device;
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_quiet = true;
    if (part->state == CONVOY_XFER_DEVICE_NONE || part->is_busy) {
        return;
    }
    if (part->state == CONVOY_XFER_DEVICE_PENDING && convoy_xfer_state_is_end(entry->state)) {
        end_job(engine, entry, CONVOY_CANCELED, true, &error);
        return;
    }
    if (!convoy_xfer_device_may_call(engine)) {
        return;
    }
    part->is_busy = true;
    bool may_begin = part->state == CONVOY_XFER_DEVICE_RUNNING || entry->view == NULL ||
                     convoy_xfer_device_pin(engine, entry->view);
    int32_t status = CONVOY_IN_PROGRESS;
    if (may_begin) {
        bool must_begin = part->state == CONVOY_XFER_DEVICE_PENDING;
        convoy_xfer_unlock(engine);
        status = must_begin ? begin(engine, entry, &error)
                            : convoy_device_test(engine->device->device, part->ticket, &is_quiet, &error);
        convoy_xfer_lock(engine);
        part->state = CONVOY_XFER_DEVICE_RUNNING;
    }
    part->is_busy = false;
    if (status != CONVOY_IN_PROGRESS || CONVOY_MUTATED(device_event_not_awaited)) {
        status = status == CONVOY_IN_PROGRESS ? CONVOY_OK : status;
        end_job(engine, entry, status, is_quiet, &error);
    }
}

/* The one that was looked at goes behind the others. */
static void rotate(struct convoy_xfer *engine)
{
    struct convoy_xfer_entry *entry = &engine->entries[engine->device->first];
    unlink_any(engine, entry);
    link_last(engine, entry);
}

void convoy_xfer_device_pump(struct convoy_xfer *engine)
{
    struct convoy_xfer_device *device = engine->device;
    uint32_t looks = device->count < LOOKS_MAX ? device->count : LOOKS_MAX;
    for (uint32_t i = 0; i < looks && device->count != 0; i++) {
        struct convoy_xfer_entry *entry = &engine->entries[device->first];
        rotate(engine);
        convoy_xfer_device_run(engine, entry);
    }
    if (device->dead_views != NULL) {
        convoy_xfer_device_unpin(engine);
    }
    if (device->calls_host && convoy_pool_has_ended(engine->pool) && convoy_xfer_device_may_call(engine)) {
        convoy_xfer_unlock(engine); /* the progress thread cannot */
        convoy_xfer_reap(engine);
        convoy_xfer_lock(engine);
    }
    if (device->count != 0) {
        look_again(engine);
    }
}
