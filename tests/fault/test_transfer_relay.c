/* SPDX-License-Identifier: Apache-2.0 */
/* Each control message of a transfer in turn is dropped, said twice, or said behind the next one (both engines count their
 * own): every request ends on both sides, is loaded once and never twice, and all memory returns. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 20000u
#define MESSAGES 5u     /* of one engine in one scene */
#define FAR_MESSAGES 8u /* the same without shared memory: ROOM too */
#define TIMEOUT_NS 900000000ull

static uint8_t data[BYTES];
static const uint64_t data_bytes = BYTES;

static void release(struct engine *engine, convoy_transfer transfer)
{
    EXPECT_OK(engine->table->release(engine->handle, transfer, &engine->error), &engine->error);
}

/* One direct view, one direct copy, one by descriptor: OFFER, TAKEN, BACK, ASK, GRANT. */
static void direct(struct engine *sender, struct engine *receiver, convoy_peer peer, uint32_t mode)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("direct", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = TIMEOUT_NS};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode, .timeout_ns = TIMEOUT_NS};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    EXPECT_OK(sender->table->send_start(sender->handle, &stage, &send, &sent, &sender->error), &sender->error);
    EXPECT_OK(receiver->table->accept(receiver->handle, &load, &loaded, &receiver->error), &receiver->error);
    engine_look(receiver, loaded);
    EXPECT(engine_is_filled(receiver->views[0].data, BYTES, 5));
    engine_wait(sender, sent, CONVOY_OK, NULL);
    release(receiver, loaded);
    release(sender, sent);
}

static void by_descriptor(struct engine *sender, struct engine *receiver)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("broker", &tensor, 1);
    char bytes[1024];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = sizeof bytes};
    convoy_transfer staged = 0;
    convoy_transfer loaded = 0;
    EXPECT_OK(sender->table->stage_start(sender->handle, &stage, &staged, &sender->error), &sender->error);
    engine_wait(sender, staged, CONVOY_OK, NULL);
    EXPECT_OK(sender->table->descriptor(sender->handle, staged, CONVOY_DESCRIPTOR_BINARY, &text, &sender->error),
              &sender->error);
    const struct convoy_load load = {
        .struct_size = sizeof load, .descriptor = bytes, .descriptor_length = text.length, .timeout_ns = TIMEOUT_NS};
    EXPECT_OK(receiver->table->load_start(receiver->handle, &load, &loaded, &receiver->error), &receiver->error);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    release(receiver, loaded);
    release(sender, staged);
}

static void scene(const char *fate, uint32_t number)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s:%u", fate, number);
    EXPECT(setenv("CONVOY_TEST_MESSAGE", text, 1) == 0);
    struct engine *sender = engine_create(NULL);
    struct engine *receiver = engine_create(NULL);
    convoy_peer peer = engine_connect(sender, receiver->info.session);
    direct(sender, receiver, peer, CONVOY_LOAD_VIEW);
    by_descriptor(sender, receiver);
    direct(sender, receiver, peer, CONVOY_LOAD_COPY);
    engine_await_empty(sender);
    engine_await_empty(receiver);
    EXPECT_EQUAL(engine_counter(receiver, "loaded"), 3);
    EXPECT(unsetenv("CONVOY_TEST_MESSAGE") == 0);
    engine_destroy(sender);
    engine_destroy(receiver);
}

static void run_all(const char *fate)
{
#ifndef CONVOY_FAULTS
    (void)fate;
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    engine_fill(data, BYTES, 5);
    for (uint32_t number = 1; number <= MESSAGES; number++) {
        scene(fate, number);
    }
    engine_settings = "{\"net\": \"ucx\"}";
    for (uint32_t number = 1; number <= FAR_MESSAGES; number++) {
        scene(fate, number);
    }
    engine_settings = NULL;
#endif
}

/* sgl-project/sglang PRs 21701, 24200 and 27262: each message is answered, refused or given up in time. */
static void test_transfer_relay_any_message_may_be_lost(void **state)
{
    (void)state;
    run_all("drop");
}

/* vllm-project/vllm issue 25562: late and repeated notices are counted and nothing else. */
static void test_transfer_relay_any_message_may_come_twice(void **state)
{
    (void)state;
    run_all("twice");
}

static void test_transfer_relay_any_message_may_be_overtaken(void **state)
{
    (void)state;
    run_all("late");
}

/* Registered memory goes out through a block of the own pool. A peer that has not answered may still read there, so that the
 * block is nobody's, whatever the order came to, until the peer says that it does not. Here the order is lost, and so is every
 * question for the block; once one gets through, it returns. */
static void test_transfer_relay_block_of_an_unanswered_order_is_held(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    static uint8_t destination[BYTES];
    engine_fill(data, BYTES, 5);
    EXPECT(setenv("CONVOY_TEST_MESSAGE", "drop:RAW,WITHDRAW", 1) == 0);
    struct engine *sender = engine_create(NULL);
    struct engine *receiver = engine_create(NULL);
    const struct convoy_raw_piece piece = {
        .source = data, .target = (uint64_t)(uintptr_t)destination, .bytes = BYTES};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = engine_connect(sender, receiver->info.session),
                                   .pieces = &piece,
                                   .piece_stride = sizeof piece,
                                   .piece_count = 1};
    EXPECT_OK(sender->table->memory_register(sender->handle, data, BYTES, &sender->error), &sender->error);
    EXPECT_OK(receiver->table->memory_register(receiver->handle, destination, BYTES, &receiver->error), &receiver->error);
    EXPECT_STATUS(sender->table->transfer_sync(sender->handle, &raw, TIMEOUT_NS / 10, &sender->error), CONVOY_TIMED_OUT,
                  &sender->error);
    EXPECT(setenv("CONVOY_TEST_MESSAGE", "drop:WITHDRAW", 1) == 0); /* nobody asks for it back */
    EXPECT(engine_figures(sender).quarantined >= BYTES);
    EXPECT_OK(sender->table->transfer_sync(sender->handle, &raw, 0, &sender->error), &sender->error); /* in another one */
    EXPECT_EQUAL(engine_figures(sender).quarantined_count, 1);
    EXPECT_BYTES(destination, data, BYTES);
    EXPECT(unsetenv("CONVOY_TEST_MESSAGE") == 0);
    engine_await_empty(sender); /* it is asked for again, and comes back */
    EXPECT_EQUAL(engine_figures(sender).quarantined_count, 0);
    engine_destroy(receiver);
    engine_destroy(sender);
#endif
}

/* Bytes are written once, and not into what the slot becomes next: said again while its copy waits or runs, a push is counted
 * and no more; said again later, it is refused. The payload is large, so that it is nearly always the first of the two. */
static void test_transfer_relay_push_that_is_said_again_is_copied_once(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    const uint64_t bytes = 8u << 20;
    uint8_t *memory = calloc(1, bytes);
    EXPECT(memory != NULL);
    EXPECT(setenv("CONVOY_TEST_MESSAGE", "twice:1", 1) == 0);
    struct engine *sender = engine_create(NULL);
    struct engine *receiver = engine_create(NULL);
    const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
    const struct convoy_stage stage = engine_stage("push", &tensor, 1);
    const struct convoy_reserve reserve = {
        .struct_size = sizeof reserve, .request = "push", .request_length = 4, .bytes = &bytes, .count = 1};
    struct convoy_reserved_slot slot;
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    EXPECT_OK(receiver->table->reserve(receiver->handle, &reserve, &reservation, &receiver->error), &receiver->error);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .peer = engine_connect(sender, receiver->info.session),
                                     .address = (uint64_t)(uintptr_t)slot.address};
    convoy_transfer sent = 0;
    EXPECT_OK(sender->table->send_start(sender->handle, &stage, &send, &sent, &sender->error), &sender->error);
    engine_wait(sender, sent, CONVOY_OK, NULL);
    engine_wait(receiver, slot.transfer, CONVOY_OK, NULL);
    release(sender, sent);
    release(receiver, slot.transfer);
    engine_await_empty(receiver); /* no copy holds it any more */
    engine_await_empty(sender);
    EXPECT_EQUAL(engine_counter(receiver, "offers_repeated") + engine_counter(receiver, "raw_refused"), 1);
    EXPECT_EQUAL(engine_counter(receiver, "copied_bytes"), bytes);
    EXPECT(unsetenv("CONVOY_TEST_MESSAGE") == 0);
    engine_destroy(sender);
    engine_destroy(receiver);
    free(memory);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_relay_any_message_may_be_lost),
        cmocka_unit_test(test_transfer_relay_any_message_may_come_twice),
        cmocka_unit_test(test_transfer_relay_any_message_may_be_overtaken),
        cmocka_unit_test(test_transfer_relay_block_of_an_unanswered_order_is_held),
        cmocka_unit_test(test_transfer_relay_push_that_is_said_again_is_copied_once),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_relay", tests, NULL, NULL);
}
