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
#define MESSAGES 5u /* of one engine in one scene */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_relay_any_message_may_be_lost),
        cmocka_unit_test(test_transfer_relay_any_message_may_come_twice),
        cmocka_unit_test(test_transfer_relay_any_message_may_be_overtaken),
    };
    return cmocka_run_group_tests_name("transfer_relay", tests, NULL, NULL);
}
