/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts ask by mistake, or seldom, and what they are told: numbers at the ends of their ranges, what never fits and what
 * will in a moment, and whether the text of a refusal says what was wrong. */
#include "tests/integration/reports_transfer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define POOL_BYTES (1u << 20)
#define NS_PER_MS 1000000ull

static bool says(const struct engine *engine, const char *words)
{
    return strstr(engine->error.text, words) != NULL;
}

/* -- numbers -- */

static void test_transfer_edges_most_retries_are_no_storm(void **state)
{
    (void)state;
    struct two *two = two_open();
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("often", &tensor, 1);
    struct convoy_send send = {
        .struct_size = sizeof send, .peer = two->peer, .timeout_ns = SHORT_NS, .retries = UINT32_MAX};
    struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = ENGINE_TIMEOUT_NS, .retries = UINT32_MAX};
    struct convoy_transfer_result result;
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &sent); /* nobody takes it */
    engine_wait(two->sender, sent, CONVOY_TIMED_OUT, &result);
    EXPECT(result.retries <= SHORT_NS / NS_PER_MS);
    CALL_OK(two->sender, release, sent);
    send.timeout_ns = ENGINE_TIMEOUT_NS;
    CALL_OK(two->receiver, accept_start, &load, &loaded);
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    CALL_OK(two->receiver, release, loaded);
    CALL_OK(two->sender, release, sent);
    two_close(two);
}

static void test_transfer_edges_strides_that_leave_memory_are_refused(void **state)
{
    (void)state;
    static const int64_t wild[][2] = {{INT64_MIN, 1}, {INT64_MAX, 1}, {1, INT64_MIN / 2}, {INT64_MAX / 2, INT64_MAX / 2}};
    static const int64_t backwards[2] = {-2, -1};
    const uint64_t shape[2] = {3, 2};
    struct engine *engine = engine_create(NULL);
    uint8_t memory[6] = {1, 2, 3, 4, 5, 6};
    struct convoy_tensor_source tensor = {.name = "data", .name_length = 4, .dtype = "uint8", .dtype_length = 5,
                                          .data = memory, .shape = shape, .rank = 2};
    const struct convoy_stage stage = engine_stage("far", &tensor, 1);
    convoy_transfer staged = 0;
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        tensor.strides = wild[i];
        CALL_STATUS(engine, CONVOY_INVALID_ARGUMENT, stage_start, &stage, &staged);
        EXPECT(says(engine, "stage.tensors[0].strides pass the end of memory"));
    }
    tensor.data = &memory[5];
    tensor.strides = backwards;
    CALL_OK(engine, stage_start, &stage, &staged);
    engine_wait(engine, staged, CONVOY_OK, NULL);
    engine_look(engine, staged);
    static const uint8_t wanted[6] = {6, 5, 4, 3, 2, 1};
    EXPECT(memcmp(engine->views[0].data, wanted, sizeof wanted) == 0);
    CALL_OK(engine, release, staged);
    engine_destroy(engine);
}

/* -- what fits, now or ever -- */

static int32_t reserve(struct engine *engine, const uint64_t *bytes, size_t count, struct convoy_reservation *reservation_out)
{
    static struct convoy_reserved_slot slots[4];
    const struct convoy_reserve wish = {
        .struct_size = sizeof wish, .request = "room", .request_length = 4, .bytes = bytes, .count = count};
    *reservation_out = (struct convoy_reservation){
        .struct_size = sizeof *reservation_out, .slots = slots, .slot_stride = sizeof slots[0], .slot_capacity = 4};
    return CALL(engine, reserve, &wish, reservation_out);
}

static void give_back(struct engine *engine, const struct convoy_reservation *reservation)
{
    for (size_t i = 0; i < reservation->slot_count; i++) {
        CALL_OK(engine, release, reservation->slots[i].transfer);
    }
}

static void test_transfer_edges_slots_that_never_fit_together_are_told_so(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = pool_of(POOL_BYTES);
    const uint64_t never[2] = {POOL_BYTES, 1};
    const uint64_t whole[2] = {0, POOL_BYTES};
    struct engine *engine = engine_create(&options);
    struct convoy_reservation held;
    struct convoy_reservation refused;
    CALL_STATUS(engine, CONVOY_LIMIT, pool_fits, never, 2);
    EXPECT_STATUS(reserve(engine, never, 2, &refused), CONVOY_LIMIT, &engine->error);
    EXPECT_EQUAL(refused.retry_after_ms, 0);
    EXPECT_EQUAL(refused.slot_count, 0);
    CALL_OK(engine, pool_fits, whole, 2); /* as reserve, which takes no memory for 0 bytes */
    EXPECT_OK(reserve(engine, whole, 2, &held), &engine->error);
    CALL_STATUS(engine, CONVOY_POOL_EXHAUSTED, pool_fits, whole, 2);
    EXPECT_STATUS(reserve(engine, whole, 2, &refused), CONVOY_POOL_EXHAUSTED, &engine->error);
    EXPECT(refused.retry_after_ms != 0);
    give_back(engine, &held);
    engine_await_empty(engine);
    engine_destroy(engine);
}

static void test_transfer_edges_want_of_transfers_passes(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(POOL_BYTES);
    options.transfer_max = 2;
    const uint64_t bytes[3] = {1, 1, 1};
    struct engine *engine = engine_create(&options);
    struct convoy_reservation held;
    struct convoy_reservation refused;
    EXPECT_STATUS(reserve(engine, bytes, 3, &refused), CONVOY_LIMIT, &engine->error);
    EXPECT_EQUAL(refused.retry_after_ms, 0); /* more than there ever are */
    EXPECT_OK(reserve(engine, bytes, 2, &held), &engine->error);
    const convoy_transfer first = held.slots[0].transfer;
    const convoy_transfer second = held.slots[1].transfer;
    EXPECT_STATUS(reserve(engine, bytes, 1, &refused), CONVOY_LIMIT, &engine->error);
    EXPECT(says(engine, "transfer_max"));
    EXPECT(refused.retry_after_ms != 0);
    CALL_OK(engine, release, first);
    EXPECT_OK(reserve(engine, bytes, 1, &held), &engine->error);
    give_back(engine, &held);
    CALL_OK(engine, release, second);
    engine_destroy(engine);
}

/* What a peer has written into a slot that nobody had asked for yet ends with the resize, and so does its memory: the build
 * that looks for leaks sees this one. */
static void test_transfer_edges_resize_forgets_what_free_slots_were_written(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(POOL_BYTES);
    options.prealloc_count = 1;
    options.prealloc_bytes = 4096;
    struct two *two = two_open_with(&options);
    const uint64_t bytes = 100;
    struct convoy_reservation slot;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    EXPECT_OK(reserve(two->receiver, &bytes, 1, &slot), &two->receiver->error);
    EXPECT_EQUAL(slot.slots[0].slot_id, 1);
    const struct convoy_raw_piece piece = {two->memory, (uint64_t)(uintptr_t)slot.slots[0].address, bytes};
    const struct convoy_raw raw = {.struct_size = sizeof raw, .peer = two->peer, .pieces = &piece,
                                   .piece_stride = sizeof piece, .piece_count = 1};
    give_back(two->receiver, &slot);
    CALL_OK(two->sender, memory_register, two->memory, BYTES);
    CALL_OK(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    CALL_OK(two->receiver, pool_resize, 2 * POOL_BYTES);
    EXPECT_OK(reserve(two->receiver, &bytes, 1, &slot), &two->receiver->error);
    EXPECT_EQUAL(slot.slots[0].slot_id, 1);
    EXPECT_STATUS(CALL(two->receiver, transfer_test, slot.slots[0].transfer, &result), CONVOY_IN_PROGRESS,
                  &two->receiver->error);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_RESERVED);
    give_back(two->receiver, &slot);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

/* -- texts -- */

static void test_transfer_edges_text_of_a_closed_engine_names_it(void **state)
{
    (void)state;
    struct engine *engine = engine_create(NULL);
    uint8_t memory[8] = {0};
    CALL_OK(engine, engine_close, ENGINE_TIMEOUT_NS);
    CALL_STATUS(engine, CONVOY_CLOSED, memory_register, memory, sizeof memory);
    EXPECT(says(engine, engine->info.session));
    engine_destroy(engine);
}

static void *ask_until_closed(void *argument)
{
    struct engine *engine = argument;
    const uint64_t bytes = 1;
    struct convoy_error error = {.struct_size = sizeof error};
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK) {
        status = engine->table->pool_fits(engine->handle, &bytes, 1, &error);
    }
    return strstr(error.text, engine->info.session) != NULL && status == CONVOY_CLOSED ? engine : NULL;
}

/* A log line of the engine's own thread and a close, while others are inside: for the build that looks for data races. */
static void test_transfer_edges_close_while_others_ask(void **state)
{
    (void)state;
    const struct convoy_transfer_options hidden = {.struct_size = sizeof hidden, .critical_flags = CONVOY_ENGINE_PRIVATE,
                                                   .pool_bytes = POOL_BYTES, .pool_block_bytes = 4096};
    struct engine *engine = engine_create(&hidden);
    struct engine *other = engine_create(NULL);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, ask_until_closed, engine), 0);
    }
    (void)engine_connect(other, engine->info.session); /* warns: it shares no memory */
    CALL_OK(engine, engine_close, ENGINE_TIMEOUT_NS);
    for (size_t i = 0; i < 2; i++) {
        void *told = NULL;
        EXPECT_EQUAL(pthread_join(threads[i], &told), 0);
        EXPECT(told == engine);
    }
    engine_destroy(engine);
    engine_destroy(other);
}

static void test_transfer_edges_text_of_an_accept_that_nothing_came_for(void **state)
{
    (void)state;
    struct engine *engine = engine_create(NULL);
    struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = 1};
    convoy_transfer loaded = 0;
    CALL_STATUS(engine, CONVOY_TIMED_OUT, accept, &load, &loaded);
    EXPECT_TEXT(engine->error.text, "any request: its deadline has passed in state WAITING");
    CALL_OK(engine, release, loaded);
    load.request = "named";
    load.request_length = 5;
    CALL_STATUS(engine, CONVOY_TIMED_OUT, accept, &load, &loaded);
    EXPECT_TEXT(engine->error.text, "request named");
    CALL_OK(engine, release, loaded);
    engine_destroy(engine);
}

static void test_transfer_edges_text_of_a_refused_reserve_names_the_field(void **state)
{
    (void)state;
    struct engine *engine = engine_create(NULL);
    const uint64_t bytes[2] = {1, 1};
    struct convoy_reserved_slot slots[2];
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = slots, .slot_stride = sizeof slots[0], .slot_capacity = 2};
    struct convoy_reserve wish = {.struct_size = sizeof wish, .request = "room", .request_length = 4, .count = 2};
    CALL_STATUS(engine, CONVOY_INVALID_ARGUMENT, reserve, &wish, &reservation);
    EXPECT_TEXT(engine->error.text, "reserve.bytes is NULL");
    wish.bytes = bytes;
    wish.slot_id = 1;
    CALL_STATUS(engine, CONVOY_INVALID_ARGUMENT, reserve, &wish, &reservation);
    EXPECT_TEXT(engine->error.text, "reserve.count is 2, but slot_id 1");
    wish.slot_id = 0;
    wish.prealloc = CONVOY_PREALLOC_ONLY;
    CALL_STATUS(engine, CONVOY_NOT_FOUND, reserve, &wish, &reservation);
    EXPECT_TEXT(engine->error.text, "none of the 0 preallocated slots");
    engine_destroy(engine);
}

/* Figures of a pool belong to a refusal for want of room, and to no other. */
static void test_transfer_edges_text_of_a_refusal_has_no_figures_of_nothing(void **state)
{
    (void)state;
    struct two *two = two_open();
    uint8_t little[16];
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_COPY, .destination = little,
                                     .destination_bytes = sizeof little, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer staged = stage_bytes(two->sender, "large", two->memory, BYTES);
    convoy_transfer sent = send_staged(two->sender, two->peer, staged);
    convoy_transfer loaded = 0;
    CALL_STATUS(two->receiver, CONVOY_BUFFER_TOO_SMALL, accept, &load, &loaded);
    CALL_STATUS(two->sender, CONVOY_BUFFER_TOO_SMALL, transfer_wait, sent, ENGINE_TIMEOUT_NS, NULL);
    EXPECT_TEXT(two->sender->error.text, "does not take it");
    EXPECT(!says(two->sender, "bytes free"));
    CALL_OK(two->receiver, release, loaded);
    CALL_OK(two->sender, release, sent);
    CALL_OK(two->sender, release, staged);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_edges_most_retries_are_no_storm),
        cmocka_unit_test(test_transfer_edges_strides_that_leave_memory_are_refused),
        cmocka_unit_test(test_transfer_edges_slots_that_never_fit_together_are_told_so),
        cmocka_unit_test(test_transfer_edges_want_of_transfers_passes),
        cmocka_unit_test(test_transfer_edges_resize_forgets_what_free_slots_were_written),
        cmocka_unit_test(test_transfer_edges_text_of_a_closed_engine_names_it),
        cmocka_unit_test(test_transfer_edges_close_while_others_ask),
        cmocka_unit_test(test_transfer_edges_text_of_an_accept_that_nothing_came_for),
        cmocka_unit_test(test_transfer_edges_text_of_a_refused_reserve_names_the_field),
        cmocka_unit_test(test_transfer_edges_text_of_a_refusal_has_no_figures_of_nothing),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_edges", tests, NULL, NULL);
}
