/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/engines.h"

#include "tests/lib/await.h"
#include "tests/lib/expect.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOL_BYTES (64u << 20)
#define TEXT_BYTES (1u << 20)

const char *engine_settings;
convoy_log_fn engine_log;

void engine_filter_tests(void)
{
    static char pattern[256]; /* cmocka keeps the pointer */
    const char *only = getenv("CONVOY_TEST_ONLY");
    if (only != NULL) {
        (void)snprintf(pattern, sizeof pattern, "*%s*", only);
        cmocka_set_test_filter(pattern);
    }
}

struct engine *engine_create(const struct convoy_transfer_options *options)
{
    const struct convoy_transfer_options small = {
        .struct_size = sizeof small, .pool_bytes = POOL_BYTES, .pool_block_bytes = 4096};
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .secret = "s",
                                                 .secret_bytes = 1,
                                                 .settings = engine_settings,
                                                 .settings_length =
                                                     engine_settings != NULL ? strlen(engine_settings) : 0,
                                                 .log = engine_log};
    struct engine *engine = calloc(1, sizeof *engine);
    EXPECT(engine != NULL);
    plugin_load(&engine->plugin);
    engine->table = engine->plugin.transfer;
    engine->error.struct_size = sizeof engine->error;
    engine->info.struct_size = sizeof engine->info;
    EXPECT_OK(engine->plugin.core->context_open(&config, &engine->context, &engine->error), &engine->error);
    EXPECT_OK(engine->table->engine_open(engine->context, options != NULL ? options : &small, &engine->handle,
                                         &engine->error),
              &engine->error);
    EXPECT_OK(engine->table->engine_info(engine->handle, &engine->info, &engine->error), &engine->error);
    return engine;
}

void engine_destroy(struct engine *engine)
{
    EXPECT_OK(engine->table->engine_close(engine->handle, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    EXPECT_OK(engine->plugin.core->context_close(engine->context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    free(engine);
}

convoy_peer engine_connect(struct engine *engine, const char *session)
{
    convoy_peer peer = 0;
    EXPECT_OK(engine->table->peer_connect(engine->handle, session, strlen(session), ENGINE_TIMEOUT_NS, &peer,
                                          &engine->error),
              &engine->error);
    return peer;
}

void engine_fill(uint8_t *memory, size_t bytes, uint32_t seed)
{
    uint32_t value = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < bytes; i++) {
        value = value * 1664525u + 1013904223u;
        memory[i] = (uint8_t)(value >> 24);
    }
}

bool engine_is_filled(const uint8_t *memory, size_t bytes, uint32_t seed)
{
    uint32_t value = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < bytes; i++) {
        value = value * 1664525u + 1013904223u;
        if (memory[i] != (uint8_t)(value >> 24)) {
            return false;
        }
    }
    return true;
}

struct convoy_tensor_source engine_tensor(const void *data, const uint64_t *bytes)
{
    return (struct convoy_tensor_source){
        .name = "data", .name_length = 4, .dtype = "uint8", .dtype_length = 5, .data = data, .shape = bytes, .rank = 1};
}

struct convoy_stage engine_stage(const char *request, const struct convoy_tensor_source *tensors, size_t count)
{
    return (struct convoy_stage){.struct_size = sizeof(struct convoy_stage),
                                 .request = request,
                                 .request_length = strlen(request),
                                 .tensors = tensors,
                                 .tensor_stride = sizeof *tensors,
                                 .tensor_count = count};
}

void engine_look(struct engine *engine, convoy_transfer transfer)
{
    engine->payload = (struct convoy_payload){.struct_size = sizeof engine->payload,
                                              .tensors = engine->views,
                                              .tensor_stride = sizeof engine->views[0],
                                              .tensor_capacity = ENGINE_TENSORS_MAX,
                                              .lists = engine->lists,
                                              .list_stride = sizeof engine->lists[0],
                                              .list_capacity = ENGINE_TENSORS_MAX};
    EXPECT_OK(engine->table->payload(engine->handle, transfer, &engine->payload, &engine->error), &engine->error);
}

void engine_wait(struct engine *engine, convoy_transfer transfer, int32_t wanted, struct convoy_transfer_result *result_out)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    EXPECT_STATUS(engine->table->transfer_wait(engine->handle, transfer, ENGINE_TIMEOUT_NS, &result, &engine->error),
                  wanted, &engine->error);
    if (result_out != NULL) {
        *result_out = result;
    }
}

void engine_release(struct engine *engine, convoy_transfer transfer)
{
    EXPECT_OK(engine->table->release(engine->handle, transfer, &engine->error), &engine->error);
}

struct convoy_engine_figures engine_figures(struct engine *engine)
{
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    EXPECT_OK(engine->table->pool_figures(engine->handle, &figures, &engine->error), &engine->error);
    return figures;
}

void engine_await_empty(struct engine *engine)
{
    AWAIT(engine_figures(engine).taken == 0);
}

static json_t *read_stats(struct engine *engine)
{
    char *bytes = malloc(TEXT_BYTES);
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = TEXT_BYTES};
    EXPECT(bytes != NULL);
    EXPECT_OK(engine->table->engine_describe(engine->handle, CONVOY_TOPIC_STATS, &text, &engine->error), &engine->error);
    json_t *stats = json_loadb(bytes, text.length, 0, NULL);
    free(bytes);
    return stats;
}

uint64_t engine_counter(struct engine *engine, const char *name)
{
    json_t *stats = read_stats(engine);
    const json_t *counter = json_object_get(json_object_get(stats, "counters"), name);
    EXPECT(json_is_integer(counter));
    uint64_t value = (uint64_t)json_integer_value(counter);
    json_decref(stats);
    return value;
}

uint64_t engine_number(struct engine *engine, const char *object, const char *name)
{
    json_t *stats = read_stats(engine);
    uint64_t value = (uint64_t)json_integer_value(json_object_get(json_object_get(stats, object), name));
    json_decref(stats);
    return value;
}
