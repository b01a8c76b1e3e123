/* SPDX-License-Identifier: Apache-2.0 */
/* Raw transfers between hosts: addresses instead of requests. */
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* -- to addresses -- */

#define RAW_BYTES 200000u

static void push_raw(const struct rank *rank, struct engine *engine, convoy_peer peer)
{
    const struct far_shared *shared = rank->shared;
    static uint8_t data[RAW_BYTES];
    struct convoy_raw_piece pieces[3] = {
        {.source = data, .target = shared->numbers[1], .bytes = 1},
        {.source = data + 1, .target = shared->numbers[1] + 1, .bytes = 99999},
        {.source = data + 100000, .target = shared->numbers[1] + 100000, .bytes = 100000},
    };
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = 3};
    engine_fill(data, RAW_BYTES, 5);
    EXPECT_STATUS(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error),
                  CONVOY_INVALID_ARGUMENT, &engine->error);
    EXPECT_OK(engine->table->memory_register(engine->handle, data, RAW_BYTES, &engine->error), &engine->error);
    EXPECT_OK(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    for (uint32_t i = 0; i < 3; i++) { /* registered memory there */
        pieces[i].target += shared->numbers[2] - shared->numbers[1];
    }
    EXPECT_OK(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    pieces[2].bytes = 100000;
    pieces[2].target += 1; /* beyond its end */
    EXPECT_STATUS(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error),
                  CONVOY_NOT_FOUND, &engine->error);
    EXPECT_OK(engine->table->memory_deregister(engine->handle, data, RAW_BYTES, &engine->error), &engine->error);
    const uint64_t bytes = RAW_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage("to address", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = CONVOY_PATH_PUSH,
                                     .peer = peer,
                                     .address = shared->numbers[3],
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    EXPECT_OK(engine->table->send(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
    far_release(engine, sent);
}

static struct convoy_reserved_slot reserve_bytes(struct engine *engine, const char *request, uint64_t bytes)
{
    struct convoy_reserved_slot slot = {.transfer = 0};
    const struct convoy_reserve wanted = {.struct_size = sizeof wanted,
                                          .request = request,
                                          .request_length = strlen(request),
                                          .bytes = &bytes,
                                          .count = 1};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    EXPECT_OK(engine->table->reserve(engine->handle, &wanted, &reservation, &engine->error), &engine->error);
    return slot;
}

static void run_raw(const struct rank *rank, void *argument)
{
    static uint8_t registered[RAW_BYTES];
    struct far_shared *shared = rank->shared;
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    (void)argument;
    if (rank->index == 0) {
        rank_barrier(rank);
        push_raw(rank, engine, peer);
        rank_barrier(rank);
    } else {
        struct convoy_reserved_slot slots[2] = {reserve_bytes(engine, "raw", RAW_BYTES),
                                                reserve_bytes(engine, "to address", RAW_BYTES)};
        EXPECT_OK(engine->table->memory_register(engine->handle, registered, RAW_BYTES, &engine->error), &engine->error);
        shared->numbers[1] = (uint64_t)(uintptr_t)slots[0].address;
        shared->numbers[2] = (uint64_t)(uintptr_t)registered;
        shared->numbers[3] = (uint64_t)(uintptr_t)slots[1].address;
        rank_barrier(rank);
        rank_barrier(rank);
        for (uint32_t i = 0; i < 2; i++) {
            engine_wait(engine, slots[i].transfer, CONVOY_OK, NULL);
            EXPECT(engine_is_filled(slots[i].address, RAW_BYTES, 5));
            far_release(engine, slots[i].transfer);
        }
        EXPECT(engine_is_filled(registered, RAW_BYTES, 5));
        EXPECT_OK(engine->table->memory_deregister(engine->handle, registered, RAW_BYTES, &engine->error),
                  &engine->error);
    }
    far_finish(rank, engine);
}

static void test_far_addresses_are_written_where_the_peer_lets_them_be(void **state)
{
    (void)state;
    far_run(run_raw, NULL);
}

/* -- many pieces to addresses: a few orders, and one piece that must not be written keeps back all -- */

#define LIST_PIECES 600u
#define LIST_STEP 1000u
#define LIST_LARGE 400000u
#define LIST_BYTES (LIST_PIECES * LIST_STEP + LIST_LARGE)

static void push_list(const struct rank *rank, struct engine *engine, convoy_peer peer)
{
    static uint8_t data[LIST_BYTES];
    static struct convoy_raw_piece pieces[LIST_PIECES + 1];
    const struct far_shared *shared = rank->shared;
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = LIST_PIECES + 1};
    engine_fill(data, LIST_BYTES, 6);
    for (uint32_t i = 0; i < LIST_PIECES; i++) { /* apart, by turns into the slot and into registered memory */
        pieces[i] = (struct convoy_raw_piece){
            .source = data + LIST_STEP * i, .target = shared->numbers[1 + i % 2] + LIST_STEP * i, .bytes = LIST_STEP - 1};
    }
    pieces[LIST_PIECES] = (struct convoy_raw_piece){
        .source = data + LIST_PIECES * LIST_STEP, .target = shared->numbers[2] + LIST_PIECES * LIST_STEP, .bytes = LIST_LARGE};
    EXPECT_OK(engine->table->memory_register(engine->handle, data, LIST_BYTES, &engine->error), &engine->error);
    pieces[77].target = shared->numbers[2] + LIST_BYTES - 1; /* across its end */
    EXPECT_STATUS(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error), CONVOY_NOT_FOUND,
                  &engine->error);
    rank_barrier(rank); /* the other looks that nothing is there */
    rank_barrier(rank);
    pieces[77].target = shared->numbers[2] + LIST_STEP * 77;
    EXPECT_OK(engine->table->transfer_sync(engine->handle, &raw, ENGINE_TIMEOUT_NS, &engine->error), &engine->error);
    EXPECT_OK(engine->table->memory_deregister(engine->handle, data, LIST_BYTES, &engine->error), &engine->error);
}

static void take_list(const struct rank *rank, struct engine *engine)
{
    static uint8_t registered[LIST_BYTES];
    static uint8_t wanted[LIST_BYTES];
    struct far_shared *shared = rank->shared;
    struct convoy_reserved_slot slot = reserve_bytes(engine, "list", LIST_BYTES);
    uint8_t *target = slot.address;
    engine_fill(wanted, LIST_BYTES, 6);
    memset(target, 0, LIST_BYTES);
    EXPECT_OK(engine->table->memory_register(engine->handle, registered, LIST_BYTES, &engine->error), &engine->error);
    shared->numbers[1] = (uint64_t)(uintptr_t)target;
    shared->numbers[2] = (uint64_t)(uintptr_t)registered;
    rank_barrier(rank);
    rank_barrier(rank);
    for (uint32_t i = 0; i < LIST_PIECES; i++) {
        EXPECT_EQUAL((i % 2 == 0 ? target : registered)[LIST_STEP * i], 0);
    }
    uint64_t before = engine_counter(engine, "raw_orders");
    rank_barrier(rank);
    rank_barrier(rank);
    for (uint32_t i = 0; i < LIST_PIECES; i++) {
        const uint8_t *memory = (i % 2 == 0 ? target : registered) + LIST_STEP * i;
        EXPECT(memcmp(memory, wanted + LIST_STEP * i, LIST_STEP - 1) == 0 && memory[LIST_STEP - 1] == 0);
    }
    EXPECT(memcmp(registered + LIST_PIECES * LIST_STEP, wanted + LIST_PIECES * LIST_STEP, LIST_LARGE) == 0);
    EXPECT_EQUAL(engine_counter(engine, "raw_orders") - before, 2);
    far_release(engine, slot.transfer);
    EXPECT_OK(engine->table->memory_deregister(engine->handle, registered, LIST_BYTES, &engine->error), &engine->error);
}

static void run_list(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    (void)argument;
    if (rank->index == 0) {
        rank_barrier(rank);
        push_list(rank, engine, peer);
        rank_barrier(rank);
    } else {
        take_list(rank, engine);
    }
    far_finish(rank, engine);
}

static void test_far_pieces_for_addresses_go_together_or_not_at_all(void **state)
{
    (void)state;
    far_run(run_list, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_addresses_are_written_where_the_peer_lets_them_be),
        cmocka_unit_test(test_far_pieces_for_addresses_go_together_or_not_at_all),
    };
    return cmocka_run_group_tests_name("transfer_far_raw", tests, far_make_hosts, far_remove_hosts);
}
