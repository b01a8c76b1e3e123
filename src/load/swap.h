/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One swap on its way.
 *
 *   idle -> loading -> preparing -> quiescing -> exporting -> importing -> resuming -> switching -> retiring -> done
 *              |           |            |            |            |           |
 *              +-----------+------------+------------+------------+-----------+--> undoing -> failed
 *
 * The commit is a context that has resumed in the new build. Resuming goes to undoing only while none has; when a later one
 * cannot, it is undone alone and the swap goes on with those that have.
 *
 * Owners: a new context belongs to its handle's `coming`, as do the new bindings of its objects, until switching; the swap
 * owns the states it exported. The gate keeps the list of contexts, and from quiescing on each context's list of objects,
 * as they are.
 */
#ifndef CONVOY_LOAD_SWAP_H
#define CONVOY_LOAD_SWAP_H

#include "load/loader.h"

/* Beside CONVOY_SWAP_*, which are the rest. */
#define CONVOY_SWAP_IDLE 0u
#define CONVOY_SWAP_UNDOING 10u
#define CONVOY_SWAP_FAILED 11u
#define CONVOY_SWAP_PHASES 12u

#define CONVOY_SWAP_TIMEOUT_NS (5 * CONVOY_NS_PER_S)
#define CONVOY_SWAP_PAUSE_GRACE_NS (10 * CONVOY_NS_PER_S) /* exporting to switching, which wait for nobody */
#define CONVOY_SWAP_OPEN_GRACE_NS (30 * CONVOY_NS_PER_S)  /* loading, preparing and retiring too */

/* One context that is handed over. */
struct convoy_swap_entry {
    struct convoy_host_context *context;
    struct convoy_binding *old;
    bool is_quiescing; /* quiesce was called: resume undoes it */
    bool is_resumed;   /* the new build's now */
    char *state;       /* owns; a table */
    size_t state_capacity;
    size_t state_bytes;
    uint32_t group_count;
    uint32_t engine_count;
};

struct convoy_swap {
    struct convoy_loader *loader;
    const char *path;
    uint64_t timeout_ns;
    uint32_t phase;
    struct convoy_build *from;
    struct convoy_build *to;
    struct convoy_swap_entry *entries; /* owns */
    size_t entry_count;
    bool is_paused;
    uint64_t pause_begun_ns;
    int32_t half_status; /* why a context could not resume when others had */
    int32_t lost_status; /* why an old context did not resume in undoing */
    uint64_t took_ns[CONVOY_SWAP_PHASES];
    struct convoy_swap_result result;
    struct convoy_error error; /* the first cause */
};

/* Whether a swap may go from one phase to another. */
bool convoy_swap_may(uint32_t from, uint32_t to);
const char *convoy_swap_phase_name(uint32_t phase);

/* The phases; each fills swap->error when it fails. */
int32_t convoy_swap_load(struct convoy_swap *swap);     /* swap_prepare.c */
int32_t convoy_swap_prepare(struct convoy_swap *swap);  /* swap_prepare.c */
int32_t convoy_swap_quiesce(struct convoy_swap *swap);  /* swap_move.c */
int32_t convoy_swap_export(struct convoy_swap *swap);   /* swap_move.c */

/* What a context will write its state to, before the pause. swap_move.c */
int32_t convoy_swap_make_room(struct convoy_swap *swap, struct convoy_swap_entry *entry);

int32_t convoy_swap_import(struct convoy_swap *swap);   /* swap_move.c */
int32_t convoy_swap_resume(struct convoy_swap *swap);   /* swap_switch.c */
int32_t convoy_swap_switch(struct convoy_swap *swap);   /* swap_switch.c */
int32_t convoy_swap_retire(struct convoy_swap *swap);   /* swap_switch.c */

/* From any phase before the commit: the new contexts go, the old ones go on, whoever waits is woken. */
void convoy_swap_undo(struct convoy_swap *swap); /* swap_switch.c */

#endif
