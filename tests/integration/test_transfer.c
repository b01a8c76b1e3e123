/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines, each in a context of its own: whole requests from one to the other, and what is left afterwards. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LARGE_BYTES (5u << 20)

struct two {
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer; /* the receiver, as the sender knows it */
    uint8_t *memory;
    uint64_t bytes;
};

static struct two two_open(uint64_t bytes)
{
    struct two two = {.sender = engine_create(NULL), .receiver = engine_create(NULL), .bytes = bytes};
    two.peer = engine_connect(two.sender, two.receiver->info.session);
    two.memory = malloc(bytes + 1);
    EXPECT(two.memory != NULL);
    engine_fill(two.memory, bytes, 1);
    return two;
}

static void two_close(struct two *two)
{
    engine_await_empty(two->sender);
    engine_await_empty(two->receiver);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two->memory);
}

static convoy_transfer send_start(struct two *two, const char *request)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer transfer = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, &stage, &send, &transfer, &two->sender->error),
              &two->sender->error);
    return transfer;
}

static convoy_transfer accept_one(struct two *two, uint32_t mode)
{
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode};
    convoy_transfer transfer = 0;
    EXPECT_OK(two->receiver->table->accept(two->receiver->handle, &load, &transfer, &two->receiver->error),
              &two->receiver->error);
    return transfer;
}

static void release(struct engine *engine, convoy_transfer transfer)
{
    EXPECT_OK(engine->table->release(engine->handle, transfer, &engine->error), &engine->error);
    EXPECT_STATUS(engine->table->release(engine->handle, transfer, &engine->error), CONVOY_CLOSED, &engine->error);
}

static void check_one(uint64_t bytes, uint32_t mode)
{
    struct two two = two_open(bytes);
    struct convoy_transfer_result result;
    convoy_transfer sent = send_start(&two, "r1");
    convoy_transfer loaded = accept_one(&two, mode);
    engine_look(two.receiver, loaded);
    EXPECT_EQUAL(two.receiver->payload.tensor_count, 1);
    EXPECT_EQUAL(two.receiver->views[0].bytes, bytes);
    EXPECT(bytes == 0 || engine_is_filled(two.receiver->views[0].data, bytes, 1));
    engine_wait(two.sender, sent, CONVOY_OK, &result);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_SENT);
    EXPECT_EQUAL(result.payload_bytes, bytes);
    release(two.sender, sent);
    EXPECT(mode != CONVOY_LOAD_VIEW || bytes == 0 || engine_figures(two.sender).quarantined >= bytes);
    release(two.receiver, loaded);
    two_close(&two);
}

static void test_transfer_view_of_a_small_payload_is_the_senders_bytes(void **state)
{
    (void)state;
    check_one(4096, CONVOY_LOAD_VIEW);
}

static void test_transfer_copy_of_a_small_payload_is_the_senders_bytes(void **state)
{
    (void)state;
    check_one(4096, CONVOY_LOAD_COPY);
}

static void test_transfer_large_payloads_move_both_ways_of_loading(void **state)
{
    (void)state;
    check_one(LARGE_BYTES, CONVOY_LOAD_VIEW);
    check_one(LARGE_BYTES + 1, CONVOY_LOAD_COPY);
}

static void test_transfer_empty_payload_moves(void **state)
{
    (void)state;
    check_one(0, CONVOY_LOAD_VIEW);
    check_one(0, CONVOY_LOAD_COPY);
}

/* kvcache-ai/Mooncake PR 609: sizes below and around any threshold follow the same rules. */
static void test_transfer_sizes_around_every_threshold_arrive_whole(void **state)
{
    static const uint64_t sizes[] = {0,    1,    2,    7,    8,    63,   64,    65,    511,   512,     513,     4095,
                                     4096, 4097, 8191, 8192, 8193, 65535, 65536, 65537, 262143, 262144,  262145,  1048575,
                                     1048576, 1048577, 4194303, 4194304, 4194305, 16777215, 16777216, 16777217};
    (void)state;
    struct two two = two_open(16777217);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t mode = CONVOY_LOAD_VIEW; mode <= CONVOY_LOAD_COPY; mode++) {
            two.bytes = sizes[i];
            convoy_transfer sent = send_start(&two, "sizes");
            convoy_transfer loaded = accept_one(&two, mode);
            engine_look(two.receiver, loaded);
            EXPECT_EQUAL(two.receiver->views[0].bytes, sizes[i]);
            EXPECT(sizes[i] == 0 || memcmp(two.receiver->views[0].data, two.memory, sizes[i]) == 0);
            engine_wait(two.sender, sent, CONVOY_OK, NULL);
            release(two.sender, sent);
            release(two.receiver, loaded);
        }
    }
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_view_of_a_small_payload_is_the_senders_bytes),
        cmocka_unit_test(test_transfer_copy_of_a_small_payload_is_the_senders_bytes),
        cmocka_unit_test(test_transfer_large_payloads_move_both_ways_of_loading),
        cmocka_unit_test(test_transfer_empty_payload_moves),
        cmocka_unit_test(test_transfer_sizes_around_every_threshold_arrive_whole),
    };
    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
