/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct convoy_payload_shape mixed_shape(void)
{
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 3, 0);
    convoy_payload_shape_add(&shape, 2, CONVOY_POLL_KEYED);
    convoy_payload_shape_add(&shape, 5, 0);
    convoy_payload_shape_add(&shape, 1, CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP);
    return shape;
}

static void test_payload_shape_counts_lists_by_kind(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = mixed_shape();
    assert_int_equal(shape.positional_bytes, 8);
    assert_int_equal(shape.keyed_entries, 3);
    assert_int_equal(shape.starts[2], 3);
    assert_int_equal(shape.starts[3], 2);
    assert_int_equal(shape.slots[3], 1);
    assert_int_equal(shape.list_of[1], 3);
}

/* The layout is part of the wire version: these offsets may not change. */
static void test_payload_layout_is_the_written_one(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = mixed_shape();
    struct convoy_payload_layout at = convoy_payload_layout(&shape, 3, true, true);
    assert_int_equal(at.counts, 8);
    assert_int_equal(at.keys, 24);
    assert_int_equal(at.generations, 48);
    assert_int_equal(at.listed, 60);
    assert_int_equal(at.states, 66);
    assert_int_equal(at.bytes, 69);
    assert_int_equal(convoy_payload_layout(&shape, 3, false, false).bytes, 51);
    assert_int_equal(sizeof(struct convoy_payload_head), 56);
}

static void test_payload_read_finds_the_parts_and_refuses_other_lengths(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = mixed_shape();
    struct convoy_payload_view view;
    uint8_t bytes[96] = {0};
    const uint32_t head[] = {0, 2, 1};
    memcpy(bytes + 8, head, sizeof head);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        int32_t expected = length == 51 ? CONVOY_OK : CONVOY_MALFORMED;
        assert_int_equal(convoy_payload_read(&shape, bytes, length, false, &view), expected);
    }
    assert_int_equal(convoy_payload_read(&shape, bytes, 51, false, &view), CONVOY_OK);
    assert_int_equal(view.entries, 3);
    assert_ptr_equal(view.keys, bytes + 24);
    assert_ptr_equal(view.states, bytes + 48);
    assert_null(view.generations);
}

static void test_payload_read_refuses_impossible_counts_and_flags(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = mixed_shape();
    struct convoy_payload_view view;
    uint8_t bytes[51] = {0};
    const uint32_t heads[][3] = {{0, UINT32_MAX, 4}, {0, UINT32_MAX, UINT32_MAX}, {2, 2, 1}, {1, 2, 1}, {0, 3, 1}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        memcpy(bytes + 8, heads[i], sizeof heads[i]);
        assert_int_equal(convoy_payload_read(&shape, bytes, sizeof bytes, false, &view), CONVOY_MALFORMED);
    }
}

static void test_payload_votes_tail_is_taken_only_where_it_may_be(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    const uint8_t payload[6] = {4, 4, 1, 0, 0, 0};
    uint32_t votes = 2;
    assert_int_equal(convoy_payload_votes(&shape, 2, payload, 6, &votes), 0);
    shape.has_votes = true;
    assert_int_equal(convoy_payload_votes(&shape, 2, payload, 2, &votes), 0);
    assert_int_equal(convoy_payload_votes(&shape, 2, payload, 6, &votes), 4);
    assert_int_equal(votes, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payload_shape_counts_lists_by_kind),
        cmocka_unit_test(test_payload_layout_is_the_written_one),
        cmocka_unit_test(test_payload_read_finds_the_parts_and_refuses_other_lengths),
        cmocka_unit_test(test_payload_read_refuses_impossible_counts_and_flags),
        cmocka_unit_test(test_payload_votes_tail_is_taken_only_where_it_may_be),
    };
    return cmocka_run_group_tests_name("payload", tests, NULL, NULL);
}
