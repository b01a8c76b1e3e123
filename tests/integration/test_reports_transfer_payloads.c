/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may be made of, and where the public diffusion transport of sgl-project/sglang (PRs 21701 and 33844 and
 * what came after) was seen to fail: padding, holes, empty tensors, failures half way, closing.
 */
#include "tests/integration/reports_transfer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct convoy_tensor_source tensor_of(const char *name, const void *data, const uint64_t *shape, uint32_t rank)
{
    return (struct convoy_tensor_source){.name = name,
                                         .name_length = strlen(name),
                                         .dtype = "uint8",
                                         .dtype_length = 5,
                                         .data = data,
                                         .shape = shape,
                                         .rank = rank};
}

/* Sends the stage, and shows it in receiver->payload; loaded_out is to be released. */
static void deliver(struct two *two, const struct convoy_stage *stage, uint32_t mode, convoy_transfer *loaded_out)
{
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer sent = 0;
    *loaded_out = accept_by(two->receiver, stage->request, 0, mode, 0);
    CALL_OK(two->sender, send, stage, &send, &sent);
    engine_wait(two->receiver, *loaded_out, CONVOY_OK, NULL);
    release(two->sender, sent);
    engine_look(two->receiver, *loaded_out);
}

/* The sum of sizes without padding is 1 MiB here, and the second tensor starts at 512: it needs more than that. */
static void test_reports_padding_is_part_of_the_size(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t shapes[2] = {1, 1048575};
    uint8_t *memory = malloc(1048575);
    uint8_t one = 77;
    EXPECT(memory != NULL);
    engine_fill(memory, 1048575, 3);
    const struct convoy_tensor_source tensors[2] = {tensor_of("one", &one, &shapes[0], 1),
                                                    tensor_of("rest", memory, &shapes[1], 1)};
    const struct convoy_stage stage = engine_stage("padded", tensors, 2);
    for (uint32_t mode = CONVOY_LOAD_VIEW; mode <= CONVOY_LOAD_COPY; mode++) {
        convoy_transfer loaded = 0;
        deliver(two, &stage, mode, &loaded);
        EXPECT_EQUAL(two->receiver->payload.payload_bytes, 512 + 1048575);
        EXPECT_EQUAL(two->receiver->views[1].offset, 512);
        EXPECT_EQUAL(*(const uint8_t *)two->receiver->views[0].data, 77);
        EXPECT(engine_is_filled(two->receiver->views[1].data, 1048575, 3));
        release(two->receiver, loaded);
    }
    engine_await_empty(two->sender);
    engine_await_empty(two->receiver);
    convoy_transfer staged = 0;
    struct convoy_engine_figures figures = engine_figures(two->sender);
    CALL_OK(two->sender, stage_start, &stage, &staged);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    figures = engine_figures(two->sender); /* a byte more than a power of two takes twice as much, and says so */
    EXPECT_EQUAL(figures.asked, 512 + 1048575);
    EXPECT_EQUAL(figures.taken, 2u << 20);
    release(two->sender, staged);
    free(memory);
    two_close(two);
}

/* Lists keep their holes, in front, in the middle and at the end, with nothing in them, and with no length at all. */
static void test_reports_lists_keep_every_hole(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t shape = 5;
    const struct convoy_tensor_list_entry lists[4] = {
        {"first", 5, 2, 0}, {"middle", 6, 3, 0}, {"none", 4, 0, 0}, {"holes", 5, 4, 0}};
    struct convoy_tensor_source tensors[2] = {tensor_of("first", two->memory, &shape, 1),
                                              tensor_of("middle", two->memory + 5, &shape, 1)};
    tensors[0].flags = tensors[1].flags = CONVOY_TENSOR_LISTED;
    tensors[1].list_index = 1;
    struct convoy_stage stage = engine_stage("holes", tensors, 2);
    stage.lists = lists;
    stage.list_stride = sizeof lists[0];
    stage.list_count = 4;
    convoy_transfer loaded = 0;
    deliver(two, &stage, CONVOY_LOAD_VIEW, &loaded);
    EXPECT_EQUAL(two->receiver->payload.tensor_count, 2);
    EXPECT_EQUAL(two->receiver->payload.list_count, 4);
    for (int i = 0; i < 4; i++) {
        EXPECT_EQUAL(two->receiver->lists[i].length, lists[i].length);
        EXPECT_BYTES(two->receiver->lists[i].name, lists[i].name, lists[i].name_length);
    }
    EXPECT_EQUAL(two->receiver->views[0].list_index, 0);
    EXPECT_EQUAL(two->receiver->views[1].list_index, 1);
    release(two->receiver, loaded);
    two_close(two);
}

/* Tensors without elements arrive as such, by every way: no request hangs for want of bytes. */
static void test_reports_payloads_of_nothing_arrive_by_every_way(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t shape[2] = {0, 4};
    const struct convoy_tensor_source tensors[2] = {tensor_of("a", NULL, shape, 2), tensor_of("b", NULL, shape, 1)};
    for (size_t count = 0; count <= 2; count++) {
        const struct convoy_stage stage = engine_stage("nothing", tensors, count);
        convoy_transfer loaded = 0;
        convoy_transfer staged = 0;
        convoy_transfer sent = 0;
        deliver(two, &stage, CONVOY_LOAD_COPY, &loaded);
        EXPECT_EQUAL(two->receiver->payload.tensor_count, count);
        EXPECT_EQUAL(two->receiver->payload.payload_bytes, 0);
        EXPECT(count == 0 || (two->receiver->views[0].rank == 2 && two->receiver->views[0].shape[1] == 4));
        release(two->receiver, loaded);
        CALL_OK(two->sender, stage_start, &stage, &staged);
        engine_wait(two->sender, staged, CONVOY_OK, NULL);
        for (uint32_t form = CONVOY_DESCRIPTOR_BINARY; form <= CONVOY_DESCRIPTOR_JSON; form++) {
            describe(two, staged, form);
            loaded = load_start(two, CONVOY_LOAD_VIEW, 0);
            engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
            engine_look(two->receiver, loaded);
            EXPECT_EQUAL(two->receiver->payload.tensor_count, count);
            release(two->receiver, loaded);
        }
        struct convoy_reserved_slot slot = reserve_slot(two->receiver, "nothing", 0, 0, NULL); /* ALLOC said 0 there */
        EXPECT_EQUAL(engine_figures(two->receiver).taken, 0);
        release(two->receiver, slot.transfer);
        sent = send_staged(two->sender, two->peer, staged);
        loaded = accept_by(two->receiver, "nothing", 0, CONVOY_LOAD_COPY, 0);
        engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
        engine_wait(two->sender, sent, CONVOY_OK, NULL);
        release(two->receiver, loaded);
        release(two->sender, sent);
        release(two->sender, staged);
    }
    two_close(two);
}

static int32_t fails(void *user)
{
    (void)user;
    return -7;
}

/* Whatever goes wrong while it is staged, the room comes back. */
static void test_reports_failed_stages_leave_no_room_taken(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t shape = 100;
    struct convoy_tensor_source tensor = tensor_of("t", two->memory, &shape, 1);
    struct convoy_stage stage = engine_stage("fails", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer transfer = 0;
    stage.ready = fails;
    CALL_STATUS(two->sender, CONVOY_PEER_ERROR, send, &stage, &send, &transfer);
    EXPECT_TEXT(two->sender->error.text, "-7");
    release(two->sender, transfer);
    await_idle(two->sender, 0);
    stage.ready = NULL;
    transfer = 0;
    tensor.data = NULL; /* found when the pieces are made */
    CALL_STATUS(two->sender, CONVOY_INVALID_ARGUMENT, stage_start, &stage, &transfer);
    tensor = tensor_of("t", two->memory, &shape, 17);
    CALL_STATUS(two->sender, CONVOY_INVALID_ARGUMENT, stage_start, &stage, &transfer);
    tensor = tensor_of("t", two->memory, &shape, 1);
    tensor.bytes = 101;
    CALL_STATUS(two->sender, CONVOY_INVALID_ARGUMENT, stage_start, &stage, &transfer);
    stage.scalars = "{\"a\":1,}";
    stage.scalars_length = 8;
    CALL_STATUS(two->sender, CONVOY_INVALID_ARGUMENT, stage_start, &stage, &transfer);
    EXPECT_EQUAL(transfer, 0);
    await_idle(two->sender, 0);
    two_close(two);
}

/* A handle that was released does nothing to whoever has its memory by now. */
static void test_reports_stale_handles_touch_no_new_owner(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(131072);
    struct two *two = two_open_with(&options);
    convoy_transfer first = stage_one(two, "first");
    release(two->sender, first);
    convoy_transfer second = stage_one(two, "second"); /* there is but one block */
    CALL_STATUS(two->sender, CONVOY_CLOSED, release, first);
    CALL_STATUS(two->sender, CONVOY_CLOSED, abort, first, "", 0);
    EXPECT(engine_is_filled(staged_address(two->sender, second), BYTES, 7));
    EXPECT_EQUAL(engine_figures(two->sender).ready_count, 1);
    release(two->sender, second);
    two_close(two);
}

/* Closing with something in every state: the other side learns of it, nothing hangs. */
static void test_reports_close_ends_what_is_staged_pending_and_reserved(void **state)
{
    (void)state;
    struct two *two = two_open();
    (void)stage_one(two, "staged");
    (void)send_bytes(two->sender, two->peer, "offered", 1, two->memory, BYTES);
    (void)reserve_slot(two->sender, "reserved", BYTES, 0, NULL);
    (void)accept_by(two->sender, "waiting", 0, CONVOY_LOAD_VIEW, 0);
    convoy_peer back = engine_connect(two->receiver, two->sender->info.session);
    convoy_transfer sent = send_bytes(two->receiver, back, "to the one that closes", 1, two->memory, BYTES);
    engine_destroy(two->sender); /* expects OK */
    int32_t status = CALL(two->receiver, transfer_wait, sent, ENGINE_TIMEOUT_NS, NULL);
    EXPECT(status == CONVOY_PEER_LOST || status == CONVOY_CLOSED);
    release(two->receiver, sent);
    engine_destroy(two->receiver);
    free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_padding_is_part_of_the_size),
        cmocka_unit_test(test_reports_lists_keep_every_hole),
        cmocka_unit_test(test_reports_payloads_of_nothing_arrive_by_every_way),
        cmocka_unit_test(test_reports_failed_stages_leave_no_room_taken),
        cmocka_unit_test(test_reports_stale_handles_touch_no_new_owner),
        cmocka_unit_test(test_reports_close_ends_what_is_staged_pending_and_reserved),
    };
    return cmocka_run_group_tests_name("reports_transfer_payloads", tests, NULL, NULL);
}
