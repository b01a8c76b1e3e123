/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context on its way to another build. move.c walks over all that a context has, move_state.c writes it down and makes it
 * anew; group_move.c and engine_move.c do the same few steps for one object each:
 *
 *               halt              is_still              freeze              retire
 *   (running) --------> (halting) --------> (halting) ---------> (frozen) ---------> (a handle that answers MOVED)
 *       ^                   |                                      |   ^
 *       +------ thaw -------+----------------- thaw ---------------+   | restore (of another build's save)
 *                                                                  v   |
 *                                                              discard: nothing of it was touched
 *
 * Handed over inside a process are descriptors and mappings: an importer duplicates every descriptor, so that each side
 * closes its own; a mapping whose address the host knows, or that peers write to, is the exporter's until thaw, then the
 * importer's. handover.h has the word by which only one of all that know a state can thaw.
 */
#ifndef CONVOY_PLUGIN_MOVE_H
#define CONVOY_PLUGIN_MOVE_H

#include "handle.h"

#include "convoy/move.h"
#include "core/bundle.h"

#define CONVOY_STILL_TEXT_BYTES 160u

/* Items of an exported state. Numbers are never used again. */
#define CONVOY_STATE_HANDLE 65535u /* in every object: the exporter's handle as a number, 8 bytes */
#define CONVOY_STATE_CONTEXT 2u /* plugin/move_state.c */
#define CONVOY_STATE_GROUP 3u   /* plugin/group_move.c */
#define CONVOY_STATE_ENGINE 4u  /* plugin/engine_move.c */

/* Slots of the move table. */
int32_t convoy_context_holdings(convoy_context *context, struct convoy_holdings *holdings_out, struct convoy_error *error);
int32_t convoy_context_quiesce(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_context_resume(convoy_context *context, struct convoy_error *error);
int32_t convoy_context_export(convoy_context *context, const struct convoy_export_options *options,
                              struct convoy_text_buffer *state_out, struct convoy_error *error);
int32_t convoy_context_import(convoy_context *context, const struct convoy_exported_state *state,
                              struct convoy_moved *moved_out, struct convoy_error *error);
int32_t convoy_context_retire(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);

/* What an imported context has is still the exporter's: drops it. Other contexts: nothing. */
void convoy_context_discard(struct convoy_context *context);

/* Whether a group or an engine is one that is handed over: neither closed nor failed. */
bool convoy_group_is_live(const struct convoy_group *group);
bool convoy_transfer_engine_is_live(const struct convoy_transfer_engine *engine);

/* -- group_move.c: of a live group; see the head -- */
void convoy_group_halt(struct convoy_group *group);
/* why_out: CONVOY_STILL_TEXT_BYTES, what it waits for when it is not. Reads ends of rounds that only this library waits for. */
bool convoy_group_is_still(struct convoy_group *group, char *why_out);
/* Joins its threads. When this fails it is halting, as before. */
int32_t convoy_group_freeze(struct convoy_group *group, struct convoy_error *error);
/* From halting, frozen or restored. When this fails nothing has changed. */
int32_t convoy_group_thaw(struct convoy_group *group, struct convoy_error *error);
/* Items into the open item of the writer. UNSUPPORTED: why. */
int32_t convoy_group_save(struct convoy_group *group, struct convoy_bundle_writer *writer, struct convoy_error *error);
/* A frozen group of this context, not linked to it yet. */
int32_t convoy_group_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                             struct convoy_group **group_out, struct convoy_error *error);
/* true: done. false: a call is inside. */
bool convoy_group_retire(struct convoy_group *group);
/* A restored one: all of it, the handle included. */
void convoy_group_discard(struct convoy_group *group);
void convoy_group_count(const struct convoy_group *group, struct convoy_holdings *holdings);

/* -- engine_move.c: the same of a live engine -- */
void convoy_transfer_engine_halt(struct convoy_transfer_engine *engine);
bool convoy_transfer_engine_is_still(struct convoy_transfer_engine *engine, char *why_out);
int32_t convoy_transfer_engine_freeze(struct convoy_transfer_engine *engine, struct convoy_error *error);
int32_t convoy_transfer_engine_thaw(struct convoy_transfer_engine *engine, struct convoy_error *error);
/* After thaw of all that there is: from here on it takes and says things. Cannot fail. */
void convoy_transfer_engine_go(struct convoy_transfer_engine *engine);
int32_t convoy_transfer_engine_save(struct convoy_transfer_engine *engine, struct convoy_bundle_writer *writer,
                                    struct convoy_error *error);
int32_t convoy_transfer_engine_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                                       struct convoy_transfer_engine **engine_out, struct convoy_error *error);
bool convoy_transfer_engine_retire(struct convoy_transfer_engine *engine);
void convoy_transfer_engine_discard(struct convoy_transfer_engine *engine);
void convoy_transfer_engine_count(const struct convoy_transfer_engine *engine, struct convoy_holdings *holdings);

#endif
