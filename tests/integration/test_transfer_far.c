/* SPDX-License-Identifier: Apache-2.0 */
/* Engines on two hosts (network namespaces; without the right to make them, two processes of one host that are set to share
 * no memory): whole requests bit for bit over UCX, by every way of asking for them, and what is left afterwards. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/hosts.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL_BYTES (256u << 20)
#define LONG_MS 60000u

static bool has_hosts;

struct shared {
    char sessions[2][CONVOY_SESSION_BYTES];
    char text[65536];
    uint64_t numbers[8];
};

static struct engine *open_engine_with(const struct rank *rank, uint64_t pool_bytes, uint32_t prealloc_count)
{
    struct shared *shared = rank->shared;
    char address[64];
    (void)snprintf(address, sizeof address, "tcp://%s:0", has_hosts ? hosts_address(rank->index) : "127.0.0.1");
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .address = address,
                                                    .address_length = strlen(address),
                                                    .pool_bytes = pool_bytes,
                                                    .pool_block_bytes = 4096,
                                                    .prealloc_count = prealloc_count,
                                                    .prealloc_bytes = 65536};
    if (has_hosts) {
        hosts_enter(rank->index);
    } else {
        engine_settings = "{\"net\": \"ucx\"}";
    }
    struct engine *engine = engine_create(&options);
    memcpy(shared->sessions[rank->index], engine->info.session, CONVOY_SESSION_BYTES);
    rank_mark(rank, 1);
    return engine;
}

static struct engine *open_engine(const struct rank *rank)
{
    return open_engine_with(rank, POOL_BYTES, 0);
}

static convoy_peer connect_to(const struct rank *rank, struct engine *engine, uint32_t other)
{
    const struct shared *shared = rank->shared;
    struct convoy_peer_info info = {.struct_size = sizeof info};
    rank_await_mark(rank, other, 1);
    convoy_peer peer = engine_connect(engine, shared->sessions[other]);
    EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    EXPECT_EQUAL(info.locality, CONVOY_LOCALITY_REMOTE);
    EXPECT_EQUAL(info.pool_bytes, 0);
    return peer;
}

static void release(struct engine *engine, convoy_transfer transfer)
{
    EXPECT_OK(engine->table->release(engine->handle, transfer, &engine->error), &engine->error);
}

static convoy_transfer send_start(struct engine *engine, convoy_peer peer, const char *request, const uint8_t *data,
                                  const uint64_t *bytes, uint32_t flags)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    stage.critical_flags = flags;
    EXPECT_OK(engine->table->send_start(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
    return sent;
}

static void run_ranks(void (*run)(const struct rank *rank, void *argument), void *argument)
{
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run, argument, LONG_MS);
    ranks_finish(ranks);
}

/* Both sides have nothing left, and only then close. */
static void finish(const struct rank *rank, struct engine *engine)
{
    rank_barrier(rank);
    engine_await_empty(engine);
    rank_barrier(rank);
    engine_destroy(engine);
}

/* -- one after the other, of every size -- */

static const uint64_t sizes[] = {4096,  0,     1,      511,      512,      513,      61439,      61440,
                                 61441, 65536, 122880, 1048577, 16777217, 64u << 20, (64u << 20) + 1};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void run_sizes(const struct rank *rank, void *argument)
{
    struct engine *engine = open_engine(rank);
    uint8_t *data = malloc(sizes[SIZES - 1]);
    uint8_t *destination = malloc(sizes[SIZES - 1]);
    convoy_peer peer = rank->index == 0 ? connect_to(rank, engine, 1) : 0;
    (void)argument;
    EXPECT(data != NULL && destination != NULL);
    engine_fill(data, sizes[SIZES - 1], 1);
    for (size_t i = 0; i < 3 * SIZES; i++) {
        uint64_t bytes = sizes[i / 3];
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        struct convoy_load load = {.struct_size = sizeof load,
                                   .mode = i % 3 == 0 ? CONVOY_LOAD_VIEW : CONVOY_LOAD_COPY,
                                   .destination = i % 3 == 2 ? destination : NULL,
                                   .destination_bytes = i % 3 == 2 ? bytes : 0,
                                   .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer transfer = 0;
        if (rank->index == 0) {
            transfer = send_start(engine, peer, "sizes", data, &bytes, i % 2 == 0 ? CONVOY_STAGE_CHECKSUM : 0);
        } else {
            EXPECT_OK(engine->table->accept_start(engine->handle, &load, &transfer, &engine->error), &engine->error);
        }
        engine_wait(engine, transfer, CONVOY_OK, &result);
        EXPECT_EQUAL(result.path, CONVOY_PATH_MESSAGES);
        EXPECT_EQUAL(result.payload_bytes, bytes);
        EXPECT_EQUAL(result.moved_bytes, bytes);
        if (rank->index == 1) {
            engine_look(engine, transfer);
            EXPECT_EQUAL(engine->views[0].bytes, bytes);
            EXPECT(bytes == 0 || memcmp(engine->views[0].data, data, bytes) == 0);
            EXPECT(i % 3 != 2 || bytes == 0 || engine->views[0].data == destination);
        }
        release(engine, transfer);
    }
    EXPECT_EQUAL(engine_counter(engine, "retries"), 0);
    finish(rank, engine);
    free(data);
    free(destination);
}

static void test_far_sizes_around_every_border_arrive_whole(void **state)
{
    (void)state;
    run_ranks(run_sizes, NULL);
}

static int make_hosts(void **state)
{
    (void)state;
    has_hosts = hosts_create(2);
    return 0;
}

static int remove_hosts(void **state)
{
    (void)state;
    if (has_hosts) {
        hosts_destroy();
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_sizes_around_every_border_arrive_whole),
    };
    return cmocka_run_group_tests_name("transfer_far", tests, make_hosts, remove_hosts);
}
