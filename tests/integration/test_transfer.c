/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines, each in a context of its own: whole requests from one to the other, and what is left afterwards. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* A host that has waited for a while and then sleeps elsewhere: the copy is made all the same. */
static void test_transfer_load_goes_on_after_a_wait_that_gave_up(void **state)
{
    (void)state;
    struct two two = two_open(LARGE_BYTES);
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_COPY};
    struct engine *receiver = two.receiver;
    convoy_transfer loaded = 0;
    EXPECT_OK(receiver->table->accept_start(receiver->handle, &load, &loaded, &receiver->error), &receiver->error);
    EXPECT_STATUS(receiver->table->transfer_wait(receiver->handle, loaded, 20000000, NULL, &receiver->error),
                  CONVOY_IN_PROGRESS, &receiver->error);
    convoy_transfer sent = send_start(&two, "later");
    engine_wait(two.sender, sent, CONVOY_OK, NULL); /* by the receiver's own threads alone */
    engine_look(receiver, loaded);
    EXPECT(engine_is_filled(receiver->views[0].data, LARGE_BYTES, 1));
    release(two.sender, sent);
    release(receiver, loaded);
    two_close(&two);
}

/* Several threads wait at once: each gets its own, and they sleep meanwhile. */
#define THREADS 6u

struct waiter {
    struct two *two;
    convoy_transfer loaded;
    pthread_t thread;
    int32_t status;
    uint64_t cpu_ns;
};

static void *wait_main(void *argument)
{
    struct waiter *waiter = argument;
    struct timespec used;
    struct convoy_error error = {.struct_size = sizeof error};
    struct engine *receiver = waiter->two->receiver;
    waiter->status = receiver->table->transfer_wait(receiver->handle, waiter->loaded, ENGINE_TIMEOUT_NS, NULL, &error);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    waiter->cpu_ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    return NULL;
}

static void test_transfer_threads_that_wait_at_once_sleep_and_are_all_served(void **state)
{
    (void)state;
    struct two two = two_open(4096);
    struct waiter waiters[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        char request[8] = {'r', (char)('0' + i)};
        const struct convoy_load load = {
            .struct_size = sizeof load, .request = request, .request_length = 2, .timeout_ns = ENGINE_TIMEOUT_NS};
        waiters[i] = (struct waiter){.two = &two};
        EXPECT_OK(two.receiver->table->accept_start(two.receiver->handle, &load, &waiters[i].loaded, &two.receiver->error),
                  &two.receiver->error);
        EXPECT(pthread_create(&waiters[i].thread, NULL, wait_main, &waiters[i]) == 0);
    }
    for (uint32_t i = THREADS; i-- > 0;) {
        char request[8] = {'r', (char)('0' + i)};
        (void)poll(NULL, 0, 60); /* the quiet time itself: what those use that wait meanwhile; it orders nothing */
        convoy_transfer sent = send_start(&two, request);
        engine_wait(two.sender, sent, CONVOY_OK, NULL);
        release(two.sender, sent);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(waiters[i].thread, NULL) == 0);
        EXPECT_EQUAL(waiters[i].status, CONVOY_OK);
        EXPECT(waiters[i].cpu_ns < 100000000u); /* a third of what it has waited, were it alone to spin */
        release(two.receiver, waiters[i].loaded);
    }
    two_close(&two);
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

/* The end and the release of one send take nothing from the next one: what is staged stays until its own release. */
static void test_transfer_staged_buffer_is_sent_again_after_a_send_was_released(void **state)
{
    (void)state;
    struct two two = two_open(4096);
    const struct convoy_tensor_source tensor = engine_tensor(two.memory, &two.bytes);
    const struct convoy_stage stage = engine_stage("again", &tensor, 1);
    struct engine *sender = two.sender;
    convoy_transfer staged = 0;
    EXPECT_OK(sender->table->stage_start(sender->handle, &stage, &staged, &sender->error), &sender->error);
    for (int i = 0; i < 2; i++) {
        const struct convoy_send send = {.struct_size = sizeof send, .peer = two.peer, .staged = staged};
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        convoy_transfer sent = 0;
        EXPECT_OK(sender->table->send_start(sender->handle, NULL, &send, &sent, &sender->error), &sender->error);
        convoy_transfer loaded = accept_one(&two, CONVOY_LOAD_VIEW);
        engine_look(two.receiver, loaded);
        EXPECT(engine_is_filled(two.receiver->views[0].data, two.bytes, 1));
        release(two.receiver, loaded);
        while (result.times_ns[CONVOY_TIME_RETURNED] == 0) { /* so that its release is all that is left of the send */
            engine_wait(sender, sent, CONVOY_OK, &result);
        }
        release(sender, sent);
    }
    release(sender, staged);
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_view_of_a_small_payload_is_the_senders_bytes),
        cmocka_unit_test(test_transfer_copy_of_a_small_payload_is_the_senders_bytes),
        cmocka_unit_test(test_transfer_large_payloads_move_both_ways_of_loading),
        cmocka_unit_test(test_transfer_empty_payload_moves),
        cmocka_unit_test(test_transfer_load_goes_on_after_a_wait_that_gave_up),
        cmocka_unit_test(test_transfer_threads_that_wait_at_once_sleep_and_are_all_served),
        cmocka_unit_test(test_transfer_sizes_around_every_threshold_arrive_whole),
        cmocka_unit_test(test_transfer_staged_buffer_is_sent_again_after_a_send_was_released),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
