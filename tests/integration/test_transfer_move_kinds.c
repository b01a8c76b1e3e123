/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of transfer, in each of its states, at engines that move: it ends as if nothing had been. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"
#include "tests/lib/engine_moves.h"
#include "tests/lib/mappings.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LARGE (24u << 20)

static void move_both(struct two *two)
{
    engine_move(two->sender);
    engine_move(two->receiver);
}

/* -- stages -------------------------------------------------------------------------------------------------------- */

static int32_t answer;

static int32_t ready(void *user)
{
    return *(const int32_t *)user;
}

static convoy_transfer stage_pending(struct two *two, const char *request)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    convoy_transfer staged = 0;
    answer = 0;
    stage.ready = ready;
    stage.user = &answer;
    EXPECT_OK(two->sender->table->stage_start(two->sender->handle, &stage, &staged, &two->sender->error), &two->sender->error);
    return staged;
}

static void test_move_stage_whose_producer_is_not_ready_is_staged_afterwards(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *engine = two->sender;
    convoy_transfer staged = stage_pending(two, "pending");
    convoy_transfer failing = stage_pending(two, "failing");
    engine_move(engine);
    EXPECT_STATUS(engine->table->transfer_test(engine->handle, staged, NULL, &engine->error), CONVOY_IN_PROGRESS,
                  &engine->error);
    answer = -7;
    EXPECT_STATUS(engine->table->transfer_test(engine->handle, failing, NULL, &engine->error), CONVOY_PEER_ERROR,
                  &engine->error);
    engine_move(engine);
    answer = 1;
    engine_wait(engine, staged, CONVOY_OK, NULL);
    engine_wait(engine, failing, CONVOY_PEER_ERROR, NULL); /* unread, with its text */
    EXPECT(strstr(engine->error.text, "failing") != NULL);
    describe(two, staged, CONVOY_DESCRIPTOR_JSON);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_COPY, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_look(two->receiver, loaded);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    release(two->receiver, loaded);
    release(engine, staged);
    release(engine, failing);
    two_close(two);
}

static void test_move_aborted_stage_is_told_afterwards(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *engine = two->sender;
    convoy_transfer staged = stage_pending(two, "aborted");
    EXPECT_OK(engine->table->abort(engine->handle, staged, "why not", 7, &engine->error), &engine->error);
    engine_move(engine);
    engine_wait(engine, staged, CONVOY_CANCELED, NULL);
    EXPECT(strstr(engine->error.text, "why not") != NULL);
    release(engine, staged);
    EXPECT_STATUS(engine->table->transfer_test(engine->handle, staged, NULL, &engine->error), CONVOY_CLOSED, &engine->error);
    two_close(two);
}

/* -- what a host was shown ----------------------------------------------------------------------------------------- */

static void check_shown(uint32_t form)
{
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "shown");
    describe(two, staged, form);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_look(two->receiver, loaded);
    engine_look(two->sender, staged);
    for (uint32_t i = 0; i < 3; i++) { /* the pointers are those of before */
        move_both(two);
        EXPECT_BYTES(two->receiver->views[0].name, "data", 4);
        EXPECT_BYTES(two->receiver->payload.request, "shown", 5);
        EXPECT_BYTES(two->receiver->payload.scalars, "{\"seed\":18446744073709551615}", 29);
        EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
        EXPECT_BYTES(two->sender->views[0].name, "data", 4);
        EXPECT_BYTES(two->sender->payload.request, "shown", 5);
        EXPECT_BYTES(two->sender->payload.session, two->sender->info.session, strlen(two->sender->info.session));
        EXPECT(engine_is_filled(two->sender->views[0].data, BYTES, 7));
    }
    const void *data = two->receiver->views[0].data;
    engine_look(two->receiver, loaded);
    EXPECT(two->receiver->views[0].data == data);
    release(two->receiver, loaded);
    release(two->sender, staged);
    two_close(two);
}

static void test_move_pointers_of_payloads_stay_good(void **state)
{
    (void)state;
    check_shown(CONVOY_DESCRIPTOR_BINARY);
    check_shown(CONVOY_DESCRIPTOR_JSON);
}

/* -- slots, ranges, raw -------------------------------------------------------------------------------------------- */

static struct convoy_reserved_slot reserve(struct two *two, const char *request, uint64_t bytes)
{
    struct convoy_reserved_slot slot = {.transfer = 0};
    const struct convoy_reserve wanted = {.struct_size = sizeof wanted,
                                          .request = request,
                                          .request_length = strlen(request),
                                          .bytes = &bytes,
                                          .count = 1};
    struct convoy_reservation out = {
        .struct_size = sizeof out, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    EXPECT_OK(two->receiver->table->reserve(two->receiver->handle, &wanted, &out, &two->receiver->error),
              &two->receiver->error);
    return slot;
}

static void push(struct two *two, uint64_t from, uint64_t bytes, void *target)
{
    const struct convoy_raw_piece piece = {
        .source = two->memory + from, .target = (uint64_t)(uintptr_t)target, .bytes = bytes};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = two->peer,
                                   .pieces = &piece,
                                   .piece_stride = sizeof piece,
                                   .piece_count = 1};
    EXPECT_OK(two->sender->table->transfer_sync(two->sender->handle, &raw, ENGINE_TIMEOUT_NS, &two->sender->error),
              &two->sender->error);
}

static void test_move_slot_is_filled_in_parts_before_and_after(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *receiver = two->receiver;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    EXPECT_OK(two->sender->table->memory_register(two->sender->handle, two->memory, BYTES, &two->sender->error),
              &two->sender->error);
    struct convoy_reserved_slot slot = reserve(two, "parts", 60000);
    move_both(two);
    push(two, 0, 20000, slot.address);
    move_both(two);
    EXPECT_STATUS(receiver->table->transfer_test(receiver->handle, slot.transfer, &result, &receiver->error),
                  CONVOY_IN_PROGRESS, &receiver->error);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_FILLING);
    EXPECT(result.address == slot.address);
    push(two, 30000, 30000, (uint8_t *)slot.address + 30000);
    move_both(two);
    push(two, 20000, 10000, (uint8_t *)slot.address + 20000);
    move_both(two);
    engine_wait(receiver, slot.transfer, CONVOY_OK, &result);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_FILLED);
    EXPECT(memcmp(slot.address, two->memory, 60000) == 0);
    release(receiver, slot.transfer);
    EXPECT_OK(two->sender->table->memory_deregister(two->sender->handle, two->memory, BYTES, &two->sender->error),
              &two->sender->error);
    two_close(two);
}

/* -- generations and preallocated slots ---------------------------------------------------------------------------- */

static void test_move_with_generations_of_the_pool_keeps_each_until_it_is_given_back(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 4u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .prealloc_count = 4, /* between hosts each of the 3 loads takes one */
                                                    .prealloc_bytes = 70000};
    struct two *two = two_open_with(&options);
    struct engine *sender = two->sender;
    convoy_transfer staged[3];
    convoy_transfer loaded[3];
    for (uint32_t i = 0; i < 3; i++) {
        staged[i] = stage_one(two, "aged");
        describe(two, staged[i], CONVOY_DESCRIPTOR_BINARY);
        move_both(two);
        loaded[i] = load_start(two, CONVOY_LOAD_VIEW, 0);
        engine_wait(two->receiver, loaded[i], CONVOY_OK, NULL);
        EXPECT_OK(sender->table->pool_resize(sender->handle, (5u + i) << 20, &sender->error), &sender->error);
        move_both(two);
        EXPECT_EQUAL(engine_figures(sender).old_generations, i + 1);
    }
    struct convoy_reserved_slot slot = reserve(two, "kept", 60000);
    EXPECT(slot.slot_id != 0);
    for (uint32_t i = 3; i-- > 0;) {
        expect_data(two, loaded[i]);
        release(two->receiver, loaded[i]);
        release(sender, staged[i]);
        move_both(two);
    }
    AWAIT(engine_figures(sender).old_generations == 0);
    release(two->receiver, slot.transfer);
    slot = reserve(two, "kept again", 60000);
    EXPECT(slot.slot_id != 0);
    release(two->receiver, slot.transfer);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

/* -- large ones, while they are copied and followed ---------------------------------------------------------------- */

static void test_move_while_large_requests_are_on_their_way_keeps_their_bytes(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 4 * LARGE, .pool_block_bytes = 1u << 20};
    struct two *two = two_open_with(&options);
    uint8_t *memory = malloc(LARGE);
    const uint64_t bytes = LARGE;
    EXPECT(memory != NULL);
    for (uint32_t i = 0; i < 12; i++) {
        engine_fill(memory, LARGE, i);
        const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
        const struct convoy_stage stage = engine_stage("large", &tensor, 1);
        const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
        const struct convoy_load load = {.struct_size = sizeof load, .mode = i % 2};
        convoy_transfer sent = 0;
        convoy_transfer loaded = 0;
        EXPECT_OK(two->receiver->table->accept_start(two->receiver->handle, &load, &loaded, &two->receiver->error),
                  &two->receiver->error);
        EXPECT_OK(two->sender->table->send_start(two->sender->handle, &stage, &send, &sent, &two->sender->error),
                  &two->sender->error);
        if (i % 3 != 1) {
            engine_move(two->sender);
        }
        if (i % 3 != 0) {
            engine_move(two->receiver);
        }
        engine_wait(two->sender, sent, CONVOY_OK, NULL);
        engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
        engine_look(two->receiver, loaded);
        EXPECT(engine_is_filled(two->receiver->views[0].data, LARGE, i));
        release(two->sender, sent);
        release(two->receiver, loaded);
    }
    free(memory);
    two_close(two);
}

/* -- what is left over --------------------------------------------------------------------------------------------- */

static void test_move_fifty_times_holds_as_much_as_once(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "held");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    move_both(two);
    const struct convoy_holdings first = engine_holdings(two->sender);
    uint32_t mappings = mappings_count();
    uint32_t files = mappings_files();
    for (uint32_t i = 0; i < 50; i++) {
        move_both(two);
    }
    const struct convoy_holdings last = engine_holdings(two->sender);
    EXPECT_EQUAL(mappings_count(), mappings);
    EXPECT_EQUAL(mappings_files(), files);
    EXPECT_EQUAL(last.descriptor_count, first.descriptor_count);
    EXPECT_EQUAL(last.mapping_count, first.mapping_count);
    EXPECT_EQUAL(last.thread_count, first.thread_count);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    release(two->sender, staged);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_stage_whose_producer_is_not_ready_is_staged_afterwards),
        cmocka_unit_test(test_move_aborted_stage_is_told_afterwards),
        cmocka_unit_test(test_move_pointers_of_payloads_stay_good),
        cmocka_unit_test(test_move_slot_is_filled_in_parts_before_and_after),
        cmocka_unit_test(test_move_with_generations_of_the_pool_keeps_each_until_it_is_given_back),
        cmocka_unit_test(test_move_while_large_requests_are_on_their_way_keeps_their_bytes),
        cmocka_unit_test(test_move_fifty_times_holds_as_much_as_once),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move_kinds", tests, NULL, NULL);
}
