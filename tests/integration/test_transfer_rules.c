/* SPDX-License-Identifier: Apache-2.0 */
/* Rules between two engines that no plain transfer shows: which offer is taken, what is lent, swept, written or believed. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define CHECKSUM_AT 56 /* in a binary descriptor */

static convoy_transfer send_attempt(struct two *two, const char *request, const uint64_t *bytes, uint32_t attempt)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer sent = 0;
    stage.attempt = attempt;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, &stage, &send, &sent, &two->sender->error),
              &two->sender->error);
    return sent;
}

static convoy_transfer send_staged(struct two *two, convoy_transfer staged, uint64_t address)
{
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .staged = staged, .address = address};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, NULL, &send, &sent, &two->sender->error),
              &two->sender->error);
    return sent;
}

/* -- which offer is taken -- */

static void test_transfer_rules_accept_by_request_leaves_other_offers_alone(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t sizes[2] = {1000, 2000};
    convoy_transfer sent[2] = {send_attempt(two, "first", &sizes[0], 1), send_attempt(two, "second", &sizes[1], 1)};
    static const char *const requests[2] = {"first", "second"};
    for (int i = 1; i >= 0; i--) {
        convoy_transfer loaded = accept_start(two, requests[i], 0);
        struct convoy_transfer_result result;
        engine_wait(two->receiver, loaded, CONVOY_OK, &result);
        EXPECT_EQUAL(result.payload_bytes, sizes[i]);
        engine_wait(two->sender, sent[i], CONVOY_OK, NULL);
        release(two->sender, sent[i]);
        release(two->receiver, loaded);
    }
    two_close(two);
}

/* A sender that has begun anew: the offer of its earlier attempt is refused, whichever of the two comes first. */
static void test_transfer_rules_offer_of_an_earlier_attempt_is_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_transfer_result result;
    convoy_transfer before = send_attempt(two, "again", &two->bytes, 1);
    convoy_transfer sent = send_attempt(two, "again", &two->bytes, 3);
    convoy_transfer late = send_attempt(two, "again", &two->bytes, 2);
    engine_wait(two->sender, before, CONVOY_STALE_EPOCH, NULL);
    engine_wait(two->sender, late, CONVOY_STALE_EPOCH, NULL);
    convoy_transfer loaded = accept_start(two, "again", 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, &result);
    EXPECT_EQUAL(result.attempt, 3);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, before);
    release(two->sender, late);
    release(two->sender, sent);
    release(two->receiver, loaded);
    two_close(two);
}

/* -- what is lent -- */

/* Still read by one, and so not free yet: released all the same, for whoever comes later. */
static void test_transfer_rules_what_was_released_is_lent_to_nobody_else(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "released");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer first = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, first, CONVOY_OK, NULL);
    release(two->sender, staged);
    convoy_transfer second = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, second, CONVOY_CLOSED, NULL);
    expect_data(two, first);
    release(two->receiver, first);
    release(two->receiver, second);
    two_close(two);
}

static convoy_transfer stage_short(struct two *two, const char *request)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    convoy_transfer staged = 0;
    stage.lease_ns = SHORT_NS;
    EXPECT_OK(two->sender->table->stage_start(two->sender->handle, &stage, &staged, &two->sender->error),
              &two->sender->error);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    return staged;
}

/* Of two leases that are alike the later one is seen to be over; so is the earlier one, but its send is not. */
static void test_transfer_rules_staged_buffer_in_flight_outlives_its_lease(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_short(two, "flying");
    convoy_transfer sent = send_staged(two, staged, 0);
    convoy_transfer later = stage_short(two, "lying");
    AWAIT(two->sender->table->transfer_test(two->sender->handle, later, NULL, &two->sender->error) != CONVOY_OK);
    engine_wait(two->sender, later, CONVOY_TIMED_OUT, NULL);
    release(two->sender, later);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    convoy_transfer loaded = accept_start(two, "flying", 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_look(two->receiver, loaded);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, sent);
    release(two->receiver, loaded);
    release(two->sender, staged);
    two_close(two);
}

/* -- what is believed -- */

static void test_transfer_rules_payload_that_is_not_its_checksum_is_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "spoilt");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    two->text[CHECKSUM_AT] ^= 1;
    for (uint32_t mode = CONVOY_LOAD_VIEW; mode <= CONVOY_LOAD_COPY; mode++) {
        convoy_transfer loaded = load_start(two, mode, 0);
        engine_wait(two->receiver, loaded, CONVOY_MALFORMED, NULL);
        EXPECT_TEXT(two->receiver->error.text, "checksum");
        release(two->receiver, loaded);
    }
    EXPECT_EQUAL(engine_counter(two->receiver, "checksum_errors"), 2);
    release(two->sender, staged);
    two_close(two);
}

/* -- slots -- */

static int32_t reserve(struct two *two, const uint64_t *sizes, size_t count, struct convoy_reserved_slot *slots)
{
    const struct convoy_reserve wanted = {
        .struct_size = sizeof wanted, .request = "slots", .request_length = 5, .bytes = sizes, .count = count};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = slots, .slot_stride = sizeof *slots, .slot_capacity = count};
    return two->receiver->table->reserve(two->receiver->handle, &wanted, &reservation, &two->receiver->error);
}

static void test_transfer_rules_reserve_of_too_many_keeps_none(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 1u << 20, .pool_block_bytes = 4096};
    struct two *two = two_open_with(&options);
    const uint64_t sizes[3] = {1u << 18, 4096, 1u << 19};
    struct convoy_reserved_slot slots[3];
    struct convoy_reserved_slot held;
    EXPECT_OK(reserve(two, sizes, 1, &held), &two->receiver->error);
    EXPECT_STATUS(reserve(two, sizes, 3, slots), CONVOY_POOL_EXHAUSTED, &two->receiver->error);
    EXPECT_EQUAL(engine_figures(two->receiver).taken, sizes[0]);
    EXPECT_OK(reserve(two, sizes, 2, slots), &two->receiver->error);
    release(two->receiver, held.transfer);
    release(two->receiver, slots[0].transfer);
    release(two->receiver, slots[1].transfer);
    two_close(two);
}

/* What the host reads already is written by nobody any more. */
static void test_transfer_rules_slot_that_is_filled_is_not_written_again(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_reserved_slot slot;
    const uint64_t bytes = BYTES;
    EXPECT_OK(reserve(two, &bytes, 1, &slot), &two->receiver->error);
    convoy_transfer staged = stage_one(two, "good");
    convoy_transfer sent = send_staged(two, staged, (uint64_t)(uintptr_t)slot.address);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    engine_fill(two->memory, BYTES, 8);
    convoy_transfer other = stage_one(two, "other");
    convoy_transfer refused = send_staged(two, other, (uint64_t)(uintptr_t)slot.address);
    engine_wait(two->sender, refused, CONVOY_NOT_FOUND, NULL);
    EXPECT(engine_is_filled(slot.address, BYTES, 7));
    release(two->sender, sent);
    release(two->sender, refused);
    release(two->sender, staged);
    release(two->sender, other);
    release(two->receiver, slot.transfer);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_rules_accept_by_request_leaves_other_offers_alone),
        cmocka_unit_test(test_transfer_rules_offer_of_an_earlier_attempt_is_refused),
        cmocka_unit_test(test_transfer_rules_what_was_released_is_lent_to_nobody_else),
        cmocka_unit_test(test_transfer_rules_staged_buffer_in_flight_outlives_its_lease),
        cmocka_unit_test(test_transfer_rules_payload_that_is_not_its_checksum_is_refused),
        cmocka_unit_test(test_transfer_rules_reserve_of_too_many_keeps_none),
        cmocka_unit_test(test_transfer_rules_slot_that_is_filled_is_not_written_again),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_rules", tests, NULL, NULL);
}
