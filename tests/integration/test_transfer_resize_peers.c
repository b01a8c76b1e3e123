/* SPDX-License-Identifier: Apache-2.0 */
/* Resizes between processes: peers that stand still, die, come and go meanwhile, and an owner that dies. */
#include "tests/lib/await.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/mappings.h"
#include "tests/lib/scene.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES (256u << 10)
#define MIB (UINT64_C(1) << 20)
#define SHORT_NS 200000000ull
#define CALL_NS 5000000000ull /* far more than a call takes that waits for nobody */
#define VISITS 40u
#define OWN 2u      /* mappings of an engine of its own: pool and notes, */
#define OF_PEER 3u  /* and of each peer: the same, and the ring */

static uint8_t data[BYTES]; /* filled before the ranks are started */
static const uint64_t data_bytes = BYTES;

static void resize(struct engine *engine, uint64_t bytes)
{
    uint64_t start = convoy_now_ns();
    EXPECT_OK(engine->table->pool_resize(engine->handle, bytes, &engine->error), &engine->error);
    EXPECT(convoy_now_ns() - start < CALL_NS);
}

static convoy_transfer send_start(struct engine *engine, convoy_peer peer, uint64_t timeout_ns)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("request", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = timeout_ns};
    convoy_transfer sent = 0;
    EXPECT_OK(engine->table->send_start(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
    return sent;
}

static void send_and_expect(struct engine *engine, convoy_peer peer, uint64_t timeout_ns, int32_t status)
{
    convoy_transfer sent = send_start(engine, peer, timeout_ns);
    engine_wait(engine, sent, status, NULL);
    engine_release(engine, sent);
}

static convoy_transfer accept_one(struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
    engine_look(engine, loaded);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
    return loaded;
}

/* Nothing of an earlier generation is left here, and of shared memory only so many mappings. */
static void await_returned(struct engine *engine, uint32_t mapped)
{
    const uint64_t end = await_end();
    while ((engine_figures(engine).old_generations != 0 || mappings_count() != mapped || mappings_files() != 2) &&
           await_again(end)) {
    }
    EXPECT_EQUAL(engine_figures(engine).old_generations, 0);
    EXPECT_EQUAL(mappings_count(), mapped);
    EXPECT_EQUAL(mappings_files(), 2);
}

/* -- a peer that stands still: the engine goes on, and so does the peer once it runs again -- */

static void resize_beside_stopped(const struct rank *rank, struct engine *engine)
{
    convoy_peer still = scene_connect(rank, engine, 1);
    convoy_peer live = scene_connect(rank, engine, 2);
    send_and_expect(engine, still, ENGINE_TIMEOUT_NS, CONVOY_OK);
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* rank 1 has stopped */
    for (uint32_t i = 0; i < 4; i++) {
        resize(engine, (2 + i) * MIB);
        send_and_expect(engine, live, ENGINE_TIMEOUT_NS, CONVOY_OK);
    }
    send_and_expect(engine, still, SHORT_NS, CONVOY_TIMED_OUT);
    rank_mark(rank, 3);
    send_and_expect(engine, still, ENGINE_TIMEOUT_NS, CONVOY_OK); /* it is let go now */
    resize(engine, MIB);
    send_and_expect(engine, still, ENGINE_TIMEOUT_NS, CONVOY_OK);
    await_returned(engine, OWN + 2 * OF_PEER);
    rank_mark(rank, 4);
    rank_barrier(rank);
}

/* Whatever comes, also what was offered in vain while this one stood still. */
static void accept_until_told(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = SHORT_NS};
    while (!rank_has_marked(rank, 0, 4)) {
        convoy_transfer loaded = 0;
        int32_t status = engine->table->accept(engine->handle, &load, &loaded, &engine->error);
        if (status == CONVOY_OK) {
            engine_look(engine, loaded);
            EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
        }
        engine_release(engine, loaded);
    }
    await_returned(engine, OWN + OF_PEER); /* each generation was given up here when it ended there */
    rank_barrier(rank);
}

static void test_resize_does_not_wait_for_a_peer_that_stands_still(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {resize_beside_stopped, accept_until_told, accept_until_told}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct scene_sessions));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 0, 2);
    ranks_stop(ranks, 1);
    ranks_mark(ranks, 1);
    ranks_await_mark(ranks, 0, 3);
    ranks_signal(ranks, 1, SIGCONT);
    ranks_finish(ranks);
}

/* -- a peer that is killed while generations are handed to it, with views of old ones in its hands -- */

static void resize_until_it_dies(const struct rank *rank, struct engine *engine)
{
    convoy_peer peer = scene_connect(rank, engine, 1);
    struct convoy_peer_info info = {.struct_size = sizeof info};
    for (uint32_t i = 0; i < 3; i++) {
        send_and_expect(engine, peer, ENGINE_TIMEOUT_NS, CONVOY_OK);
        resize(engine, (2 + i) * MIB);
    }
    EXPECT_EQUAL(engine_figures(engine).old_generations, 3);
    rank_mark(rank, 2);
    for (uint32_t i = 0; info.state != CONVOY_PEER_IS_LOST; i++) { /* until it is dead, at whatever moment that is */
        int32_t status = engine->table->pool_resize(engine->handle, (1 + i % 4) * MIB, &engine->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_LIMIT);
        EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    }
    await_returned(engine, OWN);
    engine_await_empty(engine);
}

static void hold_all(const struct rank *rank, struct engine *engine)
{
    (void)rank;
    for (;;) { /* never released */
        (void)accept_one(engine);
    }
}

static void test_resize_amid_the_death_of_a_peer_returns_all_it_held(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {resize_until_it_dies, hold_all}};
    for (uint32_t i = 0; i < 5; i++) {
        struct ranks *ranks = scene_create(&plan, sizeof(struct scene_sessions));
        scene_start(ranks, &plan);
        ranks_await_mark(ranks, 0, 2);
        ranks_signal(ranks, 1, SIGKILL);
        ranks_finish(ranks);
    }
}

/* -- an owner that is killed: what it has lent stays -- */

static void lend_and_resize_on(const struct rank *rank, struct engine *engine)
{
    convoy_peer peer = scene_connect(rank, engine, 1);
    send_and_expect(engine, peer, ENGINE_TIMEOUT_NS, CONVOY_OK);
    resize(engine, 2 * MIB);
    send_and_expect(engine, peer, ENGINE_TIMEOUT_NS, CONVOY_OK);
    rank_mark(rank, 2);
    for (;;) {
        (void)engine->table->pool_resize(engine->handle, MIB, &engine->error);
    }
}

static void outlive_owner(const struct rank *rank, struct engine *engine)
{
    convoy_transfer old = accept_one(engine);
    convoy_transfer next = accept_one(engine);
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* it is dead */
    engine_look(engine, old);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
    engine_release(engine, old);
    engine_look(engine, next);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
    engine_release(engine, next);
    await_returned(engine, OWN);
}

static void test_resize_views_of_every_generation_outlive_their_owner(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {lend_and_resize_on, outlive_owner}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct scene_sessions));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 0, 2);
    ranks_await_mark(ranks, 1, 2);
    ranks_signal(ranks, 0, SIGKILL);
    ranks_await_exit(ranks, 0);
    ranks_mark(ranks, 1);
    ranks_finish(ranks);
}

/* -- peers that come and go while the pools of both sides change -- */

static void visit(const struct rank *rank, struct engine *engine, uint32_t number)
{
    convoy_peer peer = scene_connect(rank, engine, 0);
    send_and_expect(engine, peer, ENGINE_TIMEOUT_NS, CONVOY_OK);
    if (number % 3 == 0) {
        resize(engine, (1 + number % 4) * MIB);
        send_and_expect(engine, peer, ENGINE_TIMEOUT_NS, CONVOY_OK);
    }
    EXPECT_OK(engine->table->peer_disconnect(engine->handle, peer, &engine->error), &engine->error);
}

static void come_and_go(const struct rank *rank, struct engine *engine)
{
    for (uint32_t i = 0; i < VISITS; i++) {
        visit(rank, engine, i);
    }
    rank_mark(rank, 2);
    await_returned(engine, OWN);
    rank_barrier(rank);
}

static void receive_and_resize(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = SHORT_NS};
    uint32_t loads = 0;
    for (uint32_t i = 0; !rank_has_marked(rank, 1, 2); i++) {
        convoy_transfer loaded = 0;
        resize(engine, (1 + i % 5) * MIB);
        int32_t status = engine->table->accept(engine->handle, &load, &loaded, &engine->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_TIMED_OUT);
        loads += status == CONVOY_OK;
        if (loaded != 0) {
            engine_release(engine, loaded);
        }
    }
    EXPECT(loads >= VISITS);
    await_returned(engine, OWN);
    rank_barrier(rank);
}

static void test_resize_while_peers_connect_loses_no_transfer(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {receive_and_resize, come_and_go}};
    scene_play(&plan, sizeof(struct scene_sessions));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize_does_not_wait_for_a_peer_that_stands_still),
        cmocka_unit_test(test_resize_amid_the_death_of_a_peer_returns_all_it_held),
        cmocka_unit_test(test_resize_views_of_every_generation_outlive_their_owner),
        cmocka_unit_test(test_resize_while_peers_connect_loses_no_transfer),
    };
    engine_fill(data, BYTES, 3);
    engine_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
