/* SPDX-License-Identifier: Apache-2.0 */
/* What the host asks to receive: the next offer, what a descriptor names, what lies in an own slot. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"

#include <string.h>

/* -- the host's calls ---------------------------------------------------------------------------------------------- */

static int32_t check_load(const struct convoy_load *load, struct convoy_error *error)
{
    if (load->mode > CONVOY_LOAD_COPY) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.mode is %u, allowed are 0 (view) and 1 (copy)",
                                load->mode);
    }
    if (load->path > CONVOY_PATH_PULL || load->path == CONVOY_PATH_PUSH) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.path is %u, allowed are 0, %u and %u", load->path,
                                CONVOY_PATH_LEND, CONVOY_PATH_PULL);
    }
    if (load->request_length > CONVOY_REQUEST_BYTES || (load->request == NULL && load->request_length != 0)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.request of %zu bytes, allowed are up to %u",
                                load->request_length, CONVOY_REQUEST_BYTES);
    }
    return CONVOY_OK;
}

/* is_on_device: see convoy_xfer_device_judge_load. */
static struct convoy_xfer_entry *new_load(struct convoy_xfer *engine, const struct convoy_load *load, bool is_on_device,
                                          struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_new(engine, CONVOY_XFER_LOAD, error);
    if (entry != NULL) {
        uint64_t timeout = load->timeout_ns != 0 ? load->timeout_ns : engine->options.timeout_ns;
        entry->mode = load->path == CONVOY_PATH_PULL ? CONVOY_LOAD_COPY : load->mode;
        entry->destination = load->destination;
        entry->destination_bytes = load->destination_bytes;
        entry->wanted_peer = CONVOY_XFER_NOBODY;
        entry->retries_left = convoy_xfer_retries(load->retries);
        entry->deadline_ns = convoy_deadline_after(entry->times_ns[CONVOY_TIME_STARTED], timeout);
        entry->retry_step_ns = convoy_xfer_retry_step(timeout, entry->retries_left);
        convoy_xfer_timer(engine, entry->deadline_ns);
        if (is_on_device) {
            convoy_xfer_device_load_wish(entry, load);
        }
    }
    return entry;
}

static int32_t accept_locked(struct convoy_xfer *engine, const struct convoy_load *load, bool is_awaited,
                             bool is_on_device, convoy_transfer *transfer_out, struct convoy_error *error)
{
    int32_t status = check_load(load, error);
    uint32_t wanted = CONVOY_XFER_NOBODY;
    if (status == CONVOY_OK && (load->descriptor != NULL || load->slot != 0)) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.descriptor and load.slot are for load_start");
    }
    if (status == CONVOY_OK && load->peer != 0) {
        const struct convoy_xfer_peer *peer = convoy_xfer_peer_find(engine, load->peer, error);
        status = peer != NULL ? CONVOY_OK : CONVOY_CLOSED;
        wanted = (uint32_t)load->peer - 1;
    }
    struct convoy_xfer_entry *entry = status == CONVOY_OK ? new_load(engine, load, is_on_device, error) : NULL;
    if (entry == NULL) {
        return status != CONVOY_OK ? status : CONVOY_LIMIT;
    }
    entry->wanted_peer = wanted;
    if (load->request_length != 0) {
        convoy_xfer_entry_name(entry, load->request, load->request_length, 1);
    }
    entry->is_awaited = is_awaited;
    entry->is_accepting = true;
    engine->accepting_count++;
    *transfer_out = convoy_xfer_entry_handle(entry);
    for (uint32_t i = 0; i < engine->waiting_count; i++) {
        const struct convoy_xfer_waiting waiting = engine->waiting[i];
        if (convoy_xfer_load_wants(entry, waiting.peer, &waiting.offer)) {
            convoy_xfer_waiting_remove(engine, i);
            convoy_xfer_load_begin(engine, entry, waiting.peer, &waiting.offer);
            break;
        }
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_accept(struct convoy_xfer *engine, const struct convoy_load *load, bool is_awaited,
                           convoy_transfer *transfer_out, struct convoy_error *error)
{
    bool is_on_device = false;
    int32_t status = convoy_xfer_device_judge_load(engine, load, &is_on_device, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    convoy_xfer_pump(engine); /* may give the lock up */
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = accept_locked(engine, load, is_awaited, is_on_device, transfer_out, error);
    }
    if (engine->device != NULL) {
        convoy_xfer_device_pump(engine);
    }
    convoy_xfer_unlock(engine);
    return status;
}

/* -- by descriptor ------------------------------------------------------------------------------------------------- */

static int32_t read_descriptor(struct convoy_xfer_entry *entry, const struct convoy_load *load,
                               struct convoy_error *error)
{
    if (load->descriptor == NULL || load->descriptor_length == 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.descriptor is missing");
    }
    int32_t status = CONVOY_OK;
    if (convoy_descriptor_is_binary(load->descriptor, load->descriptor_length)) {
        if (!convoy_xfer_load_room(entry, load->descriptor_length)) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a descriptor");
        }
        memcpy(entry->room, load->descriptor, load->descriptor_length);
        status = convoy_descriptor_decode(entry->room, load->descriptor_length, &entry->manifest_room, &entry->descriptor,
                                          error);
    } else {
        status = convoy_descriptor_from_json(load->descriptor, load->descriptor_length, &entry->descriptor,
                                             &entry->storage, error);
        entry->given = status == CONVOY_OK ? entry->descriptor.manifest : NULL;
    }
    if (status == CONVOY_OK) {
        convoy_xfer_entry_name(entry, entry->descriptor.request.text, entry->descriptor.request.bytes,
                               entry->descriptor.attempt);
        entry->offset = entry->descriptor.offset;
    }
    return status;
}

void convoy_xfer_load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_notice ask = {.type = CONVOY_SAY_ASK};
    ask.body.ask = (struct convoy_ask){
        .cookie = convoy_xfer_entry_handle(entry),
        .serial = entry->descriptor.serial,
        .digest = entry->digest,
        .offset = entry->descriptor.offset,
        .bytes = entry->descriptor.payload_bytes,
        .attempt = entry->attempt,
    };
    entry->retry_ns = entry->retries_left != 0 ? convoy_deadline_after(convoy_now_ns(), entry->retry_step_ns)
                                               : CONVOY_DEADLINE_NEVER;
    entry->retries_left -= entry->retries_left != 0;
    convoy_xfer_timer(engine, entry->retry_ns);
    convoy_xfer_say(engine, &engine->peers[entry->peer], &ask);
    CONVOY_POINT(ask_after_put);
}

static int32_t ask_sender(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = convoy_xfer_peer_by_incarnation(engine, entry->descriptor.incarnation);
    if (peer == NULL) {
        return convoy_error_set(error, CONVOY_UNREACHABLE, "session %.*s of the descriptor is not connected",
                                (int)entry->descriptor.session.bytes, entry->descriptor.session.text);
    }
    convoy_xfer_entry_bind(engine, entry, (uint32_t)(peer - engine->peers));
    convoy_xfer_load_again(engine, entry);
    return CONVOY_OK;
}

/* What a peer has written into an own slot; the slot stays as long as it is looked at. */
static int32_t load_slot(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, convoy_transfer handle,
                         struct convoy_error *error)
{
    struct convoy_xfer_entry *slot = convoy_xfer_entry_find(engine, handle, error);
    uint64_t bytes = entry->descriptor.payload_bytes;
    if (slot == NULL) {
        return CONVOY_CLOSED;
    }
    if (slot->kind != CONVOY_XFER_SLOT || (slot->state != CONVOY_TRANSFER_FILLED && slot->state != CONVOY_TRANSFER_FILLING)) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "load.slot is a %s in state %s, it must be a slot that is FILLING "
                                                         "or FILLED",
                                convoy_xfer_kind_name(slot->kind), convoy_xfer_state_name(slot->state));
    }
    if (slot->digest != entry->digest || !convoy_extents_cover(&slot->written, bytes)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "load.slot is request %s with %llu bytes written in %u parts, "
                                                                "the descriptor is request %s with %llu",
                                slot->request, (unsigned long long)convoy_extents_bytes(&slot->written),
                                slot->written.count, entry->request, (unsigned long long)bytes);
    }
    slot->deadline_ns = CONVOY_DEADLINE_NEVER;
    entry->source = slot->index;
    slot->users++;
    entry->payload = slot->slot.address;
    entry->payload_bytes = bytes;
    (void)convoy_xfer_entry_move(engine, slot, CONVOY_TRANSFER_FILLED);
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_LOADING);
    entry->times_ns[CONVOY_TIME_OFFERED] = convoy_now_ns();
    entry->path = CONVOY_PATH_PUSH;
    if (entry->mode == CONVOY_LOAD_COPY && (entry->destination == NULL || entry->destination_bytes < bytes)) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "load.destination has %llu bytes, the payload %llu",
                                (unsigned long long)(entry->destination == NULL ? 0 : entry->destination_bytes),
                                (unsigned long long)bytes);
    }
    if (entry->mode == CONVOY_LOAD_VIEW) {
        convoy_xfer_load_finish(engine, entry);
    } else {
        convoy_xfer_job_add(engine, entry, false);
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_load(struct convoy_xfer *engine, const struct convoy_load *load, convoy_transfer *transfer_out,
                         struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = NULL;
    bool is_on_device = false;
    int32_t status = convoy_xfer_device_judge_load(engine, load, &is_on_device, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = check_load(load, error);
    }
    if (status == CONVOY_OK) {
        entry = new_load(engine, load, is_on_device, error);
        status = entry != NULL ? read_descriptor(entry, load, error) : CONVOY_LIMIT;
    }
    if (status == CONVOY_OK) {
        convoy_transfer handle = convoy_xfer_entry_handle(entry);
        status = load->slot != 0 ? load_slot(engine, entry, load->slot, error) : ask_sender(engine, entry, error);
        *transfer_out = status == CONVOY_OK ? handle : *transfer_out;
    }
    if (status != CONVOY_OK && entry != NULL) {
        entry->is_hidden = entry->is_released = true;
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "not loaded");
    }
    if (engine->device != NULL) {
        convoy_xfer_device_pump(engine);
    }
    convoy_xfer_unlock(engine);
    return status;
}
