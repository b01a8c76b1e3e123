/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine moves to another build of the plugin in the same process, and its peers notice nothing: the same session, ring
 * memory, sockets and pool, under another one's threads.
 *
 *   step     exporter                                        importer
 *   halt     no call begins, waits come back; progress and
 *            copies go on until nothing is under way
 *   freeze   both threads end; rings keep what comes
 *   save     bytes (core/bundle.h)                           restore: reads them, duplicates descriptors, and only knows
 *                                                            where memory lies
 *                                                            thaw: gets threads and a device, which do nothing yet
 *                                                            go: from here on memory, and the descriptor that the
 *                                                            host polls, are its own
 *   retire   frees its tables, closes its descriptors
 *
 * Instead of go there, thaw and go here go on as if nothing had been; discard there frees tables and duplicates, and nothing
 * else.
 */
#ifndef CONVOY_XFER_MOVE_H
#define CONVOY_XFER_MOVE_H

#include "core/bundle.h"
#include "xfer/engine.h"

#include <stdbool.h>

#define CONVOY_XFER_STILL_BYTES 160u

/* -- move.c -- */
/* Waits in progress come back with MOVED, and no copy or connection is begun for a host thread. [any thread] */
void convoy_xfer_halt(struct convoy_xfer *engine);
/* Of a halted one that no call is in. why_out: CONVOY_XFER_STILL_BYTES, what is under way. */
bool convoy_xfer_is_still(struct convoy_xfer *engine, char *why_out);
/* Joins its threads. When this fails it is halted, as before. */
int32_t convoy_xfer_freeze(struct convoy_xfer *engine, struct convoy_error *error);
/* From halted, frozen or restored: gets all that it needs, and does nothing yet. When this fails nothing has changed. SYSTEM,
 * INIT_FAILED, NO_MEMORY. */
int32_t convoy_xfer_thaw(struct convoy_xfer *engine, struct convoy_error *error);
/* It is this build's from here on. */
void convoy_xfer_go(struct convoy_xfer *engine);
/* Items into the open item of the writer; the engine is frozen. UNSUPPORTED: why. */
int32_t convoy_xfer_save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer, struct convoy_error *error);
/* A frozen one that owns nothing of the exporter's. item: what save wrote. MALFORMED, TOO_NEW, TOO_OLD, SYSTEM, NO_MEMORY.
 * gives */
int32_t convoy_xfer_restore(struct convoy_runtime *runtime, const struct convoy_bundle_item *item,
                            struct convoy_xfer **engine_out, struct convoy_error *error);
/* Frozen, and thawed elsewhere: frees it, all but what was handed over. */
void convoy_xfer_retire(struct convoy_xfer *engine);
/* Restored and never thawed: frees it, and touches nothing of the exporter's. */
void convoy_xfer_discard(struct convoy_xfer *engine);

struct convoy_xfer_holdings {
    uint32_t transfers; /* that the host has not released */
    uint32_t copies;
    uint32_t threads;
    uint32_t descriptors;
    uint32_t mappings;
    uint32_t registrations;
};
void convoy_xfer_count(struct convoy_xfer *engine, struct convoy_xfer_holdings *holdings_out);

/* -- far_move.c: what there is for peers on other hosts; engine->far is there, but for restore -- */
/* Under the engine's lock. why_out: CONVOY_XFER_STILL_BYTES. */
bool convoy_far_is_still(struct convoy_xfer *engine, char *why_out);
/* Ends its threads and whatever calls back. No lock. */
int32_t convoy_far_freeze(struct convoy_xfer *engine, struct convoy_error *error);
/* From frozen or restored; entries and peers are there. No lock; no thread of the engine's runs. */
int32_t convoy_far_thaw(struct convoy_xfer *engine, struct convoy_error *error);
/* Items into the open item of the writer. */
int32_t convoy_far_save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer, struct convoy_error *error);
/* Makes engine->far, after all tables of the engine were restored. When this fails it is NULL. */
int32_t convoy_far_restore(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error);
/* Frees a frozen one without a goodbye; engine->far is NULL afterwards. */
void convoy_far_retire(struct convoy_xfer *engine);
/* The same of a restored one that was never thawed. */
void convoy_far_discard(struct convoy_xfer *engine);

#endif
