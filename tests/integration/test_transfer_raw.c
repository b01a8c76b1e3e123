/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses instead of requests: what counts as written, many pieces in one call, and what a peer may still read. */
#include "tests/integration/reports_transfer.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_raw_piece_that_comes_twice_is_not_one_that_is_missing),
        cmocka_unit_test(test_transfer_raw_slot_made_at_open_is_filled_twice_by_half_and_not_whole),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_raw", tests, NULL, NULL);
}
