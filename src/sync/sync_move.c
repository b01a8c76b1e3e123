/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/sync_move.h"

#include "core/error.h"
#include "round/engine_move.h"
#include "sync/sync_parts.h"

/* Items. Numbers are never used again. */
#define ITEM_GRID 2u  /* items */
#define ITEM_ALONE 3u /* items: counts of local gathers */
#define ITEM_LAST 4u  /* items: the last round's merged state */

/* In LAST. */
#define ITEM_ROWS 2u     /* i64 [member_count][width] */
#define ITEM_PRESENCE 3u /* u8 [member_count] */
#define ITEM_SLOTS 4u    /* u32 [member_count] */

static const struct convoy_bundle_field grid_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_grid, member_count),
    CONVOY_BUNDLE_FIELD(2, struct convoy_grid, inner),
    CONVOY_BUNDLE_FIELD(3, struct convoy_grid, slots),
    CONVOY_BUNDLE_FIELD(4, struct convoy_grid, width),
    CONVOY_BUNDLE_FIELD(5, struct convoy_grid, is_whole),
    CONVOY_BUNDLE_FIELD(6, struct convoy_grid, hash),
    CONVOY_BUNDLE_FIELD(7, struct convoy_grid, common),
};

static const struct convoy_bundle_field alone_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_alone, count),
    CONVOY_BUNDLE_FIELD(2, struct convoy_alone, salt),
    CONVOY_BUNDLE_FIELD(3, struct convoy_alone, operation),
    CONVOY_BUNDLE_FIELD(4, struct convoy_alone, status),
    CONVOY_BUNDLE_FIELD(5, struct convoy_alone, error_reason),
    CONVOY_BUNDLE_FIELD(6, struct convoy_alone, summary.votes_and),
    CONVOY_BUNDLE_FIELD(7, struct convoy_alone, summary.votes_or),
};

/* Of struct convoy_sync: the last operation, and what gather knows beside the rows. */
static const struct convoy_bundle_field last_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_sync, operation),
    CONVOY_BUNDLE_FIELD(2, struct convoy_sync, gather.form.has_slot),
    CONVOY_BUNDLE_FIELD(3, struct convoy_sync, gather.seen),
    CONVOY_BUNDLE_FIELD(4, struct convoy_sync, gather.present),
    CONVOY_BUNDLE_FIELD(5, struct convoy_sync, gather.mask.version),
    CONVOY_BUNDLE_FIELD(6, struct convoy_sync, gather.mask.first),
    CONVOY_BUNDLE_FIELD(7, struct convoy_sync, gather.mask.other),
    CONVOY_BUNDLE_FIELD(8, struct convoy_sync, gather.mask.agreeing),
    CONVOY_BUNDLE_FIELD(9, struct convoy_sync, gather.mask.total),
    CONVOY_BUNDLE_FIELD(10, struct convoy_sync, gather.mask.is_full),
    CONVOY_BUNDLE_FIELD(11, struct convoy_sync, gather.mask.bits),
};

#define SHAPE_OF(list) .fields = (list), .count = sizeof(list) / sizeof((list)[0])

static const struct convoy_bundle_shape grid_shape = {.name = "the grid of gathers", SHAPE_OF(grid_field_list)};
static const struct convoy_bundle_shape alone_shape = {.name = "local gathers", SHAPE_OF(alone_field_list)};
static const struct convoy_bundle_shape last_shape = {.name = "the last gather", SHAPE_OF(last_field_list)};

bool convoy_sync_is_alone(const struct convoy_sync *sync)
{
    return convoy_alone_owns(sync->operation);
}

/* -- saving -------------------------------------------------------------------------------------------------------- */

static void save_item(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags,
                      const struct convoy_bundle_shape *shape, const void *from)
{
    size_t opened = convoy_bundle_open(writer, tag, flags);
    convoy_bundle_put_fields(writer, shape, from);
    convoy_bundle_shut(writer, opened);
}

static void save_last(const struct convoy_sync *sync, struct convoy_bundle_writer *writer)
{
    const struct convoy_gather *gather = &sync->gather;
    size_t members = gather->form.member_count;
    size_t opened = convoy_bundle_open(writer, ITEM_LAST, 0);
    convoy_bundle_put_fields(writer, &last_shape, sync);
    convoy_bundle_put(writer, ITEM_ROWS, 0, gather->rows, members * sync->width * sizeof *gather->rows);
    convoy_bundle_put(writer, ITEM_PRESENCE, 0, gather->presence, members);
    convoy_bundle_put(writer, ITEM_SLOTS, 0, gather->slot_of, members * sizeof *gather->slot_of);
    convoy_bundle_shut(writer, opened);
}

void convoy_sync_save(const struct convoy_sync *sync, struct convoy_bundle_writer *writer)
{
    save_item(writer, ITEM_GRID, CONVOY_BUNDLE_CRITICAL, &grid_shape, &sync->grid);
    save_item(writer, ITEM_ALONE, CONVOY_BUNDLE_CRITICAL, &alone_shape, &sync->alone);
    if (sync->operation != 0) {
        save_last(sync, writer);
    }
}

/* -- restoring ----------------------------------------------------------------------------------------------------- */

static int32_t malformed(const char *what, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "%s of an exported state is damaged", what);
}

static void make_bool(bool *value)
{
    uint8_t byte;
    memcpy(&byte, value, sizeof byte); /* no bool yet: it was read as a byte */
    *value = byte != 0;
}

static int32_t read_fields(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape, void *to,
                           struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    while (convoy_bundle_next(&reader, &one)) {
        int32_t status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, shape, to, error)
                                                         : convoy_bundle_unknown(&one, shape->name, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return convoy_bundle_done(&reader, shape->name, error);
}

static bool grid_is_sound(const struct convoy_grid *grid, uint32_t member_count)
{
    struct convoy_grid_own own = {.member_count = member_count, .inner = grid->inner, .slots = grid->slots};
    bool is_sound = grid->member_count == member_count && grid->width >= 1 && grid->width <= grid->own.count &&
                    grid->inner != 0 && grid->slots != 0 && convoy_grid_check(&own, NULL) == CONVOY_OK;
    uint64_t taken = 0;
    for (uint32_t i = 0; is_sound && i < grid->own.count; i++) {
        if (grid->common[i] == CONVOY_GRID_CUT) {
            continue;
        }
        is_sound = grid->common[i] < grid->width && (taken >> grid->common[i] & 1) == 0;
        taken |= is_sound ? UINT64_C(1) << grid->common[i] : 0;
    }
    return is_sound && (uint32_t)__builtin_popcountll(taken) == grid->width;
}

int32_t convoy_sync_restore_grid(const struct convoy_bundle_item *item, const struct convoy_schema *schema,
                                 uint32_t member_count, struct convoy_grid *grid_out, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    bool is_there = false;
    memset(grid_out, 0, sizeof *grid_out);
    while (convoy_bundle_next(&reader, &one)) {
        int32_t status = one.tag == ITEM_GRID ? read_fields(&one, &grid_shape, grid_out, error) : CONVOY_OK;
        if (status != CONVOY_OK) {
            return status;
        }
        is_there |= one.tag == ITEM_GRID;
    }
    if (!is_there) {
        return convoy_error_set(error, CONVOY_TOO_OLD, "an exported state lacks %s", grid_shape.name);
    }
    make_bool(&grid_out->is_whole);
    grid_out->own = *schema;
    return grid_is_sound(grid_out, member_count) ? CONVOY_OK : malformed(grid_shape.name, error);
}

/* The last round's rows, if all of them are there. */
static int32_t read_last(struct convoy_sync *sync, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_gather *gather = &sync->gather;
    size_t members = gather->form.member_count;
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    const struct {
        uint16_t tag;
        void *to;
        size_t bytes;
    } parts[] = {
        {ITEM_ROWS, gather->rows, members * sync->width * sizeof *gather->rows},
        {ITEM_PRESENCE, gather->presence, members},
        {ITEM_SLOTS, gather->slot_of, members * sizeof *gather->slot_of},
    };
    uint32_t seen = 0;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, &last_shape, sync, error) : CONVOY_OK;
        for (uint32_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (one.tag == parts[i].tag && one.bytes == parts[i].bytes) {
                memcpy(parts[i].to, one.data, one.bytes);
                seen |= 1u << i;
            }
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, last_shape.name, error) : status;
    make_bool(&gather->form.has_slot);
    make_bool(&gather->mask.is_full);
    return status == CONVOY_OK && seen != 7 ? malformed(last_shape.name, error) : status;
}

/* What placing and writing rows rely on. */
static bool last_is_sound(const struct convoy_gather *gather)
{
    uint32_t members = gather->form.member_count;
    const struct convoy_mask *mask = &gather->mask;
    bool is_sound = gather->seen <= members && gather->present <= members && mask->agreeing <= members &&
                    mask->total <= members && (mask->first < members || mask->first == CONVOY_MASK_NOBODY) &&
                    (mask->other < members || mask->other == CONVOY_MASK_NOBODY);
    for (uint32_t member = 0; member < members && is_sound; member++) {
        uint32_t slot = gather->slot_of[member];
        is_sound = !gather->form.has_slot || slot < gather->slots || slot == CONVOY_GATHER_NO_SLOT;
    }
    return is_sound;
}

int32_t convoy_sync_restore(struct convoy_sync *sync, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    sync->alone.salt = 0; /* what a field that is not written stands for */
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        switch (one.tag) {
        case ITEM_GRID:
            break; /* read before */
        case ITEM_ALONE:
            status = read_fields(&one, &alone_shape, &sync->alone, error);
            break;
        case ITEM_LAST:
            status = read_last(sync, &one, error);
            break;
        default:
            status = convoy_bundle_unknown(&one, "sync gather", error);
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, "sync gather", error) : status;
    if (status == CONVOY_OK && sync->operation != 0 && !last_is_sound(&sync->gather)) {
        return malformed(last_shape.name, error);
    }
    if (status == CONVOY_OK && sync->operation != 0 && sync->operation == convoy_engine_last(sync->engine)) {
        convoy_engine_merge_into(sync->engine, &convoy_gather_ops, &sync->gather);
    }
    return status;
}
