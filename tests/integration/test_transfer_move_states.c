/* SPDX-License-Identifier: Apache-2.0 */
/* What calls answer while an engine moves, and that a move can be undone at every step. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"
#include "tests/lib/engine_moves.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

/* Every call but looks. */
static void expect_sent_away(struct engine *engine, convoy_transfer transfer, int32_t wanted)
{
    const struct convoy_transfer_table *table = engine->table;
    const struct convoy_load load = {.struct_size = sizeof load};
    const struct convoy_transfer_query query = {.struct_size = sizeof query, .request = "r", .request_length = 1};
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    struct convoy_peer_info info = {.struct_size = sizeof info};
    struct convoy_completion completion;
    convoy_transfer started = 0;
    convoy_peer peer = 0;
    size_t count = 0;
    struct convoy_error *error = &engine->error;
    EXPECT_STATUS(table->transfer_test(engine->handle, transfer, NULL, error), wanted, error);
    EXPECT_STATUS(table->transfer_wait(engine->handle, transfer, SHORT_NS, NULL, error), wanted, error);
    EXPECT_STATUS(table->release(engine->handle, transfer, error), wanted, error);
    EXPECT_STATUS(table->abort(engine->handle, transfer, NULL, 0, error), wanted, error);
    EXPECT_STATUS(table->accept_start(engine->handle, &load, &started, error), wanted, error);
    EXPECT_STATUS(table->load_start(engine->handle, &load, &started, error), wanted, error);
    EXPECT_STATUS(table->peer_connect(engine->handle, "x", 1, SHORT_NS, &peer, error), wanted, error);
    EXPECT_STATUS(table->peer_info(engine->handle, 1, &info, error), wanted, error);
    EXPECT_STATUS(table->query(engine->handle, &query, SHORT_NS, &answer, error), wanted, error);
    EXPECT_STATUS(table->completions(engine->handle, &completion, sizeof completion, 1, &count, error), wanted, error);
    EXPECT_STATUS(table->pool_resize(engine->handle, 1u << 20, error), wanted, error);
    EXPECT_STATUS(table->memory_register(engine->handle, &completion, sizeof completion, error), wanted, error);
}

static void expect_looks(struct engine *engine, int32_t wanted)
{
    static char text[TEXT_BYTES];
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = sizeof text};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    struct convoy_error *error = &engine->error;
    EXPECT_STATUS(engine->table->engine_info(engine->handle, &info, error), wanted, error);
    EXPECT_STATUS(engine->table->pool_figures(engine->handle, &figures, error), wanted, error);
    EXPECT_STATUS(engine->table->engine_describe(engine->handle, CONVOY_TOPIC_STATS, &buffer, error), wanted, error);
}

static void test_move_calls_are_sent_away_from_quiesce_on_and_looks_until_retire(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *engine = two->sender;
    convoy_transfer staged = stage_one(two, "r");
    convoy_transfer_engine *moved = NULL;
    convoy_transfer_engine *before = engine->handle;
    convoy_context *old = engine->context;
    convoy_context *context = engine_context(engine);
    engine_quiesce(engine);
    expect_sent_away(engine, staged, CONVOY_MOVED);
    EXPECT_STATUS(engine->table->engine_close(before, SHORT_NS, &engine->error), CONVOY_MOVED, &engine->error);
    expect_looks(engine, CONVOY_OK);
    struct convoy_holdings holdings = engine_holdings(engine);
    EXPECT_EQUAL(holdings.thread_count, 0);
    EXPECT_EQUAL(holdings.engine_count, 1);
    EXPECT_EQUAL(holdings.transfer_count, 1);
    struct engine_state exported = engine_export(engine);
    EXPECT_OK(engine_import(engine, context, &exported, &moved), &engine->error);
    engine->handle = moved;
    expect_sent_away(engine, staged, CONVOY_MOVED); /* not before it is resumed */
    EXPECT_OK(engine_moves()->resume(context, &engine->error), &engine->error);
    EXPECT_OK(engine->table->transfer_test(moved, staged, NULL, &engine->error), &engine->error);
    EXPECT_OK(engine_moves()->retire(old, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    engine->handle = before;
    expect_sent_away(engine, staged, CONVOY_MOVED);
    expect_looks(engine, CONVOY_MOVED);
    EXPECT_OK(engine->table->engine_close(before, SHORT_NS, &engine->error), &engine->error);
    holdings = engine_holdings(engine);
    EXPECT_EQUAL(holdings.engine_count, 1);
    EXPECT_EQUAL(holdings.descriptor_count + holdings.mapping_count + holdings.thread_count, 0);
    EXPECT_OK(engine->plugin.core->context_close(old, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    engine->handle = moved;
    engine->context = context;
    free(exported.bytes);
    release(engine, staged);
    two_close(two);
}

/* Up to which step the new build comes before it is given up. */
static void check_undo(bool is_imported)
{
    struct two *two = two_open();
    struct engine *engine = two->sender;
    convoy_transfer staged = stage_one(two, "undone");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        convoy_transfer_engine *moved = NULL;
        convoy_context *context = engine_context(engine);
        engine_quiesce(engine);
        struct engine_state exported = engine_export(engine);
        if (is_imported) {
            EXPECT_OK(engine_import(engine, context, &exported, &moved), &engine->error);
        }
        EXPECT_OK(engine->plugin.core->context_close(context, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
        EXPECT_OK(engine_moves()->resume(engine->context, &engine->error), &engine->error);
        free(exported.bytes);
        expect_data(two, loaded);
        convoy_transfer again = load_start(two, CONVOY_LOAD_COPY, 0);
        engine_wait(two->receiver, again, CONVOY_OK, NULL);
        expect_data(two, again);
        release(two->receiver, again);
    }
    engine_move(engine);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    release(engine, staged);
    two_close(two);
}

static void test_move_that_is_given_up_leaves_the_old_engine_going_on(void **state)
{
    (void)state;
    check_undo(false);
    check_undo(true);
}

struct waiting {
    struct engine *engine;
    convoy_transfer_engine *handle;
    convoy_transfer transfer;
    int32_t status;
};

static void *wait_main(void *argument)
{
    struct waiting *waiting = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    waiting->status = waiting->engine->table->transfer_wait(waiting->handle, waiting->transfer, ENGINE_TIMEOUT_NS, NULL, &error);
    return NULL;
}

static void test_move_wakes_host_threads_that_wait(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct waiting waiting[3];
    pthread_t threads[3];
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "late %u", i);
        waiting[i] = (struct waiting){.engine = two->receiver,
                                      .handle = two->receiver->handle,
                                      .transfer = accept_start(two, name, ENGINE_TIMEOUT_NS)};
        EXPECT(pthread_create(&threads[i], NULL, wait_main, &waiting[i]) == 0);
    }
    AWAIT(engine_holdings(two->receiver).call_count == 3);
    engine_move(two->receiver);
    for (uint32_t i = 0; i < 3; i++) {
        (void)pthread_join(threads[i], NULL);
        EXPECT_EQUAL(waiting[i].status, CONVOY_MOVED);
    }
    convoy_transfer staged = stage_one(two, "late 1");
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .staged = staged};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, NULL, &send, &sent, &two->sender->error),
              &two->sender->error);
    engine_wait(two->receiver, waiting[1].transfer, CONVOY_OK, NULL);
    expect_data(two, waiting[1].transfer);
    for (uint32_t i = 0; i < 3; i++) {
        release(two->receiver, waiting[i].transfer);
    }
    release(two->sender, sent);
    release(two->sender, staged);
    two_close(two);
}

/* The host polls a number that it has; it stays that file. */
static void test_move_keeps_the_descriptor_of_completions_readable(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 8u << 20, .pool_block_bytes = 4096, .hint_flags = CONVOY_ENGINE_NOTIFY};
    struct two *two = two_open_with(&options);
    struct engine *engine = two->sender;
    struct pollfd poll_fd = {.fd = engine->info.completion_fd, .events = POLLIN};
    struct convoy_completion completion = {.status = CONVOY_IN_PROGRESS};
    size_t count = 0;
    convoy_transfer staged = stage_one(two, "told");
    EXPECT_EQUAL(poll(&poll_fd, 1, 0), 1);
    for (uint32_t i = 0; i < 2; i++) {
        engine_move(engine);
        EXPECT_EQUAL(engine->info.completion_fd, poll_fd.fd);
        EXPECT_EQUAL(poll(&poll_fd, 1, 0), 1);
    }
    EXPECT_OK(engine->table->completions(engine->handle, &completion, sizeof completion, 1, &count, &engine->error),
              &engine->error);
    EXPECT_EQUAL(count, 1);
    EXPECT_EQUAL(completion.transfer, staged);
    EXPECT_EQUAL(poll(&poll_fd, 1, 0), 0);
    engine_move(engine);
    EXPECT_EQUAL(poll(&poll_fd, 1, 0), 0);
    release(engine, staged);
    convoy_transfer again = stage_one(two, "told again");
    EXPECT_EQUAL(poll(&poll_fd, 1, 0), 1);
    release(engine, again);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_calls_are_sent_away_from_quiesce_on_and_looks_until_retire),
        cmocka_unit_test(test_move_that_is_given_up_leaves_the_old_engine_going_on),
        cmocka_unit_test(test_move_wakes_host_threads_that_wait),
        cmocka_unit_test(test_move_keeps_the_descriptor_of_completions_readable),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move_states", tests, NULL, NULL);
}
