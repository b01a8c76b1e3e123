/* SPDX-License-Identifier: Apache-2.0 */
/* Sync gather of a group moves to another build: the grid as it was agreed on, and the last round, whose end may be read
 * again. What makes calls short is left behind: the first one goes the whole way. */
#ifndef CONVOY_SYNC_SYNC_MOVE_H
#define CONVOY_SYNC_SYNC_MOVE_H

#include "core/bundle.h"
#include "sync/sync.h"

/* Whether the last operation is a local one (sync/alone.h): over, but perhaps not read. */
bool convoy_sync_is_alone(const struct convoy_sync *sync);

/* Items into the open item; the grid's own columns are the group's schema, which is not among them. */
void convoy_sync_save(const struct convoy_sync *sync, struct convoy_bundle_writer *writer);

/* The grid, before sync is opened. schema: as declared; member_count: of the group. MALFORMED, TOO_NEW. */
int32_t convoy_sync_restore_grid(const struct convoy_bundle_item *item, const struct convoy_schema *schema,
                                 uint32_t member_count, struct convoy_grid *grid_out, struct convoy_error *error);

/* The rest, into one that was just opened with that grid. */
int32_t convoy_sync_restore(struct convoy_sync *sync, const struct convoy_bundle_item *item, struct convoy_error *error);

#endif
