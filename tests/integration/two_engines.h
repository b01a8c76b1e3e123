/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines of one process, connected, and what tests of single calls do with them. */
#ifndef CONVOY_TESTS_INTEGRATION_TWO_ENGINES_H
#define CONVOY_TESTS_INTEGRATION_TWO_ENGINES_H

#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 70000u
#define TEXT_BYTES 65536u
#define SHORT_NS 50000000ull

struct two {
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer; /* the receiver, as the sender knows it */
    uint8_t memory[BYTES];
    uint64_t bytes;
    char text[TEXT_BYTES];
    size_t text_length;
};

static inline struct two *two_open_with(const struct convoy_transfer_options *options)
{
    struct two *two = calloc(1, sizeof *two);
    EXPECT(two != NULL);
    two->sender = engine_create(options);
    two->receiver = engine_create(options);
    two->peer = engine_connect(two->sender, two->receiver->info.session);
    two->bytes = BYTES;
    engine_fill(two->memory, BYTES, 7);
    return two;
}

static inline struct two *two_open(void)
{
    return two_open_with(NULL);
}

static inline void two_close(struct two *two)
{
    engine_await_empty(two->sender);
    engine_await_empty(two->receiver);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

static inline int32_t stage_status(struct two *two, const char *request, uint32_t attempt, convoy_transfer *staged_out)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    stage.attempt = attempt;
    stage.critical_flags = CONVOY_STAGE_CHECKSUM;
    stage.scalars = "{\"seed\":18446744073709551615}";
    stage.scalars_length = strlen(stage.scalars);
    return two->sender->table->stage_start(two->sender->handle, &stage, staged_out, &two->sender->error);
}

static inline convoy_transfer stage_one(struct two *two, const char *request)
{
    convoy_transfer staged = 0;
    EXPECT_OK(stage_status(two, request, 1, &staged), &two->sender->error);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    return staged;
}

static inline void describe(struct two *two, convoy_transfer staged, uint32_t form)
{
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = two->text, .capacity = TEXT_BYTES};
    EXPECT_OK(two->sender->table->descriptor(two->sender->handle, staged, form, &text, &two->sender->error),
              &two->sender->error);
    two->text_length = text.length;
}

static inline convoy_transfer load_start(struct two *two, uint32_t mode, convoy_transfer slot)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = mode,
                                     .descriptor = two->text,
                                     .descriptor_length = two->text_length,
                                     .slot = slot};
    convoy_transfer loaded = 0;
    EXPECT_OK(two->receiver->table->load_start(two->receiver->handle, &load, &loaded, &two->receiver->error),
              &two->receiver->error);
    return loaded;
}

static inline void release(struct engine *engine, convoy_transfer transfer)
{
    EXPECT_OK(engine->table->release(engine->handle, transfer, &engine->error), &engine->error);
}

static inline void expect_data(struct two *two, convoy_transfer loaded)
{
    engine_look(two->receiver, loaded);
    EXPECT_EQUAL(two->receiver->payload.payload_bytes, BYTES);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    EXPECT_BYTES(two->receiver->payload.scalars, "{\"seed\":18446744073709551615}", 29);
}

static inline void check_descriptor(uint32_t form, uint32_t mode)
{
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "by broker");
    describe(two, staged, form);
    convoy_transfer loaded = load_start(two, mode, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    expect_data(two, loaded);
    release(two->sender, staged);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    two_close(two);
}

static inline convoy_transfer accept_start(struct two *two, const char *request, uint64_t timeout_ns)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .request = request,
                                     .request_length = strlen(request),
                                     .timeout_ns = timeout_ns};
    convoy_transfer loaded = 0;
    EXPECT_OK(two->receiver->table->accept_start(two->receiver->handle, &load, &loaded, &two->receiver->error),
              &two->receiver->error);
    return loaded;
}

#endif
