/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads that go by put into the receiver's memory. InfiniBand is not here; UCX's System V shared memory truly has puts, so
 * two engines of one host that are set to share no memory of convoy's run over it the code that InfiniBand would take.
 */
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL_BYTES (UINT64_C(64) << 20)
#define LARGE_BYTES (24u << 20)
#define LONG_MS 60000u

static struct engine *open_rma(const struct rank *rank, const char *settings)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .critical_flags = CONVOY_ENGINE_PRIVATE,
                                                    .hint_flags = CONVOY_ENGINE_NOTIFY,
                                                    .address = "tcp://127.0.0.1:0",
                                                    .address_length = 17,
                                                    .pool_bytes = POOL_BYTES,
                                                    .pool_block_bytes = 4096};
    engine_settings = settings;
    return scene_open(rank, &options);
}

static const char with_put[] = "{\"net\": \"ucx\", \"ucx_tls\": \"sysv,tcp\"}";
static const char without_put[] = "{\"net\": \"ucx\", \"ucx_tls\": \"sysv,tcp\", \"net_rma\": \"never\"}";

static uint8_t *make_data(uint64_t bytes, uint32_t seed)
{
    uint8_t *data = malloc(bytes != 0 ? bytes : 1);
    EXPECT(data != NULL);
    engine_fill(data, bytes, seed);
    return data;
}

/* One way; the path is that of both sides. */
static void pass(const struct rank *rank, struct engine *engine, convoy_peer peer, uint64_t bytes, uint32_t flags,
                 uint32_t path)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    uint8_t *data = make_data(bytes, 5);
    convoy_transfer transfer =
        rank->index == 0 ? far_send(engine, peer, "put", data, &bytes, flags) : far_accept(engine, CONVOY_LOAD_VIEW);
    engine_wait(engine, transfer, CONVOY_OK, &result);
    EXPECT_EQUAL(result.path, bytes != 0 ? path : CONVOY_PATH_MESSAGES);
    if (rank->index == 1) {
        engine_look(engine, transfer);
        EXPECT_EQUAL(engine->views[0].bytes, bytes);
        EXPECT(bytes == 0 || memcmp(engine->views[0].data, data, bytes) == 0);
    }
    far_release(engine, transfer);
    free(data);
}

/* Each side has the other's key once a small one has passed and been answered; the first may go as messages. */
static void warm_up(const struct rank *rank, struct engine *engine, convoy_peer peer)
{
    const uint64_t bytes = 64;
    uint8_t *data = make_data(bytes, 1);
    for (uint32_t i = 0; i < 2; i++) {
        bool is_sender = rank->index == i;
        convoy_transfer transfer =
            is_sender ? far_send(engine, peer, "warm", data, &bytes, 0) : far_accept(engine, CONVOY_LOAD_VIEW);
        engine_wait(engine, transfer, CONVOY_OK, NULL);
        far_release(engine, transfer);
    }
    free(data);
    rank_barrier(rank);
}

/* -- every size, bit for bit -- */

static void run_sizes(const struct rank *rank, void *argument)
{
    static const uint64_t sizes[] = {1, 0, 511, 4096, 61441, 1048575, 1048576, 1048577, 5000000, LARGE_BYTES};
    uint32_t path = *(const uint32_t *)argument;
    struct engine *engine = open_rma(rank, path == CONVOY_PATH_RMA ? with_put : without_put);
    convoy_peer peer = far_connect(rank, engine);
    warm_up(rank, engine, peer);
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof sizes[0]); i++) {
        pass(rank, engine, peer, sizes[i / 2], i % 2 == 0 ? CONVOY_STAGE_CHECKSUM : 0, path);
    }
    far_finish(rank, engine);
}

static void test_far_rma_payloads_are_put_bit_for_bit_where_the_lanes_have_it(void **state)
{
    (void)state;
    for (uint32_t path = CONVOY_PATH_MESSAGES; path <= CONVOY_PATH_RMA; path += CONVOY_PATH_RMA - CONVOY_PATH_MESSAGES) {
        far_run(run_sizes, &path);
    }
}

/* -- either gives up while puts are under way -- */

static void end_one(const struct rank *rank, struct engine *engine, convoy_peer peer, uint32_t ender)
{
    const uint64_t bytes = LARGE_BYTES;
    uint8_t *data = make_data(bytes, 6);
    if (rank->index == 0) {
        rank_barrier(rank); /* it is accepted already */
    }
    convoy_transfer transfer = rank->index == 0 ? far_send(engine, peer, "ended", data, &bytes, 0)
                                                : far_accept(engine, CONVOY_LOAD_VIEW);
    if (rank->index == 1) {
        rank_barrier(rank);
    }
    if (rank->index == ender) {
        far_await_state(engine, transfer, rank->index == 0 ? CONVOY_TRANSFER_OFFERED : CONVOY_TRANSFER_LOADING);
        EXPECT_OK(engine->table->abort(engine->handle, transfer, "enough", 6, &engine->error), &engine->error);
    }
    int32_t status = engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_CANCELED || status == CONVOY_PEER_ERROR);
    far_release(engine, transfer);
    engine_await_empty(engine);
    EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    free(data);
}

static void run_ended(const struct rank *rank, void *argument)
{
    struct engine *engine = open_rma(rank, with_put);
    convoy_peer peer = far_connect(rank, engine);
    (void)argument;
    warm_up(rank, engine, peer);
    for (uint32_t i = 0; i < 8; i++) {
        end_one(rank, engine, peer, i % 2);
        rank_barrier(rank);
        pass(rank, engine, peer, 300000, 0, CONVOY_PATH_RMA);
    }
    far_finish(rank, engine);
}

static void test_far_rma_aborts_while_puts_are_under_way_leave_nothing(void **state)
{
    (void)state;
    far_run(run_ended, NULL);
}

/* -- the slot of a load that was given up is nobody else's before the sender's word, or its end -- */

enum { SENDER_GOES_ON = 0, SENDER_DIES };

/* The other one stands still, as the parent has seen. */
static void stand_still(const struct rank *rank)
{
    rank_mark(rank, 2);
    rank_await_mark(rank, 1 - rank->index, 3);
}

static void run_stopped_sender(const struct rank *rank, void *argument)
{
    const uint64_t bytes = LARGE_BYTES;
    uint64_t ending = *(const uint64_t *)argument;
    struct engine *engine = open_rma(rank, with_put);
    convoy_peer peer = far_connect(rank, engine);
    warm_up(rank, engine, peer);
    if (rank->index == 0) {
        convoy_transfer sent = far_send(engine, peer, "slow", make_data(bytes, 7), &bytes, 0);
        stand_still(rank); /* its host stands still from here on, its engine when the parent stops the process */
        (void)engine->table->transfer_wait(engine->handle, sent, ENGINE_TIMEOUT_NS, NULL, &engine->error);
        far_release(engine, sent);
    } else {
        rank_mark(rank, 2);
        rank_await_parent(rank, 1); /* it has seen the sender stop */
        convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
        far_await_state(engine, loaded, CONVOY_TRANSFER_LOADING);
        EXPECT_OK(engine->table->abort(engine->handle, loaded, "enough", 6, &engine->error), &engine->error);
        far_release(engine, loaded);
        EXPECT(engine_figures(engine).quarantined >= bytes);
        rank_mark(rank, 3);
        engine_await_empty(engine); /* when it has gone on and said that it puts nothing, or when its connection is over */
        EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    }
    if (ending == SENDER_GOES_ON) {
        rank_barrier(rank);
        pass(rank, engine, peer, 300000, 0, CONVOY_PATH_RMA);
        far_finish(rank, engine);
    } else {
        engine_destroy(engine);
    }
}

static void test_far_rma_slot_is_quarantined_until_the_senders_word_or_its_end(void **state)
{
    (void)state;
    for (uint64_t ending = SENDER_GOES_ON; ending <= SENDER_DIES; ending++) {
        struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
        ranks_start(ranks, run_stopped_sender, &ending, LONG_MS);
        ranks_await_mark(ranks, 0, 2);
        ranks_await_mark(ranks, 1, 2);
        ranks_stop(ranks, 0);
        ranks_mark(ranks, 1);
        ranks_await_mark(ranks, 1, 3);
        ranks_signal(ranks, 0, ending == SENDER_DIES ? SIGKILL : SIGCONT);
        ranks_finish(ranks);
    }
}

/* -- one is killed in the middle; the other has its status and all its memory -- */

static void run_killed(const struct rank *rank, void *argument)
{
    const uint64_t bytes = LARGE_BYTES;
    uint32_t doomed = *(const uint32_t *)argument;
    struct engine *engine = open_rma(rank, with_put);
    convoy_peer peer = far_connect(rank, engine);
    warm_up(rank, engine, peer);
    if (rank->index == 0) {
        rank_await_mark(rank, 1, 2); /* it accepts */
    }
    convoy_transfer transfer = rank->index == 0 ? far_send(engine, peer, "killed", make_data(bytes, 8), &bytes, 0)
                                                : far_accept(engine, CONVOY_LOAD_VIEW);
    rank_mark(rank, 2); /* the parent kills one about now */
    if (rank->index == doomed) {
        (void)engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
        rank_await_mark(rank, 1 - rank->index, 9); /* never comes */
    }
    int32_t status = engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, NULL, &engine->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_PEER_LOST);
    far_release(engine, transfer);
    engine_await_empty(engine);
    EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    engine_destroy(engine);
}

static void test_far_rma_death_in_the_middle_of_puts_takes_nothing_along(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t doomed = i % 2;
        struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
        ranks_start(ranks, run_killed, &doomed, LONG_MS);
        ranks_await_mark(ranks, 0, 2);
        ranks_await_mark(ranks, 1, 2);
        ranks_signal(ranks, doomed, SIGKILL);
        ranks_finish(ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_rma_payloads_are_put_bit_for_bit_where_the_lanes_have_it),
        cmocka_unit_test(test_far_rma_aborts_while_puts_are_under_way_leave_nothing),
        cmocka_unit_test(test_far_rma_slot_is_quarantined_until_the_senders_word_or_its_end),
        cmocka_unit_test(test_far_rma_death_in_the_middle_of_puts_takes_nothing_along),
    };
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: LeakSanitizer itself faults in a process in which UCX has System V shared memory\n");
    (void)tests;
    return 0;
#else
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_far_rma", tests, NULL, NULL);
#endif
}
