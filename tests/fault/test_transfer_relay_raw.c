/* SPDX-License-Identifier: Apache-2.0 */
/* As test_transfer_relay.c, for what goes to an address: each message of a push into a reserved slot and of raw transfers is
 * lost, said twice, or overtaken. The slot is filled once and right, both sides come to an end in time, and what is tried
 * again goes through. Needs a build with fault hooks. */
#include "tests/integration/reports_transfer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MESSAGES 3u     /* of one engine in one scene */
#define FAR_MESSAGES 4u /* the same without shared memory: ROOM too */
#define TIMEOUT_NS 900000000ull
#define LEASE_NS 3000000000ull
#define TRIES 3u /* one message of each side is lost: two tries may fail */

#ifdef CONVOY_FAULTS
static void await_slot(struct two *two, const struct convoy_reserved_slot *slot)
{
    engine_wait(two->receiver, slot->transfer, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(slot->address, BYTES, 7));
}

/* One whose bytes are there, but whose word of it was lost, is told when it asks again that nothing waits there any more. */
static void push(struct two *two)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("push", &tensor, 1);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "push", BYTES, 0, NULL);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .peer = two->peer,
                                     .address = (uint64_t)(uintptr_t)slot.address,
                                     .timeout_ns = TIMEOUT_NS};
    convoy_transfer sent = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    await_slot(two, &slot);
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t status = CALL(two->sender, transfer_wait, sent, ENGINE_TIMEOUT_NS, &result);
    EXPECT_OK(status == CONVOY_NOT_FOUND && result.retries != 0 ? CONVOY_OK : status, &two->sender->error);
    release(two->sender, sent);
    release(two->receiver, slot.transfer);
}

/* A raw order ends in time; one that was not answered may be tried again, and is then, from what has lain there all the
 * time. */
static void raw(struct two *two)
{
    convoy_transfer staged = stage_bytes(two->sender, "raw", two->memory, BYTES);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "raw", BYTES, 0, NULL);
    const struct convoy_raw_piece piece = {.source = staged_address(two->sender, staged),
                                           .target = (uint64_t)(uintptr_t)slot.address,
                                           .bytes = BYTES};
    const struct convoy_raw order = {.struct_size = sizeof order,
                                     .peer = two->peer,
                                     .pieces = &piece,
                                     .piece_stride = sizeof piece,
                                     .piece_count = 1};
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t status = CONVOY_TIMED_OUT;
    for (uint32_t i = 0; i < TRIES && status == CONVOY_TIMED_OUT &&
                         CALL(two->receiver, transfer_test, slot.transfer, &result) == CONVOY_IN_PROGRESS;
         i++) {
        status = CALL(two->sender, transfer_sync, &order, TIMEOUT_NS / 3);
        EXPECT(status == CONVOY_OK || status == CONVOY_TIMED_OUT);
    }
    await_slot(two, &slot);
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
}

/* What a peer that never answered may still read is its until it is gone. */
static void scene(const char *fate, uint32_t number)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s:%u", fate, number);
    EXPECT(setenv("CONVOY_TEST_MESSAGE", text, 1) == 0);
    /* Between hosts a landing whose end is lost, too, is closed with the lease. */
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 64 * BYTES,
                                                    .pool_block_bytes = 4096,
                                                    .lease_ns = LEASE_NS};
    struct two *two = two_open_with(&options);
    push(two);
    raw(two);
    push(two);
    EXPECT(unsetenv("CONVOY_TEST_MESSAGE") == 0);
    engine_await_empty(two->receiver);
    EXPECT(engine_figures(two->sender).quarantined_count < TRIES);
    EXPECT_EQUAL(engine_counter(two->receiver, "malformed") + engine_counter(two->sender, "malformed"), 0);
    engine_destroy(two->receiver);
    engine_destroy(two->sender);
    free(two);
}
#endif

static void run_all(const char *fate)
{
#ifndef CONVOY_FAULTS
    (void)fate;
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
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

static void test_transfer_relay_raw_any_message_may_be_lost(void **state)
{
    (void)state;
    run_all("drop");
}

static void test_transfer_relay_raw_any_message_may_come_twice(void **state)
{
    (void)state;
    run_all("twice");
}

static void test_transfer_relay_raw_any_message_may_be_overtaken(void **state)
{
    (void)state;
    run_all("late");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_relay_raw_any_message_may_be_lost),
        cmocka_unit_test(test_transfer_relay_raw_any_message_may_come_twice),
        cmocka_unit_test(test_transfer_relay_raw_any_message_may_be_overtaken),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_relay_raw", tests, NULL, NULL);
}
