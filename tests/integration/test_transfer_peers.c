/* SPDX-License-Identifier: Apache-2.0 */
/* Engines in processes of their own: tensors of every kind bit for bit, peers that die at any moment, and that come back. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/kinds.h"
#include "tests/lib/scale.h"
#include "tests/lib/scene.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (1u << 20)
#define MANY 200u
#define LIVES 5u

/* What the ranks share: who is where, and what the test wants. */
struct shared {
    struct scene_sessions sessions;
    uint32_t point;
};

/* -- tensors of every kind -- */

static void send_kinds(const struct rank *rank, struct engine *engine)
{
    const struct convoy_stage stage = kinds_stage();
    const struct convoy_send send = {.struct_size = sizeof send, .peer = scene_connect(rank, engine, 1)};
    convoy_transfer sent = 0;
    EXPECT_OK(engine->table->send(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
    engine_release(engine, sent);
    engine_await_empty(engine);
}

static void accept_kinds(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    (void)rank;
    EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
    engine_look(engine, loaded);
    kinds_check(engine);
    engine_release(engine, loaded);
}

static void test_peers_tensors_of_every_kind_arrive_bit_for_bit(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {send_kinds, accept_kinds}};
    scene_play(&plan, sizeof(struct shared));
}

/* -- many, both ways at once -- */

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

static void send_and_accept_many(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_peer peer = scene_connect(rank, engine, 1 - rank->index); /* both at once: one connection comes of it */
    engine_fill(data, BYTES, rank->index);
    for (uint32_t i = 0; i < test_scaled(MANY, 50 * MANY); i++) {
        char request[32];
        uint64_t bytes = i * 7919u % BYTES;
        convoy_transfer loaded = 0;
        (void)snprintf(request, sizeof request, "%u of %u", i, rank->index);
        convoy_transfer sent = send_data(engine, peer, request, data, &bytes);
        EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
        engine_look(engine, loaded);
        EXPECT(engine_is_filled(engine->views[0].data, engine->views[0].bytes, 1 - rank->index));
        engine_release(engine, loaded);
        engine_wait(engine, sent, CONVOY_OK, NULL);
        engine_release(engine, sent);
    }
    EXPECT_EQUAL(engine_counter(engine, "peers_connected"), 1);
    scene_part_ways(rank, engine);
}

static void test_peers_that_send_to_each_other_at_once_share_one_connection_and_leave_nothing(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {send_and_accept_many, send_and_accept_many}};
    scene_play(&plan, sizeof(struct shared));
}

/* -- deaths (openucx/ucx PR 7899, issues 2893 and 5027): rank 1 is killed when it has come to a point, rank 0 must notice
 *    and have everything back -- */

enum { DIES_CONNECTED = 0, DIES_WAITING, DIES_HOLDING, DIES_OFFERED, DIES_LENDING, DEATHS };

static void doomed(const struct rank *rank, struct engine *engine)
{
    const struct shared *shared = rank->shared;
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_peer peer = scene_connect(rank, engine, 0);
    convoy_transfer transfer = 0;
    engine_fill(data, BYTES, 3);
    if (shared->point == DIES_WAITING) {
        EXPECT_OK(engine->table->accept_start(engine->handle, &load, &transfer, &engine->error), &engine->error);
    } else if (shared->point == DIES_HOLDING) {
        EXPECT_OK(engine->table->accept(engine->handle, &load, &transfer, &engine->error), &engine->error);
    } else if (shared->point >= DIES_OFFERED) {
        transfer = send_data(engine, peer, "doomed", data, &bytes);
    }
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 9); /* never comes: it is killed meanwhile */
}

static void outlive(const struct rank *rank, struct engine *engine)
{
    const struct shared *shared = rank->shared;
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    struct convoy_transfer_result result;
    convoy_peer peer = scene_connect(rank, engine, 1);
    convoy_transfer held = 0;
    convoy_transfer open = 0;
    engine_fill(data, BYTES, 4);
    if (shared->point <= DIES_HOLDING) {
        open = send_data(engine, peer, "survivor", data, &bytes);
    }
    if (shared->point == DIES_LENDING) {
        EXPECT_OK(engine->table->accept(engine->handle, &load, &held, &engine->error), &engine->error);
        EXPECT_OK(engine->table->accept_start(engine->handle, &load, &open, &engine->error), &engine->error);
    }
    rank_mark(rank, 2); /* the parent kills rank 1 now */
    struct convoy_peer_info info = {.struct_size = sizeof info, .state = CONVOY_PEER_IS_CONNECTED};
    while (info.state == CONVOY_PEER_IS_CONNECTED) {
        EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    }
    EXPECT_EQUAL(info.state, CONVOY_PEER_IS_LOST);
    if (shared->point <= DIES_WAITING) {
        int32_t status = engine->table->transfer_wait(engine->handle, open, ENGINE_TIMEOUT_NS, NULL, &engine->error);
        EXPECT(status == CONVOY_PEER_LOST || (shared->point == DIES_WAITING && status == CONVOY_OK));
    } else if (shared->point == DIES_HOLDING) {
        engine_wait(engine, open, CONVOY_OK, &result); /* it had it before it died */
    }
    if (held != 0) { /* the view outlives its sender */
        engine_look(engine, held);
        EXPECT(engine_is_filled(engine->views[0].data, BYTES, 3));
        engine_release(engine, held);
    }
    if (open != 0) {
        engine_release(engine, open);
    }
    engine_await_empty(engine);
}

static void test_peers_that_die_at_any_point_take_nothing_with_them(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {outlive, doomed}};
    for (uint32_t point = 0; point < DEATHS; point++) {
        struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
        ((struct shared *)ranks_shared(ranks))->point = point;
        scene_start(ranks, &plan);
        ranks_await_mark(ranks, 0, 2);
        ranks_await_mark(ranks, 1, 2);
        ranks_signal(ranks, 1, SIGKILL);
        ranks_finish(ranks);
    }
}

/* -- vllm-project/vllm issues 35943 and 46283: neither side depends on the other's notice; a peer that stands still
 *    is only late -- */

static void stand_still(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    (void)scene_connect(rank, engine, 0);
    rank_mark(rank, 2); /* stopped by the parent about now, and woken when rank 0 has given up */
    rank_await_mark(rank, 0, 3);
    EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
    engine_look(engine, loaded);
    EXPECT(engine_is_filled(engine->views[0].data, BYTES, 6));
    engine_release(engine, loaded);
    rank_mark(rank, 4);
    rank_await_mark(rank, 0, 5);
}

static void give_up(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    convoy_peer peer = scene_connect(rank, engine, 1);
    engine_fill(data, BYTES, 6);
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* it has stopped rank 1 */
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage("late", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = 200000000};
    convoy_transfer sent = 0;
    EXPECT_STATUS(engine->table->send(engine->handle, &stage, &send, &sent, &engine->error), CONVOY_TIMED_OUT,
                  &engine->error);
    engine_release(engine, sent);
    EXPECT_EQUAL(engine_figures(engine).quarantined, BYTES); /* it may still read: nobody else gets the memory */
    convoy_transfer next = send_data(engine, peer, "in time", data, &bytes);
    rank_mark(rank, 3);
    engine_wait(engine, next, CONVOY_OK, NULL);
    engine_release(engine, next);
    rank_await_mark(rank, 1, 4);
    engine_await_empty(engine);
    rank_mark(rank, 5);
}

static void test_peers_that_stand_still_are_given_up_in_time_and_their_memory_held(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {give_up, stand_still}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 1, 2);
    ranks_await_mark(ranks, 0, 2);
    ranks_stop(ranks, 1);
    ranks_mark(ranks, 1);
    ranks_await_mark(ranks, 0, 3);
    ranks_signal(ranks, 1, SIGCONT);
    ranks_finish(ranks);
}

/* -- four senders share what one receiver has room for: each request is moved, or refused with a reason, none hangs -- */

#define CROWD 4u
#define CROWD_REQUESTS 40u

static void crowd_send(const struct rank *rank, struct engine *engine)
{
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    convoy_peer peer = scene_connect(rank, engine, 0);
    engine_fill(data, BYTES, rank->index);
    for (uint32_t i = 0; i < CROWD_REQUESTS;) {
        char request[32];
        (void)snprintf(request, sizeof request, "%u", rank->index);
        convoy_transfer sent = send_data(engine, peer, request, data, &bytes);
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        int32_t status = engine->table->transfer_wait(engine->handle, sent, ENGINE_TIMEOUT_NS, &result, &engine->error);
        EXPECT(status == CONVOY_OK || (status == CONVOY_POOL_EXHAUSTED && result.retry_after_ms != 0));
        engine_release(engine, sent);
        i += status == CONVOY_OK;
    }
    engine_await_empty(engine);
    rank_barrier(rank);
}

/* Holds as many as fit, and one more. */
static void crowd_receive(const struct rank *rank, struct engine *engine)
{
    const struct convoy_load load = {
        .struct_size = sizeof load, .mode = CONVOY_LOAD_COPY, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer held[3] = {0, 0, 0};
    uint32_t refused = 0;
    for (uint32_t done = 0; done < (CROWD - 1) * CROWD_REQUESTS;) {
        convoy_transfer *place = &held[(done + refused) % 3];
        if (*place != 0) {
            engine_release(engine, *place);
        }
        *place = 0;
        int32_t status = engine->table->accept(engine->handle, &load, place, &engine->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_POOL_EXHAUSTED);
        if (status == CONVOY_OK) {
            engine_look(engine, *place);
            EXPECT(engine_is_filled(engine->views[0].data, BYTES, (uint32_t)(engine->payload.request[0] - '0')));
        }
        done += status == CONVOY_OK;
        refused += status != CONVOY_OK;
    }
    EXPECT(refused != 0);
    for (uint32_t i = 0; i < 3; i++) {
        if (held[i] != 0) {
            engine_release(engine, held[i]);
        }
    }
    rank_barrier(rank);
}

static void test_peers_in_a_crowd_are_served_or_refused_but_never_hang(void **state)
{
    (void)state;
    static const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 2 * BYTES, .pool_block_bytes = 4096};
    static const struct scene_plan plan = {.parts = {crowd_receive, crowd_send, crowd_send, crowd_send},
                                           .options = &options};
    scene_play(&plan, sizeof(struct shared));
}

/* -- smg-project/smg issue 2382, sgl-project/sglang PR 36029: receivers come back at the same port; senders go on without a
 *    restart -- */

static void live_once(const struct rank *rank, uint32_t life)
{
    struct shared *shared = rank->shared;
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
    struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 8u << 20, .pool_block_bytes = 4096};
    char address[CONVOY_SESSION_BYTES + 8] = "";
    convoy_transfer loaded = 0;
    if (life != 0) { /* where the one before was */
        (void)snprintf(address, sizeof address, "tcp://%s", shared->sessions.of[1]);
        *strrchr(address, '+') = '\0';
        options.address = address;
        options.address_length = strlen(address);
    }
    struct engine *engine = engine_create(&options);
    memcpy(shared->sessions.of[1], engine->info.session, CONVOY_SESSION_BYTES);
    rank_mark(rank, 2 * life + 1);
    EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
    rank_await_mark(rank, 0, 2 * life + 2);
    /* no close, no release: it ends as it is */
}

static void run_lives(const struct rank *rank, void *argument)
{
    struct shared *shared = rank->shared;
    static uint8_t data[BYTES];
    const uint64_t bytes = BYTES;
    (void)argument;
    if (rank->index == 1) {
        for (uint32_t life = 0; life < LIVES; life++) {
            pid_t child = fork();
            EXPECT(child >= 0);
            if (child == 0) {
                live_once(rank, life);
                _exit(0);
            }
            rank_await_mark(rank, 0, 2 * life + 2);
            EXPECT(kill(child, SIGKILL) == 0);
        }
        return;
    }
    struct engine *engine = engine_create(NULL);
    char before[CONVOY_SESSION_BYTES] = "";
    for (uint32_t life = 0; life < LIVES; life++) {
        rank_await_mark(rank, 1, 2 * life + 1);
        convoy_peer peer = 0;
        if (life != 0) { /* the old id says that it is another life */
            EXPECT_STATUS(engine->table->peer_connect(engine->handle, before, strlen(before), 0, &peer, &engine->error),
                          CONVOY_STALE_EPOCH, &engine->error);
        }
        memcpy(before, shared->sessions.of[1], sizeof before);
        peer = engine_connect(engine, before);
        convoy_transfer sent = send_data(engine, peer, "again", data, &bytes);
        engine_wait(engine, sent, CONVOY_OK, NULL);
        engine_release(engine, sent);
        rank_mark(rank, 2 * life + 2);
        engine_await_empty(engine); /* it is killed while it holds the view */
    }
    EXPECT_EQUAL(engine_counter(engine, "peers_lost"), LIVES);
    engine_destroy(engine);
}

static void test_peers_that_come_back_at_their_port_are_connected_again_at_once(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run_lives, NULL, SCENE_TIMEOUT_MS);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_tensors_of_every_kind_arrive_bit_for_bit),
        cmocka_unit_test(test_peers_that_send_to_each_other_at_once_share_one_connection_and_leave_nothing),
        cmocka_unit_test(test_peers_that_die_at_any_point_take_nothing_with_them),
        cmocka_unit_test(test_peers_that_stand_still_are_given_up_in_time_and_their_memory_held),
        cmocka_unit_test(test_peers_in_a_crowd_are_served_or_refused_but_never_hang),
        cmocka_unit_test(test_peers_that_come_back_at_their_port_are_connected_again_at_once),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_peers", tests, NULL, NULL);
}
