/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between two hosts that do not end well: killed, stopped, aborted, withdrawn; and peers that come back. */
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LARGE_BYTES (48u << 20) /* long enough under way for something to happen meanwhile */
#define SMALL_BYTES 100000u
#define LONG_MS 60000u
#define SHORT_NS 1500000000ull
#define LIVES 4u

static uint8_t *make_data(uint64_t bytes)
{
    uint8_t *data = malloc(bytes);
    EXPECT(data != NULL);
    engine_fill(data, bytes, 4);
    return data;
}

/* -- one of them is killed; the other one has its status and all its memory -- */

enum {
    DIES_CONNECTED = 0, /* offered to, not accepting */
    DIES_HOLDING,       /* what it has loaded */
    DIES_LANDING,
    DIES_OFFERING, /* not accepted yet */
    DIES_PUSHING,
    DIES_PUSHING_TO_LATE, /* and the survivor stands still meanwhile */
    DEATHS
};

static void doomed(const struct rank *rank, struct engine *engine, uint64_t point)
{
    const uint64_t bytes = LARGE_BYTES;
    convoy_peer peer = far_connect(rank, engine);
    convoy_transfer transfer = 0;
    if (point == DIES_HOLDING || point == DIES_LANDING) {
        transfer = far_accept(engine, CONVOY_LOAD_VIEW);
        far_await_state(engine, transfer, point == DIES_HOLDING ? CONVOY_TRANSFER_LOADED : CONVOY_TRANSFER_LOADING);
    } else if (point >= DIES_OFFERING) {
        transfer = far_send(engine, peer, "doomed", make_data(bytes), &bytes, 0);
        far_await_state(engine, transfer, CONVOY_TRANSFER_OFFERED);
    }
    rank_mark(rank, 2);
    if (transfer != 0) {
        (void)engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
    }
    rank_await_mark(rank, 0, 9); /* never comes: it is killed meanwhile */
}

static void outlive(const struct rank *rank, struct engine *engine, uint64_t point)
{
    const uint64_t bytes = point == DIES_HOLDING ? SMALL_BYTES : LARGE_BYTES;
    struct convoy_peer_info info = {.struct_size = sizeof info, .state = CONVOY_PEER_IS_CONNECTED};
    convoy_peer peer = far_connect(rank, engine);
    uint8_t *data = make_data(bytes);
    convoy_transfer open = 0;
    if (point <= DIES_LANDING) {
        open = far_send(engine, peer, "survivor", data, &bytes, 0);
    } else if (point >= DIES_PUSHING) {
        open = far_accept(engine, CONVOY_LOAD_VIEW);
        far_await_state(engine, open, CONVOY_TRANSFER_LOADING);
    }
    rank_mark(rank, 2); /* the parent kills rank 1 now */
    while (info.state == CONVOY_PEER_IS_CONNECTED) {
        EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    }
    EXPECT_EQUAL(info.state, CONVOY_PEER_IS_LOST);
    if (open != 0) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        int32_t status = engine->table->transfer_wait(engine->handle, open, ENGINE_TIMEOUT_NS, &result, &engine->error);
        bool may_be_done = point == DIES_HOLDING || point == DIES_LANDING || point >= DIES_PUSHING;
        EXPECT(status == CONVOY_PEER_LOST || (status == CONVOY_OK && may_be_done));
        EXPECT(status != CONVOY_PEER_LOST || result.state == CONVOY_TRANSFER_FAILED);
        EXPECT(point != DIES_HOLDING || status == CONVOY_OK);
        far_release(engine, open);
    }
    engine_await_empty(engine);
    EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    free(data);
}

static void run_death(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    uint64_t point = ((struct far_shared *)rank->shared)->numbers[0];
    (void)argument;
    if (rank->index == 1) {
        doomed(rank, engine, point);
    } else {
        outlive(rank, engine, point);
        engine_destroy(engine);
    }
}

static void test_far_ends_deaths_at_any_point_are_survived_and_take_nothing_along(void **state)
{
    (void)state;
    for (uint64_t point = 0; point < DEATHS; point++) {
        struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
        ((struct far_shared *)ranks_shared(ranks))->numbers[0] = point;
        ranks_start(ranks, run_death, NULL, LONG_MS);
        ranks_await_mark(ranks, 0, 2);
        ranks_await_mark(ranks, 1, 2);
        if (point == DIES_PUSHING_TO_LATE) {
            ranks_stop(ranks, 0);
        }
        ranks_signal(ranks, 1, SIGKILL);
        if (point == DIES_PUSHING_TO_LATE) {
            ranks_await_exit(ranks, 1);
            ranks_signal(ranks, 0, SIGCONT);
        }
        ranks_finish(ranks);
    }
}

/* -- rank 1 stands still in the middle; rank 0 has its status in time and its memory at once, and both go on afterwards -- */

static convoy_transfer begin(struct engine *engine, convoy_peer peer, bool is_sender, const uint8_t *data, uint64_t timeout_ns)
{
    const uint64_t bytes = LARGE_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage("stopped", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = timeout_ns};
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = timeout_ns};
    convoy_transfer transfer = 0;
    EXPECT_OK(is_sender ? engine->table->send_start(engine->handle, &stage, &send, &transfer, &engine->error)
                        : engine->table->accept_start(engine->handle, &load, &transfer, &engine->error),
              &engine->error);
    return transfer;
}

/* A small one passes each way. */
static void pass_on(struct engine *engine, convoy_peer peer, const uint8_t *data)
{
    const uint64_t bytes = SMALL_BYTES;
    convoy_transfer sent = far_send(engine, peer, "after", data, &bytes, CONVOY_STAGE_CHECKSUM);
    convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
    engine_wait(engine, loaded, CONVOY_OK, NULL);
    engine_look(engine, loaded);
    EXPECT(engine->views[0].bytes == bytes && memcmp(engine->views[0].data, data, bytes) == 0);
    engine_wait(engine, sent, CONVOY_OK, NULL);
    far_release(engine, loaded);
    far_release(engine, sent);
}

static void run_stop(const struct rank *rank, void *argument)
{
    const struct far_shared *shared = rank->shared;
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    uint8_t *data = make_data(LARGE_BYTES);
    bool is_sender = rank->index == shared->numbers[0];
    (void)argument;
    rank_barrier(rank);
    if (rank->index == 1) {
        convoy_transfer transfer = begin(engine, peer, is_sender, data, ENGINE_TIMEOUT_NS);
        far_await_state(engine, transfer, is_sender ? CONVOY_TRANSFER_OFFERED : CONVOY_TRANSFER_LOADING);
        rank_mark(rank, 2); /* stopped by the parent about now */
        rank_await_mark(rank, 0, 3);
        int32_t status = engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_PEER_ERROR || status == CONVOY_TIMED_OUT);
        far_release(engine, transfer);
    } else {
        convoy_transfer transfer = begin(engine, peer, is_sender, data, SHORT_NS);
        rank_mark(rank, 2);
        int32_t status = engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_TIMED_OUT); /* all may have been there before the stop */
        far_release(engine, transfer);
        engine_await_empty(engine);
        rank_mark(rank, 3);
    }
    rank_barrier(rank);
    pass_on(engine, peer, data);
    far_finish(rank, engine);
    free(data);
}

static void test_far_ends_a_peer_that_stands_still_is_given_up_in_time_and_goes_on_later(void **state)
{
    (void)state;
    for (uint64_t sender = 0; sender < 2; sender++) {
        struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
        ((struct far_shared *)ranks_shared(ranks))->numbers[0] = sender;
        ranks_start(ranks, run_stop, NULL, LONG_MS);
        ranks_await_mark(ranks, 1, 2);
        ranks_await_mark(ranks, 0, 2);
        ranks_stop(ranks, 1);
        ranks_await_mark(ranks, 0, 3);
        ranks_signal(ranks, 1, SIGCONT);
        ranks_finish(ranks);
    }
}

/* -- aborted in the middle, by either -- */

static void abort_one(const struct rank *rank, struct engine *engine, convoy_peer peer, uint32_t aborter, const uint8_t *data)
{
    bool is_sender = rank->index == 0;
    if (is_sender) {
        rank_barrier(rank); /* it is accepted already: an offer that is withdrawn before that reaches nobody */
    }
    convoy_transfer transfer = begin(engine, peer, is_sender, data, ENGINE_TIMEOUT_NS);
    if (!is_sender) {
        rank_barrier(rank);
    }
    if (aborter == rank->index) {
        far_await_state(engine, transfer, is_sender ? CONVOY_TRANSFER_OFFERED : CONVOY_TRANSFER_LOADING);
        EXPECT_OK(engine->table->abort(engine->handle, transfer, "enough", 6, &engine->error), &engine->error);
    }
    int32_t status = engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_CANCELED || status == CONVOY_PEER_ERROR);
    EXPECT(status != CONVOY_CANCELED || aborter != rank->index || strstr(engine->error.text, "enough") != NULL);
    far_release(engine, transfer);
    engine_await_empty(engine);
}

static void run_abort(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    uint8_t *data = make_data(LARGE_BYTES);
    (void)argument;
    for (uint32_t i = 0; i < 8; i++) {
        rank_barrier(rank);
        abort_one(rank, engine, peer, i % 2, data);
        rank_barrier(rank);
        if (rank->index == 1) { /* an offer that was aborted before it was accepted waits for nobody */
            struct convoy_peer_info info = {.struct_size = sizeof info};
            EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
        }
        pass_on(engine, peer, data);
    }
    far_finish(rank, engine);
    free(data);
}

static void test_far_ends_aborts_in_the_middle_end_both_sides_and_leave_nothing(void **state)
{
    (void)state;
    far_run(run_abort, NULL);
}

/* -- a peer that closes, and comes back as another incarnation -- */

static void run_lives(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    uint8_t *data = make_data(SMALL_BYTES);
    (void)argument;
    for (uint32_t life = 0; life < LIVES; life++) {
        rank_barrier(rank);
        if (rank->index == 1) {
            const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS};
            convoy_transfer loaded = 0;
            EXPECT_OK(engine->table->accept(engine->handle, &load, &loaded, &engine->error), &engine->error);
            far_release(engine, loaded);
            engine_destroy(engine); /* at once: the sender learns of its success all the same */
            engine = far_open_again(rank, 0);
            rank_barrier(rank);
        } else {
            const uint64_t bytes = SMALL_BYTES;
            convoy_peer peer = far_connect(rank, engine);
            convoy_transfer sent = far_send(engine, peer, "life", data, &bytes, 0);
            struct convoy_peer_info info = {.struct_size = sizeof info, .state = CONVOY_PEER_IS_CONNECTED};
            engine_wait(engine, sent, CONVOY_OK, NULL);
            far_release(engine, sent);
            while (info.state == CONVOY_PEER_IS_CONNECTED) {
                EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
            }
            EXPECT_EQUAL(info.state, CONVOY_PEER_IS_CLOSED);
            EXPECT_OK(engine->table->peer_disconnect(engine->handle, peer, &engine->error), &engine->error);
            rank_barrier(rank);
        }
    }
    far_finish(rank, engine);
    free(data);
}

static void test_far_ends_a_new_incarnation_is_connected_at_once(void **state)
{
    (void)state;
    far_run(run_lives, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_ends_deaths_at_any_point_are_survived_and_take_nothing_along),
        cmocka_unit_test(test_far_ends_a_peer_that_stands_still_is_given_up_in_time_and_goes_on_later),
        cmocka_unit_test(test_far_ends_aborts_in_the_middle_end_both_sides_and_leave_nothing),
        cmocka_unit_test(test_far_ends_a_new_incarnation_is_connected_at_once),
    };
    return cmocka_run_group_tests_name("transfer_far_ends", tests, far_make_hosts, far_remove_hosts);
}
