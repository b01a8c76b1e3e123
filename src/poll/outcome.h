/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the merged table of a keyed round to its outcome: the rule for members that do not list an identity, identities
 * decided before, and the way back to this member's own order. Pure; memory comes from init.
 */
#ifndef CONVOY_POLL_OUTCOME_H
#define CONVOY_POLL_OUTCOME_H

#include "core/memory.h"
#include "poll/decided.h"
#include "poll/keyed.h"
#include "poll/order.h"

struct convoy_outcome {
    uint8_t *flags;      /* CONVOY_OUTCOME_*, by entry of the merged table */
    uint32_t *positions; /* own entry -> entry of the merged table */
    uint8_t *states;     /* outcome in own order, by own entry */
    /* Versions for which `flags` are known to be all 0 and `positions` to be right: the usual round has no look-ups. */
    uint64_t plain_keyed;
    uint64_t plain_decided;
    uint64_t position_keyed;
    uint64_t position_order;
};

/* Makes it new; capacity: entries of a table. Its tables are placed as in core/memory.h: twice, the second time for use. */
void convoy_outcome_place(struct convoy_outcome *outcome, size_t capacity, struct convoy_memory_plan *plan);

/* Turns the merged table into the outcome, in place; call once per round. decided: NULL = decide nothing (the first of
 * two levels). */
void convoy_outcome_finish(struct convoy_outcome *outcome, struct convoy_keyed *keyed, struct convoy_decided *decided);

/* Fills `states` for own lists, all of which the merged table must contain. Returns false when it does not. */
bool convoy_outcome_own(struct convoy_outcome *outcome, struct convoy_keyed *keyed, const struct convoy_order *order);

#endif
