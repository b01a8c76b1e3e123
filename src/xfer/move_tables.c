/* SPDX-License-Identifier: Apache-2.0 */
/* The small tables of an engine as items, and back: preallocated slots, offers that wait, what was answered, ranges. */
#include "core/error.h"
#include "core/memory.h"
#include "xfer/move_parts.h"

#include <string.h>

#define ITEM_WRITTEN 2u
#define RANGES_MAX (UINT32_C(1) << 20)

struct prealloc_fields {
    uint32_t index;
    struct convoy_xfer_prealloc one;
};

static const struct convoy_bundle_field prealloc_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct prealloc_fields, index),
    CONVOY_BUNDLE_FIELD(2, struct prealloc_fields, one.slot.lease),
    CONVOY_BUNDLE_FIELD(3, struct prealloc_fields, one.slot.offset),
    CONVOY_BUNDLE_FIELD(4, struct prealloc_fields, one.slot.bytes),
    CONVOY_BUNDLE_FIELD(5, struct prealloc_fields, one.slot.address),
    CONVOY_BUNDLE_FIELD(6, struct prealloc_fields, one.is_taken),
};

static const struct convoy_bundle_field waiting_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_xfer_waiting, came_ns),
    CONVOY_BUNDLE_FIELD(2, struct convoy_xfer_waiting, peer),
    CONVOY_BUNDLE_FIELD(3, struct convoy_xfer_waiting, generation),
    CONVOY_BUNDLE_FIELD(4, struct convoy_xfer_waiting, offer.serial),
    CONVOY_BUNDLE_FIELD(5, struct convoy_xfer_waiting, offer.sequence),
    CONVOY_BUNDLE_FIELD(6, struct convoy_xfer_waiting, offer.digest),
    CONVOY_BUNDLE_FIELD(7, struct convoy_xfer_waiting, offer.offset),
    CONVOY_BUNDLE_FIELD(8, struct convoy_xfer_waiting, offer.bytes),
    CONVOY_BUNDLE_FIELD(9, struct convoy_xfer_waiting, offer.note_offset),
    CONVOY_BUNDLE_FIELD(10, struct convoy_xfer_waiting, offer.note),
    CONVOY_BUNDLE_FIELD(11, struct convoy_xfer_waiting, offer.attempt),
};

static const struct convoy_bundle_field done_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_xfer_done, cookie),
    CONVOY_BUNDLE_FIELD(2, struct convoy_xfer_done, peer),
    CONVOY_BUNDLE_FIELD(3, struct convoy_xfer_done, generation),
    CONVOY_BUNDLE_FIELD(4, struct convoy_xfer_done, status),
};

static const struct convoy_bundle_field range_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_xfer_range, memory),
    CONVOY_BUNDLE_FIELD(2, struct convoy_xfer_range, bytes),
    CONVOY_BUNDLE_FIELD(3, struct convoy_xfer_range, references),
    CONVOY_BUNDLE_FIELD(4, struct convoy_xfer_range, users),
};

CONVOY_XFER_SHAPE(prealloc);
CONVOY_XFER_SHAPE(waiting);
CONVOY_XFER_SHAPE(done);
CONVOY_XFER_SHAPE(range);

/* -- items --------------------------------------------------------------------------------------------------------- */

void convoy_xfer_save_one(const struct convoy_xfer_saving *saving, uint16_t tag, const struct convoy_bundle_shape *shape,
                          const void *from)
{
    size_t opened = convoy_bundle_open(saving->writer, tag, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(saving->writer, shape, from);
    convoy_bundle_shut(saving->writer, opened);
}

int32_t convoy_xfer_restore_one(const struct convoy_bundle_item *item, const struct convoy_xfer_reading *reading,
                                struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        if (inner.tag == CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_get_fields(&inner, reading->shape, reading->to, error);
        } else if (reading->inner != NULL) {
            status = reading->inner(reading->user, &inner, error);
        } else {
            status = convoy_bundle_unknown(&inner, reading->shape->name, error);
        }
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, reading->shape->name, error) : status;
}

static int32_t refuse(const char *what, uint32_t number, uint32_t count, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "%s %u of up to %u cannot be", what, number, count);
}

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_preallocs(const struct convoy_xfer_saving *saving)
{
    for (uint32_t i = 0; saving->engine->preallocs != NULL && i < saving->engine->options.prealloc_count; i++) {
        const struct prealloc_fields fields = {.index = i, .one = saving->engine->preallocs[i]};
        const struct convoy_extents *written = &fields.one.written;
        size_t opened = convoy_bundle_open(saving->writer, CONVOY_XFER_ITEM_PREALLOC, CONVOY_BUNDLE_CRITICAL);
        convoy_bundle_put_fields(saving->writer, &prealloc_shape, &fields);
        if (written->count != 0) {
            convoy_bundle_put(saving->writer, ITEM_WRITTEN, CONVOY_BUNDLE_CRITICAL, written->all,
                              written->count * sizeof written->all[0]);
        }
        convoy_bundle_shut(saving->writer, opened);
    }
}

/* Oldest first, so that what comes next takes the place of the oldest. */
static void save_answered(const struct convoy_xfer_saving *saving, uint16_t tag, const struct convoy_xfer_done *all,
                          uint32_t count)
{
    uint32_t kept = count < CONVOY_XFER_DONE ? count : CONVOY_XFER_DONE;
    for (uint32_t i = 0; i < kept; i++) {
        convoy_xfer_save_one(saving, tag, &done_shape, &all[(count - kept + i) % CONVOY_XFER_DONE]);
    }
}

void convoy_xfer_save_tables(const struct convoy_xfer_saving *saving)
{
    const struct convoy_xfer *engine = saving->engine;
    save_preallocs(saving);
    for (uint32_t i = 0; i < engine->waiting_count; i++) {
        convoy_xfer_save_one(saving, CONVOY_XFER_ITEM_WAITING, &waiting_shape, &engine->waiting[i]);
    }
    save_answered(saving, CONVOY_XFER_ITEM_DONE, engine->done, engine->done_count);
    save_answered(saving, CONVOY_XFER_ITEM_LOAN, engine->loans, engine->loan_count);
    for (uint32_t i = 0; i < engine->range_count; i++) {
        convoy_xfer_save_one(saving, CONVOY_XFER_ITEM_RANGE, &range_shape, &engine->ranges[i]);
    }
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static int32_t restore_written(void *user, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct prealloc_fields *fields = user;
    if (item->tag != ITEM_WRITTEN) {
        return convoy_bundle_unknown(item, "preallocated slot", error);
    }
    bool is_kept = convoy_extents_add(&fields->one.written, (const struct convoy_extent *)(const void *)item->data,
                                      (uint32_t)(item->bytes / sizeof(struct convoy_extent)));
    return is_kept ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for what was written of a slot");
}

int32_t convoy_xfer_restore_prealloc(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                     struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct prealloc_fields fields = {.index = 0};
    const struct convoy_xfer_reading reading = {&prealloc_shape, &fields, restore_written, &fields};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    bool can_be = engine->preallocs != NULL && fields.index == restoring->prealloc_count &&
                  fields.index < engine->options.prealloc_count;
    if (status == CONVOY_OK && !can_be) {
        status = refuse("preallocated slot", fields.index, engine->options.prealloc_count, error);
    }
    if (status != CONVOY_OK) {
        convoy_extents_free(&fields.one.written);
        return status;
    }
    engine->preallocs[restoring->prealloc_count++] = fields.one;
    return CONVOY_OK;
}

static bool is_peer(const struct convoy_xfer *engine, uint32_t peer)
{
    return peer < engine->options.peer_max && engine->peers[peer].state != 0;
}

int32_t convoy_xfer_restore_waiting(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                    struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_waiting waiting = {.peer = 0};
    const struct convoy_xfer_reading reading = {&waiting_shape, &waiting, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status == CONVOY_OK && (engine->waiting_count == engine->options.transfer_max || !is_peer(engine, waiting.peer))) {
        status = refuse("offer", engine->waiting_count, engine->options.transfer_max, error);
    }
    if (status == CONVOY_OK) {
        engine->waiting[engine->waiting_count++] = waiting;
    }
    return status;
}

int32_t convoy_xfer_restore_done(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_done done = {.cookie = 0};
    const struct convoy_xfer_reading reading = {&done_shape, &done, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    engine->done[engine->done_count++ % CONVOY_XFER_DONE] = done;
    return status;
}

int32_t convoy_xfer_restore_loan(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_done loan = {.cookie = 0};
    const struct convoy_xfer_reading reading = {&done_shape, &loan, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    engine->loans[engine->loan_count++ % CONVOY_XFER_DONE] = loan;
    return status;
}

int32_t convoy_xfer_restore_range(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_range range = {.references = 0};
    const struct convoy_xfer_reading reading = {&range_shape, &range, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    uint64_t address = (uint64_t)(uintptr_t)range.memory;
    if (status == CONVOY_OK && (address == 0 || range.bytes == 0 || range.bytes > UINTPTR_MAX - address ||
                                range.references == 0 || engine->range_count == RANGES_MAX)) {
        status = refuse("range", engine->range_count, RANGES_MAX, error);
    }
    if (status == CONVOY_OK && engine->range_count == engine->range_room) {
        status = convoy_xfer_range_room(engine, error);
    }
    if (status == CONVOY_OK) {
        engine->ranges[engine->range_count++] = range;
    }
    return status;
}
