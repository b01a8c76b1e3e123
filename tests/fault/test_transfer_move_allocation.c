/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of an engine that moves fails once, in a process of its own: the move is given up, the old engine goes on and
 * moves the next time, and after close nothing is left. Needs a build with fault hooks. */
#include "tests/abi/hygiene.h"

#include "tests/lib/engine_moves.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef CONVOY_FAULTS
#define BYTES 9000u
#define ALLOCATIONS_MAX 600u
#define CLEAN_IN_A_ROW 8u

enum outcome { SET_UP = 1, GIVEN_UP, MOVED };

static uint8_t data[BYTES];
static const uint64_t data_bytes = BYTES;

struct scarce {
    struct plugin plugin;
    struct convoy_error error;
    convoy_context *contexts[2]; /* receiver, sender */
    convoy_transfer_engine *engines[2];
    convoy_peer peer;
    convoy_transfer staged;
    convoy_transfer sent;
};

static int32_t set_up(struct scarce *scarce)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 1u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 8,
                                                    .peer_max = 2,
                                                    .prealloc_count = 1,
                                                    .prealloc_bytes = 4096};
    const struct convoy_context_config config = {.struct_size = sizeof config};
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("scarce", &tensor, 1);
    struct convoy_engine_info info = {.struct_size = sizeof info};
    const struct convoy_transfer_table *table = scarce->plugin.transfer;
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = scarce->plugin.core->context_open(&config, &scarce->contexts[i], &scarce->error);
        if (status == CONVOY_OK) {
            status = table->engine_open(scarce->contexts[i], &options, &scarce->engines[i], &scarce->error);
        }
    }
    if (status == CONVOY_OK) {
        EXPECT_OK(table->engine_info(scarce->engines[0], &info, &scarce->error), &scarce->error);
        status = table->peer_connect(scarce->engines[1], info.session, strlen(info.session), ENGINE_TIMEOUT_NS, &scarce->peer,
                                     &scarce->error);
    }
    if (status == CONVOY_OK) {
        status = table->stage_start(scarce->engines[1], &stage, &scarce->staged, &scarce->error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_send send = {.struct_size = sizeof send, .peer = scarce->peer, .staged = scarce->staged};
        status = table->send_start(scarce->engines[1], NULL, &send, &scarce->sent, &scarce->error);
    }
    return status;
}

static int32_t hand_over(struct scarce *scarce, convoy_context *context, convoy_transfer_engine **handle_out)
{
    static uint64_t room[1u << 15];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = (char *)room, .capacity = sizeof room};
    struct convoy_moved_object object = {.old_handle = 0};
    struct convoy_moved moved = {
        .struct_size = sizeof moved, .objects = &object, .object_stride = sizeof object, .object_capacity = 1};
    const struct convoy_move_table *table = engine_moves();
    int32_t status = table->quiesce(scarce->contexts[1], ENGINE_TIMEOUT_NS, &scarce->error);
    if (status == CONVOY_OK) {
        status = table->export_state(scarce->contexts[1], &moving_options, &text, &scarce->error);
    }
    const struct convoy_exported_state state = {.struct_size = sizeof state, .data = room, .bytes = text.length};
    if (status == CONVOY_OK) {
        status = table->import_state(context, &state, &moved, &scarce->error);
    }
    if (status == CONVOY_OK) {
        *handle_out = (convoy_transfer_engine *)(uintptr_t)object.new_handle;
        status = table->resume(context, &scarce->error);
    }
    return status;
}

/* true: it has moved. false: it has not, and goes on. */
static bool try_move(struct scarce *scarce)
{
    const struct convoy_context_config config = {.struct_size = sizeof config};
    convoy_context *context = NULL;
    convoy_context *old = scarce->contexts[1];
    convoy_transfer_engine *handle = NULL;
    if (scarce->plugin.core->context_open(&config, &context, &scarce->error) != CONVOY_OK) {
        return false;
    }
    bool is_moved = hand_over(scarce, context, &handle) == CONVOY_OK;
    if (is_moved) {
        EXPECT_OK(engine_moves()->retire(old, ENGINE_TIMEOUT_NS, &scarce->error), &scarce->error);
        scarce->contexts[1] = context;
        scarce->engines[1] = handle;
        context = old;
    }
    EXPECT_OK(scarce->plugin.core->context_close(context, ENGINE_TIMEOUT_NS, &scarce->error), &scarce->error);
    if (!is_moved) {
        EXPECT_OK(engine_moves()->resume(scarce->contexts[1], &scarce->error), &scarce->error);
    }
    return is_moved;
}

/* One that fails behind the move has failed in this request, which says so. */
static void finish(struct scarce *scarce)
{
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW};
    const struct convoy_transfer_table *table = scarce->plugin.transfer;
    convoy_transfer loaded = 0;
    int32_t status = table->accept(scarce->engines[0], &load, &loaded, &scarce->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
    EXPECT_STATUS(table->transfer_wait(scarce->engines[1], scarce->sent, ENGINE_TIMEOUT_NS, NULL, &scarce->error), status,
                  &scarce->error);
    EXPECT_OK(table->release(scarce->engines[0], loaded, &scarce->error), &scarce->error);
    EXPECT_OK(table->release(scarce->engines[1], scarce->sent, &scarce->error), &scarce->error);
    EXPECT_OK(table->release(scarce->engines[1], scarce->staged, &scarce->error), &scarce->error);
}

static void run(const struct rank *rank, void *argument)
{
    struct hygiene before;
    struct hygiene after;
    struct scarce scarce = {.error = {.struct_size = sizeof scarce.error}};
    char number[16];
    int32_t *outcome = rank->shared;
    (void)snprintf(number, sizeof number, "%u", *(const uint32_t *)argument);
    EXPECT_EQUAL(setenv("CONVOY_FAIL_ALLOCATION", number, 1), 0);
    plugin_load(&scarce.plugin);
    (void)engine_moves();
    hygiene_take(&before);
    *outcome = SET_UP;
    if (set_up(&scarce) == CONVOY_OK) {
        bool is_moved = try_move(&scarce);
        *outcome = is_moved ? MOVED : GIVEN_UP;
        EXPECT(is_moved || try_move(&scarce));
        finish(&scarce);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (scarce.contexts[i] != NULL) {
            EXPECT_OK(scarce.plugin.core->context_close(scarce.contexts[i], ENGINE_TIMEOUT_NS, &scarce.error), &scarce.error);
        }
    }
    hygiene_take(&after);
    hygiene_compare(&before, &after, 0);
}
#endif

static void test_move_with_any_allocation_failing_is_given_up_and_done_the_next_time(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    uint32_t given_up = 0;
    uint32_t clean = 0;
    for (uint32_t number = 1; clean < CLEAN_IN_A_ROW; number++) {
        assert_true(number < ALLOCATIONS_MAX);
        struct ranks *ranks = ranks_create(1, sizeof(int32_t));
        const int32_t *outcome = ranks_shared(ranks);
        ranks_start(ranks, run, &number, 0);
        ranks_await_exit(ranks, 0);
        int32_t ended = *outcome;
        ranks_finish(ranks);
        clean = ended == MOVED ? clean + 1 : 0;
        given_up += ended == GIVEN_UP;
    }
    assert_true(given_up > 20);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_with_any_allocation_failing_is_given_up_and_done_the_next_time),
    };
    return cmocka_run_group_tests_name("transfer_move_allocation", tests, NULL, NULL);
}
