/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging out of device memory, on the host's stream. Tensors in ordinary host memory are copied by the processor before, so
 * that the host's event is behind all of it. Where there is a pool of device memory both slots get the bytes: that one, and
 * the one in the shared pool which peers read.
 */
#include "core/copy.h"
#include "core/error.h"
#include "xfer/device_jobs.h"

#include <string.h>

#define RUNS_MAX 65536u /* copies of the device for one tensor that is not dense */

int32_t convoy_xfer_device_stage_room(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                      const struct convoy_stage *stage, struct convoy_error *error)
{
    entry->device.stream = stage->stream;
    entry->device.event = stage->event;
    if (engine->device->pool == NULL) {
        return CONVOY_OK;
    }
    const struct convoy_pool_request request = {
        .owner = {entry->request, entry->request_length, entry->attempt},
        .bytes = entry->payload_bytes,
        .now_ns = entry->times_ns[CONVOY_TIME_STARTED],
        .deadline_ns = CONVOY_LEASE_NEVER,
    };
    return convoy_pool_take(engine->device->pool, &request, &entry->device.slot, error);
}

/* -- whose business it is ------------------------------------------------------------------------------------------ */

/* Asks what each tensor's memory is. */
static int32_t ask_kinds(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool *is_any_out,
                         struct convoy_error *error)
{
    bool has_stream = entry->device.stream != NULL || entry->device.event != NULL;
    for (uint32_t i = 0; i < entry->piece_count; i++) {
        struct convoy_tensor_piece *piece = &entry->pieces[i];
        struct convoy_memory_info info = {.kind = CONVOY_MEMORY_HOST};
        int32_t status = piece->bytes != 0 ? convoy_device_query(engine->device->device, piece->from, &info, error) : CONVOY_OK;
        if (status != CONVOY_OK) {
            return convoy_error_prefix(error, status, "stage.tensors[%u].data", i);
        }
        piece->is_on_device = info.kind == CONVOY_MEMORY_DEVICE || info.kind == CONVOY_MEMORY_MANAGED ||
                              (info.kind == CONVOY_MEMORY_PINNED && has_stream);
        *is_any_out = *is_any_out || piece->is_on_device;
    }
    return CONVOY_OK;
}

bool convoy_xfer_device_stage(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_any = entry->device.event != NULL || entry->device.slot.lease != CONVOY_LEASE_NONE;
    entry->is_copying = true; /* stays while it is asked about */
    engine->copying_count++;
    convoy_xfer_unlock(engine);
    int32_t status = ask_kinds(engine, entry, &is_any, &error);
    convoy_xfer_lock(engine);
    entry->is_copying = false;
    engine->copying_count--;
    if (entry->state != CONVOY_TRANSFER_STAGING) { /* ended meanwhile */
        convoy_xfer_stage_retire(engine, entry, CONVOY_LEASE_END_ABORTED);
        convoy_xfer_entry_settle(engine, entry);
        return true;
    }
    if (status != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s", error.text);
        return true;
    }
    if (is_any) {
        convoy_xfer_device_queue(engine, entry);
        convoy_xfer_device_run(engine, entry);
    }
    return is_any;
}

/* -- the copies ---------------------------------------------------------------------------------------------------- */

/* A tensor as runs of bytes that lie side by side: how many, and of how many bytes. outer_out: dimensions to count through. */
static uint64_t runs_of(const struct convoy_tensor_piece *piece, uint64_t *bytes_out, uint32_t *outer_out)
{
    uint64_t run = piece->rank != 0 ? piece->item : piece->bytes;
    uint32_t outer = piece->rank;
    while (outer > 0 && (piece->shape[outer - 1] == 1 || piece->strides[outer - 1] == (int64_t)run)) {
        outer--;
        run *= piece->shape[outer];
    }
    *bytes_out = run;
    *outer_out = outer;
    return piece->bytes == 0 ? 0 : piece->bytes / run;
}

static int32_t count_copies(struct convoy_xfer_entry *entry, size_t *count_out, struct convoy_error *error)
{
    uint64_t run;
    uint32_t outer;
    *count_out = 0;
    for (uint32_t i = 0; i < entry->piece_count; i++) {
        uint64_t runs = entry->pieces[i].is_on_device ? runs_of(&entry->pieces[i], &run, &outer) : 1;
        if (runs > RUNS_MAX) {
            return convoy_error_set(error, CONVOY_UNSUPPORTED,
                                    "stage.tensors[%u]: its strides make %llu copies of a device, allowed are up to %u; make "
                                    "it dense",
                                    i, (unsigned long long)runs, RUNS_MAX);
        }
        *count_out += runs;
    }
    return CONVOY_OK;
}

static void add_copy(struct convoy_xfer_entry *entry, void *to, const void *from, uint64_t bytes)
{
    entry->device_pieces[entry->device.count++] = (struct convoy_copy_piece){.to = to, .from = from, .bytes = bytes};
}

/* One copy for each run, in the order in which they lie in the slot. */
static void add_runs(struct convoy_xfer_entry *entry, const struct convoy_tensor_piece *piece, uint8_t *slot)
{
    uint64_t at[CONVOY_MANIFEST_RANK_MAX] = {0};
    const uint8_t *from = piece->from;
    uint64_t run;
    uint32_t outer;
    uint64_t runs = runs_of(piece, &run, &outer);
    for (uint64_t i = 0; i < runs; i++) {
        add_copy(entry, slot + piece->to + i * run, from, run);
        for (uint32_t d = outer; d-- > 0;) {
            from += piece->strides[d];
            if (++at[d] < piece->shape[d]) {
                break;
            }
            from -= piece->strides[d] * (int64_t)piece->shape[d];
            at[d] = 0;
        }
    }
}

/* What the processor may read it copies now, and the device from there where that is wanted. */
static void copy_here(const struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                      const struct convoy_tensor_piece *piece)
{
    uint8_t *to = (uint8_t *)entry->slot.address + piece->to;
    if (piece->rank != 0) {
        convoy_copy_strided(to, piece);
    } else {
        convoy_copy(to, piece->from, piece->bytes, convoy_copy_choice_best(&engine->copy_choice, piece->bytes));
    }
    if (entry->device.slot.address != NULL) {
        add_copy(entry, (uint8_t *)entry->device.slot.address + piece->to, to, piece->bytes);
    }
}

/* On the device's side of the slot bytes between tensors are nobody's business: only tensors are copied from there. */
static int32_t make_copies(const struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    size_t count = 0;
    int32_t status = count_copies(entry, &count, error);
    status = status == CONVOY_OK ? convoy_xfer_device_piece_room(entry, 2 * count, error) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    entry->device.count = 0;
    for (uint32_t i = 0; i < entry->piece_count; i++) {
        const struct convoy_tensor_piece *piece = &entry->pieces[i];
        if (piece->bytes == 0) {
            continue;
        }
        (void)convoy_copy_clear_gap(entry->slot.address, piece->to + piece->bytes, entry->payload_bytes);
        if (!piece->is_on_device) {
            copy_here(engine, entry, piece);
            continue;
        }
        add_runs(entry, piece, entry->slot.address);
        if (entry->device.slot.address != NULL) {
            add_runs(entry, piece, entry->device.slot.address);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_device_stage_copy(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                      struct convoy_error *error)
{
    int32_t status = make_copies(engine, entry, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_copy_order order = {
        .pieces = entry->device_pieces,
        .count = entry->device.count,
        .direction = CONVOY_COPY_ANY,
        .may_block = true, /* where the pool could not be pinned */
        .stream = entry->device.stream,
        .event = entry->device.event,
    };
    return convoy_device_start(engine->device->device, &order, &entry->device.ticket, error);
}

/* What is left is the checksum, which the processor makes of what has come into host memory. */
void convoy_xfer_device_staged(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status,
                               const struct convoy_error *error)
{
    if (entry->device.is_done && entry->device.slot.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_filled(engine->device->pool, entry->device.slot.lease, entry->payload_bytes, NULL);
    }
    if (status == CONVOY_OK && entry->is_checksummed && entry->state == CONVOY_TRANSFER_STAGING) {
        convoy_xfer_job_add(engine, entry, entry->is_awaited);
    } else if (status == CONVOY_OK || entry->state != CONVOY_TRANSFER_STAGING) {
        convoy_xfer_stage_copied(engine, entry);
    } else {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s%s", error->text,
                               entry->device.is_lost ? "; its memory is not used again" : "");
    }
}
