/* SPDX-License-Identifier: Apache-2.0 */
/* Engines with a device that move, on the pretended driver: what is staged and loaded before and after, and the pinned pool. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/engine_moves.h"
#include "tests/lib/sim_host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MOVED_BYTES ((uint64_t)1 << 20)

static void test_move_of_engines_with_a_device_stages_and_loads_afterwards(void **state)
{
    (void)state;
    struct sim_host *host = sim_host_open();
    struct engine *sender = sim_host_engine(NULL);
    struct engine *receiver = sim_host_engine(NULL);
    convoy_peer peer = engine_connect(sender, receiver->info.session);
    uint8_t *source = sim_host_alloc(MOVED_BYTES);
    uint8_t *target = sim_host_alloc(MOVED_BYTES);
    for (uint32_t i = 0; i < 6; i++) {
        const uint64_t bytes = MOVED_BYTES - i;
        const struct convoy_tensor_source tensor = engine_tensor(source, &bytes);
        struct convoy_stage stage = engine_stage("moved", &tensor, 1);
        const struct convoy_load load = {.struct_size = sizeof load,
                                         .mode = CONVOY_LOAD_COPY,
                                         .destination = target,
                                         .destination_bytes = MOVED_BYTES,
                                         .stream = host->stream,
                                         .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer staged = 0;
        convoy_transfer loaded = 0;
        stage.stream = host->stream;
        sim_host_fill(source, MOVED_BYTES, i);
        CALL_OK(sender, stage_start, &stage, &staged);
        engine_move(sender); /* waits for the device's copy */
        engine_wait(sender, staged, CONVOY_OK, NULL);
        EXPECT(engine_holdings(sender).registration_count > 0);
        convoy_transfer sent = send_staged(sender, peer, staged);
        CALL_OK(receiver, accept_start, &load, &loaded);
        engine_move(receiver);
        engine_wait(receiver, loaded, CONVOY_OK, NULL);
        EXPECT(sim_host_is_filled(target, bytes, i));
        engine_wait(sender, sent, CONVOY_OK, NULL);
        release(sender, sent);
        release(sender, staged);
        release(receiver, loaded);
    }
    engine_await_empty(sender);
    engine_await_empty(receiver);
    engine_destroy(sender);
    engine_destroy(receiver);
    sim_host_free(source);
    sim_host_free(target);
    EXPECT_EQUAL(host->sim->violations(), 0);
    EXPECT_EQUAL(host->sim->blocking(), 0);
    sim_host_close();
    engine_settings = NULL;
}

/* A driver that is not there: resume says so, and the old engine goes on. */
static void test_move_whose_device_cannot_be_opened_there_is_given_up(void **state)
{
    (void)state;
    (void)sim_host_open();
    struct engine *engine = sim_host_engine(NULL);
    convoy_transfer_engine *handle = NULL;
    static const char nowhere[] = "{\"cuda_library\": \"/nowhere/libcuda.so\"}";
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .settings = nowhere, .settings_length = sizeof nowhere - 1};
    convoy_context *context = NULL;
    EXPECT_OK(engine->plugin.core->context_open(&config, &context, &engine->error), &engine->error);
    engine_quiesce(engine);
    struct engine_state exported = engine_export(engine);
    EXPECT_OK(engine_import(engine, context, &exported, &handle), &engine->error);
    EXPECT(engine_moves()->resume(context, &engine->error) < CONVOY_OK);
    EXPECT_OK(engine->plugin.core->context_close(context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    EXPECT_OK(engine_moves()->resume(engine->context, &engine->error), &engine->error);
    free(exported.bytes);
    engine_await_empty(engine);
    engine_destroy(engine);
    sim_host_close();
    engine_settings = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_of_engines_with_a_device_stages_and_loads_afterwards),
        cmocka_unit_test(test_move_whose_device_cannot_be_opened_there_is_given_up),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move_device", tests, NULL, NULL);
}
