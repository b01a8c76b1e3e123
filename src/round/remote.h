/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds across hosts: one leader per host, the lowest member of it that is alive, exchanges merged blobs with the
 * other leaders and publishes the result to its host through the segment (remote_*.c). NULL remote = one host.
 */
#ifndef CONVOY_ROUND_REMOTE_H
#define CONVOY_ROUND_REMOTE_H

#include "round/engine_internal.h"

/* Room in a message beside what is merged: its head, and what agreement on reopening puts before a result. */
#define CONVOY_REMOTE_EXTRA_BYTES 512u

/* Opens the link and exchanges worker addresses (one exchange). The engine's local part is complete. */
int32_t convoy_remote_open(struct convoy_engine *engine, struct convoy_bootstrap *bootstrap,
                           size_t partial_bytes_max, struct convoy_error *error);

/* Joins the progress thread, if there is one. It can be started again. */
void convoy_remote_stop(struct convoy_remote *remote);

/* Starts the progress thread. Everything else of the engine is ready. */
int32_t convoy_remote_start(struct convoy_engine *engine, struct convoy_error *error);
void convoy_remote_close(struct convoy_engine *engine, uint64_t deadline_ns);

/* One step of the open round: leader's duties when it is this member's turn, then a look at the result. */
int32_t convoy_remote_collect(struct convoy_engine *engine, bool is_local_complete);

/* A cell of this host is sealed: the round has failed here; tells the other hosts and ends the operation. */
int32_t convoy_remote_fail_local(struct convoy_engine *engine);

/* Waits a little: drives the worker (yielding), or sleeps on worker, futex or descriptor for at most slice_ns. */
void convoy_remote_wait(struct convoy_engine *engine, bool is_yielding, uint64_t slice_ns);

/* How many looks before waiting with yields. */
uint32_t convoy_remote_pauses(const struct convoy_engine *engine);

/* Every call of the engine is between these two: the caller owns engine and worker, or the thread does. */
void convoy_remote_enter(struct convoy_engine *engine);
void convoy_remote_leave(struct convoy_engine *engine);

/* Seals the result of the open round. True when it was not there yet (the round is broken on this host now). */
bool convoy_remote_abandon(struct convoy_engine *engine);

/* Agreement on the next generation, across hosts. Fills generation and lost set of the engine. */
int32_t convoy_remote_reopen(struct convoy_engine *engine, uint64_t deadline_ns, struct convoy_error *error);

/* A look at leaders and hosts that may be gone, at silent ones, and at an agreement that is under way. */
void convoy_remote_check(struct convoy_engine *engine, uint64_t now_ns);

/* Rows of the members of other hosts. */
void convoy_remote_report_rows(struct convoy_engine *engine, uint64_t now_ns, struct convoy_member_report *rows);

/* What is known here of the link to a member of another host. */
struct convoy_remote_look {
    const char *link;                              /* none, up, failed, or how the member was lost: closed, lost */
    char transports[CONVOY_LINK_TRANSPORTS_BYTES]; /* "" = not known: nothing goes there from this member */
};

/* [any thread] Takes no lock. */
void convoy_remote_look(const struct convoy_engine *engine, uint32_t member, struct convoy_remote_look *look_out);

/* -- remote_move.c: on the way to another build (plugin/move.h). No call is inside and no round is open. -- */
struct convoy_bundle_writer;
struct convoy_bundle_item;
/* Joins the progress thread; what peers say from now on is heard by the importer, or again after thaw. */
int32_t convoy_remote_freeze(struct convoy_engine *engine, struct convoy_error *error);
/* Of a frozen one: starts it again, and tells every other member so if it was ever saved. Of a restored one: opens its own
 * worker, tells every other member where it is now, and starts; never waits for them. INIT_FAILED, SYSTEM, NO_MEMORY: nothing
 * has changed. */
int32_t convoy_remote_thaw(struct convoy_engine *engine, struct convoy_error *error);
/* Any number of times. */
int32_t convoy_remote_save(struct convoy_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error);
/* Sets engine->remote; the local part is there. */
int32_t convoy_remote_restore(struct convoy_engine *engine, const struct convoy_bundle_item *item,
                              struct convoy_error *error);
/* Of a frozen one: one look at what still comes to it, which goes to the importer. true: everybody has heard the importer,
 * or has had two seconds to; retire does not wait then. Also where there is no remote. */
bool convoy_remote_is_left(struct convoy_engine *engine);
/* Waits until it is left, then frees it without a goodbye: the importer speaks for this member. */
void convoy_remote_retire(struct convoy_engine *engine);
void convoy_remote_discard(struct convoy_engine *engine); /* a restored one, thawed or not */

/* [any thread] JSON of the link. Takes no lock. gives */
json_t *convoy_remote_dump(const struct convoy_engine *engine);

#endif
