/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is for peers on other hosts as items of a bundle: numbers that must never come again, what each peer has said of
 * its bulk, and which payloads are all there. Pushes are not in it: a send that was under way begins anew when its receiver
 * says ROOM. Nor are orders of peers on their way in, which are said again; what they hold is given back on the other side.
 */
#include "xfer/far.h"
#include "xfer/move.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <string.h>

/* Items inside the one of far. */
enum { ITEM_WIRE = 2, ITEM_PUT, ITEM_WHOLE, ITEM_ORDER };
#define PENDING UINT64_MAX /* landing of a load here, which has none yet */

/* Items inside a wire. */
enum { WIRE_ADDRESS = 2, WIRE_IN, WIRE_OUT };

struct far_fields {
    uint64_t number;     /* of the exporter's bulk */
    uint64_t generation; /* of its last landing */
};

struct wire_fields {
    uint32_t peer;
    uint32_t may_move;
    uint64_t wanted;
    uint64_t heard;
    uint64_t since_ns;
    uint64_t down_ns;
    uint64_t count;
};

/* A load whose bytes are all there, but were not looked at. */
struct whole_fields {
    uint32_t entry;
};

/* What an order of a peer holds. */
struct order_fields {
    uint64_t lease;
    uint64_t target; /* in registered memory; 0 = neither */
};

#define FIELD CONVOY_BUNDLE_FIELD
#define SHAPE(name, fields) {name, fields, sizeof(fields) / sizeof(fields)[0]}

static const struct convoy_bundle_field far_list[] = {FIELD(1, struct far_fields, number),
                                                      FIELD(2, struct far_fields, generation)};
static const struct convoy_bundle_field wire_list[] = {
    FIELD(1, struct wire_fields, peer),     FIELD(2, struct wire_fields, may_move), FIELD(3, struct wire_fields, wanted),
    FIELD(4, struct wire_fields, heard),    FIELD(5, struct wire_fields, since_ns), FIELD(6, struct wire_fields, down_ns),
    FIELD(7, struct wire_fields, count)};
static const struct convoy_bundle_field whole_list[] = {FIELD(1, struct whole_fields, entry)};
static const struct convoy_bundle_field order_list[] = {FIELD(1, struct order_fields, lease),
                                                        FIELD(2, struct order_fields, target)};
static const struct convoy_bundle_shape far_shape = SHAPE("far", far_list);
static const struct convoy_bundle_shape wire_shape = SHAPE("far wire", wire_list);
static const struct convoy_bundle_shape whole_shape = SHAPE("far load", whole_list);
static const struct convoy_bundle_shape order_shape = SHAPE("far order", order_list);

static bool is_far(const struct convoy_xfer_peer *peer)
{
    return peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
}

static bool is_landing(const struct convoy_xfer_entry *entry)
{
    return entry->kind == CONVOY_XFER_LOAD && entry->state == CONVOY_TRANSFER_LOADING && entry->landing != CONVOY_LANDING_NONE;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

/* A frame may be half in, or half out. */
static void save_wire(struct convoy_bundle_writer *writer, const struct convoy_far_wire *wire, uint32_t peer)
{
    const struct convoy_frame_stream *stream = &wire->stream;
    const struct wire_fields fields = {.peer = peer,
                                       .may_move = wire->may_move,
                                       .wanted = wire->wanted,
                                       .heard = wire->heard,
                                       .since_ns = wire->since_ns != 0 ? wire->since_ns : convoy_now_ns(),
                                       .down_ns = wire->down_ns,
                                       .count = wire->count};
    uint8_t in[CONVOY_FRAME_HEAD_BYTES + CONVOY_FAR_MOVED_BYTES + CONVOY_FAR_ADDRESS_BYTES];
    size_t in_bytes = stream->head_bytes;
    memcpy(in, stream->head, in_bytes);
    if (stream->frame.body != NULL) {
        memcpy(in + in_bytes, stream->frame.body, stream->body_bytes);
        in_bytes += stream->body_bytes;
    }
    size_t opened = convoy_bundle_open(writer, ITEM_WIRE, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &wire_shape, &fields);
    convoy_bundle_put(writer, WIRE_ADDRESS, 0, wire->address, wire->address_bytes);
    convoy_bundle_put(writer, WIRE_IN, 0, in, in_bytes);
    if (stream->queue_done < stream->queue_bytes) {
        convoy_bundle_put(writer, WIRE_OUT, 0, stream->queue + stream->queue_done, stream->queue_bytes - stream->queue_done);
    }
    convoy_bundle_shut(writer, opened);
}

static void save_whole(struct convoy_bundle_writer *writer, const struct convoy_xfer_entry *entry)
{
    const struct whole_fields fields = {.entry = entry->index + 1};
    size_t opened = convoy_bundle_open(writer, ITEM_WHOLE, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &whole_shape, &fields);
    convoy_bundle_put(writer, WIRE_ADDRESS, 0, entry->room, entry->note_bytes); /* its descriptor, as it came */
    convoy_bundle_shut(writer, opened);
}

static void save_order(struct convoy_bundle_writer *writer, const struct convoy_far_raw *raw)
{
    bool is_slot = raw->slot.lease != CONVOY_LEASE_NONE;
    const struct order_fields fields = {.lease = raw->copy == NULL && is_slot ? raw->slot.lease : CONVOY_LEASE_NONE,
                                        .target = raw->copy == NULL && !is_slot ? raw->order.target : 0};
    size_t opened = convoy_bundle_open(writer, ITEM_ORDER, 0);
    convoy_bundle_put_fields(writer, &order_shape, &fields);
    convoy_bundle_shut(writer, opened);
}

static int32_t check_save(const struct convoy_xfer *engine, struct convoy_error *error)
{
    const struct convoy_far *far = engine->far;
    if (far->memory != NULL && far->rma == CONVOY_LINK_RMA_ALLOCATED) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "engine %s: its pool of %llu bytes is memory of UCX's making, which "
                                "another build cannot take over", engine->session, (unsigned long long)far->memory_bytes);
    }
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        if (is_far(peer) && peer->tcp_fd >= 0 && !far->peers[i].wire.may_move) {
            return convoy_error_set(error, CONVOY_UNSUPPORTED, "engine %s: peer %s is of a build that does not follow a move",
                                    engine->session, peer->session);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_far_save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    const struct convoy_far *far = engine->far;
    const struct far_fields fields = {.number = far->number, .generation = convoy_landings_generation(far->landings)};
    int32_t status = check_save(engine, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_bundle_put_fields(writer, &far_shape, &fields);
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (is_far(&engine->peers[i])) {
            save_wire(writer, &far->peers[i].wire, i);
        }
    }
    convoy_far_rma_save(far, writer, ITEM_PUT);
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        if (is_landing(entry) && convoy_landing_is_whole(far->landings, entry->landing)) {
            save_whole(writer, entry);
        }
    }
    for (const struct convoy_far_raw *raw = far->raws; raw != NULL; raw = raw->next) {
        save_order(writer, raw);
    }
    return CONVOY_OK;
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

/* Fields, and up to three items of bytes by their tags. */
struct parts {
    const struct convoy_bundle_shape *shape;
    void *fields;
    struct convoy_bundle_item bytes[3];
};

static int32_t read_parts(const struct convoy_bundle_item *item, struct parts *parts, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        if (one.tag == CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_get_fields(&one, parts->shape, parts->fields, error);
        } else if (one.tag >= WIRE_ADDRESS && one.tag <= WIRE_OUT) {
            parts->bytes[one.tag - WIRE_ADDRESS] = one;
        } else {
            status = convoy_bundle_unknown(&one, parts->shape->name, error);
        }
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, parts->shape->name, error) : status;
}

static int32_t malformed(const char *what, uint64_t number, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "an exported %s %llu that there cannot be", what,
                            (unsigned long long)number);
}

/* What has come of a frame. */
static int32_t restore_in(struct convoy_frame_stream *stream, const struct convoy_bundle_item *in)
{
    uint32_t limit = CONVOY_FAR_MOVED_BYTES + CONVOY_FAR_ADDRESS_BYTES;
    stream->head_bytes = in->bytes < sizeof stream->head ? (uint32_t)in->bytes : (uint32_t)sizeof stream->head;
    if (stream->head_bytes != 0) {
        memcpy(stream->head, in->data, stream->head_bytes);
    }
    if (stream->head_bytes < sizeof stream->head) {
        return CONVOY_OK;
    }
    int32_t status = convoy_frame_head_decode(stream->head, limit, &stream->frame.type, &stream->frame.bytes);
    size_t body_bytes = in->bytes - stream->head_bytes;
    if (status != CONVOY_OK || body_bytes > stream->frame.bytes) {
        return CONVOY_MALFORMED;
    }
    stream->frame.body = convoy_memory_zalloc(stream->frame.bytes);
    if (stream->frame.body == NULL) {
        return CONVOY_NO_MEMORY;
    }
    memcpy(stream->frame.body, in->data + stream->head_bytes, body_bytes);
    stream->body_bytes = (uint32_t)body_bytes;
    return CONVOY_OK;
}

static int32_t restore_out(struct convoy_frame_stream *stream, const struct convoy_bundle_item *out)
{
    if (out->bytes == 0) {
        return CONVOY_OK;
    }
    stream->queue = convoy_memory_zalloc(out->bytes);
    if (stream->queue == NULL) {
        return CONVOY_NO_MEMORY;
    }
    memcpy(stream->queue, out->data, out->bytes);
    stream->queue_bytes = out->bytes;
    return CONVOY_OK;
}

static int32_t restore_wire(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct wire_fields fields = {0};
    struct parts parts = {.shape = &wire_shape, .fields = &fields};
    int32_t status = read_parts(item, &parts, error);
    if (status != CONVOY_OK) {
        return status;
    }
    size_t address_bytes = parts.bytes[0].bytes;
    if (fields.peer >= engine->far->peer_count || fields.heard > engine->far->number || address_bytes == 0 ||
        address_bytes > CONVOY_FAR_ADDRESS_BYTES) {
        return malformed("peer on another host", fields.peer, error);
    }
    struct convoy_far_wire *wire = &engine->far->peers[fields.peer].wire;
    convoy_far_wire_free(wire);
    wire->may_move = fields.may_move != 0;
    wire->wanted = fields.wanted;
    wire->number = CONVOY_FAR_UNWIRED;
    wire->heard = fields.heard;
    wire->since_ns = fields.since_ns;
    wire->down_ns = fields.down_ns;
    wire->count = fields.count;
    status = convoy_far_wire_keep(engine, fields.peer, parts.bytes[0].data, address_bytes);
    status = status == CONVOY_OK ? restore_in(&wire->stream, &parts.bytes[1]) : status;
    status = status == CONVOY_OK ? restore_out(&wire->stream, &parts.bytes[2]) : status;
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_set(error, status, "the connection to peer %u", fields.peer);
}

static int32_t restore_whole(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct whole_fields fields = {0};
    struct parts parts = {.shape = &whole_shape, .fields = &fields};
    int32_t status = read_parts(item, &parts, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_xfer_entry *entry = fields.entry - 1 < engine->entry_top ? &engine->entries[fields.entry - 1] : NULL;
    if (entry == NULL || entry->landing != PENDING || parts.bytes[0].bytes != entry->note_bytes) {
        return malformed("load", fields.entry, error);
    }
    status = convoy_far_load_restore(engine, entry, true);
    if (status != CONVOY_OK) {
        return convoy_error_set(error, status, "the landing of load %u", fields.entry);
    }
    if (entry->note_bytes != 0) {
        memcpy(entry->room, parts.bytes[0].data, entry->note_bytes);
    }
    return CONVOY_OK;
}

/* It is said again, and then taken like a new one. */
static int32_t restore_order(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct order_fields fields = {0};
    struct parts parts = {.shape = &order_shape, .fields = &fields};
    int32_t status = read_parts(item, &parts, error);
    if (status == CONVOY_OK && fields.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_unrefer(engine->pool, fields.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else if (status == CONVOY_OK && fields.target != 0) {
        convoy_xfer_range_use(engine, fields.target, false);
    }
    return status;
}

static int32_t restore_item(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct far_fields fields = {0};
    int32_t status;
    switch (item->tag) {
    case CONVOY_BUNDLE_FIELDS: /* the first */
        status = convoy_bundle_get_fields(item, &far_shape, &fields, error);
        engine->far->number = fields.number;
        convoy_landings_continue(engine->far->landings, fields.generation);
        return status;
    case ITEM_WIRE:
        return restore_wire(engine, item, error);
    case ITEM_PUT:
        return convoy_far_rma_restore(engine->far, item, error);
    case ITEM_WHOLE:
        return restore_whole(engine, item, error);
    case ITEM_ORDER:
        return restore_order(engine, item, error);
    default:
        return convoy_bundle_unknown(item, far_shape.name, error);
    }
}

/* Those that were not there yet begin anew; what went out begins anew when its receiver says so. */
static int32_t restore_entries(struct convoy_xfer *engine, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (uint32_t at = engine->active_first; status == CONVOY_OK && at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_LOAD && entry->landing == PENDING) {
            status = convoy_far_load_restore(engine, entry, false);
        } else if (entry->kind == CONVOY_XFER_SEND) {
            entry->streams[0] = entry->streams[1] = 0;
            entry->must_push_again = entry->landing_generation != 0;
        }
    }
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_set(error, status, "the landings of %u loads", engine->used_count);
}

static int32_t restore_all(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        if (is_landing(&engine->entries[at])) {
            engine->entries[at].landing = PENDING;
        }
    }
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = restore_item(engine, &one, error);
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, far_shape.name, error) : status;
    return status == CONVOY_OK ? restore_entries(engine, error) : status;
}

int32_t convoy_far_restore(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    int32_t status = convoy_far_make(engine, &engine->far, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = restore_all(engine, item, error);
    if (status != CONVOY_OK) {
        convoy_far_discard(engine);
    }
    return status;
}
