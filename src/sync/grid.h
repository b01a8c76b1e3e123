/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gathers of one group look like: its members, the table they fill, and the columns that all of them have.
 * Agreed once while the group opens: every member encodes its own, one bootstrap exchange, every member computes the
 * same from all of them. Pure apart from the heap that agree needs for its length.
 */
#ifndef CONVOY_SYNC_GRID_H
#define CONVOY_SYNC_GRID_H

#include "net/bootstrap.h"
#include "sync/schema.h"

#define CONVOY_GRID_BYTES_MAX (16u + CONVOY_SCHEMA_BYTES_MAX)
#define CONVOY_GRID_CELLS_MAX 65536u /* slots x inner */
#define CONVOY_GRID_CUT UINT8_MAX    /* in `common`: the column was cut */

struct convoy_grid {
    uint32_t member_count;
    uint32_t inner;             /* members per data-parallel rank */
    uint32_t slots;             /* data-parallel slots of the table, at least member_count / inner */
    uint32_t width;             /* columns that all members have; what a row carries between members */
    bool is_whole;              /* nothing was cut and the order is this member's own */
    uint64_t hash;              /* of those columns and of inner and slots */
    struct convoy_schema own;   /* as this member declared it; count is the width of its outputs */
    uint8_t common[CONVOY_SYNC_COLUMNS_MAX]; /* own column -> column in a carried row, or CONVOY_GRID_CUT */
};

/* What one member says of itself. schema NULL: it takes part in no gather. */
struct convoy_grid_own {
    uint32_t member_count;
    uint32_t inner; /* as in convoy_group_options; 0 = 1 */
    uint32_t slots; /* 0 = member_count / inner */
    const struct convoy_schema *schema;
};

/* INVALID_ARGUMENT: inner does not divide member_count, slots below member_count / inner, or slots x inner above
 * CONVOY_GRID_CELLS_MAX. Replaces zeros in `own` by what they mean. */
int32_t convoy_grid_check(struct convoy_grid_own *own, struct convoy_error *error);

/* `own`, checked, as bytes for the exchange; at most CONVOY_GRID_BYTES_MAX. 0: the capacity does not do. */
size_t convoy_grid_encode(const struct convoy_grid_own *own, uint8_t *out, size_t capacity);

/*
 * The agreed grid from what all members sent, in member order (own included); the same on all of them. Columns are
 * those that all members have, in the order of the lowest member; a column that one lacks must be OPTIONAL wherever it
 * exists. No member has a schema: OK with grid->width and own.count 0. DIVERGED: text names column and members (ids).
 * MALFORMED: a member's bytes. LIMIT: more than 256 different columns. NO_MEMORY. grid_out is undefined on failure.
 */
int32_t convoy_grid_agree(const struct convoy_blob *blobs, const int32_t *member_ids,
                           const struct convoy_grid_own *own, struct convoy_grid *grid_out,
                           struct convoy_error *error);

#endif
