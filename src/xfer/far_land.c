/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that come in for a request: room for them, and what they are once they are there. */
#include "xfer/far.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"

#include <string.h>

#define RETRY_AFTER_MS 10u

void convoy_far_load_room(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_ROOM};
    notice.body.room = (struct convoy_room){.serial = entry->serial,
                                            .landing = entry->landing,
                                            .generation = entry->landing_generation,
                                            .note_bytes = entry->note_bytes,
                                            .put = convoy_far_rma_room(engine, entry)};
    entry->path = notice.body.room.put != CONVOY_ROOM_NO_PUT ? CONVOY_PATH_RMA : CONVOY_PATH_MESSAGES;
    CONVOY_POINT(room_before_put);
    convoy_xfer_say(engine, &engine->peers[entry->peer], &notice);
    CONVOY_POINT(room_after_put);
}

/* Says ROOM again after a while, as often as the load allows: the word, or the answer to it, may be lost. */
static void set_retry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    entry->retry_ns = entry->retries_left != 0 ? convoy_deadline_after(convoy_now_ns(), entry->retry_step_ns)
                                               : CONVOY_DEADLINE_NEVER;
    entry->retries_left -= entry->retries_left != 0;
    convoy_xfer_timer(engine, entry->retry_ns);
}

static int32_t find_memory(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    if (entry->note_bytes > CONVOY_FAR_NOTE_BYTES) {
        return convoy_error_set(error, CONVOY_LIMIT, "a descriptor of %llu bytes, allowed are up to %u",
                                (unsigned long long)entry->note_bytes, CONVOY_FAR_NOTE_BYTES);
    }
    if (entry->note_bytes != 0 && !convoy_xfer_load_room(entry, entry->note_bytes)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a descriptor of %llu bytes",
                                (unsigned long long)entry->note_bytes);
    }
    if (entry->mode == CONVOY_LOAD_COPY && entry->destination != NULL) {
        return entry->destination_bytes < entry->payload_bytes
                   ? convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "load.destination has %llu bytes, the payload %llu",
                                      (unsigned long long)entry->destination_bytes, (unsigned long long)entry->payload_bytes)
                   : CONVOY_OK;
    }
    entry->destination = NULL;
    entry->retry_after_ms = RETRY_AFTER_MS;
    return convoy_xfer_slot_take(engine, entry, entry->payload_bytes, error);
}

/* Memory, and descriptor's room if that is known by the entry, are there. */
static int32_t place_landing(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    const struct convoy_landing_place place = {
        .peer = entry->peer,
        .owner = convoy_xfer_entry_handle(entry),
        .note = entry->room,
        .note_bytes = entry->note_bytes,
        .payload = entry->destination != NULL ? entry->destination : entry->slot.address,
        .payload_bytes = entry->payload_bytes,
    };
    entry->landing = convoy_landing_open(engine->far->landings, &place, &entry->landing_generation);
    return entry->landing != CONVOY_LANDING_NONE ? CONVOY_OK : CONVOY_BUSY;
}

int32_t convoy_far_load_restore(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_whole)
{
    if (entry->note_bytes != 0 && !convoy_xfer_load_room(entry, entry->note_bytes)) {
        return CONVOY_NO_MEMORY;
    }
    int32_t status = place_landing(engine, entry);
    if (status == CONVOY_OK && is_whole) {
        convoy_landing_fill(engine->far->landings, entry->landing);
    }
    return status;
}

static int32_t open_landing(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    int32_t status = find_memory(engine, entry, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return place_landing(engine, entry) == CONVOY_OK
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_BUSY, "as many payloads are on their way in as transfer_max allows");
}

static void fail(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    char text[CONVOY_ERROR_TEXT_BYTES];
    memcpy(text, entry->error.text, sizeof text);
    convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s", text);
}

void convoy_far_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_offer *offer)
{
    int32_t status;
    entry->is_pushed = true;
    entry->payload_bytes = offer != NULL ? offer->bytes : entry->descriptor.payload_bytes;
    entry->note_bytes = offer != NULL ? offer->note & CONVOY_OFFER_NOTE_BYTES : 0;
    entry->times_ns[CONVOY_TIME_OFFERED] = convoy_now_ns();
    if (offer != NULL && entry->request_length == 0) { /* its text comes with the descriptor */
        entry->digest = offer->digest;
    }
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_LOADING);
    if (offer != NULL && entry->note_bytes == 0) {
        status = convoy_error_set(&entry->error, CONVOY_MALFORMED, "an offer without a descriptor");
    } else {
        status = open_landing(engine, entry, &entry->error);
    }
    if (status != CONVOY_OK) {
        fail(engine, entry, status);
        return;
    }
    entry->retry_after_ms = 0;
    set_retry(engine, entry);
    convoy_far_load_room(engine, entry);
}

void convoy_far_load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    set_retry(engine, entry);
    convoy_far_load_room(engine, entry);
}

/* Nothing lands any more, but for a chunk that is just being copied: that counts as a copy of the load's own. */
void convoy_far_load_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    bool is_quiet = convoy_landing_close(engine->far->landings, entry->landing);
    entry->landing = CONVOY_LANDING_NONE;
    if (!is_quiet) {
        entry->is_copying = true;
        engine->copying_count++;
    }
}

void convoy_far_quiet(struct convoy_xfer *engine, uint64_t owner, uint64_t number)
{
    struct convoy_xfer_entry *entry = owner != 0 ? convoy_xfer_entry_find(engine, owner, NULL) : NULL;
    if (entry == NULL) {
        convoy_far_raw_quiet(engine, number);
        return;
    }
    entry->is_copying = false;
    engine->copying_count--;
    if (convoy_xfer_state_is_end(entry->state) && entry->state != CONVOY_TRANSFER_LOADED) {
        convoy_xfer_load_give_back(engine, entry);
    }
    convoy_xfer_wake(engine);
    convoy_xfer_entry_settle(engine, entry);
}

void convoy_far_load_repeat(struct convoy_xfer *engine, uint32_t peer, uint64_t serial)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_LOAD && entry->peer == peer && entry->serial == serial && entry->landing != 0) {
            convoy_far_load_room(engine, entry);
            return;
        }
    }
}

/* What came as descriptor must be that of the offer: the sender is not believed. */
static int32_t read_note(struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    uint64_t digest = entry->digest;
    int32_t status = convoy_xfer_load_decode(entry, entry->note_bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_descriptor *descriptor = &entry->descriptor;
    if (descriptor->payload_bytes != entry->payload_bytes || descriptor->attempt != entry->attempt) {
        return convoy_error_set(error, CONVOY_MALFORMED, "offer and descriptor differ in bytes or attempt");
    }
    convoy_xfer_entry_name(entry, descriptor->request.text, descriptor->request.bytes, entry->attempt);
    return entry->digest == digest
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_MALFORMED, "offer and descriptor differ in the request");
}

void convoy_far_landed(struct convoy_xfer *engine, uint64_t owner, uint64_t number)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, owner, NULL);
    if (entry == NULL || entry->kind != CONVOY_XFER_LOAD || entry->landing != number ||
        entry->state != CONVOY_TRANSFER_LOADING) {
        (void)convoy_far_raw_landed(engine, number);
        return;
    }
    if (entry->is_queued || entry->is_copying) { /* known since before a move, which kept the comparison that waits */
        return;
    }
    int32_t status = entry->note_bytes != 0 ? read_note(entry, &entry->error) : CONVOY_OK;
    if (status != CONVOY_OK) {
        fail(engine, entry, status);
        return;
    }
    entry->is_checksummed = (entry->descriptor.flags & CONVOY_DESCRIPTOR_CHECKSUM) != 0;
    entry->checksum = entry->descriptor.checksum;
    entry->moved_bytes = entry->payload_bytes;
    entry->payload = entry->destination != NULL ? entry->destination : entry->slot.address;
    if (entry->is_checksummed && entry->payload_bytes != 0) {
        convoy_xfer_job_add(engine, entry, entry->is_awaited);
    } else {
        convoy_xfer_load_finish(engine, entry);
    }
}
