/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine moves to another build (plugin/move.h has the steps). Between save and thaw both builds have the segment
 * mapped, and neither writes to it: to the other members it is one member that takes its time. Nobody is inside and no
 * operation is open or unread, except where [any thread] is said.
 */
#ifndef CONVOY_ROUND_ENGINE_MOVE_H
#define CONVOY_ROUND_ENGINE_MOVE_H

#include "core/bundle.h"
#include "round/engine.h"

/* Whether the last operation is over and read. */
bool convoy_engine_is_still(const struct convoy_engine *engine);

/* [any thread] What the open round waits for: "poll round 17 is open, ranks 2, 5 are missing". "" = none is open. */
void convoy_engine_still_text(const struct convoy_engine *engine, char *text_out, size_t bytes);

/* Stops and starts what runs beside the caller. A restored one starts for the first time; it takes over from here on. */
int32_t convoy_engine_freeze(struct convoy_engine *engine, struct convoy_error *error);
int32_t convoy_engine_thaw(struct convoy_engine *engine, struct convoy_error *error);

/* Items into the open item. */
int32_t convoy_engine_save(struct convoy_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error);

/* group: normalised; borrows until the engine is freed. partial_bytes_max: as in convoy_engine_options. MALFORMED, TOO_OLD,
 * TOO_NEW, NO_MEMORY, SYSTEM: nothing was made. */
int32_t convoy_engine_restore(struct convoy_runtime *runtime, const struct convoy_group_options *group,
                              size_t partial_bytes_max, const struct convoy_bundle_item *item,
                              struct convoy_engine **engine_out, struct convoy_error *error);

/* After restore: where a result goes that a reopen hands over. */
void convoy_engine_merge_into(struct convoy_engine *engine, const struct convoy_merge_ops *merge, void *merge_state);

/* How the last operation ended; CLOSED: there was none. */
int32_t convoy_engine_ended(const struct convoy_engine *engine);

/* Frees all without a goodbye. was_restored: it was never thawed. */
void convoy_engine_drop(struct convoy_engine *engine, bool was_restored);

/* What it holds at the moment. */
struct convoy_engine_count {
    uint32_t operations;
    uint32_t descriptors;
    uint32_t mappings;
};
/* [any thread] */
struct convoy_engine_count convoy_engine_count(const struct convoy_engine *engine);

#endif
