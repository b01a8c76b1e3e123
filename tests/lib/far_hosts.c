/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/far_hosts.h"

#include "tests/lib/expect.h"
#include "tests/lib/hosts.h"

#include <stdio.h>
#include <string.h>

#define POOL_BYTES (UINT64_C(256) << 20)

static bool has_hosts;

int far_make_hosts(void **state)
{
    (void)state;
    has_hosts = hosts_create(2);
    return 0;
}

int far_remove_hosts(void **state)
{
    (void)state;
    if (has_hosts) {
        hosts_destroy();
    }
    return 0;
}

void far_run(void (*run)(const struct rank *rank, void *argument), void *argument)
{
    struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
    ranks_start(ranks, run, argument, SCENE_TIMEOUT_MS);
    ranks_finish(ranks);
}

static struct engine *open_at(const struct rank *rank, struct convoy_transfer_options options)
{
    char address[64];
    (void)snprintf(address, sizeof address, "tcp://%s:0", has_hosts ? hosts_address(rank->index) : "127.0.0.1");
    options.address = address;
    options.address_length = strlen(address);
    return engine_create(&options);
}

static struct engine *open_with(const struct rank *rank, uint64_t pool_bytes, uint32_t prealloc_count)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .hint_flags = CONVOY_ENGINE_NOTIFY,
                                                    .pool_bytes = pool_bytes != 0 ? pool_bytes : POOL_BYTES,
                                                    .pool_block_bytes = 4096,
                                                    .prealloc_count = prealloc_count,
                                                    .prealloc_bytes = 65536};
    return open_at(rank, options);
}

void far_enter(const struct rank *rank)
{
    if (has_hosts) {
        hosts_enter(rank->index);
    } else {
        engine_settings = "{\"net\": \"ucx\"}";
    }
}

struct engine *far_open_with(const struct rank *rank, const struct convoy_transfer_options *options)
{
    struct engine *engine = open_at(rank, *options);
    scene_tell(rank, engine);
    return engine;
}

struct engine *far_open(const struct rank *rank, uint64_t pool_bytes, uint32_t prealloc_count)
{
    far_enter(rank);
    struct engine *engine = open_with(rank, pool_bytes, prealloc_count);
    scene_tell(rank, engine);
    return engine;
}

struct engine *far_open_again(const struct rank *rank, uint64_t pool_bytes)
{
    struct engine *engine = open_with(rank, pool_bytes, 0);
    scene_tell(rank, engine);
    return engine;
}

convoy_peer far_connect(const struct rank *rank, struct engine *engine)
{
    struct convoy_peer_info info = {.struct_size = sizeof info};
    convoy_peer peer = scene_connect(rank, engine, 1 - rank->index);
    EXPECT_OK(engine->table->peer_info(engine->handle, peer, &info, &engine->error), &engine->error);
    EXPECT_EQUAL(info.locality, CONVOY_LOCALITY_REMOTE);
    EXPECT_EQUAL(info.pool_bytes, 0);
    return peer;
}

convoy_transfer far_send(struct engine *engine, convoy_peer peer, const char *request, const uint8_t *data,
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

convoy_transfer far_accept(struct engine *engine, uint32_t mode)
{
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    EXPECT_OK(engine->table->accept_start(engine->handle, &load, &loaded, &engine->error), &engine->error);
    return loaded;
}

void far_release(struct engine *engine, convoy_transfer transfer)
{
    engine_release(engine, transfer);
}

void far_await_state(struct engine *engine, convoy_transfer transfer, uint32_t state)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t status = CONVOY_IN_PROGRESS;
    while (result.state != state && status == CONVOY_IN_PROGRESS) {
        status = engine->table->transfer_test(engine->handle, transfer, &result, &engine->error);
    }
}

uint64_t far_number(struct engine *engine, const char *name)
{
    return engine_number(engine, "far", name);
}

void far_finish(const struct rank *rank, struct engine *engine)
{
    scene_part_ways(rank, engine);
    engine_destroy(engine);
}
