/* SPDX-License-Identifier: Apache-2.0 */
/* Public reports about receive slots and raw addresses: who may write there, until when, and what counts as written. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define FRAGMENTS 2000u /* of 512 bytes: less than what is offered before it is staged */

#define MIB (1u << 20)
#define WRITERS 4u

/* -- sgl-project/sglang PRs 35049 and 32564, vllm-project/vllm PR 56104: several senders write into one slot when its
 *    request is given up. The next owner gets that memory only when all of them have stopped, and keeps its bytes -- */

struct writer {
    struct engine *engine;
    convoy_peer peer;
    const uint8_t *source;
    uint8_t *target;
    pthread_t thread;
    int32_t status;
};

static void *write_main(void *argument)
{
    struct writer *writer = argument;
    writer->status = push_piece(writer->engine, writer->peer, writer->source, writer->target, 4 * MIB);
    return NULL;
}

static struct convoy_reserved_slot reserve_when_there(struct engine *engine, const char *request)
{
    int32_t status = CONVOY_POOL_EXHAUSTED;
    struct convoy_reserved_slot slot = {.transfer = 0};
    while (status != CONVOY_OK) {
        slot = reserve_slot(engine, request, WRITERS * 4 * MIB, 0, &status);
        EXPECT(status == CONVOY_OK || status == CONVOY_POOL_EXHAUSTED);
    }
    return slot;
}

static bool is_all(const uint8_t *memory, size_t bytes, uint8_t value)
{
    return memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0;
}

/* All have said what they write and the receiver has taken it up, but has not written all of it. */
static void give_up_under_write(struct engine *receiver, struct writer *writers)
{
    struct convoy_reserved_slot slot = reserve_when_there(receiver, "given up");
    uint64_t before[WRITERS];
    for (uint32_t i = 0; i < WRITERS; i++) {
        before[i] = engine_counter(writers[i].engine, "control_messages");
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i].target = (uint8_t *)slot.address + i * 4 * MIB;
        EXPECT(pthread_create(&writers[i].thread, NULL, write_main, &writers[i]) == 0);
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        AWAIT(engine_counter(writers[i].engine, "control_messages") != before[i]);
    }
    (void)engine_figures(receiver); /* takes what was said */
    release(receiver, slot.transfer);
    slot = reserve_when_there(receiver, "next");
    memset(slot.address, 0xbb, WRITERS * 4 * MIB);
    for (uint32_t i = 0; i < WRITERS; i++) {
        EXPECT(pthread_join(writers[i].thread, NULL) == 0);
        EXPECT_EQUAL(writers[i].status, CONVOY_OK);
    }
    EXPECT(is_all(slot.address, WRITERS * 4 * MIB, 0xbb));
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    CALL_STATUS(receiver, CONVOY_IN_PROGRESS, transfer_test, slot.transfer, &result);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_RESERVED); /* what was meant for the other does not count */
    release(receiver, slot.transfer);
}

static void check_given_up(struct convoy_transfer_options *options)
{
    struct engine *receiver = engine_create(options);
    struct writer writers[WRITERS];
    uint8_t *data = malloc(4 * MIB);
    EXPECT(data != NULL);
    memset(data, 0xaa, 4 * MIB);
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i].engine = engine_create(NULL);
        writers[i].peer = engine_connect(writers[i].engine, receiver->info.session);
        convoy_transfer staged = stage_bytes(writers[i].engine, "source", data, 4 * MIB);
        writers[i].source = staged_address(writers[i].engine, staged);
    }
    for (uint32_t i = 0; i < test_scaled(10, 200); i++) {
        give_up_under_write(receiver, writers);
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        engine_destroy(writers[i].engine);
    }
    engine_destroy(receiver);
    free(data);
}

static void test_reports_slot_given_up_under_write_is_held_until_all_writers_have_stopped(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(WRITERS * 4 * MIB); /* one slot and no room for a second */
    check_given_up(&options);
}

static void test_reports_slot_made_at_open_is_held_until_all_writers_have_stopped(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(WRITERS * 4 * MIB);
    options.prealloc_count = 1;
    options.prealloc_bytes = WRITERS * 4 * MIB;
    check_given_up(&options);
}

/* -- sgl-project/sglang PR 31800: a sender that stops after its first piece; slots have a deadline of their own -- */

static void test_reports_slots_filled_by_half_time_out_and_never_run_out(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(8 * 65536);
    options.prealloc_count = 8;
    options.prealloc_bytes = 65536;
    struct two *two = two_open_with(&options);
    struct engine *sender = engine_create(NULL);
    convoy_peer peer = engine_connect(sender, two->receiver->info.session);
    const uint8_t *source = staged_address(sender, stage_bytes(sender, "source", two->memory, BYTES));
    for (uint32_t i = 0; i < test_scaled(100, 1000); i++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        struct convoy_reserved_slot slot = reserve_slot(two->receiver, "half", 65536, 20000000, NULL);
        EXPECT(slot.slot_id != 0);
        int32_t status = push_piece(sender, peer, source, slot.address, 30000);
        EXPECT(status == CONVOY_OK || status == CONVOY_NOT_FOUND); /* on a slow machine it may be over before */
        engine_wait(two->receiver, slot.transfer, CONVOY_TIMED_OUT, &result);
        EXPECT_EQUAL(result.state, CONVOY_TRANSFER_FAILED);
        release(two->receiver, slot.transfer);
    }
    await_idle(two->receiver, 8 * 65536);
    engine_destroy(sender);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

/* sgl-project/sglang issue 31473: each side holds its only block for a request that the other has no room for. Both are
 * refused at once with a time to ask again, and one that gives way lets the other through. */
static void test_reports_two_without_room_for_each_other_are_refused_and_not_stuck(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(131072);
    struct two *two = two_open_with(&options);
    struct engine *ends[2] = {two->sender, two->receiver};
    const convoy_peer peers[2] = {two->peer, engine_connect(two->receiver, two->sender->info.session)};
    struct convoy_transfer_result result;
    convoy_transfer staged[2];
    convoy_transfer sent[2];
    convoy_transfer loaded[2];
    for (int i = 0; i < 2; i++) {
        staged[i] = stage_bytes(ends[i], i == 0 ? "A" : "B", two->memory, BYTES);
    }
    for (int i = 0; i < 2; i++) {
        loaded[i] = accept_by(ends[i], NULL, 0, CONVOY_LOAD_COPY, ENGINE_TIMEOUT_NS);
        sent[i] = send_staged(ends[i], peers[i], staged[i]);
    }
    for (int i = 0; i < 2; i++) {
        engine_wait(ends[i], sent[i], CONVOY_POOL_EXHAUSTED, &result);
        EXPECT(result.retry_after_ms != 0);
        engine_wait(ends[i], loaded[i], CONVOY_POOL_EXHAUSTED, NULL);
        release(ends[i], sent[i]);
        release(ends[i], loaded[i]);
    }
    release(two->receiver, staged[1]); /* B gives way */
    loaded[1] = accept_by(two->receiver, "A", 0, CONVOY_LOAD_COPY, ENGINE_TIMEOUT_NS);
    sent[0] = send_staged(two->sender, two->peer, staged[0]);
    engine_wait(two->sender, sent[0], CONVOY_OK, NULL);
    engine_wait(two->receiver, loaded[1], CONVOY_OK, NULL);
    release(two->sender, sent[0]);
    release(two->sender, staged[0]);
    release(two->receiver, loaded[1]);
    two_close(two);
}

/* -- what counts as written -- */

/* vllm-project/vllm-omni issue 3595: one of three parts never comes. That is an error with the figures, and nothing to
 * compute with. */
static void test_reports_slot_that_misses_a_part_is_not_loaded(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "three parts");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    const uint8_t *source = staged_address(two->sender, staged);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "three parts", BYTES, 1000000000, NULL);
    const struct convoy_load load = {
        .struct_size = sizeof load, .descriptor = two->text, .descriptor_length = two->text_length, .slot = slot.transfer};
    convoy_transfer loaded = 77;
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(push_piece(two->sender, two->peer, source + i * 20000, (uint8_t *)slot.address + i * 20000, 20000),
                  &two->sender->error);
    }
    CALL_STATUS(two->receiver, CONVOY_INVALID_ARGUMENT, load_start, &load, &loaded);
    EXPECT_EQUAL(loaded, 77);
    EXPECT_TEXT(two->receiver->error.text, "40000");
    CALL_STATUS(two->receiver, CONVOY_BAD_STATE, payload, slot.transfer,
                &(struct convoy_payload){.struct_size = sizeof(struct convoy_payload)});
    engine_wait(two->receiver, slot.transfer, CONVOY_TIMED_OUT, NULL);
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    two_close(two);
}

/* A push that failed is never announced as one that went well: the public source said PUSHED all the same (compare
 * vllm-project/vllm issue 55181, PR 50754, where the receiver was told nothing). */
static void test_reports_push_that_is_refused_fails_on_both_sides(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "nowhere");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "nowhere", 4096, 1000000000, NULL);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = CONVOY_PATH_PUSH,
                                     .peer = two->peer,
                                     .staged = staged,
                                     .address = (uint64_t)(uintptr_t)slot.address}; /* BYTES do not fit there */
    const struct convoy_load load = {
        .struct_size = sizeof load, .descriptor = two->text, .descriptor_length = two->text_length, .slot = slot.transfer};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    CALL_STATUS(two->sender, CONVOY_NOT_FOUND, send, NULL, &send, &sent);
    CALL_STATUS(two->receiver, CONVOY_BAD_STATE, load_start, &load, &loaded);
    EXPECT_EQUAL(loaded, 0);
    release(two->sender, sent);
    engine_look(two->sender, staged); /* still staged: it can be pushed elsewhere */
    release(two->sender, staged);
    release(two->receiver, slot.transfer);
    two_close(two);
}

/* kvcache-ai/Mooncake PR 4001: sums that would overflow, memory beside a slot, and slots that are not open for writing. */
static void test_reports_raw_writes_beyond_what_is_open_are_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_peer back = engine_connect(two->receiver, two->sender->info.session);
    convoy_transfer staged = stage_one(two, "source");
    const uint8_t *source = staged_address(two->sender, staged);
    convoy_transfer theirs = stage_bytes(two->receiver, "theirs", two->memory, BYTES);
    uint8_t *closed = (uint8_t *)(uintptr_t)staged_address(two->receiver, theirs);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "open", 4096, 0, NULL);
    struct engine *sender = two->sender;
    EXPECT_STATUS(push_piece(sender, two->peer, source, closed, 4096), CONVOY_NOT_FOUND, &sender->error);
    EXPECT(engine_is_filled(closed, BYTES, 7));
    EXPECT_STATUS(push_piece(sender, two->peer, source, (uint8_t *)slot.address + 4090, 16), CONVOY_NOT_FOUND,
                  &sender->error);
    EXPECT_STATUS(push_piece(sender, two->peer, source, (void *)(UINTPTR_MAX - 7), 16), CONVOY_INVALID_ARGUMENT,
                  &sender->error);
    EXPECT_STATUS(push_piece(sender, two->peer, source, slot.address, UINT64_MAX - 15), CONVOY_INVALID_ARGUMENT,
                  &sender->error);
    EXPECT_OK(push_piece(sender, two->peer, source, slot.address, 4096), &sender->error);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    EXPECT_STATUS(push_piece(sender, two->peer, source, slot.address, 1), CONVOY_NOT_FOUND, &sender->error); /* full */
    CALL_OK(two->receiver, peer_disconnect, back);
    release(two->receiver, slot.transfer);
    release(two->receiver, theirs);
    release(two->sender, staged);
    two_close(two);
}

/* -- pieces -- */

/* The thread and the engine's own agree on what was written. A host learns from its own engine that its slot is full; here
 * it is the sender that says so, by memory that is mapped twice, which ThreadSanitizer does not see through. */
static void meet(struct engine *engine)
{
    (void)engine_figures(engine);
}

/* kvcache-ai/Mooncake issue 3153: ranges that touch are no overlap; one that was registered twice stays after one goes. */
static void test_reports_registered_ranges_are_counted_and_may_touch(void **state)
{
    (void)state;
    struct engine *engine = engine_create(NULL);
    static uint8_t memory[2 * MIB];
    CALL_OK(engine, memory_register, memory, MIB);
    CALL_OK(engine, memory_register, memory, MIB);
    CALL_STATUS(engine, CONVOY_BUSY, memory_register, memory + MIB / 2, MIB);
    CALL_OK(engine, memory_register, memory + MIB, MIB);
    CALL_OK(engine, memory_deregister, memory, MIB);
    CALL_OK(engine, memory_deregister, memory, MIB);
    CALL_STATUS(engine, CONVOY_NOT_FOUND, memory_deregister, memory, MIB);
    CALL_OK(engine, memory_deregister, memory + MIB, MIB);
    engine_destroy(engine);
}

/* sgl-project/sglang PR 32758, kvcache-ai/Mooncake issue 1088: as many pieces as a host likes in one call, half of them
 * empty, move in few orders. */
static void test_reports_many_pieces_with_empty_ones_between_arrive(void **state)
{
    (void)state;
    struct two *two = two_open();
    uint32_t count = test_scaled(20000, 300000);
    convoy_transfer staged = stage_one(two, "pieces");
    const uint8_t *source = staged_address(two->sender, staged);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "pieces", BYTES, ENGINE_TIMEOUT_NS * 10, NULL);
    struct convoy_raw_piece *pieces = calloc(count, sizeof *pieces);
    uint64_t before = engine_counter(two->receiver, "raw_orders");
    EXPECT(pieces != NULL);
    for (uint32_t i = 0; i < count; i++) { /* even ones: one byte, each third byte, over and over */
        uint64_t at = i / 2 * 3 % (BYTES / 2);
        pieces[i] = (struct convoy_raw_piece){
            .source = source + at, .target = (uint64_t)(uintptr_t)slot.address + at, .bytes = i % 2 == 0 && i < BYTES / 2};
    }
    memset(slot.address, 0, BYTES);
    meet(two->receiver);
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = two->peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof *pieces,
                                   .piece_count = count};
    CALL_OK(two->sender, transfer_sync, &raw, 5000000000);
    meet(two->receiver);
    uint32_t sent = 0;
    for (uint32_t i = 0; i < count; i++) {
        sent += pieces[i].bytes != 0;
        EXPECT(pieces[i].bytes == 0 || *(const uint8_t *)(uintptr_t)pieces[i].target == *(const uint8_t *)pieces[i].source);
    }
    EXPECT(engine_counter(two->receiver, "raw_orders") - before <= sent / 1000 + 1); /* one order for many of them */
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    free(pieces);
    two_close(two);
}

/* sgl-project/sglang PR 35036: what costs is the number of operations. Pieces that lie side by side are one, and tensors
 * are staged into one payload however many there are. */
static void test_reports_fragments_are_moved_as_one(void **state)
{
    (void)state;
    struct two *two = two_open();
    static struct convoy_raw_piece pieces[BYTES / 16];
    static struct convoy_tensor_source tensors[FRAGMENTS];
    static char names[FRAGMENTS][8];
    const uint64_t shape = 16;
    convoy_transfer staged = stage_one(two, "fragments");
    const uint8_t *source = staged_address(two->sender, staged);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "fragments", BYTES, 0, NULL);
    for (uint32_t i = 0; i < BYTES / 16; i++) {
        pieces[i] = (struct convoy_raw_piece){
            .source = source + 16 * i, .target = (uint64_t)(uintptr_t)slot.address + 16 * i, .bytes = 16};
    }
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = two->peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = BYTES / 16};
    CALL_OK(two->sender, transfer_sync, &raw, 0);
    meet(two->receiver);
    EXPECT(engine_is_filled(slot.address, BYTES, 7));
    EXPECT_EQUAL(engine_counter(two->receiver, "raw_orders"), 1);
    release(two->receiver, slot.transfer);
    release(two->sender, staged);
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%u", i);
        tensors[i] = engine_tensor(two->memory + 16 * i, &shape);
        tensors[i].name = names[i];
        tensors[i].name_length = strlen(names[i]);
    }
    uint64_t messages[2];
    for (uint32_t round = 0; round < 2; round++) {
        const struct convoy_stage stage = engine_stage("many", tensors, round == 0 ? 1 : FRAGMENTS);
        const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
        uint64_t before = engine_counter(two->sender, "control_messages") + engine_counter(two->receiver, "control_messages");
        convoy_transfer sent = 0;
        convoy_transfer loaded = accept_by(two->receiver, "many", 0, CONVOY_LOAD_COPY, 0);
        CALL_OK(two->sender, send, &stage, &send, &sent);
        engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
        release(two->receiver, loaded);
        release(two->sender, sent);
        messages[round] =
            engine_counter(two->sender, "control_messages") + engine_counter(two->receiver, "control_messages") - before;
    }
    EXPECT_EQUAL(messages[0], messages[1]);
    two_close(two);
}

/* kvcache-ai/Mooncake PR 2399: an engine without a pool says so to whoever needs it, and serves all else. */
static void test_reports_engine_without_a_pool_serves_what_needs_none(void **state)
{
    (void)state;
    static uint8_t memory[BYTES];
    uint8_t nowhere = 0;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_kind = CONVOY_MEMORY_HOST, .pool_memory = &nowhere};
    struct engine *none = engine_create(&options);
    struct engine *sender = engine_create(NULL);
    convoy_peer peer = engine_connect(sender, none->info.session);
    const uint64_t bytes = BYTES;
    int32_t status = CONVOY_OK;
    const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
    const struct convoy_stage stage = engine_stage("too much", &tensor, 1);
    convoy_transfer transfer = 0;
    CALL_STATUS(none, CONVOY_LIMIT, stage_start, &stage, &transfer);
    EXPECT_TEXT(none->error.text, "0 bytes");
    (void)reserve_slot(none, "too much", BYTES, 0, &status);
    EXPECT_EQUAL(status, CONVOY_LIMIT);
    engine_fill(memory, BYTES, 4);
    convoy_transfer sent = send_bytes(sender, peer, "viewed", 1, memory, BYTES); /* by the sender's pool */
    convoy_transfer loaded = accept_by(none, "viewed", 0, CONVOY_LOAD_VIEW, 0);
    engine_wait(none, loaded, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(staged_address(none, loaded), BYTES, 4));
    release(none, loaded);
    engine_wait(sender, sent, CONVOY_OK, NULL);
    release(sender, sent);
    engine_await_empty(sender);
    engine_destroy(none);
    engine_destroy(sender);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_slot_given_up_under_write_is_held_until_all_writers_have_stopped),
        cmocka_unit_test(test_reports_slot_made_at_open_is_held_until_all_writers_have_stopped),
        cmocka_unit_test(test_reports_slots_filled_by_half_time_out_and_never_run_out),
        cmocka_unit_test(test_reports_two_without_room_for_each_other_are_refused_and_not_stuck),
        cmocka_unit_test(test_reports_slot_that_misses_a_part_is_not_loaded),
        cmocka_unit_test(test_reports_push_that_is_refused_fails_on_both_sides),
        cmocka_unit_test(test_reports_raw_writes_beyond_what_is_open_are_refused),
        cmocka_unit_test(test_reports_registered_ranges_are_counted_and_may_touch),
        cmocka_unit_test(test_reports_many_pieces_with_empty_ones_between_arrive),
        cmocka_unit_test(test_reports_fragments_are_moved_as_one),
        cmocka_unit_test(test_reports_engine_without_a_pool_serves_what_needs_none),
    };
    return cmocka_run_group_tests_name("reports_transfer_slots", tests, NULL, NULL);
}
