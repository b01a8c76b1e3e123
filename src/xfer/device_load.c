/* SPDX-License-Identifier: Apache-2.0 */
/* Loads into memory that the device writes. */
#include "xfer/device_jobs.h"

#include "core/clock.h"
#include "core/error.h"

#include <string.h>

#define RETRY_AFTER_MS 10u

/* -- what is asked for --------------------------------------------------------------------------------------------- */

static int32_t kind_of(struct convoy_xfer *engine, const void *address, uint32_t *kind_out, struct convoy_error *error)
{
    struct convoy_memory_info info = {.kind = CONVOY_MEMORY_HOST};
    int32_t status = convoy_device_query(engine->device->device, address, &info, error);
    *kind_out = info.kind;
    return status;
}

int32_t convoy_xfer_device_judge_load(struct convoy_xfer *engine, const struct convoy_load *load, bool *is_target_out,
                                      struct convoy_error *error)
{
    bool has_stream = load->stream != NULL || load->event != NULL;
    uint32_t kind = CONVOY_MEMORY_HOST;
    int32_t status = CONVOY_OK;
    *is_target_out = false;
    if (engine->device == NULL) {
        return has_stream ? convoy_xfer_device_check(engine, "load", error) : CONVOY_OK;
    }
    bool is_copy = load->mode == CONVOY_LOAD_COPY || load->path == CONVOY_PATH_PULL;
    if (is_copy && load->destination == NULL) {
        kind = engine->device->pool != NULL ? CONVOY_MEMORY_DEVICE : CONVOY_MEMORY_HOST;
    } else if (is_copy) {
        status = kind_of(engine, load->destination, &kind, error);
    }
    if (status == CONVOY_OK && has_stream && kind == CONVOY_MEMORY_HOST) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                  "load.stream, load.event: the destination is host memory that device %s does not know, so "
                                  "that nothing of this load goes on a stream",
                                  convoy_device_name(engine->device->device));
    }
    *is_target_out = kind == CONVOY_MEMORY_DEVICE || kind == CONVOY_MEMORY_MANAGED || has_stream;
    return status;
}

int32_t convoy_xfer_device_check_range(struct convoy_xfer *engine, const void *memory, uint64_t bytes,
                                       struct convoy_error *error)
{
    uint32_t kind = CONVOY_MEMORY_HOST;
    if (engine->device == NULL || memory == NULL || bytes == 0) {
        return CONVOY_OK;
    }
    int32_t status = kind_of(engine, memory, &kind, error);
    return status == CONVOY_OK && kind == CONVOY_MEMORY_DEVICE
               ? convoy_error_set(error, CONVOY_UNSUPPORTED,
                                  "register_memory: %llu bytes at %p are memory of device %s, which peers cannot reach by "
                                  "address; stage and load take it",
                                  (unsigned long long)bytes, memory, convoy_device_name(engine->device->device))
               : status;
}

/* As a view until its bytes are in host memory. */
void convoy_xfer_device_load_wish(struct convoy_xfer_entry *entry, const struct convoy_load *load)
{
    entry->device.is_target = true;
    entry->device.stream = load->stream;
    entry->device.event = load->event;
    entry->device.target = load->destination;
    entry->device.target_bytes = load->destination_bytes;
    entry->destination = NULL;
    entry->destination_bytes = 0;
    entry->mode = CONVOY_LOAD_VIEW;
}

/* -- copying ------------------------------------------------------------------------------------------------------- */

static int32_t find_target(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_device_part *part = &entry->device;
    uint64_t bytes = entry->payload_bytes;
    if (part->target != NULL) {
        return part->target_bytes < bytes
                   ? convoy_error_set(&entry->error, CONVOY_BUFFER_TOO_SMALL,
                                      "load.destination has %llu bytes, the payload %llu",
                                      (unsigned long long)part->target_bytes, (unsigned long long)bytes)
                   : CONVOY_OK;
    }
    const struct convoy_pool_request request = {
        .owner = {entry->request, entry->request_length, entry->attempt},
        .bytes = bytes,
        .now_ns = entry->times_ns[CONVOY_TIME_OFFERED],
        .deadline_ns = CONVOY_LEASE_NEVER,
    };
    entry->retry_after_ms = RETRY_AFTER_MS;
    int32_t status = convoy_pool_take(engine->device->pool, &request, &part->slot, &entry->error);
    entry->retry_after_ms = status == CONVOY_OK ? 0 : entry->retry_after_ms;
    return status;
}

void convoy_xfer_device_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    int32_t status = find_target(engine, entry);
    if (status != CONVOY_OK) {
        char text[CONVOY_ERROR_TEXT_BYTES];
        memcpy(text, entry->error.text, sizeof text);
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s", text);
        return;
    }
    if (entry->mode == CONVOY_LOAD_COPY) { /* it could not be mapped, and was read into the own pool */
        entry->payload = entry->slot.address;
    }
    if (entry->landing != 0) { /* all of it is there: the sender need not hear of its room again */
        entry->retry_ns = CONVOY_DEADLINE_NEVER;
    }
    convoy_xfer_device_queue(engine, entry);
}

int32_t convoy_xfer_device_load_copy(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                                     struct convoy_error *error)
{
    struct convoy_xfer_device_part *part = &entry->device;
    int32_t status = convoy_xfer_device_piece_room(entry, 1, error);
    if (status != CONVOY_OK) {
        return status;
    }
    entry->device_pieces[0] = (struct convoy_copy_piece){
        .to = part->target != NULL ? part->target : part->slot.address,
        .from = entry->payload,
        .bytes = entry->payload_bytes,
    };
    const struct convoy_copy_order order = {
        .pieces = entry->device_pieces,
        .count = 1,
        .direction = CONVOY_COPY_ANY,
        .may_block = true, /* where it could not be pinned */
        .stream = part->stream,
        .event = part->event,
    };
    return convoy_device_start(engine->device->device, &order, &part->ticket, error);
}

/* The bytes have their place; what they came through is not needed any more. */
static void finish(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_device_part *part = &entry->device;
    if (part->slot.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_filled(engine->device->pool, part->slot.lease, entry->payload_bytes, NULL);
    }
    entry->mode = CONVOY_LOAD_COPY;
    entry->destination = part->target != NULL ? part->target : part->slot.address;
    entry->path = entry->path == CONVOY_PATH_LEND ? CONVOY_PATH_PULL : entry->path;
    convoy_xfer_load_finish(engine, entry);
    if (entry->slot.lease != CONVOY_LEASE_NONE) {
        convoy_xfer_slot_released(engine, entry);
        entry->slot = (struct convoy_slot){.lease = CONVOY_LEASE_NONE};
        entry->slot_id = 0;
    }
}

void convoy_xfer_device_loaded(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status,
                               const struct convoy_error *error)
{
    if (entry->state != CONVOY_TRANSFER_LOADING) { /* ended meanwhile; it is read no more from now on, unless it was lost */
        if (!entry->device.is_lost) {
            convoy_xfer_load_give_back(engine, entry);
        }
    } else if (status != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s%s", error->text,
                               entry->device.is_lost ? "; its memory is not used again" : "");
    } else {
        finish(engine, entry);
    }
}
