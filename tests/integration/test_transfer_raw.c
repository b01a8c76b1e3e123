/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses instead of requests: what counts as written, many pieces in one call, and what a peer may still read. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scene.h"

#include <pthread.h>
#include <signal.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* -- what counts as written -- */

static void expect_state(struct engine *engine, convoy_transfer transfer, uint32_t state)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    (void)CALL(engine, transfer_test, transfer, &result);
    EXPECT_EQUAL(result.state, state);
}

/* Half of it twice is not the whole; overlaps and what lies behind the request's bytes do not count for what is missing. */
static void test_transfer_raw_piece_that_comes_twice_is_not_one_that_is_missing(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "twice", BYTES, 0, NULL);
    convoy_transfer staged = stage_bytes(two->sender, "source", two->memory, BYTES);
    const uint8_t *source = staged_address(two->sender, staged);
    uint8_t *target = slot.address;
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(push_piece(two->sender, two->peer, source, target, BYTES / 2), &two->sender->error);
        EXPECT_OK(push_piece(two->sender, two->peer, source + 1000, target + 1000, BYTES / 2), &two->sender->error);
        EXPECT_OK(push_piece(two->sender, two->peer, source, target + BYTES, 500), &two->sender->error);
    }
    expect_state(two->receiver, slot.transfer, CONVOY_TRANSFER_FILLING);
    EXPECT_OK(push_piece(two->sender, two->peer, source + BYTES / 2, target + BYTES / 2, BYTES / 2 - 1), &two->sender->error);
    expect_state(two->receiver, slot.transfer, CONVOY_TRANSFER_FILLING);
    EXPECT_OK(push_piece(two->sender, two->peer, source + BYTES - 1, target + BYTES - 1, 1), &two->sender->error);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(slot.address, BYTES, 7));
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    two_close(two);
}

/* The same in a slot that was made at open and is written before its request is known. */
static void test_transfer_raw_slot_made_at_open_is_filled_twice_by_half_and_not_whole(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(1u << 20);
    options.prealloc_count = 1;
    options.prealloc_bytes = BYTES;
    struct two *two = two_open_with(&options);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "address", BYTES, 0, NULL);
    uint8_t *target = slot.address;
    convoy_transfer staged = stage_bytes(two->sender, "source", two->memory, BYTES);
    const uint8_t *source = staged_address(two->sender, staged);
    release(two->receiver, slot.transfer);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(push_piece(two->sender, two->peer, source, target, BYTES / 2), &two->sender->error);
    }
    slot = reserve_slot(two->receiver, "first", BYTES, 0, NULL);
    EXPECT(slot.address == target);
    expect_state(two->receiver, slot.transfer, CONVOY_TRANSFER_FILLING);
    EXPECT_OK(push_piece(two->sender, two->peer, source + BYTES / 2, target + BYTES / 2, BYTES / 2), &two->sender->error);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    release(two->receiver, slot.transfer);
    slot = reserve_slot(two->receiver, "second", BYTES, 0, NULL);
    expect_state(two->receiver, slot.transfer, CONVOY_TRANSFER_RESERVED); /* nothing is left of what the first one got */
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    engine_destroy(two->receiver);
    engine_destroy(two->sender);
    free(two);
}

/* -- many pieces in one call -- */

#define PIECES 700u
#define PIECE_BYTES 90u
#define SLOTS 40u

/* Pieces that lie apart, by turns from the pool and from registered memory, into many slots and registered memory. */
struct scatter {
    struct convoy_raw_piece pieces[PIECES];
    struct convoy_reserved_slot slots[SLOTS];
    uint8_t registered[PIECES * 100];
    convoy_transfer staged;
};

static struct convoy_raw raw_of(const struct two *two, const struct scatter *scatter)
{
    return (struct convoy_raw){.struct_size = sizeof(struct convoy_raw),
                               .peer = two->peer,
                               .pieces = scatter->pieces,
                               .piece_stride = sizeof scatter->pieces[0],
                               .piece_count = PIECES};
}

static struct scatter *scatter_open(struct two *two)
{
    struct scatter *scatter = calloc(1, sizeof *scatter);
    EXPECT(scatter != NULL);
    scatter->staged = stage_bytes(two->sender, "source", two->memory, BYTES);
    CALL_OK(two->sender, memory_register, two->memory, BYTES);
    CALL_OK(two->receiver, memory_register, scatter->registered, sizeof scatter->registered);
    const uint8_t *staged = staged_address(two->sender, scatter->staged);
    for (uint32_t i = 0; i < SLOTS; i++) {
        scatter->slots[i] = reserve_slot(two->receiver, "scattered", 4096, 0, NULL);
        memset(scatter->slots[i].address, 0, 4096);
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        uint8_t *target = i % 5 == 0 ? scatter->registered + 100 * i
                                     : (uint8_t *)scatter->slots[i % SLOTS].address + i / SLOTS * 100;
        scatter->pieces[i] = (struct convoy_raw_piece){.source = (i % 3 == 0 ? two->memory : staged) + 100 * i,
                                                       .target = (uint64_t)(uintptr_t)target,
                                                       .bytes = PIECE_BYTES};
    }
    return scatter;
}

static void scatter_close(struct two *two, struct scatter *scatter)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        release(two->receiver, scatter->slots[i].transfer);
    }
    release(two->sender, scatter->staged);
    CALL_OK(two->receiver, memory_deregister, scatter->registered, sizeof scatter->registered);
    CALL_OK(two->sender, memory_deregister, two->memory, BYTES);
    free(scatter);
}

static bool is_there(const struct convoy_raw_piece *piece)
{
    const uint8_t *target = (const uint8_t *)(uintptr_t)piece->target;
    return memcmp(target, piece->source, piece->bytes) == 0 && target[piece->bytes] == 0; /* and no byte more */
}

static void test_transfer_raw_scattered_pieces_go_as_few_orders_and_land_exactly(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct scatter *scatter = scatter_open(two);
    const struct convoy_raw raw = raw_of(two, scatter);
    uint64_t before = engine_counter(two->receiver, "raw_orders");
    CALL_OK(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    for (uint32_t i = 0; i < PIECES; i++) {
        EXPECT(is_there(&scatter->pieces[i]));
    }
    EXPECT_EQUAL(engine_counter(two->receiver, "raw_orders") - before, 1);
    EXPECT_EQUAL(engine_figures(two->sender).taken_count, 0); /* the block it was gathered in is free again */
    scatter_close(two, scatter);
    two_close(two);
}

/* The same out of a pool that is read out of its process. */
static void test_transfer_raw_scattered_pieces_of_a_pool_of_the_hosts_own_memory_land(void **state)
{
    (void)state;
    static uint8_t pools[2][1u << 20];
    struct convoy_transfer_options options = pool_of(sizeof pools[0]);
    struct two *two = calloc(1, sizeof *two);
    EXPECT(two != NULL);
    options.pool_kind = CONVOY_MEMORY_HOST;
    options.pool_memory = pools[0];
    two->sender = engine_create(&options);
    options.pool_memory = pools[1];
    two->receiver = engine_create(&options);
    two->peer = engine_connect(two->sender, two->receiver->info.session);
    two->bytes = BYTES;
    engine_fill(two->memory, BYTES, 7);
    struct scatter *scatter = scatter_open(two);
    const struct convoy_raw raw = raw_of(two, scatter);
    CALL_OK(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    for (uint32_t i = 0; i < PIECES; i++) {
        EXPECT(is_there(&scatter->pieces[i]));
    }
    scatter_close(two, scatter);
    two_close(two);
}

/* One piece that must not be written keeps all others of its order back, whatever is wrong with it. */
static void test_transfer_raw_list_with_one_bad_piece_writes_nothing(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct scatter *scatter = scatter_open(two);
    const struct convoy_raw raw = raw_of(two, scatter);
    static uint8_t foreign[PIECE_BYTES];
    const uint64_t bad[4] = {(uint64_t)(uintptr_t)foreign,                                              /* no one's */
                             (uint64_t)(uintptr_t)scatter->slots[3].address + 4096 - PIECE_BYTES + 1,   /* across its end */
                             (uint64_t)(uintptr_t)scatter->registered + sizeof scatter->registered - 1, /* the same */
                             UINT64_MAX - PIECE_BYTES / 2};
    for (uint32_t i = 0; i < 4; i++) {
        struct convoy_raw_piece good = scatter->pieces[PIECES - 1 - i];
        scatter->pieces[PIECES - 1 - i].target = bad[i];
        int32_t status = CALL(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
        EXPECT_STATUS(status, i == 3 ? CONVOY_INVALID_ARGUMENT : CONVOY_NOT_FOUND, &two->sender->error);
        scatter->pieces[PIECES - 1 - i] = good;
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        EXPECT_EQUAL(*(const uint8_t *)(uintptr_t)scatter->pieces[i].target, 0);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        expect_state(two->receiver, scatter->slots[i].transfer, CONVOY_TRANSFER_RESERVED);
    }
    scatter_close(two, scatter);
    two_close(two);
}

/* Memory that lies in a slot and was registered as well is in two, and so in none. */
static void test_transfer_raw_piece_in_a_slot_and_in_a_range_is_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "both", BYTES, 0, NULL);
    uint8_t *target = slot.address;
    convoy_transfer staged = stage_bytes(two->sender, "source", two->memory, BYTES);
    const uint8_t *source = staged_address(two->sender, staged);
    CALL_OK(two->receiver, memory_register, target + 1000, 1000);
    const struct convoy_raw_piece pieces[2] = {
        {.source = source, .target = (uint64_t)(uintptr_t)target, .bytes = 100},
        {.source = source + 1100, .target = (uint64_t)(uintptr_t)target + 1100, .bytes = 100}};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = two->peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = 2};
    CALL_STATUS(two->sender, CONVOY_NOT_FOUND, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    EXPECT_TEXT(two->sender->error.text, "in 2 parts");
    expect_state(two->receiver, slot.transfer, CONVOY_TRANSFER_RESERVED);
    CALL_OK(two->receiver, memory_deregister, target + 1000, 1000);
    CALL_OK(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    two_close(two);
}

/* More registered memory than one block holds, and a pool in which no such block is free: several rounds. */
static void test_transfer_raw_large_registered_pieces_go_in_rounds(void **state)
{
    (void)state;
    static uint8_t memory[11u << 20];
    static uint8_t target[11u << 20];
    const struct convoy_transfer_options small = pool_of(1u << 20);
    engine_fill(memory, sizeof memory, 3);
    for (uint32_t i = 0; i < 2; i++) {
        struct two *two = two_open_with(i == 0 ? NULL : &small);
        const struct convoy_raw_piece pieces[2] = {
            {.source = memory + 5, .target = (uint64_t)(uintptr_t)target + 5, .bytes = sizeof memory - 5},
            {.source = memory, .target = (uint64_t)(uintptr_t)target, .bytes = 5}};
        const struct convoy_raw raw = {.struct_size = sizeof raw,
                                       .peer = two->peer,
                                       .pieces = pieces,
                                       .piece_stride = sizeof pieces[0],
                                       .piece_count = 2};
        memset(target, 0, sizeof target);
        CALL_OK(two->sender, memory_register, memory, sizeof memory);
        CALL_OK(two->receiver, memory_register, target, sizeof target);
        CALL_OK(two->sender, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
        EXPECT(memcmp(target, memory, sizeof memory) == 0);
        two_close(two);
    }
}

/* -- what a peer may still read -- */

struct stopped {
    struct scene_sessions sessions;
    uint64_t target;
};

static void serve(const struct rank *rank, struct engine *engine)
{
    static uint8_t target[BYTES];
    struct stopped *shared = rank->shared;
    CALL_OK(engine, memory_register, target, BYTES);
    shared->target = (uint64_t)(uintptr_t)target;
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 5);
}

/* Two orders to one that stands still: what they read is held, also beyond the end of the connection, until it answers. */
static void order_of_stopped(const struct rank *rank, struct engine *engine)
{
    static uint8_t memory[BYTES];
    const struct stopped *shared = rank->shared;
    convoy_peer peer = scene_connect(rank, engine, 1);
    rank_await_mark(rank, 1, 2);
    CALL_OK(engine, memory_register, memory, BYTES);
    struct convoy_raw_piece pieces[2] = {{.source = memory, .target = shared->target, .bytes = 1000},
                                         {.source = memory + 2000, .target = shared->target + 2000, .bytes = BYTES - 2000}};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = 2};
    CALL_OK(engine, transfer_sync, &raw, ENGINE_TIMEOUT_NS);
    EXPECT_EQUAL(engine_figures(engine).taken, 0);
    rank_mark(rank, 3); /* the parent stops rank 1 now */
    rank_await_parent(rank, 1);
    CALL_STATUS(engine, CONVOY_TIMED_OUT, transfer_sync, &raw, SHORT_NS);
    EXPECT(engine_figures(engine).quarantined >= BYTES - 1000);
    CALL_STATUS(engine, CONVOY_TIMED_OUT, transfer_sync, &raw, SHORT_NS);
    EXPECT_EQUAL(engine_figures(engine).quarantined_count, 2);
    CALL_OK(engine, peer_disconnect, peer); /* which proves nothing */
    EXPECT_EQUAL(engine_figures(engine).quarantined_count, 2);
    rank_mark(rank, 4); /* and lets it go on, or kills it */
    engine_await_empty(engine);
    rank_mark(rank, 5);
}

static void test_transfer_raw_block_of_a_stopped_peer_is_held_until_it_answers_or_dies(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {order_of_stopped, serve}};
    for (uint32_t is_killed = 0; is_killed < 2; is_killed++) {
        struct ranks *ranks = scene_create(&plan, sizeof(struct stopped));
        scene_start(ranks, &plan);
        ranks_await_mark(ranks, 0, 3);
        ranks_stop(ranks, 1);
        ranks_mark(ranks, 1);
        ranks_await_mark(ranks, 0, 4);
        ranks_signal(ranks, 1, is_killed != 0 ? SIGKILL : SIGCONT);
        ranks_finish(ranks);
    }
}

/* -- an engine that closes -- */

static void *offer_on(void *argument)
{
    struct two *two = argument;
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("too late", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    while (CALL(two->sender, send_start, &stage, &send, &sent) == CONVOY_OK) {
        release(two->sender, sent);
    }
    return NULL;
}

/* Offers that wait there, and such that come while it closes and are never read: all of that memory returns at once. */
static void test_transfer_raw_engine_that_closes_gives_back_what_it_has_not_taken(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        struct two *two = two_open();
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, offer_on, two) == 0);
        const uint64_t end = await_end();
        while (engine_counter(two->receiver, "offers") < 10) { /* yields to nobody, so that it closes amid the offers */
            EXPECT(convoy_now_ns() < end);
        }
        engine_destroy(two->receiver);
        EXPECT(pthread_join(thread, NULL) == 0);
        engine_await_empty(two->sender);
        engine_destroy(two->sender);
        free(two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_raw_piece_that_comes_twice_is_not_one_that_is_missing),
        cmocka_unit_test(test_transfer_raw_slot_made_at_open_is_filled_twice_by_half_and_not_whole),
        cmocka_unit_test(test_transfer_raw_scattered_pieces_go_as_few_orders_and_land_exactly),
        cmocka_unit_test(test_transfer_raw_scattered_pieces_of_a_pool_of_the_hosts_own_memory_land),
        cmocka_unit_test(test_transfer_raw_list_with_one_bad_piece_writes_nothing),
        cmocka_unit_test(test_transfer_raw_piece_in_a_slot_and_in_a_range_is_refused),
        cmocka_unit_test(test_transfer_raw_large_registered_pieces_go_in_rounds),
        cmocka_unit_test(test_transfer_raw_block_of_a_stopped_peer_is_held_until_it_answers_or_dies),
        cmocka_unit_test(test_transfer_raw_engine_that_closes_gives_back_what_it_has_not_taken),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_raw", tests, NULL, NULL);
}
