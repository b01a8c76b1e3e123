/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a finished round into the caller's arrays, and the checks before that. Outputs may have any alignment; they
 * must not overlap each other. Inputs were captured when the call started, so an output may overlap an input.
 */
#ifndef CONVOY_SYNC_DELIVER_H
#define CONVOY_SYNC_DELIVER_H

#include "sync/derive.h"
#include "sync/placement.h"

/* BUFFER_TOO_SMALL: an array that is given holds too little. INVALID_ARGUMENT: two overlap, or a stride that nobody has.
 * TOO_OLD: a stride below the element of release 1.0. Writes nothing. */
int32_t convoy_deliver_check(const struct convoy_grid *grid, const struct convoy_sync_result *result,
                             struct convoy_error *error);

/* Fills table, first, reduced, presence, mask_version, mask_skew and width of a result that passed the check. */
void convoy_deliver_write(const struct convoy_grid *grid, const struct convoy_gather *gather,
                          const struct convoy_placement *placement, struct convoy_sync_result *result_out);

/* Whether the rows as they were gathered are the table: everybody there, everything carried, no slot to spare. Then this
 * writes table, first, reduced and presence as convoy_deliver_write would, in a few copies. */
bool convoy_deliver_is_whole(const struct convoy_grid *grid, const struct convoy_gather *gather);
void convoy_deliver_whole(const struct convoy_grid *grid, const struct convoy_gather *gather,
                          struct convoy_sync_result *result_out);

/* Text of a round whose members disagree, with both ids. Returns DIVERGED. */
int32_t convoy_deliver_conflict(const struct convoy_conflict *conflict, const struct convoy_gather *gather,
                                const int32_t *member_ids, uint64_t round, struct convoy_error *error);

/* All members as rows of a report, the two of the conflict as DIVERGED; `row` has what is the same in all. */
void convoy_deliver_report(const struct convoy_conflict *conflict, const struct convoy_gather *gather,
                           const int32_t *member_ids, const struct convoy_member_report *row,
                           struct convoy_report *report_out);

#endif
