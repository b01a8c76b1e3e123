/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one gather round and how it merges: rows of members, presence, slots and masks. Facts are collected
 * here and judged after the round (sync/placement.h), so that every member, on whatever host, judges the same. All
 * memory is made at init. One round at a time; merging itself is free of heap, I/O, clock and locks.
 */
#ifndef CONVOY_SYNC_GATHER_H
#define CONVOY_SYNC_GATHER_H

#include "round/merge.h"
#include "sync/row.h"
#include "sync/grid.h"

#define CONVOY_GATHER_UNSEEN UINT8_MAX
#define CONVOY_GATHER_NO_SLOT CONVOY_SYNC_SLOT_NONE

struct convoy_gather {
    struct convoy_row_form form; /* has_slot: this round is a world gather */
    uint32_t slots;              /* slots of the table */
    uint32_t seen;               /* members heard of */
    uint32_t present;            /* of them, with a row */
    int64_t *rows;               /* [member_count][width]; valid where presence is CONVOY_PRESENT */
    uint8_t *presence;           /* [member_count]: CONVOY_PRESENT, _LOST, _ERROR, or UNSEEN */
    uint32_t *slot_of;           /* [member_count]: slot the row goes to, or NO_SLOT; world gather only */
    struct convoy_mask mask;     /* merged over the members that brought a row */
    struct convoy_row_out incoming; /* room to decode into */
};

/* NO_MEMORY. `gather` is then safe to fini. */
int32_t convoy_gather_init(struct convoy_gather *gather, const struct convoy_grid *grid, struct convoy_error *error);

/* Accepts zeroed storage. */
void convoy_gather_fini(struct convoy_gather *gather);

/* Whether the coming round is a world gather; before the round is published. */
void convoy_gather_prepare(struct convoy_gather *gather, bool is_world);

/* Longest merged state for a group; 0 when it has no schema. */
size_t convoy_gather_partial_bytes_max(const struct convoy_grid *grid);

/* merge_state is the struct convoy_gather. A payload or partial that does not parse, names a member twice, or a slot
 * that does not exist, is MALFORMED. */
extern const struct convoy_merge_ops convoy_gather_ops;

#endif
