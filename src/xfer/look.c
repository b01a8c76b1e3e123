/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of itself and its pool in figures. */
#include "core/error.h"
#include "xfer/device_jobs.h"

#include <string.h>

struct convoy_introduction convoy_xfer_introduction(struct convoy_xfer *engine)
{
    convoy_xfer_lock(engine);
    struct convoy_introduction introduction = engine->introduction;
    convoy_xfer_unlock(engine);
    return introduction;
}

void convoy_xfer_info(struct convoy_xfer *engine, struct convoy_engine_info *info_out)
{
    convoy_xfer_lock(engine);
    info_out->state = engine->state;
    info_out->peer_count = 0;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        info_out->peer_count += engine->peers[i].state == CONVOY_PEER_IS_CONNECTED;
    }
    info_out->transfer_count = engine->used_count;
    info_out->completion_fd = engine->notify_fd;
    info_out->incarnation = engine->incarnation;
    info_out->pool_memory = convoy_pool_memory(convoy_xfer_device_own_pool(engine));
    info_out->pool_bytes = convoy_pool_bytes(convoy_xfer_device_own_pool(engine));
    info_out->pool_generation = engine->generation;
    info_out->admitted_count = engine->admission.load.under_way;
    info_out->waiting_count = engine->admission.load.waiting;
    info_out->admitted_bytes = engine->admission.load.under_way_bytes;
    info_out->waiting_bytes = engine->admission.load.waiting_bytes;
    info_out->overloaded_count = engine->counters[CONVOY_XFER_COUNT_overloaded];
    memcpy(info_out->session, engine->session, sizeof info_out->session);
    convoy_xfer_unlock(engine);
}

int32_t convoy_xfer_figures(struct convoy_xfer *engine, struct convoy_engine_figures *out, struct convoy_error *error)
{
    struct convoy_pool_figures figures;
    convoy_xfer_lock(engine);
    convoy_xfer_pump(engine);
    out->expired_count = engine->counters[CONVOY_XFER_COUNT_leases_expired];
    convoy_xfer_unlock(engine);
    convoy_pool_figures(convoy_xfer_device_own_pool(engine), &figures);
    convoy_xfer_device_add_figures(engine, &figures);
    out->old_generations = figures.old_count;
    out->old_bytes = figures.old_bytes;
    out->old_taken = figures.old_taken;
    const struct convoy_lease_figures *leases = &figures.leases;
    out->capacity = figures.blocks.capacity;
    out->block = engine->options.block_bytes;
    out->asked = figures.blocks.asked;
    out->taken = figures.blocks.taken;
    out->free = figures.blocks.free;
    out->largest_free = figures.blocks.largest_free;
    out->quarantined = leases->bytes[CONVOY_LEASE_RETIRED];
    out->taken_count = leases->counts[CONVOY_LEASE_TAKEN];
    out->ready_count = leases->counts[CONVOY_LEASE_READY];
    out->quarantined_count = leases->counts[CONVOY_LEASE_RETIRED];
    out->reader_count = leases->references[CONVOY_REFERENCE_READ];
    out->exhausted_count = figures.exhausted;
    out->stale_count = leases->stale;
    out->fragmentation = figures.blocks.fragmentation;
#ifdef CONVOY_DEBUG
    const char *fault = convoy_pool_check(engine->pool);
    if (fault != NULL) {
        return convoy_error_set(error, CONVOY_INVARIANT, "pool: %s", fault);
    }
#endif
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_xfer_fits(struct convoy_xfer *engine, const uint64_t *bytes, size_t count, struct convoy_error *error)
{
    if (bytes == NULL && count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "bytes is NULL with count %zu", count);
    }
    int32_t status = convoy_pool_fits(convoy_xfer_device_own_pool(engine), bytes, count, error);
    return status == CONVOY_OK ? convoy_pool_fits(engine->pool, bytes, count, error) : status;
}
