/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that move, with peers in other processes, which notice nothing of it; and peers that die or stand still meanwhile. */
#include "tests/lib/engine_moves.h"
#include "tests/lib/expect.h"
#include "tests/lib/scale.h"
#include "tests/lib/scene.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BYTES (1u << 20)
#define MANY 250u
#define MOVES_EVERY 23u

struct shared {
    struct scene_sessions sessions;
};

static convoy_transfer send_data(struct engine *engine, convoy_peer peer, const char *request, const uint8_t *data,
                                 const uint64_t *bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    stage.critical_flags = CONVOY_STAGE_CHECKSUM;
    EXPECT_OK(engine->table->send_start(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
    return sent;
}

/* -- many, around in a circle -------------------------------------------------------------------------------------- */

#define RANKS 4u

static void move_now_and_then(struct engine *engine, uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    if ((*seed >> 16) % MOVES_EVERY == 0) {
        engine_move(engine);
    }
}

static void send_around(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_peer peer = scene_connect(rank, engine, (rank->index + 1) % RANKS);
    uint32_t seed = rank->index + 1;
    engine_fill(data, BYTES, rank->index);
    for (uint32_t i = 0; i < test_scaled(MANY, 40 * MANY); i++) {
        char request[32];
        uint64_t bytes = i * 7919u % BYTES;
        convoy_transfer loaded = 0;
        (void)snprintf(request, sizeof request, "%u of %u", i, rank->index);
        convoy_transfer sent = send_data(engine, peer, request, data, &bytes);
        move_now_and_then(engine, &seed);
        EXPECT_OK(engine->table->accept_start(engine->handle, &load, &loaded, &engine->error), &engine->error);
        move_now_and_then(engine, &seed);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        engine_look(engine, loaded);
        move_now_and_then(engine, &seed);
        EXPECT(engine_is_filled(engine->views[0].data, engine->views[0].bytes, (rank->index + RANKS - 1) % RANKS));
        engine_release(engine, loaded);
        engine_wait(engine, sent, CONVOY_OK, NULL);
        move_now_and_then(engine, &seed);
        engine_release(engine, sent);
    }
    EXPECT_EQUAL(engine_counter(engine, "peers_connected"), 2);
    EXPECT_EQUAL(engine_counter(engine, "peers_lost"), 0);
    scene_part_ways(rank, engine);
}

static void test_move_at_random_points_of_many_requests_among_processes_loses_none(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {send_around, send_around, send_around, send_around}};
    scene_play(&plan, sizeof(struct shared));
}

/* -- a peer that dies ---------------------------------------------------------------------------------------------- */

static void doomed(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    convoy_peer peer = scene_connect(rank, engine, 0);
    engine_fill(data, BYTES, 3);
    (void)send_data(engine, peer, "doomed", data, &bytes);
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 9); /* never comes: it is killed meanwhile */
}

static void outlive(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    struct convoy_peer_info info = {.struct_size = sizeof info, .state = CONVOY_PEER_IS_CONNECTED};
    convoy_transfer held = 0;
    convoy_peer peer = scene_connect(rank, engine, 1);
    EXPECT_OK(engine->table->accept(engine->handle, &load, &held, &engine->error), &engine->error);
    engine_move(engine);
    rank_mark(rank, 2); /* the parent kills rank 1 now */
    while (info.state == CONVOY_PEER_IS_CONNECTED) {
        EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    }
    EXPECT_EQUAL(info.state, CONVOY_PEER_IS_LOST);
    engine_move(engine); /* what is mapped of a dead one goes along */
    engine_look(engine, held);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
    engine_release(engine, held);
    engine_await_empty(engine);
    EXPECT_OK(engine->table->peer_disconnect(engine->handle, peer, &engine->error), &engine->error);
    engine_move(engine);
    EXPECT_STATUS(engine->table->peer_info(engine->handle, peer, &info, &engine->error), CONVOY_CLOSED, &engine->error);
}

static void test_move_before_and_after_the_death_of_a_peer_keeps_its_view(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {outlive, doomed}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 0, 2);
    ranks_await_mark(ranks, 1, 2);
    ranks_signal(ranks, 1, SIGKILL);
    ranks_finish(ranks);
}

/* -- a peer that stands still -------------------------------------------------------------------------------------- */

static void stand_still(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    (void)scene_connect(rank, engine, 0);
    rank_mark(rank, 2); /* stopped by the parent about now, and woken when rank 0 has moved */
    rank_await_mark(rank, 0, 3);
    EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
    engine_look(engine, loaded);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 6));
    engine_release(engine, loaded);
    rank_mark(rank, 4);
    rank_await_mark(rank, 0, 5);
}

static void move_meanwhile(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    convoy_peer peer = scene_connect(rank, engine, 1);
    engine_fill(data, BYTES, 6);
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* it has stopped rank 1 */
    convoy_transfer sent = send_data(engine, peer, "late", data, &bytes);
    engine_move(engine); /* waits for its own copies, not for that one */
    engine_move(engine);
    rank_mark(rank, 3);
    engine_wait(engine, sent, CONVOY_OK, NULL);
    engine_release(engine, sent);
    rank_await_mark(rank, 1, 4);
    engine_await_empty(engine);
    rank_mark(rank, 5);
}

static void test_move_waits_for_no_peer_that_stands_still(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {move_meanwhile, stand_still}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 0, 2);
    ranks_await_mark(ranks, 1, 2);
    ranks_stop(ranks, 1);
    ranks_mark(ranks, 1);
    ranks_await_mark(ranks, 0, 3);
    ranks_signal(ranks, 1, SIGCONT);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_at_random_points_of_many_requests_among_processes_loses_none),
        cmocka_unit_test(test_move_before_and_after_the_death_of_a_peer_keeps_its_view),
        cmocka_unit_test(test_move_waits_for_no_peer_that_stands_still),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move_peers", tests, NULL, NULL);
}
