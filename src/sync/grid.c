/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/grid.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

#define GRID_FORMAT 1u
#define UNION_MAX 256u
#define NOBODY UINT32_MAX

/* A column that some member has, and who stands in the way of dropping it. */
struct grid_entry {
    struct convoy_schema_column column; /* as `holder` has it */
    uint32_t holder;                    /* lowest member that has it */
    uint32_t lacking;                   /* lowest member that lacks it, or NOBODY */
    uint32_t insisting;                 /* lowest member that has it and not as OPTIONAL, or NOBODY */
    uint32_t seen_by;                   /* last member that had it */
};

/* All columns of all members read so far. Those of member 0 come first, in its order. */
struct grid_union {
    const int32_t *ids;
    uint32_t count;
    uint32_t lowest_count; /* entries that member 0 brought */
    struct grid_entry entries[UNION_MAX];
    struct convoy_schema schema; /* of the member being read */
};

int32_t convoy_grid_check(struct convoy_grid_own *own, struct convoy_error *error)
{
    uint32_t inner = own->inner != 0 ? own->inner : 1;
    if (own->member_count % inner != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "sync_inner is %u and does not divide %u members",
                                inner, own->member_count);
    }
    uint32_t ranks = own->member_count / inner;
    uint32_t slots = own->slots != 0 ? own->slots : ranks;
    if (slots < ranks || slots > CONVOY_GRID_CELLS_MAX / inner) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "sync_slots is %u, allowed are %u to %u (%u members, %u per data-parallel rank)", slots,
                                ranks, CONVOY_GRID_CELLS_MAX / inner, own->member_count, inner);
    }
    own->inner = inner;
    own->slots = slots;
    return CONVOY_OK;
}

size_t convoy_grid_encode(const struct convoy_grid_own *own, uint8_t *out, size_t capacity)
{
    uint32_t head[4] = {GRID_FORMAT, own->inner, own->slots, own->schema != NULL};
    if (capacity < sizeof head) {
        return 0;
    }
    memcpy(out, head, sizeof head);
    if (own->schema == NULL) {
        return sizeof head;
    }
    size_t bytes = convoy_schema_encode(own->schema, out + sizeof head, capacity - sizeof head);
    return bytes != 0 ? sizeof head + bytes : 0;
}

/* Reads one member's bytes and checks what must be equal on all. */
static int32_t grid_read(struct grid_union *all, uint32_t member, const struct convoy_blob *blob,
                          const struct convoy_grid_own *own, struct convoy_error *error)
{
    uint32_t head[4] = {0};
    if (blob->bytes >= sizeof head) {
        memcpy(head, blob->data, sizeof head);
    }
    bool is_sound = head[0] == GRID_FORMAT && head[3] <= 1 && (head[3] == 1 || blob->bytes == sizeof head);
    if (is_sound && head[3] == 1) {
        is_sound = convoy_schema_decode(&all->schema, blob->data + sizeof head, blob->bytes - sizeof head) == CONVOY_OK;
    }
    if (!is_sound) {
        return convoy_error_set_peer(error, CONVOY_MALFORMED, all->ids[member], 0,
                                     "sync schema of member %d cannot be read (%zu bytes)", all->ids[member],
                                     blob->bytes);
    }
    if ((head[3] == 1) != (own->schema != NULL)) {
        return convoy_error_set_peer(error, CONVOY_DIVERGED, all->ids[member], 0,
                                     "sync schema: member %d has %s, this member has %s", all->ids[member],
                                     head[3] == 1 ? "one" : "none", own->schema != NULL ? "one" : "none");
    }
    if (head[1] != own->inner || head[2] != own->slots) {
        return convoy_error_set_peer(error, CONVOY_DIVERGED, all->ids[member], 0,
                                     "sync_inner and sync_slots: member %d has %u and %u, this member %u and %u",
                                     all->ids[member], head[1], head[2], own->inner, own->slots);
    }
    return CONVOY_OK;
}

static struct grid_entry *grid_find(struct grid_union *all, const struct convoy_schema_column *column)
{
    for (uint32_t i = 0; i < all->count; i++) {
        struct grid_entry *entry = &all->entries[i];
        if (entry->column.name_length == column->name_length &&
            memcmp(entry->column.name, column->name, column->name_length) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* Takes one column of one member into the union. */
static int32_t grid_add(struct grid_union *all, uint32_t member, const struct convoy_schema_column *column,
                         struct convoy_error *error)
{
    struct grid_entry *entry = grid_find(all, column);
    if (entry == NULL && all->count == UNION_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT,
                                "sync schema: the members have more than %u different columns; \"%s\" of member %d is "
                                "one too many",
                                UNION_MAX, column->name, all->ids[member]);
    }
    if (entry == NULL) {
        entry = &all->entries[all->count++];
        entry->column = *column;
        entry->holder = member;
        entry->lacking = member == 0 ? NOBODY : 0;
        entry->insisting = NOBODY;
    }
    const char *what = convoy_schema_difference(&entry->column, column);
    if (what != NULL) {
        return convoy_error_set_peer(error, CONVOY_DIVERGED, all->ids[member], 0,
                                     "sync schema, column \"%s\": members %d and %d differ in its %s", column->name,
                                     all->ids[entry->holder], all->ids[member], what);
    }
    entry->seen_by = member;
    if ((column->flags & CONVOY_COLUMN_OPTIONAL) == 0 && entry->insisting == NOBODY) {
        entry->insisting = member;
    }
    return CONVOY_OK;
}

static int32_t grid_merge(struct grid_union *all, uint32_t member, struct convoy_error *error)
{
    for (uint32_t i = 0; i < all->schema.count; i++) {
        int32_t status = grid_add(all, member, &all->schema.columns[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < all->count; i++) {
        struct grid_entry *entry = &all->entries[i];
        if (entry->seen_by != member && entry->lacking == NOBODY) {
            entry->lacking = member;
        }
    }
    if (member == 0) {
        all->lowest_count = all->count;
    }
    return CONVOY_OK;
}

static int32_t grid_check_lacking(const struct grid_union *all, struct convoy_error *error)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const struct grid_entry *entry = &all->entries[i];
        if (entry->lacking != NOBODY && entry->insisting != NOBODY) {
            return convoy_error_set_peer(error, CONVOY_DIVERGED, all->ids[entry->lacking], 0,
                                         "sync schema, column \"%s\": member %d has it and not as optional, member %d "
                                         "lacks it",
                                         entry->column.name, all->ids[entry->insisting], all->ids[entry->lacking]);
        }
    }
    return CONVOY_OK;
}

/* What remains, and where each own column is in it. */
static void grid_cut(const struct grid_union *all, const struct convoy_grid_own *own, struct convoy_grid *grid)
{
    struct convoy_schema common = {.count = 0};
    for (uint32_t i = 0; i < all->lowest_count; i++) {
        if (all->entries[i].lacking == NOBODY) {
            common.columns[common.count++] = all->entries[i].column;
        }
    }
    grid->width = common.count;
    grid->hash = convoy_schema_hash(&common, own->inner, own->slots);
    grid->own = *own->schema;
    grid->is_whole = grid->own.count == common.count;
    for (uint32_t i = 0; i < grid->own.count; i++) {
        uint32_t at = convoy_schema_find(&common, &grid->own.columns[i]);
        grid->common[i] = at < common.count ? (uint8_t)at : CONVOY_GRID_CUT;
        grid->is_whole = grid->is_whole && at == i;
    }
}

static int32_t grid_read_all(struct grid_union *all, const struct convoy_blob *blobs,
                              const struct convoy_grid_own *own, struct convoy_error *error)
{
    for (uint32_t member = 0; member < own->member_count; member++) {
        int32_t status = grid_read(all, member, &blobs[member], own, error);
        if (status == CONVOY_OK && own->schema != NULL) {
            status = grid_merge(all, member, error);
        }
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return grid_check_lacking(all, error);
}

int32_t convoy_grid_agree(const struct convoy_blob *blobs, const int32_t *member_ids,
                           const struct convoy_grid_own *own, struct convoy_grid *grid_out,
                           struct convoy_error *error)
{
    struct grid_union *all = convoy_memory_zalloc(sizeof *all);
    if (all == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "sync schema: no memory for %zu bytes", sizeof *all);
    }
    all->ids = member_ids;
    int32_t status = grid_read_all(all, blobs, own, error);
    if (status == CONVOY_OK) {
        memset(grid_out, 0, sizeof *grid_out);
        grid_out->member_count = own->member_count;
        grid_out->inner = own->inner;
        grid_out->slots = own->slots;
        if (own->schema != NULL) {
            grid_cut(all, own, grid_out);
        }
    }
    convoy_memory_free(all);
    return status;
}
