/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each row of a finished round goes in the table, and whether the members agree on what they brought. Judged
 * from merged facts alone, so the answer is the same on all members. Pure.
 *
 * Plain gather: member m goes to slot m / inner, position m % inner; further slots stay empty.
 * World gather: to the slot its call named, position m % inner. A lost member, or one with an error row, is shown in
 * the slot that another member of its data-parallel rank named; when none did, nowhere.
 */
#ifndef CONVOY_SYNC_PLACEMENT_H
#define CONVOY_SYNC_PLACEMENT_H

#include "sync/gather.h"

#define CONVOY_PLACEMENT_EMPTY UINT32_MAX

enum convoy_conflict_kind {
    CONVOY_CONFLICT_NONE = 0,
    CONVOY_CONFLICT_MASK,      /* one mask version with different bits */
    CONVOY_CONFLICT_SLOT,      /* two data-parallel ranks name one slot */
    CONVOY_CONFLICT_RANK_SLOT, /* one data-parallel rank names two slots */
};

struct convoy_conflict {
    enum convoy_conflict_kind kind;
    uint32_t first; /* the two lowest members that show it */
    uint32_t second;
    uint32_t slot;        /* named by first (SLOT, RANK_SLOT) */
    uint32_t second_slot; /* named by second */
};

struct convoy_placement {
    uint32_t inner;
    uint32_t slots;
    uint32_t *rank_of; /* world gather, [slots]: lowest member of the data-parallel rank in that slot, or EMPTY */
    uint32_t *slot_of; /* world gather, [member_count / inner]: slot of each rank, or CONVOY_GATHER_NO_SLOT */
};

/* NO_MEMORY; safe to fini then. */
int32_t convoy_placement_init(struct convoy_placement *placement, const struct convoy_grid *grid,
                              struct convoy_error *error);
void convoy_placement_fini(struct convoy_placement *placement);

/* Places all rows. false: the members disagree, as conflict_out says. */
bool convoy_placement_compute(struct convoy_placement *placement, const struct convoy_gather *gather,
                              struct convoy_conflict *conflict_out);

/* Member whose row belongs to a cell, or EMPTY; presence_out: CONVOY_PRESENT_*. */
uint32_t convoy_placement_cell(const struct convoy_placement *placement, const struct convoy_gather *gather,
                               uint32_t slot, uint32_t position, uint8_t *presence_out);

#endif
