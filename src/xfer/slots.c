/* SPDX-License-Identifier: Apache-2.0 */
/* Receive slots: reserved for a request, all or none, from the pool or from those that were made at open. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "xfer/parts.h"

#include <string.h>

#define RETRY_AFTER_MS 10u
#define COUNT_MAX 256u

/* -- slots made at open -------------------------------------------------------------------------------------------- */

int32_t convoy_xfer_prealloc_open(struct convoy_xfer *engine, struct convoy_error *error)
{
    const struct convoy_pool_request request = {.owner = {"preallocated", 12, 1},
                                                .bytes = engine->options.prealloc_bytes,
                                                .now_ns = convoy_now_ns(),
                                                .deadline_ns = CONVOY_LEASE_NEVER};
    if (engine->options.prealloc_count == 0) {
        return CONVOY_OK;
    }
    engine->preallocs = convoy_memory_array(engine->options.prealloc_count, sizeof *engine->preallocs);
    if (engine->preallocs == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for preallocated slots");
    }
    for (uint32_t i = 0; i < engine->options.prealloc_count; i++) {
        int32_t status = convoy_pool_take(engine->pool, &request, &engine->preallocs[i].slot, error);
        if (status != CONVOY_OK) {
            return convoy_error_prefix(error, status, "preallocated slot %u of %u", i + 1, engine->options.prealloc_count);
        }
    }
    return CONVOY_OK;
}

/* The smallest that fits, or the one that is asked for. */
static struct convoy_xfer_prealloc *find_prealloc(struct convoy_xfer *engine, uint32_t slot_id, uint64_t bytes)
{
    struct convoy_xfer_prealloc *best = NULL;
    for (uint32_t i = 0; i < engine->options.prealloc_count; i++) {
        struct convoy_xfer_prealloc *one = &engine->preallocs[i];
        if (one->is_taken || one->slot.bytes < bytes || (slot_id != 0 && slot_id != i + 1)) {
            continue;
        }
        best = best == NULL || one->slot.bytes < best->slot.bytes ? one : best;
    }
    return best;
}

/* -- one slot ------------------------------------------------------------------------------------------------------ */

static int32_t slot_memory(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                           const struct convoy_reserve *reserve, uint64_t bytes, struct convoy_error *error)
{
    const struct convoy_lease_owner owner = {entry->request, entry->request_length, entry->attempt};
    struct convoy_xfer_prealloc *kept =
        reserve->prealloc == CONVOY_PREALLOC_NEVER ? NULL : find_prealloc(engine, reserve->slot_id, bytes);
    if (kept != NULL) {
        int32_t status = convoy_pool_adopt(engine->pool, kept->slot.lease, &owner, CONVOY_LEASE_NEVER, error);
        if (status == CONVOY_OK) {
            kept->is_taken = !CONVOY_MUTATED(prealloc_for_two);
            entry->slot = kept->slot;
            entry->slot_id = (uint32_t)(kept - engine->preallocs) + 1;
            convoy_extents_move(&kept->written, &entry->written);
        }
        return status;
    }
    if (reserve->slot_id != 0) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "preallocated slot %u of %u is not free for %llu bytes",
                                reserve->slot_id, engine->options.prealloc_count, (unsigned long long)bytes);
    }
    if (reserve->prealloc == CONVOY_PREALLOC_ONLY) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "none of the %u preallocated slots is free for %llu bytes",
                                engine->options.prealloc_count, (unsigned long long)bytes);
    }
    const struct convoy_pool_request request = {
        .owner = owner, .bytes = bytes, .now_ns = convoy_now_ns(), .deadline_ns = CONVOY_LEASE_NEVER};
    return convoy_pool_take(engine->pool, &request, &entry->slot, error);
}

/* Bytes that came before the request was known here count. */
static void slot_filled(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->written.count != 0) {
        (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_FILLING);
    }
    if (entry->written.count != 0 && convoy_extents_cover(&entry->written, entry->payload_bytes)) {
        entry->times_ns[CONVOY_TIME_LOADED] = convoy_now_ns();
        (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_FILLED);
    }
}

int32_t convoy_xfer_slot_take(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t bytes,
                              struct convoy_error *error)
{
    const struct convoy_reserve any = {.prealloc = CONVOY_PREALLOC_FIRST};
    int32_t status = slot_memory(engine, entry, &any, bytes, error);
    entry->written.count = 0; /* what somebody has left there is written over */
    return status;
}

void convoy_xfer_slot_released(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->slot.lease == CONVOY_LEASE_NONE) {
        return;
    }
    bool is_kept = entry->slot_id != 0 && engine->preallocs[entry->slot_id - 1].slot.lease == entry->slot.lease;
    if (is_kept) { /* else it is of an earlier generation of the pool */
        engine->preallocs[entry->slot_id - 1].is_taken = false;
        if (CONVOY_MUTATED(prealloc_shrinks)) {
            engine->preallocs[entry->slot_id - 1].slot.bytes = entry->payload_bytes;
        }
    } else {
        (void)convoy_pool_retire(engine->pool, entry->slot.lease, CONVOY_LEASE_END_RELEASED, NULL);
    }
    entry->slot.lease = CONVOY_LEASE_NONE;
}

struct convoy_xfer_entry *convoy_xfer_slot_owner(struct convoy_xfer *engine, convoy_lease lease)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_SLOT && entry->slot.lease == lease) {
            return entry;
        }
    }
    return NULL;
}

bool convoy_xfer_slot_written(struct convoy_xfer *engine, const struct convoy_slot *slot, const struct convoy_extent *parts,
                              uint32_t count)
{
    struct convoy_xfer_entry *entry = convoy_xfer_slot_owner(engine, slot->lease);
    bool is_kept = true;
    if (entry != NULL) {
        is_kept = convoy_extents_add(&entry->written, parts, count);
        slot_filled(engine, entry);
        return is_kept;
    }
    for (uint32_t i = 0; i < engine->options.prealloc_count; i++) {
        if (engine->preallocs[i].slot.lease == slot->lease) {
            is_kept = convoy_extents_add(&engine->preallocs[i].written, parts, count);
        }
    }
    return is_kept;
}

/* Whether a peer may write there: a slot that waits for bytes, never what was staged or loaded. */
bool convoy_xfer_slot_is_open(const struct convoy_xfer *engine, convoy_lease lease)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_SLOT && entry->slot.lease == lease) {
            return entry->state == CONVOY_TRANSFER_RESERVED || entry->state == CONVOY_TRANSFER_FILLING ||
                   CONVOY_MUTATED(filled_slot_open);
        }
    }
    for (uint32_t i = 0; i < engine->options.prealloc_count; i++) {
        if (engine->preallocs[i].slot.lease == lease) {
            return !engine->preallocs[i].is_taken;
        }
    }
    return false;
}

/* -- the host's call ----------------------------------------------------------------------------------------------- */

static int32_t check_reserve(const struct convoy_reserve *reserve, const struct convoy_reservation *reservation,
                             struct convoy_error *error)
{
    if (reserve->request == NULL || reserve->request_length == 0 || reserve->request_length > CONVOY_REQUEST_BYTES ||
        !convoy_utf8_is_clean(reserve->request, reserve->request_length)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "reserve.request of %zu bytes, allowed are 1 to %u of UTF-8 without control characters",
                                reserve->request_length, CONVOY_REQUEST_BYTES);
    }
    if (reserve->count == 0 || reserve->count > COUNT_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reserve.count is %zu, allowed are 1 to %u", reserve->count,
                                COUNT_MAX);
    }
    if (reserve->bytes == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reserve.bytes is NULL with count %zu", reserve->count);
    }
    if (reserve->prealloc > CONVOY_PREALLOC_ONLY) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reserve.prealloc is %u, allowed are 0 to %u",
                                reserve->prealloc, CONVOY_PREALLOC_ONLY);
    }
    if (reserve->slot_id != 0 && reserve->count != 1) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reserve.count is %zu, but slot_id %u is one slot",
                                reserve->count, reserve->slot_id);
    }
    if (reservation->slot_capacity < reserve->count || reservation->slots == NULL) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "reservation.slot_capacity is %zu, count is %zu",
                                reservation->slot_capacity, reserve->count);
    }
    return CONVOY_OK;
}

static int32_t reserve_one(struct convoy_xfer *engine, const struct convoy_reserve *reserve, uint64_t bytes,
                           struct convoy_reserved_slot *slot_out, struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_new(engine, CONVOY_XFER_SLOT, error);
    if (entry == NULL) {
        return CONVOY_LIMIT;
    }
    uint64_t lease = reserve->lease_ns != 0 ? reserve->lease_ns : engine->options.lease_ns;
    convoy_xfer_entry_name(entry, reserve->request, reserve->request_length, reserve->attempt != 0 ? reserve->attempt : 1);
    entry->payload_bytes = bytes;
    int32_t status = slot_memory(engine, entry, reserve, bytes, error);
    if (status != CONVOY_OK) {
        entry->is_hidden = entry->is_released = true;
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "no slot");
        return status;
    }
    entry->deadline_ns = convoy_deadline_after(entry->times_ns[CONVOY_TIME_STARTED], lease);
    convoy_xfer_timer(engine, entry->deadline_ns);
    slot_filled(engine, entry);
    *slot_out = (struct convoy_reserved_slot){
        .transfer = convoy_xfer_entry_handle(entry),
        .address = entry->slot.address,
        .offset = entry->slot.address != NULL
                      ? (uint64_t)((uint8_t *)entry->slot.address - (uint8_t *)convoy_pool_memory(engine->pool))
                      : 0,
        .bytes = entry->slot.bytes,
        .slot_id = entry->slot_id,
    };
    return CONVOY_OK;
}

static void give_up(struct convoy_xfer *engine, const struct convoy_reserved_slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, slots[i].transfer, NULL);
        if (entry != NULL) {
            entry->is_hidden = entry->is_released = true;
            convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_ABORTED, CONVOY_CANCELED, "not all slots fit");
        }
    }
}

/* Under the lock, before what was taken is given back. Pieces that do not fit together into an empty pool never will, even
 * if each of them does; a lack of transfers passes, unless all of them would be too few. */
static int32_t judge_refusal(struct convoy_xfer *engine, const struct convoy_reserve *reserve, int32_t status,
                             uint32_t *retry_after_ms_out, struct convoy_error *error)
{
    bool is_never = status == CONVOY_CLOSED || reserve->count > engine->entry_count;
    if (status == CONVOY_LIMIT) {
        is_never = is_never || engine->used_count < engine->entry_count;
    } else if (status == CONVOY_POOL_EXHAUSTED &&
               convoy_pool_fits(engine->pool, reserve->bytes, reserve->count, NULL) == CONVOY_LIMIT) {
        is_never = true;
        status = convoy_pool_fits(engine->pool, reserve->bytes, reserve->count, error);
    }
    *retry_after_ms_out = is_never ? 0 : RETRY_AFTER_MS;
    return status;
}

int32_t convoy_xfer_reserve(struct convoy_xfer *engine, const struct convoy_reserve *reserve,
                            struct convoy_reserved_slot *slots_out, struct convoy_reservation *reservation_out,
                            struct convoy_error *error)
{
    struct convoy_pool_figures figures;
    int32_t status = check_reserve(reserve, reservation_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    size_t done = 0;
    while (status == CONVOY_OK && done < reserve->count) {
        status = reserve_one(engine, reserve, reserve->bytes[done], &slots_out[done], error);
        done += status == CONVOY_OK;
    }
    if (status != CONVOY_OK) {
        status = judge_refusal(engine, reserve, status, &reservation_out->retry_after_ms, error);
        give_up(engine, slots_out, CONVOY_MUTATED(reserved_part_kept) ? 0 : done);
        done = 0;
        convoy_pool_figures(engine->pool, &figures);
        reservation_out->free_bytes = figures.blocks.free;
        reservation_out->largest_free_bytes = figures.blocks.largest_free;
        CONVOY_XFER_NOTE(engine, reserve_refused);
    }
    reservation_out->slot_count = done;
    convoy_xfer_unlock(engine);
    return status;
}
