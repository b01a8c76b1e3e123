/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/engine_moves.h"

#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>

#define STATE_ROOM (1u << 20)

static uint64_t imported_from; /* what the last import said */

const struct convoy_move_table *engine_moves(void)
{
    static const struct convoy_move_table *table;
    if (table == NULL) {
        struct plugin plugin;
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_family_answer answer = {.status = 0};
        const struct convoy_family_request family = {
            .name = "move", .name_length = 4, .major_min = 1, .major_max = 1};
        plugin_load(&plugin);
        const struct convoy_host_info host = {.struct_size = sizeof host,
                                              .families = &family,
                                              .family_stride = sizeof family,
                                              .family_count = 1};
        struct convoy_plugin_info info = {.struct_size = sizeof info,
                                          .answers = &answer,
                                          .answer_stride = sizeof answer,
                                          .answer_capacity = 1};
        EXPECT_OK(plugin.query(&host, &info, &error), &error);
        table = (const struct convoy_move_table *)(const void *)answer.table;
        EXPECT(table != NULL);
    }
    return table;
}

void engine_quiesce(struct engine *engine)
{
    EXPECT_OK(engine_moves()->quiesce(engine->context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
}

struct engine_state engine_export(struct engine *engine)
{
    struct convoy_text_buffer text = {.struct_size = sizeof text, .capacity = STATE_ROOM, .data = malloc(STATE_ROOM)};
    int32_t status = engine_moves()->export_state(engine->context, &moving_options, &text, &engine->error);
    if (status == CONVOY_BUFFER_TOO_SMALL) {
        free(text.data);
        text.capacity = text.length + 8;
        text.data = malloc(text.capacity);
        status = engine_moves()->export_state(engine->context, &moving_options, &text, &engine->error);
    }
    EXPECT_OK(status, &engine->error);
    struct engine_state out = {.bytes = (uint8_t *)text.data};
    out.state = (struct convoy_exported_state){.struct_size = sizeof out.state, .data = out.bytes, .bytes = text.length};
    return out;
}

convoy_context *engine_context(struct engine *engine)
{
    convoy_context *context = NULL;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .secret = "s",
                                                 .secret_bytes = 1,
                                                 .settings = engine_settings,
                                                 .settings_length = engine_settings != NULL ? strlen(engine_settings) : 0,
                                                 .log = engine_log};
    EXPECT_OK(engine->plugin.core->context_open(&config, &context, &engine->error), &engine->error);
    return context;
}

int32_t engine_import(struct engine *engine, convoy_context *context, const struct engine_state *state,
                      convoy_transfer_engine **handle_out)
{
    struct convoy_moved_object object = {.old_handle = 0};
    struct convoy_moved moved = {
        .struct_size = sizeof moved, .objects = &object, .object_stride = sizeof object, .object_capacity = 1};
    int32_t status = engine_moves()->import_state(context, &state->state, &moved, &engine->error);
    if (status == CONVOY_OK && moved.object_count != 0) { /* of what was cut off there may be nothing */
        EXPECT_EQUAL(moved.object_count, 1);
        EXPECT_EQUAL(object.kind, CONVOY_MOVED_ENGINE);
        imported_from = object.old_handle;
        *handle_out = (convoy_transfer_engine *)(uintptr_t)object.new_handle;
    }
    return status;
}

void engine_move(struct engine *engine)
{
    convoy_context *old = engine->context;
    convoy_transfer_engine *handle = NULL;
    convoy_context *context = engine_context(engine);
    engine_quiesce(engine);
    struct engine_state state = engine_export(engine);
    EXPECT_OK(engine_import(engine, context, &state, &handle), &engine->error);
    EXPECT(handle != NULL);
    EXPECT_EQUAL(imported_from, (uint64_t)(uintptr_t)engine->handle);
    EXPECT_OK(engine_moves()->resume(context, &engine->error), &engine->error);
    EXPECT_OK(engine_moves()->retire(old, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    free(state.bytes);
    engine->context = context;
    engine->handle = handle;
    EXPECT_OK(engine->plugin.core->context_close(old, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    EXPECT_OK(engine->table->engine_info(handle, &engine->info, &engine->error), &engine->error);
}

struct convoy_holdings engine_holdings(struct engine *engine)
{
    struct convoy_holdings holdings = {.struct_size = sizeof holdings};
    EXPECT_OK(engine_moves()->holdings(engine->context, &holdings, &engine->error), &engine->error);
    return holdings;
}
