/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/positional.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Every length and alignment around the width of a block, with every byte value. */
static void test_positional_min_equals_a_plain_loop_at_every_length(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (size_t count = 0; count < 70; count++) {
        uint8_t into[80];
        uint8_t from[80];
        uint8_t expected[80];
        uint32_t unknown = 0;
        for (size_t i = 0; i < sizeof from; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            into[i] = (uint8_t)((random >> 33) % 5);
            from[i] = (uint8_t)((random >> 50) % 50 == 0 ? random >> 40 : (random >> 40) % 5);
            uint8_t known = from[i] > 4 ? 1 : from[i];
            expected[i] = known < into[i] ? known : into[i];
        }
        for (size_t i = 0; i < count; i++) {
            unknown += from[1 + i] > 4;
            expected[i] = from[1 + i] > 4 ? 1 : from[1 + i];
            expected[i] = expected[i] < into[i] ? expected[i] : into[i];
        }
        memcpy(expected + count, into + count, sizeof into - count);
        assert_int_equal(convoy_positional_unknown(from + 1, count), unknown);
        assert_int_equal(convoy_positional_min(into, from + 1, count), unknown);
        assert_memory_equal(into, expected, sizeof into);
    }
}

/* Every length around the width of a block, with a state out of range at every place. */
static void test_positional_copy_sees_an_unknown_state_at_every_place(void **state)
{
    (void)state;
    for (size_t count = 0; count < 70; count++) {
        uint8_t from[80];
        uint8_t into[80];
        uint8_t also[80];
        memset(from, CONVOY_STATE_SUCCESS, sizeof from);
        for (size_t bad = 0; bad <= count; bad++) {
            from[1 + bad] = bad % 2 == 0 ? 5 : 0xff; /* at `count` it is behind the end */
            memset(into, 0xa5, sizeof into);
            memset(also, 0xa5, sizeof also);
            assert_int_equal(convoy_positional_copy(into, from + 1, count), bad == count);
            assert_int_equal(convoy_positional_copy_twice(into, also, from + 1, count), bad == count);
            assert_memory_equal(into, from + 1, count);
            assert_memory_equal(also, from + 1, count);
            assert_int_equal(into[count], 0xa5);
            assert_int_equal(also[count], 0xa5);
            from[1 + bad] = CONVOY_STATE_SUCCESS;
        }
    }
}

/* A state of a newer peer counts as Bootstrapping and is counted for its list, also through another host. */
static void test_positional_unknown_state_is_bootstrapping_and_counted_by_list(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 2, 0);
    convoy_payload_shape_add(&shape, 1, 0);
    uint8_t states[3];
    uint8_t blob[128];
    struct convoy_positional positional = {.shape = &shape, .states = states};
    const struct convoy_merge_ops *ops = &convoy_positional_ops;
    ops->begin(&positional);
    assert_int_equal(ops->member(&positional, 0, (const uint8_t[]){4, 4, 200}, 3), CONVOY_OK);
    assert_int_equal(ops->member(&positional, 1, (const uint8_t[]){5, 4, 0}, 3), CONVOY_OK);
    size_t length = ops->encode(&positional, blob, sizeof blob);
    ops->begin(&positional);
    assert_int_equal(ops->partial(&positional, blob, length), CONVOY_OK);
    assert_memory_equal(states, ((const uint8_t[]){1, 4, 0}), 3);
    assert_int_equal(positional.unknown[0], 1);
    assert_int_equal(positional.unknown[1], 1);
    assert_int_equal(positional.members, 2);
}

static void test_positional_payloads_of_a_wrong_length_are_malformed(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 4, 0);
    uint8_t states[4];
    uint8_t blob[128];
    struct convoy_positional positional = {.shape = &shape, .states = states};
    const struct convoy_merge_ops *ops = &convoy_positional_ops;
    const uint8_t bytes[16] = {4};
    for (size_t length = 0; length < 16; length++) {
        ops->begin(&positional);
        int32_t expected = length == 4 ? CONVOY_OK : CONVOY_MALFORMED;
        assert_int_equal(ops->member(&positional, 0, bytes, length), expected);
    }
    ops->begin(&positional);
    assert_int_equal(ops->encode(&positional, blob, sizeof blob), 0); /* nobody merged */
    assert_int_equal(ops->member(&positional, 0, bytes, 4), CONVOY_OK);
    size_t whole = ops->encode(&positional, blob, sizeof blob);
    for (size_t length = 0; length < sizeof blob; length++) {
        ops->begin(&positional);
        assert_int_equal(ops->partial(&positional, blob, length), length == whole ? CONVOY_OK : CONVOY_MALFORMED);
    }
    assert_int_equal(ops->encode(&positional, blob, whole - 1), 0);
}

static void test_positional_partial_with_impossible_members_is_malformed(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 1, 0);
    uint8_t states[1];
    uint8_t blob[sizeof(struct convoy_payload_head) + 1] = {0};
    struct convoy_positional positional = {.shape = &shape, .states = states};
    const uint32_t members[] = {0, 1025, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct convoy_payload_head head = {.members = members[i]};
        memcpy(blob, &head, sizeof head);
        convoy_positional_ops.begin(&positional);
        assert_int_equal(convoy_positional_ops.partial(&positional, blob, sizeof blob), CONVOY_MALFORMED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positional_min_equals_a_plain_loop_at_every_length),
        cmocka_unit_test(test_positional_copy_sees_an_unknown_state_at_every_place),
        cmocka_unit_test(test_positional_unknown_state_is_bootstrapping_and_counted_by_list),
        cmocka_unit_test(test_positional_payloads_of_a_wrong_length_are_malformed),
        cmocka_unit_test(test_positional_partial_with_impossible_members_is_malformed),
    };
    return cmocka_run_group_tests_name("positional", tests, NULL, NULL);
}
