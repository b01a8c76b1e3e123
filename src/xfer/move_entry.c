/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers as items, and back: whatever state they are in, they go on from there. What counts others' references is counted
 * anew, so that it is right whatever the items say. */
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "xfer/move_parts.h"

#include <string.h>

#define ITEM_DESCRIPTOR 2u /* its binary form */
#define ITEM_JSON 3u       /* or the hosts' message */
#define ITEM_WRITTEN 4u
#define ITEM_PIECE 5u
#define ITEM_KEPT 6u /* addresses 8 each */
#define DESCRIPTOR_LENGTH_AT 8u

struct entry_fields {
    uint32_t index;
    uint32_t kind;
    uint32_t view;
    struct convoy_xfer_entry entry;
};

#define ENTRY(tag, member) CONVOY_BUNDLE_FIELD(tag, struct entry_fields, entry.member)
static const struct convoy_bundle_field entry_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct entry_fields, index),
    CONVOY_BUNDLE_FIELD(2, struct entry_fields, kind),
    CONVOY_BUNDLE_FIELD(3, struct entry_fields, view),
    ENTRY(4, generation),
    ENTRY(5, state),
    ENTRY(6, status),
    ENTRY(7, attempt),
    ENTRY(8, peer),
    ENTRY(9, source),
    ENTRY(10, path),
    ENTRY(11, retries),
    ENTRY(12, retries_left),
    ENTRY(13, retry_after_ms),
    ENTRY(14, slot_id),
    ENTRY(15, mode),
    ENTRY(16, wanted_peer),
    ENTRY(17, is_hidden),
    ENTRY(18, is_released),
    ENTRY(19, is_owned),
    ENTRY(20, is_accepting),
    ENTRY(21, is_lent),
    ENTRY(22, is_told),
    ENTRY(23, is_deferred),
    ENTRY(24, is_followed),
    ENTRY(25, is_note_due),
    ENTRY(26, is_return_due),
    ENTRY(27, is_early),
    ENTRY(28, must_stop),
    ENTRY(29, reference),
    ENTRY(30, mark),
    ENTRY(31, is_noted),
    ENTRY(32, is_checksummed),
    ENTRY(33, is_slot_kept),
    ENTRY(34, is_pushed),
    ENTRY(35, is_answered),
    ENTRY(36, streams),
    ENTRY(37, landing),
    ENTRY(38, landing_generation),
    ENTRY(39, note_bytes),
    ENTRY(40, digest),
    ENTRY(41, deadline_ns),
    ENTRY(42, lease_ns),
    ENTRY(43, retry_ns),
    ENTRY(44, retry_step_ns),
    ENTRY(45, serial),
    ENTRY(46, cookie),
    ENTRY(47, sequence),
    ENTRY(48, offset),
    ENTRY(49, payload_bytes),
    ENTRY(50, moved_bytes),
    ENTRY(51, followed_bytes),
    ENTRY(52, checksum),
    ENTRY(53, times_ns),
    ENTRY(54, slot.lease),
    ENTRY(55, slot.offset),
    ENTRY(56, slot.bytes),
    ENTRY(57, slot.address),
    ENTRY(58, note.lease),
    ENTRY(59, note.offset),
    ENTRY(60, note.bytes),
    ENTRY(61, note.address),
    ENTRY(62, payload),
    ENTRY(63, destination),
    ENTRY(64, destination_bytes),
    ENTRY(65, known_bytes),
    ENTRY(66, descriptor.flags),
    ENTRY(67, descriptor.attempt),
    ENTRY(68, descriptor.incarnation),
    ENTRY(69, descriptor.serial),
    ENTRY(70, descriptor.generation),
    ENTRY(71, descriptor.offset),
    ENTRY(72, descriptor.base),
    ENTRY(73, descriptor.payload_bytes),
    ENTRY(74, descriptor.slot_bytes),
    ENTRY(75, descriptor.pool_address),
    ENTRY(76, descriptor.checksum),
    ENTRY(77, ready),
    ENTRY(78, user),
    ENTRY(79, device.is_done),
    ENTRY(80, device.is_target),
    ENTRY(81, device.stream),
    ENTRY(82, device.event),
    ENTRY(83, device.target),
    ENTRY(84, device.target_bytes),
    ENTRY(85, device.slot.lease),
    ENTRY(86, device.slot.offset),
    ENTRY(87, device.slot.bytes),
    ENTRY(88, device.slot.address),
    ENTRY(89, device.count),
    ENTRY(90, error.status),
    ENTRY(91, error.sys_errno),
    ENTRY(92, error.text),
    ENTRY(93, request_length),
    ENTRY(94, request),
    ENTRY(95, past),
    ENTRY(96, wait.priority),
    ENTRY(97, wait.since_ns),
    ENTRY(98, wait.order),
    ENTRY(99, descriptor.priority),
};

#define PIECE(tag, member) CONVOY_BUNDLE_FIELD(tag, struct convoy_tensor_piece, member)
static const struct convoy_bundle_field piece_field_list[] = {
    PIECE(1, from), PIECE(2, to),           PIECE(3, bytes), PIECE(4, rank),
    PIECE(5, item), PIECE(6, is_on_device), PIECE(7, shape), PIECE(8, strides),
};
CONVOY_XFER_SHAPE(entry);
CONVOY_XFER_SHAPE(piece);

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_descriptor(const struct convoy_xfer_saving *saving, const struct convoy_xfer_entry *entry)
{
    struct convoy_bundle_writer *writer = saving->writer;
    if (entry->descriptor.manifest == NULL) {
        return;
    }
    if (entry->storage != NULL) {
        char *text = NULL;
        size_t bytes = 0;
        if (convoy_descriptor_to_json(&entry->descriptor, &text, &bytes, NULL) == CONVOY_OK) {
            convoy_bundle_put(writer, ITEM_JSON, CONVOY_BUNDLE_CRITICAL, text, bytes);
            convoy_memory_free(text);
        } else {
            writer->is_out_of_memory = true;
        }
    } else if (entry->kind == CONVOY_XFER_STAGE && entry->note.address != NULL) {
        convoy_bundle_put(writer, ITEM_DESCRIPTOR, CONVOY_BUNDLE_CRITICAL,
                          (const uint8_t *)entry->note.address + CONVOY_MARK_BYTES, entry->known_bytes);
    } else if (entry->kind == CONVOY_XFER_LOAD) {
        convoy_bundle_put(writer, ITEM_DESCRIPTOR, CONVOY_BUNDLE_CRITICAL, entry->room,
                          convoy_bytes_u32(entry->room + DESCRIPTOR_LENGTH_AT));
    }
}

static void save_kept(const struct convoy_xfer_saving *saving, const struct convoy_xfer_entry *entry)
{
    void *const shown[] = {entry->room, entry->manifest_room.memory, entry->storage, entry->given};
    for (uint32_t i = 0; i < entry->kept_count; i++) {
        convoy_bundle_put_u64(saving->writer, ITEM_KEPT, (uint64_t)(uintptr_t)entry->kept[i]);
    }
    for (size_t i = 0; entry->is_shown && i < sizeof shown / sizeof shown[0]; i++) {
        if (shown[i] != NULL) {
            convoy_bundle_put_u64(saving->writer, ITEM_KEPT, (uint64_t)(uintptr_t)shown[i]);
        }
    }
}

static void save_entry(const struct convoy_xfer_saving *saving, const struct convoy_xfer_entry *entry,
                       struct entry_fields *fields)
{
    *fields = (struct entry_fields){.index = entry->index,
                                    .kind = (uint32_t)entry->kind,
                                    .view = CONVOY_XFER_NO_VIEW,
                                    .entry = {.generation = entry->generation}};
    bool is_used = entry->kind != CONVOY_XFER_NONE;
    if (is_used) {
        fields->view = convoy_xfer_view_number(&saving->views, entry->view);
        memcpy(&fields->entry, entry, sizeof *entry);
    }
    size_t opened = convoy_bundle_open(saving->writer, CONVOY_XFER_ITEM_ENTRY, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(saving->writer, &entry_shape, fields);
    if (is_used) {
        save_descriptor(saving, entry);
        save_kept(saving, entry);
        if (entry->written.count != 0) {
            convoy_bundle_put(saving->writer, ITEM_WRITTEN, CONVOY_BUNDLE_CRITICAL, entry->written.all,
                              entry->written.count * sizeof entry->written.all[0]);
        }
        for (uint32_t i = 0; entry->state == CONVOY_TRANSFER_STAGING && i < entry->piece_count; i++) {
            convoy_xfer_save_one(saving, ITEM_PIECE, &piece_shape, &entry->pieces[i]);
        }
    }
    convoy_bundle_shut(saving->writer, opened);
}

static void save_list(const struct convoy_xfer_saving *saving, uint16_t tag, uint32_t first, bool is_jobs)
{
    const struct convoy_xfer *engine = saving->engine;
    for (uint32_t at = first; at != CONVOY_XFER_NOBODY;
         at = is_jobs ? engine->entries[at].next_job : engine->entries[at].next_ended) {
        convoy_bundle_put_u64(saving->writer, tag, at);
    }
}

void convoy_xfer_save_entries(const struct convoy_xfer_saving *saving)
{
    const struct convoy_xfer *engine = saving->engine;
    struct entry_fields *fields = convoy_memory_zalloc(sizeof *fields);
    if (fields == NULL) {
        saving->writer->is_out_of_memory = true;
        return;
    }
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        save_entry(saving, &engine->entries[at], fields);
    }
    for (uint32_t i = 0; i < engine->entry_top; i++) {
        if (engine->entries[i].kind == CONVOY_XFER_NONE && engine->entries[i].generation != 0) {
            save_entry(saving, &engine->entries[i], fields);
        }
    }
    convoy_memory_free(fields);
    save_list(saving, CONVOY_XFER_ITEM_JOBS, engine->job_first, true);
    save_list(saving, CONVOY_XFER_ITEM_ENDED, engine->ended_first, false);
}

/* -- in: one ------------------------------------------------------------------------------------------------------- */

struct entry_in {
    struct convoy_xfer_restoring *restoring;
    struct entry_fields fields;
};

/* Into the entry's own memory; what the fields say of it stays as they say. */
static int32_t add_descriptor(struct convoy_xfer_entry *entry, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_descriptor given;
    int32_t status;
    if (entry->descriptor.manifest != NULL) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a transfer with two descriptors");
    }
    if (item->tag == ITEM_JSON) {
        status = convoy_descriptor_from_json((const char *)item->data, item->bytes, &given, &entry->storage, error);
        entry->given = status == CONVOY_OK ? given.manifest : NULL;
    } else if (!convoy_xfer_load_room(entry, item->bytes)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a descriptor of %zu bytes", item->bytes);
    } else {
        memcpy(entry->room, item->data, item->bytes);
        status = convoy_descriptor_decode(entry->room, item->bytes, &entry->manifest_room, &given, error);
    }
    if (status == CONVOY_OK) {
        entry->descriptor.request = given.request;
        entry->descriptor.session = given.session;
        entry->descriptor.scalars = given.scalars;
        entry->descriptor.manifest = given.manifest;
    }
    return status;
}

static int32_t add_piece(struct convoy_xfer_entry *entry, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_tensor_piece piece = {.rank = 0};
    const struct convoy_xfer_reading reading = {&piece_shape, &piece, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (piece.rank > CONVOY_MANIFEST_RANK_MAX || entry->piece_count == CONVOY_MANIFEST_TENSORS_MAX) {
        return convoy_error_set(error, CONVOY_MALFORMED, "piece %u of a stage, of rank %u, cannot be", entry->piece_count,
                                piece.rank);
    }
    if (entry->piece_count == entry->piece_room) {
        uint32_t room = entry->piece_room != 0 ? 2 * entry->piece_room : 8;
        struct convoy_tensor_piece *grown = convoy_memory_array(room, sizeof *grown);
        if (grown == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u pieces of a stage", room);
        }
        if (entry->piece_count != 0) {
            memcpy(grown, entry->pieces, entry->piece_count * sizeof *grown);
        }
        convoy_memory_free(entry->pieces);
        entry->pieces = grown;
        entry->piece_room = room;
    }
    entry->pieces[entry->piece_count++] = piece;
    return CONVOY_OK;
}

static int32_t add_kept(struct convoy_xfer_entry *entry, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    void **grown = convoy_memory_array(entry->kept_count + 1u, sizeof(void *));
    if (grown == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for what a host was shown");
    }
    if (entry->kept_count != 0) {
        memcpy(grown, entry->kept, entry->kept_count * sizeof(void *));
    }
    convoy_memory_free(entry->kept);
    entry->kept = grown;
    entry->kept[entry->kept_count++] = (void *)(uintptr_t)convoy_bundle_u64(item);
    return CONVOY_OK;
}

static int32_t inner(void *user, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = &((struct entry_in *)user)->fields.entry;
    switch (item->tag) {
    case ITEM_DESCRIPTOR:
    case ITEM_JSON:
        return add_descriptor(entry, item, error);
    case ITEM_WRITTEN:
        return convoy_extents_add(&entry->written, (const struct convoy_extent *)(const void *)item->data,
                                  (uint32_t)(item->bytes / sizeof(struct convoy_extent)))
                   ? CONVOY_OK
                   : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for what was written of a slot");
    case ITEM_PIECE:
        return add_piece(entry, item, error);
    case ITEM_KEPT:
        return add_kept(entry, item, error);
    default:
        return convoy_bundle_unknown(item, entry_shape.name, error);
    }
}

static bool is_peer(const struct convoy_xfer *engine, uint32_t peer)
{
    return peer == CONVOY_XFER_NOBODY || (peer < engine->options.peer_max && engine->peers[peer].state != 0);
}

/* Whom a load waits for: a peer that has gone since is no fault, and other kinds never set it. */
static bool is_wanted(const struct convoy_xfer *engine, enum convoy_xfer_kind kind, uint32_t peer)
{
    return kind != CONVOY_XFER_LOAD || peer == CONVOY_XFER_NOBODY || peer < engine->options.peer_max;
}

static bool is_state(enum convoy_xfer_kind kind, uint32_t state)
{
    static const uint32_t ends = 1u << CONVOY_TRANSFER_FAILED | 1u << CONVOY_TRANSFER_ABORTED;
    static const uint32_t states[CONVOY_XFER_KINDS] = {
        [CONVOY_XFER_STAGE] = 1u << CONVOY_TRANSFER_STAGING | 1u << CONVOY_TRANSFER_STAGED,
        [CONVOY_XFER_SEND] = 1u << CONVOY_TRANSFER_QUEUED | 1u << CONVOY_TRANSFER_OFFERED | 1u << CONVOY_TRANSFER_SENT,
        [CONVOY_XFER_LOAD] = 1u << CONVOY_TRANSFER_WAITING | 1u << CONVOY_TRANSFER_LOADING | 1u << CONVOY_TRANSFER_LOADED,
        [CONVOY_XFER_SLOT] = 1u << CONVOY_TRANSFER_RESERVED | 1u << CONVOY_TRANSFER_FILLING | 1u << CONVOY_TRANSFER_FILLED};
    return state < CONVOY_XFER_STATES && ((states[kind] | ends) >> state & 1u) != 0;
}

static bool can_be(const struct convoy_xfer *engine, const struct entry_fields *fields)
{
    const struct convoy_xfer_entry *entry = &fields->entry;
    if (fields->index >= engine->entry_count || engine->entries[fields->index].generation != 0 || entry->generation == 0 ||
        fields->kind >= CONVOY_XFER_KINDS) {
        return false;
    }
    enum convoy_xfer_kind kind = (enum convoy_xfer_kind)fields->kind;
    bool needs_peer = kind == CONVOY_XFER_SEND || entry->is_lent;
    bool needs_manifest = entry->state == CONVOY_TRANSFER_STAGED || entry->state == CONVOY_TRANSFER_LOADED ||
                          entry->state == CONVOY_TRANSFER_STAGING;
    if (kind == CONVOY_XFER_NONE) { /* nobody would ever free what such a one has */
        return entry->descriptor.manifest == NULL && entry->given == NULL && entry->storage == NULL;
    }
    return is_state(kind, entry->state) && is_peer(engine, entry->peer) && is_wanted(engine, kind, entry->wanted_peer) &&
           (!needs_peer || entry->peer != CONVOY_XFER_NOBODY) && (!needs_manifest || entry->descriptor.manifest != NULL) &&
           entry->path < CONVOY_XFER_PATHS && (uint32_t)entry->reference < CONVOY_REFERENCE_KINDS &&
           entry->slot_id <= engine->options.prealloc_count && entry->past <= engine->past_count &&
           entry->request_length <= CONVOY_REQUEST_BYTES &&
           memchr(entry->error.text, 0, sizeof entry->error.text) != NULL;
}

/* Links and counts that are made anew. */
static void place(struct convoy_xfer_restoring *restoring, struct entry_in *in)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_entry *entry = &engine->entries[in->fields.index];
    memcpy(entry, &in->fields.entry, sizeof *entry);
    entry->index = in->fields.index;
    engine->entry_top = engine->entry_top > entry->index ? engine->entry_top : entry->index + 1;
    entry->kind = (enum convoy_xfer_kind)in->fields.kind;
    entry->request[entry->request_length] = '\0'; /* one without a name may have that of the one before it behind this */
    entry->error.struct_size = (uint32_t)sizeof entry->error;
    entry->error.rank = -1;
    entry->next = entry->before = entry->next_job = entry->next_ended = entry->device.next = CONVOY_XFER_NOBODY;
    if (entry->kind == CONVOY_XFER_NONE) {
        return;
    }
    if (entry->kind == CONVOY_XFER_STAGE && entry->descriptor.manifest != NULL && entry->note.address != NULL) {
        convoy_xfer_stage_spans(entry);
    }
    entry->before = engine->active_last;
    *(engine->active_last != CONVOY_XFER_NOBODY ? &engine->entries[engine->active_last].next : &engine->active_first) =
        entry->index;
    engine->active_last = entry->index;
    engine->used_count++;
    engine->accepting_count += entry->is_accepting;
    if (entry->peer != CONVOY_XFER_NOBODY) {
        engine->peers[entry->peer].entries++;
    }
}

static void drop(struct convoy_xfer_entry *entry)
{
    convoy_memory_free(entry->room);
    convoy_manifest_room_free(&entry->manifest_room);
    convoy_memory_free(entry->pieces);
    convoy_memory_free(entry->storage);
    convoy_memory_free(entry->kept);
    convoy_extents_free(&entry->written);
    if (entry->given != NULL) {
        convoy_manifest_destroy(entry->given);
    }
}

int32_t convoy_xfer_restore_entry(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error)
{
    struct entry_in *in = convoy_memory_zalloc(sizeof *in);
    if (in == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a transfer");
    }
    in->restoring = restoring;
    const struct convoy_xfer_reading reading = {&entry_shape, &in->fields, inner, in};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    uint32_t view = in->fields.view;
    if (status == CONVOY_OK && (!can_be(restoring->engine, &in->fields) ||
                                (view != CONVOY_XFER_NO_VIEW && in->fields.kind != CONVOY_XFER_NONE &&
                                 !convoy_xfer_view_take(&restoring->views, view, &in->fields.entry.view)))) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "transfer %u of %u, of kind %u in state %u, cannot be",
                                  in->fields.index, restoring->engine->entry_count, in->fields.kind, in->fields.entry.state);
    }
    if (status == CONVOY_OK) {
        place(restoring, in);
    } else {
        drop(&in->fields.entry);
    }
    convoy_memory_free(in);
    return status;
}

/* -- in: all ------------------------------------------------------------------------------------------------------- */

static struct convoy_xfer_entry *listed(struct convoy_xfer *engine, const struct convoy_bundle_item *item)
{
    uint64_t index = item->bytes == 8 ? convoy_bundle_u64(item) : UINT64_MAX;
    return index < engine->entry_top && engine->entries[index].kind != CONVOY_XFER_NONE ? &engine->entries[index] : NULL;
}

int32_t convoy_xfer_restore_jobs(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_entry *entry = listed(engine, item);
    bool is_job = entry != NULL && !entry->is_queued && (entry->kind == CONVOY_XFER_STAGE || entry->kind == CONVOY_XFER_LOAD);
    if (!is_job) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a copy to do is of no transfer");
    }
    convoy_xfer_job_add(engine, entry, true);
    return CONVOY_OK;
}

int32_t convoy_xfer_restore_ended(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_entry *entry = listed(engine, item);
    bool is_there = entry != NULL && entry->is_noted && entry->next_ended == CONVOY_XFER_NOBODY &&
                    engine->ended_last != entry->index;
    if (!is_there) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a completion is of no transfer");
    }
    *(engine->ended_last != CONVOY_XFER_NOBODY ? &engine->entries[engine->ended_last].next_ended : &engine->ended_first) =
        entry->index;
    engine->ended_last = entry->index;
    engine->ended_count++;
    return CONVOY_OK;
}

int32_t convoy_xfer_restore_links(struct convoy_xfer_restoring *restoring, struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    engine->free_first = CONVOY_XFER_NOBODY;
    for (uint32_t i = engine->entry_top; i-- > 0;) {
        struct convoy_xfer_entry *entry = &engine->entries[i];
        entry->index = i;
        if (entry->kind == CONVOY_XFER_NONE) {
            entry->next = engine->free_first;
            engine->free_first = i;
            continue;
        }
        bool has_source = entry->source != CONVOY_XFER_NOBODY;
        if ((has_source && (entry->source >= engine->entry_top || entry->source == i ||
                            engine->entries[entry->source].kind == CONVOY_XFER_NONE)) ||
            (!has_source && entry->kind == CONVOY_XFER_SEND)) {
            return convoy_error_set(error, CONVOY_MALFORMED, "transfer %u is of transfer %u, which there is not", i,
                                    entry->source);
        }
        if (has_source) {
            engine->entries[entry->source].users++;
        }
    }
    convoy_xfer_admission_restore(engine);
    return CONVOY_OK;
}
