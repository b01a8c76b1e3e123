/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory between hosts, where UCX takes none: what is staged goes from pinned memory to pinned memory, and the devices
 * copy on both sides (tests/lib/sim_cuda.h). */
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"
#include "tests/lib/sim_host.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS 12u
#define POOL_BYTES (16u << 20)

/* What the ranks do: with pools of device memory, or shared ones. */
struct plan {
    bool has_pools;
    bool is_checked;
};

static const uint64_t sizes[ROUNDS] = {0, 1, 513, 4096, 61440, 61441, 65536, 300001, 1u << 20, (1u << 20) + 1, 4u << 20, 7};

/* Halfway each side goes on in other memory, which is pinned as the first was. */
static void resize_at(struct engine *engine, uint32_t round)
{
    if (round == ROUNDS / 2) {
        EXPECT_OK(engine->table->pool_resize(engine->handle, POOL_BYTES / 2, &engine->error), &engine->error);
    }
}

static void send_all(const struct rank *rank, struct sim_host *host, struct engine *engine, const struct plan *plan)
{
    convoy_peer peer = far_connect(rank, engine);
    uint8_t *source = sim_host_alloc(4u << 20);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct convoy_transfer_result result;
        const struct convoy_tensor_source tensor = engine_tensor(source, &sizes[i]);
        struct convoy_stage stage = engine_stage("far", &tensor, 1);
        const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer sent = 0;
        stage.attempt = i + 1;
        stage.stream = host->stream;
        stage.critical_flags = plan->is_checked ? CONVOY_STAGE_CHECKSUM : 0;
        sim_host_fill(source, sizes[i], i);
        resize_at(engine, i);
        EXPECT_OK(engine->table->send_start(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
        engine_wait(engine, sent, CONVOY_OK, &result);
        EXPECT_EQUAL(result.is_source_free, 1);
        far_release(engine, sent);
    }
    sim_host_free(source);
}

static void load_all(struct sim_host *host, struct engine *engine, const struct plan *plan)
{
    uint8_t *target = sim_host_alloc(4u << 20);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct convoy_load load = {.struct_size = sizeof load,
                                         .mode = CONVOY_LOAD_COPY,
                                         .destination = plan->has_pools ? NULL : target,
                                         .destination_bytes = 4u << 20,
                                         .stream = host->stream,
                                         .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer loaded = 0;
        resize_at(engine, i);
        EXPECT_OK(engine->table->accept_start(engine->handle, &load, &loaded, &engine->error), &engine->error);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        engine_look(engine, loaded);
        EXPECT_EQUAL(engine->payload.payload_bytes, sizes[i]);
        EXPECT(sim_host_is_filled(plan->has_pools ? engine->views[0].data : target, sizes[i], i));
        EXPECT(engine_figures(engine).taken == 0 || plan->has_pools); /* what it came through is free again */
        far_release(engine, loaded);
    }
    sim_host_free(target);
}

/* What this UCX takes is known once there are peers on other hosts. */
static void expect_ucx_takes(struct engine *engine, const char *wanted)
{
    static char bytes[65536];
    char field[64];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = sizeof bytes};
    EXPECT_OK(engine->table->engine_describe(engine->handle, CONVOY_TOPIC_STATS, &text, &engine->error), &engine->error);
    (void)snprintf(field, sizeof field, "\"ucx_takes\":\"%s", wanted);
    EXPECT_TEXT(bytes, field);
}

static _Atomic uint32_t told; /* warnings of how device memory goes to other hosts */

static void hear_warning(void *user, uint32_t level, const char *text, size_t length)
{
    static const char words[] = "goes from pinned host memory; UCX ";
    (void)user;
    if (level == CONVOY_LOG_WARN && memmem(text, length, words, sizeof words - 1) != NULL) {
        told++;
    }
}

static void run_plan(const struct rank *rank, void *argument)
{
    const struct plan *plan = argument;
    far_enter(rank);
    struct sim_host *host = sim_host_open();
    uint8_t *pool = plan->has_pools ? sim_host_alloc(POOL_BYTES) : NULL;
    struct convoy_transfer_options options = {.struct_size = sizeof options,
                                              .pool_kind = pool != NULL ? CONVOY_MEMORY_DEVICE : CONVOY_MEMORY_SHARED,
                                              .pool_memory = pool,
                                              .pool_bytes = POOL_BYTES,
                                              .pool_block_bytes = 4096,
                                              .device = CONVOY_DEVICE_CUDA};
    engine_log = hear_warning;
    struct engine *engine = far_open_with(rank, &options);
    expect_ucx_takes(engine, "unknown");
    if (rank->index == 0) {
        send_all(rank, host, engine, plan);
    } else {
        load_all(host, engine, plan);
    }
    expect_ucx_takes(engine, "host");
    EXPECT_EQUAL(told, plan->has_pools ? 1 : 0);
    far_finish(rank, engine);
    if (pool != NULL) {
        sim_host_free(pool);
    }
    EXPECT_EQUAL(host->sim->violations(), 0);
    EXPECT_EQUAL(host->sim->blocking(), 0);
    sim_host_close();
}

static void check_plan(bool has_pools, bool is_checked)
{
    struct plan plan = {.has_pools = has_pools, .is_checked = is_checked};
    far_run(run_plan, &plan);
}

static void test_transfer_device_far_tensors_arrive_bit_for_bit(void **state)
{
    (void)state;
    check_plan(false, false);
    check_plan(false, true);
}

static void test_transfer_device_far_pools_of_device_memory_on_both_sides(void **state)
{
    (void)state;
    check_plan(true, false);
    check_plan(true, true);
}

/* The receiver gives a load up while its device copies, and closes: nothing of it is touched any more when close is done. */
static void run_given_up(const struct rank *rank, void *unused)
{
    const uint64_t bytes = 300000;
    (void)unused;
    far_enter(rank);
    struct sim_host *host = sim_host_open();
    struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = POOL_BYTES, .pool_block_bytes = 4096, .device = CONVOY_DEVICE_CUDA};
    struct engine *engine = far_open_with(rank, &options);
    uint8_t *memory = sim_host_alloc(bytes);
    if (rank->index == 0) {
        convoy_peer peer = far_connect(rank, engine);
        sim_host_fill(memory, bytes, 1);
        convoy_transfer sent = far_send(engine, peer, "given up", memory, &bytes, 0);
        engine_wait(engine, sent, CONVOY_CANCELED, NULL);
        far_release(engine, sent);
    } else {
        const struct convoy_load load = {.struct_size = sizeof load,
                                         .mode = CONVOY_LOAD_COPY,
                                         .destination = memory,
                                         .destination_bytes = bytes,
                                         .timeout_ns = ENGINE_TIMEOUT_NS};
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        convoy_transfer loaded = 0;
        host->sim->by_hand(1);
        EXPECT_OK(engine->table->accept_start(engine->handle, &load, &loaded, &engine->error), &engine->error);
        while (host->sim->calls("cuMemcpyAsync") == 0) {
            (void)engine->table->transfer_test(engine->handle, loaded, &result, &engine->error);
        }
        EXPECT_OK(engine->table->abort(engine->handle, loaded, NULL, 0, &engine->error), &engine->error);
        far_release(engine, loaded);
        EXPECT(engine_figures(engine).taken >= bytes);
        sim_host_await_empty(engine);
        host->sim->by_hand(0);
    }
    far_finish(rank, engine);
    sim_host_free(memory);
    EXPECT_EQUAL(host->sim->violations(), 0);
    sim_host_close();
}

static void test_transfer_device_far_load_given_up_is_held_until_its_copy_has_run(void **state)
{
    (void)state;
    far_run(run_given_up, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_device_far_tensors_arrive_bit_for_bit),
        cmocka_unit_test(test_transfer_device_far_pools_of_device_memory_on_both_sides),
        cmocka_unit_test(test_transfer_device_far_load_given_up_is_held_until_its_copy_has_run),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer device far", tests, far_make_hosts, far_remove_hosts);
}
