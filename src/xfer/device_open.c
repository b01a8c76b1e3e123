/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's device: opening it, what it must know of host memory, closing. */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "device/cuda.h"
#include "device/table.h"
#include "xfer/device_jobs.h"

#define CLOSE_NS CONVOY_NS_PER_S

/* -- options ------------------------------------------------------------------------------------------------------- */

int32_t convoy_xfer_device_check_options(const struct convoy_transfer_options *options, struct convoy_error *error)
{
    if (options->device > CONVOY_DEVICE_TABLE) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option device is %u, allowed are 0 (none), 1 (CUDA) and 2 "
                                                                "(device_table)",
                                options->device);
    }
    if ((options->device == CONVOY_DEVICE_TABLE) != (options->device_table != NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option device_table is for device TABLE, which needs it");
    }
    if (options->device_number != 0 && options->device != CONVOY_DEVICE_CUDA) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option device_number is %u, which is for device CUDA",
                                options->device_number);
    }
    if (options->pool_kind == CONVOY_MEMORY_DEVICE && options->device == CONVOY_DEVICE_NONE) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "option pool_kind is DEVICE, which needs option device: what "
                                                           "copies that memory");
    }
    return CONVOY_OK;
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

static int32_t open_device(struct convoy_xfer *engine, struct convoy_device **device_out, struct convoy_error *error)
{
    const struct convoy_xfer_options *options = &engine->options;
    if (options->device == CONVOY_DEVICE_TABLE) {
        return convoy_table_open(options->device_table, options->transfer_max, device_out, error);
    }
    const struct convoy_cuda_options cuda = {
        .library = engine->runtime->settings.cuda_library,
        .ordinal = options->device_number == 0 ? CONVOY_CUDA_ANY : (int32_t)(options->device_number - 1),
        .tickets = options->transfer_max,
    };
    return convoy_cuda_open(&cuda, device_out, error);
}

int32_t convoy_xfer_device_open(struct convoy_xfer *engine, struct convoy_error *error)
{
    if (engine->options.device == CONVOY_DEVICE_NONE) {
        return CONVOY_OK;
    }
    struct convoy_xfer_device *device = convoy_memory_zalloc(sizeof *device);
    if (device == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "option device: no memory for %zu bytes", sizeof *device);
    }
    int32_t status = open_device(engine, &device->device, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(device);
        return convoy_error_prefix(error, status, "option device");
    }
    device->calls_host = convoy_device_calls_host(device->device);
    device->first = device->last = CONVOY_XFER_NOBODY;
    engine->device = device;
    return CONVOY_OK;
}

int32_t convoy_xfer_device_again(struct convoy_xfer *engine, struct convoy_error *error)
{
    engine->options.device_table = engine->device_table.name != NULL ? &engine->device_table : NULL;
    int32_t status = open_device(engine, &engine->device->device, error);
    if (status == CONVOY_OK) {
        engine->device->calls_host = convoy_device_calls_host(engine->device->device);
    }
    return status == CONVOY_OK ? status : convoy_error_prefix(error, status, "option device");
}

static int32_t open_pool(struct convoy_xfer *engine, struct convoy_error *error)
{
    const struct convoy_xfer_options *options = &engine->options;
    const struct convoy_pool_options pool = {
        .kind = CONVOY_POOL_DEVICE,
        .memory = options->pool_memory,
        .bytes = options->pool_bytes,
        .block_bytes = options->block_bytes,
        .lease_max = 2 * options->transfer_max,
        .reference_max = 1,
    };
    struct convoy_memory_info info = {.kind = CONVOY_MEMORY_DEVICE};
    int32_t status = convoy_device_query(engine->device->device, options->pool_memory, &info, error);
    if (status == CONVOY_OK && info.kind != CONVOY_MEMORY_DEVICE && info.kind != CONVOY_MEMORY_MANAGED) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option pool_memory: %p is no memory of device %s",
                                  options->pool_memory, convoy_device_name(engine->device->device));
    }
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN,
                    "device %s: what is staged in its memory goes to peers through a pinned pool of %llu bytes, since no peer "
                    "can map it",
                    convoy_device_name(engine->device->device), (unsigned long long)convoy_pool_bytes(engine->pool));
    return convoy_pool_open(&pool, &engine->device->pool, error);
}

bool convoy_xfer_device_pin_pool(struct convoy_xfer *engine, void *memory, uint64_t bytes)
{
    struct convoy_error why = CONVOY_ERROR_INIT;
    bool is_pinned = bytes != 0 && convoy_device_register(engine->device->device, memory, bytes, 0, &why) == CONVOY_OK;
    if (bytes != 0 && !is_pinned) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "the pool is not pinned, its copies may wait for streams: %s",
                        why.text);
    }
    return is_pinned;
}

int32_t convoy_xfer_device_pools(struct convoy_xfer *engine, struct convoy_error *error)
{
    if (engine->device == NULL) {
        return CONVOY_OK;
    }
    engine->device->is_pool_pinned =
        convoy_xfer_device_pin_pool(engine, convoy_pool_memory(engine->pool), convoy_pool_bytes(engine->pool));
    return engine->options.pool_kind == CONVOY_MEMORY_DEVICE ? open_pool(engine, error) : CONVOY_OK;
}

void convoy_xfer_device_pin_next(struct convoy_xfer *engine)
{
    if (engine->device != NULL) {
        uint64_t bytes;
        void *memory = convoy_pool_made(engine->pool, &bytes);
        engine->device->is_next_pinned = convoy_xfer_device_pin_pool(engine, memory, bytes);
    }
}

void convoy_xfer_device_pool_switched(struct convoy_xfer *engine)
{
    if (engine->device != NULL) {
        engine->device->is_pool_pinned = engine->device->is_next_pinned;
    }
}

/* What was never pinned is not known there. */
bool convoy_xfer_device_unpin_pool(void *user, void *memory, uint64_t bytes)
{
    const struct convoy_xfer *engine = user;
    int32_t status = convoy_device_unregister(engine->device->device, memory, bytes, NULL);
    return status == CONVOY_OK || status == CONVOY_NOT_FOUND;
}

struct convoy_pool *convoy_xfer_device_own_pool(const struct convoy_xfer *engine)
{
    return engine->device != NULL && engine->device->pool != NULL ? engine->device->pool : engine->pool;
}

void convoy_xfer_device_add_figures(const struct convoy_xfer *engine, struct convoy_pool_figures *figures)
{
    struct convoy_pool_figures pinned;
    if (convoy_xfer_device_own_pool(engine) == engine->pool) {
        return;
    }
    convoy_pool_figures(engine->pool, &pinned);
    figures->leases.bytes[CONVOY_LEASE_RETIRED] += pinned.leases.bytes[CONVOY_LEASE_RETIRED];
    figures->leases.counts[CONVOY_LEASE_RETIRED] += pinned.leases.counts[CONVOY_LEASE_RETIRED];
    figures->leases.references[CONVOY_REFERENCE_READ] += pinned.leases.references[CONVOY_REFERENCE_READ];
    figures->exhausted += pinned.exhausted;
    figures->old_count += pinned.old_count;
    figures->old_bytes += pinned.old_bytes;
    figures->old_taken += pinned.old_taken;
}

/* -- views --------------------------------------------------------------------------------------------------------- */

bool convoy_xfer_device_pin(struct convoy_xfer *engine, struct convoy_view *view)
{
    struct convoy_xfer_device *device = engine->device;
    struct convoy_error why = CONVOY_ERROR_INIT;
    if (view->pool == NULL || view->pin == CONVOY_VIEW_PIN_DONE || view->pin == CONVOY_VIEW_PIN_REFUSED) {
        return true;
    }
    if (view->pin == CONVOY_VIEW_PIN_NOW) {
        return false;
    }
    view->pin = CONVOY_VIEW_PIN_NOW;
    convoy_xfer_unlock(engine);
    int32_t status = convoy_device_register(device->device, (void *)(uintptr_t)view->pool, view->pool_bytes,
                                            CONVOY_REGISTER_READ_ONLY, &why);
    convoy_xfer_lock(engine);
    view->pin = status == CONVOY_OK ? CONVOY_VIEW_PIN_DONE : CONVOY_VIEW_PIN_REFUSED;
    view->device = status == CONVOY_OK ? device : NULL;
    if (status != CONVOY_OK && !device->is_warned) {
        device->is_warned = true;
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "a peer's pool is not pinned, loads of it may wait for "
                                                                "streams: %s",
                        why.text);
    }
    return true;
}

/* What the device does not let go of stays mapped. */
static void unpin_view(struct convoy_xfer_device *device, struct convoy_view *view)
{
    if (convoy_device_unregister(device->device, (void *)(uintptr_t)view->pool, view->pool_bytes, NULL) != CONVOY_OK) {
        view->pool = NULL;
    }
    convoy_view_free(view);
}

void convoy_xfer_device_unpin(struct convoy_xfer *engine)
{
    struct convoy_xfer_device *device = engine->device;
    while (device->dead_views != NULL && convoy_xfer_device_may_call(engine)) {
        struct convoy_view *view = device->dead_views;
        device->dead_views = view->next;
        convoy_xfer_unlock(engine);
        unpin_view(device, view);
        convoy_xfer_lock(engine);
    }
}

/* -- closing ------------------------------------------------------------------------------------------------------- */

/* What a lost copy may still touch stays where it is. */
static void leave_lost(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; engine->entries != NULL && i < engine->entry_count; i++) {
        struct convoy_view *view = engine->entries[i].device.is_lost ? engine->entries[i].view : NULL;
        if (view != NULL) {
            view->pool = NULL;
            view->device = NULL;
            convoy_view_put(view);
        }
    }
}

void convoy_xfer_device_close(struct convoy_xfer *engine)
{
    struct convoy_xfer_device *device = engine->device;
    if (device == NULL) {
        return;
    }
    leave_lost(engine);
    while (device->dead_views != NULL) {
        struct convoy_view *view = device->dead_views;
        device->dead_views = view->next;
        unpin_view(device, view);
    }
    if (device->lost_count != 0) {
        convoy_pool_leave(engine->pool);
    } else {
        convoy_pool_close(engine->pool);
    }
    engine->pool = NULL;
    (void)convoy_device_close(device->device, convoy_deadline_after(convoy_now_ns(), CLOSE_NS), NULL);
    convoy_pool_close(device->pool);
    convoy_memory_free(device);
    engine->device = NULL;
}
