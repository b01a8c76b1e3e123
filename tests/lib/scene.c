/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/scene.h"

#include "tests/lib/expect.h"

#include <string.h>

struct ranks *scene_create(const struct scene_plan *plan, size_t shared_bytes)
{
    uint32_t count = 0;
    while (count < SCENE_RANKS_MAX && plan->parts[count] != NULL) {
        count++;
    }
    EXPECT(shared_bytes >= sizeof(struct scene_sessions));
    return ranks_create(count, shared_bytes);
}

static void play_part(const struct rank *rank, void *argument)
{
    const struct scene_plan *plan = argument;
    struct engine *engine = scene_open(rank, plan->options);
    plan->parts[rank->index](rank, engine);
    engine_destroy(engine);
}

void scene_start(struct ranks *ranks, const struct scene_plan *plan)
{
    ranks_start(ranks, play_part, (void *)(uintptr_t)plan, plan->timeout_ms != 0 ? plan->timeout_ms : SCENE_TIMEOUT_MS);
}

void scene_play(const struct scene_plan *plan, size_t shared_bytes)
{
    struct ranks *ranks = scene_create(plan, shared_bytes);
    scene_start(ranks, plan);
    ranks_finish(ranks);
}

struct engine *scene_open(const struct rank *rank, const struct convoy_transfer_options *options)
{
    struct engine *engine = engine_create(options);
    scene_tell(rank, engine);
    return engine;
}

void scene_tell(const struct rank *rank, const struct engine *engine)
{
    struct scene_sessions *sessions = rank->shared;
    memcpy(sessions->of[rank->index], engine->info.session, CONVOY_SESSION_BYTES);
    if (!rank_has_marked(rank, rank->index, SCENE_OPENED)) {
        rank_mark(rank, SCENE_OPENED);
    }
}

convoy_peer scene_connect(const struct rank *rank, struct engine *engine, uint32_t other)
{
    const struct scene_sessions *sessions = rank->shared;
    rank_await_mark(rank, other, SCENE_OPENED);
    return engine_connect(engine, sessions->of[other]);
}

void scene_part_ways(const struct rank *rank, struct engine *engine)
{
    rank_barrier(rank);
    engine_await_empty(engine);
    rank_barrier(rank);
}
