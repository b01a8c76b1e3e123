/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: from the host's tensors to exact bytes in the own pool, with the descriptor beside them in the notes. */
#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "wire/dtype.h"
#include "wire/scalars.h"
#include "xfer/device_jobs.h"

#include <stdatomic.h>
#include <string.h>

#define CHECKSUM_AT 56u /* in a descriptor */

/* -- what is asked for --------------------------------------------------------------------------------------------- */

static int32_t check_stage(const struct convoy_stage *stage, struct convoy_error *error)
{
    struct convoy_scalars_slot slot;
    if (stage->request == NULL || stage->request_length == 0 || stage->request_length > CONVOY_REQUEST_BYTES ||
        !convoy_utf8_is_clean(stage->request, stage->request_length)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.request of %zu bytes, allowed are 1 to %u of UTF-8 without control characters",
                                stage->request_length, CONVOY_REQUEST_BYTES);
    }
    if ((stage->tensors == NULL && stage->tensor_count != 0) || (stage->lists == NULL && stage->list_count != 0) ||
        (stage->scalars == NULL && stage->scalars_length != 0)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage: tensors, lists or scalars are NULL with a count that is not 0");
    }
    int32_t status = convoy_manifest_limits(stage->tensor_count, stage->list_count, error);
    if (status == CONVOY_OK) {
        status = convoy_scalars_slot_read((struct convoy_span){stage->scalars, stage->scalars_length}, &slot, error);
        status = status == CONVOY_MALFORMED ? convoy_error_prefix(error, CONVOY_INVALID_ARGUMENT, "stage") : status;
    }
    return status == CONVOY_MALFORMED ? CONVOY_INVALID_ARGUMENT : status;
}

/* -- the pieces to copy -------------------------------------------------------------------------------------------- */

static bool is_dense(const struct convoy_tensor_source *source, uint64_t item)
{
    int64_t expected = (int64_t)item;
    for (uint32_t d = source->rank; source->strides != NULL && d-- > 0;) {
        if (source->shape[d] > 1 && source->strides[d] != expected) {
            return false;
        }
        expected *= (int64_t)source->shape[d];
    }
    return true;
}

static int32_t make_piece(struct convoy_tensor_piece *piece, const struct convoy_tensor_source *source,
                          const struct convoy_tensor *tensor, size_t index, struct convoy_error *error)
{
    const struct convoy_dtype *dtype = convoy_dtype_by_id(tensor->dtype);
    piece->from = source->data;
    piece->to = tensor->offset;
    piece->bytes = tensor->bytes;
    piece->rank = 0;
    if (tensor->bytes != 0 && source->data == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "stage.tensors[%zu].data is NULL with %llu bytes", index,
                                (unsigned long long)tensor->bytes);
    }
    if (source->bytes != 0 && source->bytes != tensor->bytes) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.tensors[%zu].bytes is %llu, its shape and dtype make %llu", index,
                                (unsigned long long)source->bytes, (unsigned long long)tensor->bytes);
    }
    if (source->strides == NULL || tensor->bytes == 0 || CONVOY_MUTATED(strides_ignored) ||
        (dtype != NULL && is_dense(source, dtype->bits / 8))) {
        return CONVOY_OK;
    }
    if (dtype == NULL || dtype->bits % 8 != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.tensors[%zu].strides: elements of dtype %.*s are no whole bytes known here", index,
                                (int)source->dtype_length, source->dtype);
    }
    piece->rank = source->rank;
    piece->item = dtype->bits / 8;
    for (uint32_t d = 0; d < source->rank; d++) {
        piece->shape[d] = source->shape[d];
        piece->strides[d] = source->strides[d];
    }
    return convoy_copy_is_reachable(piece) ? CONVOY_OK
                                           : convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                                              "stage.tensors[%zu].strides pass the end of memory", index);
}

/* Tensors that lie side by side at both ends, as those of one storage do, are copied as one. */
static bool join_pieces(struct convoy_tensor_piece *first, const struct convoy_tensor_piece *second)
{
    bool is_joined = first->rank == 0 && second->rank == 0 && first->bytes != 0 && first->from + first->bytes == second->from &&
                     first->to + first->bytes == second->to;
    first->bytes += is_joined ? second->bytes : 0;
    return is_joined;
}

static int32_t make_pieces(const struct convoy_stage *stage, const struct convoy_manifest *manifest,
                           struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    uint32_t count = (uint32_t)stage->tensor_count;
    int32_t status = CONVOY_OK;
    if (entry->piece_room < count) {
        struct convoy_tensor_piece *pieces = convoy_memory_array(count, sizeof *pieces);
        if (pieces == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to copy %u tensors", count);
        }
        convoy_memory_free(entry->pieces);
        entry->pieces = pieces;
        entry->piece_room = count;
    }
    uint32_t made = 0;
    for (uint32_t i = 0; i < count && status == CONVOY_OK; i++) {
        status = make_piece(&entry->pieces[made], &stage->tensors[i], &manifest->tensors[i], i, error);
        made += made == 0 || !join_pieces(&entry->pieces[made - 1], &entry->pieces[made]);
    }
    entry->piece_count = made;
    return status;
}

/* -- into the pool ------------------------------------------------------------------------------------------------- */

static int32_t take_room(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t payload_bytes,
                         size_t note_bytes, struct convoy_error *error)
{
    struct convoy_pool_request request = {
        .owner = {entry->request, entry->request_length, entry->attempt},
        .bytes = payload_bytes,
        .now_ns = entry->times_ns[CONVOY_TIME_STARTED],
        .deadline_ns = CONVOY_LEASE_NEVER, /* the entry's own deadline ends it: that one knows who still uses it */
    };
    convoy_xfer_hear(engine); /* what was given back may be had again; and of that, what was used last is warm */
    int32_t status = convoy_pool_take(engine->pool, &request, &entry->slot, error);
    if (status != CONVOY_OK && convoy_xfer_device_own_pool(engine) != engine->pool) {
        return convoy_error_prefix(error, status, "the pinned pool (option bounce_bytes, pool_resize)");
    }
    if (status == CONVOY_OK) {
        request.bytes = CONVOY_MARK_BYTES + note_bytes;
        status = convoy_pool_take(engine->notes, &request, &entry->note, error);
        if (status != CONVOY_OK) {
            status = convoy_error_prefix(error, status, "descriptor");
        }
    }
    return status;
}

static void describe(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_stage *stage,
                     struct convoy_manifest *manifest)
{
    entry->descriptor = (struct convoy_descriptor){
        .flags = (stage->critical_flags & CONVOY_STAGE_CHECKSUM) != 0 ? CONVOY_DESCRIPTOR_CHECKSUM : 0,
        .attempt = entry->attempt,
        .priority = stage->priority,
        .incarnation = engine->incarnation,
        .serial = convoy_xfer_entry_handle(entry),
        .generation = engine->generation,
        .payload_bytes = manifest->payload_bytes,
        .pool_address = (uint64_t)(uintptr_t)convoy_pool_memory(engine->pool),
        .request = {entry->request, entry->request_length},
        .session = {engine->session, strlen(engine->session)},
        .scalars = {stage->scalars, stage->scalars_length},
        .manifest = manifest,
    };
}

_Atomic uint64_t *convoy_xfer_stage_mark(const struct convoy_xfer_entry *entry)
{
    return entry->note.address;
}

static uint8_t *descriptor_at(const struct convoy_xfer_entry *entry)
{
    return (uint8_t *)entry->note.address + CONVOY_MARK_BYTES;
}

void convoy_xfer_stage_spans(struct convoy_xfer_entry *entry)
{
    struct convoy_descriptor *descriptor = &entry->descriptor;
    descriptor->request.text = (const char *)descriptor_at(entry) + CONVOY_DESCRIPTOR_HEADER_BYTES;
    descriptor->session.text = descriptor->request.text + descriptor->request.bytes;
    if (descriptor->scalars.bytes != 0) {
        descriptor->scalars.text = descriptor->session.text + descriptor->session.bytes;
    }
}

/* The descriptor's texts then are those in the notes: the host's are only borrowed, and what hosts are shown of it stays where
 * it is for as long as the stage, whichever build has it. */
static int32_t write_note(struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    struct convoy_descriptor *descriptor = &entry->descriptor;
    size_t bytes = convoy_descriptor_bytes(descriptor);
    descriptor->offset = entry->slot.offset;
    descriptor->slot_bytes = entry->slot.bytes;
    if (entry->slot.address != NULL) { /* hosts count from the address that they know */
        descriptor->base = entry->slot.offset - ((uint64_t)(uintptr_t)entry->slot.address - descriptor->pool_address);
    }
    atomic_store_explicit(convoy_xfer_stage_mark(entry), 0, memory_order_relaxed);
    int32_t status = convoy_descriptor_encode(descriptor, descriptor_at(entry), bytes, error);
    entry->known_bytes = bytes;
    convoy_xfer_stage_spans(entry);
    return status;
}

static int32_t fill_entry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_stage *stage,
                          struct convoy_manifest *manifest, struct convoy_error *error)
{
    uint64_t now = entry->times_ns[CONVOY_TIME_STARTED];
    uint64_t timeout = stage->timeout_ns != 0 ? stage->timeout_ns : engine->options.timeout_ns;
    convoy_xfer_entry_name(entry, stage->request, stage->request_length, stage->attempt != 0 ? stage->attempt : 1);
    describe(engine, entry, stage, manifest);
    size_t note_bytes = convoy_descriptor_bytes(&entry->descriptor);
    entry->payload_bytes = manifest->payload_bytes;
    entry->is_checksummed = entry->descriptor.flags != 0;
    entry->ready = stage->ready;
    entry->user = stage->user;
    entry->lease_ns = stage->lease_ns != 0 ? stage->lease_ns : engine->options.lease_ns;
    entry->deadline_ns = convoy_deadline_after(now, timeout);
    convoy_xfer_timer(engine, entry->deadline_ns);
    int32_t status = take_room(engine, entry, entry->payload_bytes, note_bytes, error);
    if (status == CONVOY_OK && engine->device != NULL) {
        status = convoy_xfer_device_stage_room(engine, entry, stage, error);
    }
    return status == CONVOY_OK ? write_note(entry, error) : status;
}

/* On this thread where that is asked for or cheap. */
void convoy_xfer_stage_begin(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_inline, bool is_awaited)
{
    bool is_now = is_inline || entry->payload_bytes <= CONVOY_XFER_INLINE_BYTES;
    entry->times_ns[CONVOY_TIME_READY] = convoy_now_ns();
    entry->ready = NULL;
    entry->is_deferred = false;
    if (engine->device != NULL && convoy_xfer_device_stage(engine, entry)) {
        return;
    }
    convoy_xfer_job_add(engine, entry, is_awaited || is_now);
    if (is_now) {
        convoy_xfer_job_run(engine, entry);
    }
}

void convoy_xfer_stage_poll(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_inline)
{
    convoy_ready_fn ready = entry->ready;
    convoy_transfer handle = convoy_xfer_entry_handle(entry);
    if (ready == NULL || entry->state != CONVOY_TRANSFER_STAGING || entry->is_asking) {
        return;
    }
    entry->is_asking = true; /* one thread at a time; the entry stays while it is asked */
    entry->users++;
    convoy_xfer_unlock(engine);
    int32_t answer = ready(entry->user);
    convoy_xfer_lock(engine);
    entry->users--;
    entry->is_asking = false;
    if (convoy_xfer_entry_find(engine, handle, NULL) != entry || entry->state != CONVOY_TRANSFER_STAGING) {
        convoy_xfer_entry_settle(engine, entry);
        return;
    }
    if (answer < 0) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_PEER_ERROR,
                               "its producer failed with %d before the bytes were ready", answer);
    } else if (answer > 0) {
        convoy_xfer_stage_begin(engine, entry, is_inline, true);
    }
}

int32_t convoy_xfer_stage_locked(struct convoy_xfer *engine, const struct convoy_stage *stage,
                                 struct convoy_xfer_stage_way way, struct convoy_xfer_entry **entry_out,
                                 struct convoy_error *error)
{
    struct convoy_manifest *manifest = NULL;
    int32_t status = check_stage(stage, error);
    if (status == CONVOY_OK && (stage->stream != NULL || stage->event != NULL)) {
        status = convoy_xfer_device_check(engine, "stage", error);
    }
    struct convoy_xfer_entry *entry = status == CONVOY_OK ? convoy_xfer_entry_new(engine, CONVOY_XFER_STAGE, error) : NULL;
    if (entry == NULL) {
        return status != CONVOY_OK ? status : CONVOY_LIMIT;
    }
    status = convoy_xfer_stage_manifest(stage, &entry->manifest_room, &manifest, error);
    if (status == CONVOY_OK) {
        status = make_pieces(stage, manifest, entry, error);
    }
    if (status == CONVOY_OK) {
        status = fill_entry(engine, entry, stage, manifest, error);
    }
    if (status != CONVOY_OK) {
        entry->is_hidden = entry->is_released = true; /* nobody will ever ask for it */
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "not staged");
        return status;
    }
    *entry_out = entry;
    bool is_inline = (stage->hint_flags & CONVOY_STAGE_INLINE) != 0;
    entry->is_owned = way.is_owned; /* before it can end */
    entry->is_deferred = way.may_defer && engine->device == NULL && entry->payload_bytes >= CONVOY_XFER_EARLY_BYTES;
    if (entry->ready != NULL) {
        entry->is_deferred = false;
        convoy_xfer_stage_poll(engine, entry, is_inline);
    } else if (!entry->is_deferred) {
        convoy_xfer_stage_begin(engine, entry, is_inline, way.is_awaited);
    }
    return CONVOY_OK;
}

void convoy_xfer_stage_copied(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->state != CONVOY_TRANSFER_STAGING) { /* aborted meanwhile; the copy was its last user */
        convoy_xfer_stage_retire(engine, entry, CONVOY_LEASE_END_ABORTED);
        return;
    }
    uint64_t now = convoy_now_ns();
    entry->descriptor.checksum = entry->checksum;
    convoy_bytes_put_u64(descriptor_at(entry) + CHECKSUM_AT, entry->checksum);
    atomic_store_explicit(convoy_xfer_stage_mark(entry), entry->payload_bytes, memory_order_release);
    (void)convoy_pool_filled(engine->pool, entry->slot.lease, entry->payload_bytes, NULL);
    entry->moved_bytes = entry->payload_bytes;
    entry->times_ns[CONVOY_TIME_STAGED] = now;
    entry->deadline_ns = convoy_deadline_after(now, entry->lease_ns);
    convoy_xfer_timer(engine, entry->deadline_ns);
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_STAGED);
    convoy_xfer_stage_let_go(engine, entry); /* its send may have been over first */
}

void convoy_xfer_stage_let_go(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    bool is_awaited = entry->waits != 0 && !CONVOY_MUTATED(waiting_bytes_returned);
    if (entry->is_released && entry->state == CONVOY_TRANSFER_STAGED && !is_awaited) {
        convoy_xfer_stage_retire(engine, entry, CONVOY_LEASE_END_RELEASED);
    }
}

/* Not while a copy writes there: its end comes back here. */
void convoy_xfer_stage_retire(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, enum convoy_lease_end end)
{
    convoy_xfer_job_drop(engine, entry);
    if ((entry->is_copying && !CONVOY_MUTATED(copying_slot_given)) || entry->slot.lease == CONVOY_LEASE_NONE) {
        return;
    }
    (void)convoy_pool_retire(engine->pool, entry->slot.lease, end, NULL);
    entry->slot.lease = CONVOY_LEASE_NONE;
    if (engine->device != NULL) {
        convoy_xfer_device_let_go(engine, entry);
    }
}

int32_t convoy_xfer_stage(struct convoy_xfer *engine, const struct convoy_stage *stage, bool is_awaited,
                          convoy_transfer *staged_out, struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = NULL;
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        const struct convoy_xfer_stage_way way = {.is_awaited = is_awaited};
        status = convoy_xfer_stage_locked(engine, stage, way, &entry, error);
    }
    if (status == CONVOY_OK) {
        *staged_out = convoy_xfer_entry_handle(entry);
    }
    convoy_xfer_unlock(engine);
    return status;
}

int32_t convoy_xfer_descriptor(struct convoy_xfer *engine, convoy_transfer staged, uint32_t form, char **text_out,
                               size_t *bytes_out, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, staged, error);
    int32_t status = entry == NULL ? CONVOY_CLOSED : CONVOY_OK;
    if (entry != NULL && (entry->kind != CONVOY_XFER_STAGE || entry->state != CONVOY_TRANSFER_STAGED)) {
        status = convoy_error_set(error, CONVOY_BAD_STATE, "transfer is a %s in state %s, a descriptor takes one that is "
                                                           "STAGED",
                                  convoy_xfer_kind_name(entry->kind), convoy_xfer_state_name(entry->state));
    } else if (entry != NULL && form == CONVOY_DESCRIPTOR_JSON) {
        status = convoy_descriptor_to_json(&entry->descriptor, text_out, bytes_out, error);
    } else if (entry != NULL && form == CONVOY_DESCRIPTOR_BINARY) {
        *text_out = convoy_memory_text((const char *)descriptor_at(entry), entry->known_bytes);
        *bytes_out = entry->known_bytes;
        status = *text_out != NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a descriptor");
    } else if (entry != NULL) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "form is %u, allowed are 1 (binary) and 2 (JSON)", form);
    }
    convoy_xfer_unlock(engine);
    return status;
}
