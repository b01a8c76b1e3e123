/* SPDX-License-Identifier: Apache-2.0 */
/* A request that is sent, viewed and given back between two engines that poll: no allocation and no system call, counted. */
#include "tests/lib/count.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WARM 200u
#define COUNTED 2000u

struct pair {
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer;
    uint8_t data[4096];
    uint64_t bytes;
};

static bool is_done(struct engine *engine, convoy_transfer transfer)
{
    int32_t status = engine->table->transfer_test(engine->handle, transfer, NULL, &engine->error);
    if (status != CONVOY_IN_PROGRESS) {
        EXPECT_OK(status, &engine->error);
    }
    return status == CONVOY_OK;
}

static void move(struct pair *pair)
{
    const struct convoy_tensor_source tensor = engine_tensor(pair->data, &pair->bytes);
    const struct convoy_stage stage = engine_stage("counted", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = pair->peer};
    const struct convoy_load load = {.struct_size = sizeof load};
    struct engine *sender = pair->sender;
    struct engine *receiver = pair->receiver;
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    EXPECT_OK(sender->table->send_start(sender->handle, &stage, &send, &sent, &sender->error), &sender->error);
    EXPECT_OK(receiver->table->accept_start(receiver->handle, &load, &loaded, &receiver->error), &receiver->error);
    while (!is_done(receiver, loaded) || !is_done(sender, sent)) {
    }
    engine_look(receiver, loaded);
    EXPECT(receiver->views[0].bytes == pair->bytes);
    EXPECT_OK(receiver->table->release(receiver->handle, loaded, &receiver->error), &receiver->error);
    EXPECT_OK(sender->table->release(sender->handle, sent, &sender->error), &sender->error);
}

static void count_moves(const struct rank *rank, void *argument)
{
    struct pair pair = {.sender = engine_create(NULL), .receiver = engine_create(NULL), .bytes = 4096};
    struct count count;
    char *reason = rank->shared;
    const char *cannot = count_prepare();
    (void)argument;
    if (cannot != NULL) {
        (void)snprintf(reason, 128, "%s", cannot);
        return;
    }
    pair.peer = engine_connect(pair.sender, pair.receiver->info.session);
    for (uint32_t i = 0; i < WARM; i++) {
        move(&pair);
    }
    uint64_t allocations = 0;
    uint32_t calls = 0;
    for (uint32_t i = 0; i < COUNTED; i++) {
        count_start();
        move(&pair);
        count_stop(&count);
        allocations += count.allocations;
        calls += count.system_calls != 0;
    }
    EXPECT_EQUAL(allocations, 0);
    /* The threads in the background look every few milliseconds; whoever meets one at the lock waits in the kernel, and one
     * that was kept from running for a while wakes them. */
    EXPECT(calls <= COUNTED / 20);
    engine_destroy(pair.sender);
    engine_destroy(pair.receiver);
}

/* kvcache-ai/Mooncake issues 1000 and 2913: the program brings a malloc family of its own, as hosts do, and ends well. */
static void test_transfer_counts_no_allocation_and_no_system_call_per_request(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, 128);
    char reason[128];
    ranks_start(ranks, count_moves, NULL, 0);
    ranks_await_exit(ranks, 0);
    memcpy(reason, ranks_shared(ranks), sizeof reason);
    ranks_finish(ranks);
    if (reason[0] != '\0') {
        print_message("%s\n", reason);
        skip();
    }
}

/* -- pieces for addresses -- */

#define PIECES 64u

static void push(const struct pair *pair, const struct convoy_raw *raw)
{
    struct engine *sender = pair->sender;
    EXPECT_OK(sender->table->transfer_sync(sender->handle, raw, ENGINE_TIMEOUT_NS, &sender->error), &sender->error);
}

static void count_pushes(const struct rank *rank, void *argument)
{
    static uint8_t target[2 * 4096];
    struct pair pair = {.sender = engine_create(NULL), .receiver = engine_create(NULL)};
    struct convoy_raw_piece pieces[PIECES];
    struct count count;
    char *reason = rank->shared;
    const char *cannot = count_prepare();
    (void)argument;
    if (cannot != NULL) {
        (void)snprintf(reason, 128, "%s", cannot);
        return;
    }
    pair.peer = engine_connect(pair.sender, pair.receiver->info.session);
    EXPECT_OK(pair.sender->table->memory_register(pair.sender->handle, pair.data, 4096, &pair.sender->error),
              &pair.sender->error);
    EXPECT_OK(pair.receiver->table->memory_register(pair.receiver->handle, target, sizeof target, &pair.receiver->error),
              &pair.receiver->error);
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i] = (struct convoy_raw_piece){
            .source = pair.data + 64 * i, .target = (uint64_t)(uintptr_t)target + 128 * i, .bytes = 60};
    }
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = pair.peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = PIECES};
    uint64_t allocations = 0;
    for (uint32_t i = 0; i < WARM + COUNTED / 4; i++) {
        count_start_allocations(); /* it waits, and is woken, by system calls */
        push(&pair, &raw);
        count_stop(&count);
        allocations += i >= WARM ? count.allocations : 0;
    }
    EXPECT_EQUAL(allocations, 0);
    engine_destroy(pair.sender);
    engine_destroy(pair.receiver);
}

static void test_transfer_counts_no_allocation_per_raw_order(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, 128);
    char reason[128];
    ranks_start(ranks, count_pushes, NULL, 0);
    ranks_await_exit(ranks, 0);
    memcpy(reason, ranks_shared(ranks), sizeof reason);
    ranks_finish(ranks);
    if (reason[0] != '\0') {
        print_message("%s\n", reason);
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_counts_no_allocation_and_no_system_call_per_request),
        cmocka_unit_test(test_transfer_counts_no_allocation_per_raw_order),
    };
    return cmocka_run_group_tests_name("transfer_counts", tests, NULL, NULL);
}
