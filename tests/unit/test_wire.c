/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire version, byte by byte: builds of different releases share one segment and answer each other's messages, so
 * neither a place nor an encoding may change without a new version. What stands here is what wire version 1 is.
 */
#include "poll/keyed.h"
#include "poll/positional.h"
#include "round/remote_reopen.h"
#include "sync/gather.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

/* -- the segment: cells are in test_cell.c ------------------------------------------------------------------------- */

AT(convoy_segment_head, magic, 0);
AT(convoy_segment_head, wake, 64);
AT(convoy_segment_head, sleepers, 68);
AT(convoy_segment_head, generation, 128);
AT(convoy_segment_head, pending, 136);
SIZE(convoy_segment_head, 192);
AT(convoy_member_slot, closed, 0);
AT(convoy_member_slot, opened, 4);
AT(convoy_member_slot, seat, 8);
AT(convoy_member_slot, cpus, 64);
AT(convoy_member_slot, proposals, 192);
SIZE(convoy_member_slot, 576);
AT(convoy_proposal, lost, 0);
AT(convoy_proposal, next_round, 128);
SIZE(convoy_proposal, 192);
AT(convoy_segment_blob, word, 0);
AT(convoy_segment_blob, length, 8);
AT(convoy_segment_blob, writes, 16);
AT(convoy_segment_blob, bytes, 64);
AT(convoy_member_status, round, 0);
AT(convoy_member_status, tag, 8);
AT(convoy_member_status, seen_ns, 16);
AT(convoy_member_status, operation, 24);
AT(convoy_member_status, condition, 28);
SIZE(convoy_member_status, 32);

/* -- messages between leaders -------------------------------------------------------------------------------------- */

AT(convoy_message, token, 0);
AT(convoy_message, kind, 16);
AT(convoy_message, member, 20);
AT(convoy_message, word, 24);
AT(convoy_message, length, 32);
AT(convoy_message, leads, 36);
SIZE(convoy_message, 40);
AT(convoy_partial_head, fingerprint, 0);
AT(convoy_partial_head, tag_min, 8);
AT(convoy_partial_head, tag_max, 16);
AT(convoy_partial_head, votes_and, 24);
AT(convoy_partial_head, votes_or, 28);
AT(convoy_partial_head, flags, 32);
AT(convoy_partial_head, status, 36);
AT(convoy_partial_head, culprit, 40);
AT(convoy_partial_head, error_member, 44);
AT(convoy_partial_head, error_reason, 48);
AT(convoy_partial_head, payload_bytes, 52);
AT(convoy_partial_head, row_count, 56);
SIZE(convoy_partial_head, 64);
AT(convoy_partial_row, member, 0);
AT(convoy_partial_row, operation, 4);
AT(convoy_partial_row, fingerprint, 8);
AT(convoy_partial_row, round, 16);
AT(convoy_partial_row, tag, 24);
AT(convoy_partial_row, epoch, 32);
AT(convoy_partial_row, counts, 40);
AT(convoy_partial_row, digest, 48);
AT(convoy_partial_row, schema, 56);
AT(convoy_partial_row, policy, 64);
SIZE(convoy_partial_row, 72);
AT(convoy_reopen_decision, generation, 0);
AT(convoy_reopen_decision, next_round, 8);
AT(convoy_reopen_decision, lost, 16);
SIZE(convoy_reopen_decision, 144);
AT(convoy_reopen_body, generation, 0);
AT(convoy_reopen_body, has_promise, 4);
AT(convoy_reopen_body, decision, 8);
AT(convoy_reopen_body, lost, 152);
AT(convoy_reopen_body, complete_round, 280);
AT(convoy_reopen_body, result_length, 288);
SIZE(convoy_reopen_body, 296);

static void test_wire_message_kinds_keep_their_numbers(void **state)
{
    (void)state;
    assert_int_equal(CONVOY_MESSAGE_PARTIAL, 1);
    assert_int_equal(CONVOY_MESSAGE_ROWS, 2);
    assert_int_equal(CONVOY_MESSAGE_REQUEST, 3);
    assert_int_equal(CONVOY_MESSAGE_ASK, 4);
    assert_int_equal(CONVOY_MESSAGE_STATUS, 5);
    assert_int_equal(CONVOY_MESSAGE_WANT, 6);
    assert_int_equal(CONVOY_MESSAGE_QUERY, 7);
    assert_int_equal(CONVOY_MESSAGE_STATE, 8);
    assert_int_equal(CONVOY_MESSAGE_PROPOSE, 9);
    assert_int_equal(CONVOY_MESSAGE_ACCEPT, 10);
    assert_int_equal(CONVOY_MESSAGE_COMMIT, 11);
}

/* -- payloads ------------------------------------------------------------------------------------------------------ */

AT(convoy_payload_head, members, 0);
AT(convoy_payload_head, flags, 4);
AT(convoy_payload_head, needed, 8);
AT(convoy_payload_head, votes_or, 16);
AT(convoy_payload_head, unknown, 24);
SIZE(convoy_payload_head, 56);

static void assert_image(const uint8_t *actual, size_t length, const uint8_t *golden, size_t golden_length)
{
    assert_int_equal(length, golden_length);
    assert_memory_equal(actual, golden, golden_length);
}

static void test_wire_positional_partial_is_a_head_and_the_states(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    uint8_t states[3];
    uint8_t out[128];
    convoy_payload_shape_add(&shape, 3, 0);
    struct convoy_positional positional = {.shape = &shape, .states = states};
    convoy_positional_ops.begin(&positional);
    assert_int_equal(convoy_positional_ops.member(&positional, 0, (const uint8_t[]){4, 3, 9}, 3), CONVOY_OK);
    assert_int_equal(convoy_positional_ops.member(&positional, 1, (const uint8_t[]){2, 4, 4}, 3), CONVOY_OK);
    const uint8_t golden[59] = {[0] = 2, [24] = 1, [56] = 2, 3, 1}; /* members; unknown in list 0; states */
    assert_image(out, convoy_positional_ops.encode(&positional, out, sizeof out), golden, sizeof golden);
}

static void test_wire_keyed_layout_is_aligned_and_in_order(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 3, 0);                 /* positional: 3 bytes */
    convoy_payload_shape_add(&shape, 2, CONVOY_POLL_KEYED); /* two entries */
    struct convoy_payload_layout at = convoy_payload_layout(&shape, 2, true, true);
    assert_int_equal(at.counts, 8);
    assert_int_equal(at.keys, 16);
    assert_int_equal(at.generations, 32);
    assert_int_equal(at.listed, 40);
    assert_int_equal(at.states, 44);
    assert_int_equal(at.bytes, 46);
    at = convoy_payload_layout(&shape, 2, false, false);
    assert_int_equal(at.states, 32);
    assert_int_equal(at.bytes, 34);
}

static void test_wire_rows_are_narrow_wide_and_with_extra(void **state)
{
    (void)state;
    struct convoy_row_form form = {.width = 2, .member_count = 3};
    struct convoy_mask mask;
    uint8_t out[64];
    convoy_mask_set(&mask, 0, 0, NULL, 0, 3);
    const uint8_t narrow[] = {1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff};
    assert_image(out, convoy_row_encode(&form, (const int64_t[]){1, -2}, 0, &mask, out), narrow, sizeof narrow);
    const uint8_t wide[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
    assert_image(out, convoy_row_encode(&form, (const int64_t[]){1, INT64_C(1) << 32}, 0, &mask, out), wide,
                 sizeof wide);
    form.has_slot = true;
    convoy_mask_set(&mask, 0, 7, (const uint8_t[]){1, 0, 1}, 3, 3);
    const uint8_t extra[] = {1, 0, 0, 0, 2, 0, 0, 0, /* values */ 5, 0, 0, 0, /* slot */
                             7, 0, 0, 0, 0, 0, 0, 0, /* version */ 5, 0, 0, 0, /* bits */ 2 | 4 | 8 /* flags */};
    assert_image(out, convoy_row_encode(&form, (const int64_t[]){1, 2}, 5, &mask, out), extra, sizeof extra);
}

static void test_wire_gather_partial_is_a_head_and_entries(void **state)
{
    (void)state;
    const struct convoy_grid grid = {.member_count = 2, .inner = 1, .slots = 2, .width = 1, .own = {.count = 1}};
    struct convoy_gather gather;
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t out[128];
    assert_int_equal(convoy_gather_init(&gather, &grid, &error), CONVOY_OK);
    convoy_gather_ops.begin(&gather);
    assert_int_equal(convoy_gather_ops.member(&gather, 0, (const uint8_t[]){9, 0, 0, 0}, 4), CONVOY_OK);
    convoy_gather_ops.absent(&gather, 1, CONVOY_ABSENT_LOST, 0);
    const uint8_t golden[] = {0, 0, 0, 0, 2, 0, 0, 0,             /* flags, entries */
                              0, 0, 0, 0, 0, 0, 0, 0,             /* mask version */
                              0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, /* first, other */
                              1, 0, 0, 0, 1, 0, 0, 0,             /* agreeing, total */
                              0, 0, CONVOY_PRESENT, 0, 9, 0, 0, 0, 1, 0, CONVOY_PRESENT_LOST, 0};
    assert_image(out, convoy_gather_ops.encode(&gather, out, sizeof out), golden, sizeof golden);
    convoy_gather_fini(&gather);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_message_kinds_keep_their_numbers),
        cmocka_unit_test(test_wire_positional_partial_is_a_head_and_the_states),
        cmocka_unit_test(test_wire_keyed_layout_is_aligned_and_in_order),
        cmocka_unit_test(test_wire_rows_are_narrow_wide_and_with_extra),
        cmocka_unit_test(test_wire_gather_partial_is_a_head_and_entries),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
