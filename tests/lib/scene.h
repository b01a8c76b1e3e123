/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenes: engines in processes of their own (ranks.h) that know each other's sessions. Each rank opens its engine, tells its
 * session, plays its part and closes. A test says who plays what, and what the parent does meanwhile, if anything:
 *
 *     struct shared { struct scene_sessions sessions; ... };    what the ranks share begins with the sessions
 *     static const struct scene_plan plan = {.parts = {part_of_rank_0, part_of_rank_1}};
 *     scene_play(&plan, sizeof(struct shared));                 or scene_create, scene_start, ..., ranks_finish
 */
#ifndef TESTS_LIB_SCENE_H
#define TESTS_LIB_SCENE_H

#include "tests/lib/engines.h"
#include "tests/lib/ranks.h"

#define SCENE_RANKS_MAX 4
#define SCENE_TIMEOUT_MS 60000u
#define SCENE_OPENED 1u /* the mark of a rank that has told its session; its part marks from 2 on */

struct scene_sessions {
    char of[SCENE_RANKS_MAX][CONVOY_SESSION_BYTES];
};

typedef void (*scene_part)(const struct rank *rank, struct engine *engine);

/* As many ranks as there are parts, the rest is NULL. */
struct scene_plan {
    scene_part parts[SCENE_RANKS_MAX];
    const struct convoy_transfer_options *options; /* of each engine; NULL = a small pool */
    uint32_t timeout_ms;                           /* for all of it; 0 = SCENE_TIMEOUT_MS */
};

/* As ranks_create, so that the parent can fill what is shared; gives (ranks_finish). */
struct ranks *scene_create(const struct scene_plan *plan, size_t shared_bytes);
/* Starts the ranks. Each closes its engine when its part has returned: a part whose end must be awaited says so itself. */
void scene_start(struct ranks *ranks, const struct scene_plan *plan);
/* Creates, starts and finishes: the parent does nothing meanwhile. */
void scene_play(const struct scene_plan *plan, size_t shared_bytes);

/* What scene_start does for a rank, for those that are started in another way: opens an engine and tells its session. */
struct engine *scene_open(const struct rank *rank, const struct convoy_transfer_options *options);
/* The second half of it, for an engine that the rank has opened; a later one takes the place of the one before. */
void scene_tell(const struct rank *rank, const struct engine *engine);

/* Connects to another rank, once that has told its session. */
convoy_peer scene_connect(const struct rank *rank, struct engine *engine, uint32_t other);

/* All ranks are here, and nobody has anything left; then all may close. */
void scene_part_ways(const struct rank *rank, struct engine *engine);

#endif
