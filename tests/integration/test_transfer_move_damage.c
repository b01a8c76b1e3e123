/* SPDX-License-Identifier: Apache-2.0 */
/* Exported states that are damaged in a way that no checksum tells: refused or harmless, and the exporter goes on. */
#include "tests/integration/two_engines.h"
#include "tests/lib/engine_moves.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FLIPS 3000u
#define HEAD 32u

static void seal(uint8_t *bytes, uint64_t length)
{
    memcpy(bytes + 8, &length, sizeof length);
    uint64_t digest = XXH3_64bits(bytes + 24, length - 24);
    memcpy(bytes + 16, &digest, sizeof digest);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 4;
}

/* Something of everything. */
static struct two *scene(convoy_transfer *staged_out, convoy_transfer *loaded_out)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 4u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 16,
                                                    .peer_max = 4,
                                                    .prealloc_count = 2,
                                                    .prealloc_bytes = 8192};
    struct two *two = two_open_with(&options);
    *staged_out = stage_one(two, "damaged");
    describe(two, *staged_out, CONVOY_DESCRIPTOR_JSON);
    *loaded_out = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, *loaded_out, CONVOY_OK, NULL);
    engine_look(two->receiver, *loaded_out);
    (void)accept_start(two, "never", ENGINE_TIMEOUT_NS);
    EXPECT_OK(two->receiver->table->memory_register(two->receiver->handle, two->memory, BYTES, &two->receiver->error),
              &two->receiver->error);
    return two;
}

static void try_import(struct engine *engine, convoy_context **context, const struct engine_state *state)
{
    convoy_transfer_engine *handle = NULL;
    if (*context == NULL) {
        *context = engine_context(engine);
    }
    if (engine_import(engine, *context, state, &handle) == CONVOY_OK) { /* harmless: dropped again */
        EXPECT_OK(engine->plugin.core->context_close(*context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
        *context = NULL;
    }
}

static void flip(struct engine *engine, const struct engine_state *state)
{
    convoy_context *context = NULL;
    uint64_t length = state->state.bytes;
    uint8_t *bytes = malloc(length);
    struct engine_state damaged = {.bytes = bytes};
    uint32_t seed = 20260101;
    for (uint32_t i = 0; i < FLIPS; i++) {
        memcpy(bytes, state->bytes, length);
        uint64_t at = HEAD + 24 + next_random(&seed) % (length - HEAD - 24);
        bytes[at] ^= (uint8_t)(1u << next_random(&seed) % 8);
        seal(bytes, length);
        damaged.state = (struct convoy_exported_state){.struct_size = sizeof damaged.state, .data = bytes, .bytes = length};
        if (memcmp(bytes, state->bytes, HEAD) != 0) {
            try_import(engine, &context, &damaged);
        }
    }
    for (uint64_t cut = HEAD; cut < length; cut += 8 * (1 + next_random(&seed) % 40)) {
        memcpy(bytes, state->bytes, length);
        seal(bytes, cut);
        damaged.state = (struct convoy_exported_state){.struct_size = sizeof damaged.state, .data = bytes, .bytes = cut};
        try_import(engine, &context, &damaged);
    }
    free(bytes);
    if (context != NULL) {
        EXPECT_OK(engine->plugin.core->context_close(context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    }
}

static void test_move_of_a_damaged_state_is_refused_and_the_old_engine_goes_on(void **state)
{
    (void)state;
    convoy_transfer staged;
    convoy_transfer loaded;
    struct two *two = scene(&staged, &loaded);
    struct engine *const engines[] = {two->sender, two->receiver};
    for (uint32_t i = 0; i < 2; i++) {
        engine_quiesce(engines[i]);
        struct engine_state exported = engine_export(engines[i]);
        flip(engines[i], &exported);
        EXPECT_OK(engine_moves()->resume(engines[i]->context, &engines[i]->error), &engines[i]->error);
        free(exported.bytes);
        engine_move(engines[i]);
    }
    expect_data(two, loaded);
    release(two->receiver, loaded);
    release(two->sender, staged);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

/* An item that this build does not know: dropped, unless it is marked as one that is needed. */
static void test_move_with_an_unknown_item_drops_it_or_says_that_it_is_too_new(void **state)
{
    (void)state;
    convoy_transfer staged;
    convoy_transfer loaded;
    struct two *two = scene(&staged, &loaded);
    struct engine *engine = two->sender;
    engine_quiesce(engine);
    struct engine_state exported = engine_export(engine);
    uint64_t length = exported.state.bytes;
    uint8_t *bytes = calloc(1, length + 16);
    for (uint32_t critical = 0; critical < 2; critical++) {
        convoy_context *context = engine_context(engine);
        convoy_transfer_engine *handle = NULL;
        const uint16_t head[2] = {0x7777, (uint16_t)critical};
        const uint32_t eight = 8;
        memcpy(bytes, exported.bytes, length);
        memcpy(bytes + length, head, sizeof head);
        memcpy(bytes + length + 4, &eight, sizeof eight);
        seal(bytes, length + 16);
        const struct engine_state longer = {
            .state = {.struct_size = sizeof longer.state, .data = bytes, .bytes = length + 16}};
        EXPECT_STATUS(engine_import(engine, context, &longer, &handle), critical != 0 ? CONVOY_TOO_NEW : CONVOY_OK,
                      &engine->error);
        EXPECT_OK(engine->plugin.core->context_close(context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    }
    free(bytes);
    free(exported.bytes);
    EXPECT_OK(engine_moves()->resume(engine->context, &engine->error), &engine->error);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    release(two->sender, staged);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_of_a_damaged_state_is_refused_and_the_old_engine_goes_on),
        cmocka_unit_test(test_move_with_an_unknown_item_drops_it_or_says_that_it_is_too_new),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move_damage", tests, NULL, NULL);
}
