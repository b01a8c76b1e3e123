/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/placement.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

int32_t convoy_placement_init(struct convoy_placement *placement, const struct convoy_grid *grid,
                              struct convoy_error *error)
{
    placement->inner = grid->inner;
    placement->slots = grid->slots;
    placement->rank_of = convoy_memory_array(grid->slots, sizeof *placement->rank_of);
    placement->slot_of = convoy_memory_array(grid->member_count / grid->inner, sizeof *placement->slot_of);
    if (placement->rank_of == NULL || placement->slot_of == NULL) {
        convoy_placement_fini(placement);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "sync gather: no memory for a table of %u slots", grid->slots);
    }
    return CONVOY_OK;
}

void convoy_placement_fini(struct convoy_placement *placement)
{
    convoy_memory_free(placement->rank_of);
    convoy_memory_free(placement->slot_of);
    memset(placement, 0, sizeof *placement);
}

/* Lowest member of `member`'s data-parallel rank that named a slot; there is one. */
static uint32_t placement_claimant(const struct convoy_placement *placement, const struct convoy_gather *gather,
                                   uint32_t member)
{
    uint32_t claimant = member / placement->inner * placement->inner;
    while (gather->presence[claimant] != CONVOY_PRESENT || gather->slot_of[claimant] == CONVOY_GATHER_NO_SLOT) {
        claimant++;
    }
    return claimant;
}

/* Takes one member's claim; false when it contradicts an earlier one. */
static bool placement_claim(struct convoy_placement *placement, const struct convoy_gather *gather, uint32_t member,
                            struct convoy_conflict *conflict_out)
{
    uint32_t slot = gather->slot_of[member];
    uint32_t rank = member / placement->inner;
    uint32_t base = rank * placement->inner;
    enum convoy_conflict_kind kind = CONVOY_CONFLICT_NONE;
    uint32_t first = member;
    if (placement->slot_of[rank] != CONVOY_GATHER_NO_SLOT && placement->slot_of[rank] != slot) {
        kind = CONVOY_CONFLICT_RANK_SLOT;
        first = placement_claimant(placement, gather, member);
    } else if (placement->rank_of[slot] != CONVOY_PLACEMENT_EMPTY && placement->rank_of[slot] != base) {
        kind = CONVOY_CONFLICT_SLOT;
        first = placement_claimant(placement, gather, placement->rank_of[slot]);
    }
    if (kind != CONVOY_CONFLICT_NONE) {
        *conflict_out = (struct convoy_conflict){kind, first, member, gather->slot_of[first], slot};
        return false;
    }
    placement->slot_of[rank] = slot;
    placement->rank_of[slot] = base;
    return true;
}

static bool placement_compute_world(struct convoy_placement *placement, const struct convoy_gather *gather,
                                    struct convoy_conflict *conflict_out)
{
    uint32_t ranks = gather->form.member_count / placement->inner;
    memset(placement->rank_of, 0xff, placement->slots * sizeof *placement->rank_of);
    memset(placement->slot_of, 0xff, ranks * sizeof *placement->slot_of);
    for (uint32_t i = 0; i < gather->form.member_count; i++) {
        bool is_claim = gather->presence[i] == CONVOY_PRESENT && gather->slot_of[i] != CONVOY_GATHER_NO_SLOT;
        if (is_claim && !placement_claim(placement, gather, i, conflict_out)) {
            return false;
        }
    }
    return true;
}

bool convoy_placement_compute(struct convoy_placement *placement, const struct convoy_gather *gather,
                              struct convoy_conflict *conflict_out)
{
    if (gather->mask.other != CONVOY_MASK_NOBODY) {
        *conflict_out = (struct convoy_conflict){
            .kind = CONVOY_CONFLICT_MASK, .first = gather->mask.first, .second = gather->mask.other};
        return false;
    }
    return !gather->form.has_slot || placement_compute_world(placement, gather, conflict_out);
}

/* Lowest member of the rank in a slot, or EMPTY. */
static uint32_t placement_base(const struct convoy_placement *placement, const struct convoy_gather *gather,
                               uint32_t slot)
{
    if (gather->form.has_slot) {
        return placement->rank_of[slot];
    }
    return slot < gather->form.member_count / placement->inner ? slot * placement->inner : CONVOY_PLACEMENT_EMPTY;
}

uint32_t convoy_placement_cell(const struct convoy_placement *placement, const struct convoy_gather *gather,
                               uint32_t slot, uint32_t position, uint8_t *presence_out)
{
    uint32_t base = placement_base(placement, gather, slot);
    uint32_t member = base + position;
    *presence_out = CONVOY_PRESENT_EMPTY;
    if (base == CONVOY_PLACEMENT_EMPTY) {
        return CONVOY_PLACEMENT_EMPTY;
    }
    uint8_t presence = gather->presence[member];
    if (presence != CONVOY_PRESENT) {
        *presence_out = presence;
        return member;
    }
    if (gather->form.has_slot && gather->slot_of[member] == CONVOY_GATHER_NO_SLOT) {
        return CONVOY_PLACEMENT_EMPTY; /* its row was to be dropped */
    }
    *presence_out = convoy_mask_is_active(&gather->mask, member) ? CONVOY_PRESENT : CONVOY_PRESENT_INACTIVE;
    return member;
}
