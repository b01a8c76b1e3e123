/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/mask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u

static struct convoy_mask mask_of(uint32_t member, uint64_t version, unsigned bits)
{
    struct convoy_mask mask;
    uint8_t active[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        active[i] = (uint8_t)(bits >> i & 1u) * 7; /* any byte but 0 means active */
    }
    convoy_mask_set(&mask, member, version, active, MEMBERS, MEMBERS);
    return mask;
}

static void test_mask_every_mask_of_four_members_reads_back(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++) {
        struct convoy_mask mask = mask_of(1, 9, bits);
        assert_int_equal(mask.is_full, bits == 15);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            assert_int_equal(convoy_mask_is_active(&mask, i), bits >> i & 1u);
        }
    }
}

/* Hosts replace a mask that is shorter than the group by all ones. */
static void test_mask_short_or_missing_is_all_active(void **state)
{
    (void)state;
    struct convoy_mask mask;
    const uint8_t active[MEMBERS] = {0, 0, 0, 0};
    convoy_mask_set(&mask, 0, 3, active, MEMBERS - 1, MEMBERS);
    assert_true(mask.is_full);
    assert_int_equal(mask.version, 3);
    convoy_mask_set(&mask, 0, 3, NULL, 0, MEMBERS);
    assert_true(mask.is_full);
    convoy_mask_set(&mask, 0, 3, active, MEMBERS, MEMBERS);
    assert_false(mask.is_full);
}

static void test_mask_bits_behind_the_last_member_are_refused(void **state)
{
    (void)state;
    struct convoy_mask mask;
    const uint8_t wrong[2] = {0xff, 0x08};
    const uint8_t full[2] = {0xff, 0x07};
    const uint8_t holed[2] = {0xfe, 0x07};
    assert_false(convoy_mask_set_bits(&mask, wrong, 11));
    assert_true(convoy_mask_set_bits(&mask, full, 11));
    assert_true(mask.is_full);
    assert_true(convoy_mask_set_bits(&mask, holed, 11));
    assert_false(mask.is_full);
    assert_true(convoy_mask_set_bits(&mask, (const uint8_t[2]){0xff, 0xff}, 16));
    assert_true(mask.is_full);
}

/* sgl-project/sglang PR 22872: the highest version wins and what was older is counted. */
static void test_mask_highest_version_wins_and_skew_is_counted(void **state)
{
    (void)state;
    struct convoy_mask merged;
    struct convoy_mask masks[3] = {mask_of(0, 6, 0xf), mask_of(1, 7, 0x5), mask_of(2, 7, 0x5)};
    convoy_mask_clear(&merged);
    for (size_t i = 0; i < 3; i++) {
        convoy_mask_merge(&merged, &masks[i], MEMBERS);
    }
    assert_int_equal(merged.version, 7);
    assert_int_equal(merged.total - merged.agreeing, 1);
    assert_false(convoy_mask_is_active(&merged, 1));
    assert_int_equal(merged.other, CONVOY_MASK_NOBODY);
}

static void assert_same(const struct convoy_mask *left, const struct convoy_mask *right)
{
    assert_int_equal(left->version, right->version);
    assert_int_equal(left->first, right->first);
    assert_int_equal(left->other, right->other);
    assert_int_equal(left->agreeing, right->agreeing);
    assert_int_equal(left->total, right->total);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(convoy_mask_is_active(left, i), convoy_mask_is_active(right, i));
    }
}

/* All orders and both ways to bracket, over two versions and three contents for each of three members. */
static void test_mask_merge_is_associative_and_commutative(void **state)
{
    (void)state;
    static const unsigned contents[3] = {0xf, 0x3, 0x6};
    for (unsigned pick = 0; pick < 6 * 6 * 6; pick++) {
        struct convoy_mask masks[3];
        for (unsigned i = 0, rest = pick; i < 3; i++, rest /= 6) {
            masks[i] = mask_of(i, 1 + rest % 2, contents[rest / 2 % 3]);
        }
        struct convoy_mask left = masks[0];
        struct convoy_mask right = masks[2];
        struct convoy_mask tail = masks[2];
        convoy_mask_merge(&left, &masks[1], MEMBERS);
        convoy_mask_merge(&left, &masks[2], MEMBERS);
        convoy_mask_merge(&right, &masks[0], MEMBERS);
        convoy_mask_merge(&right, &masks[1], MEMBERS);
        convoy_mask_merge(&tail, &masks[1], MEMBERS);
        convoy_mask_merge(&masks[0], &tail, MEMBERS);
        assert_same(&left, &right);
        assert_same(&left, &masks[0]);
    }
}

static void test_mask_conflict_names_the_two_lowest_members(void **state)
{
    (void)state;
    struct convoy_mask merged = mask_of(3, 2, 0x3);
    struct convoy_mask others[2] = {mask_of(2, 2, 0x3), mask_of(1, 2, 0x6)};
    convoy_mask_merge(&merged, &others[0], MEMBERS);
    convoy_mask_merge(&merged, &others[1], MEMBERS);
    assert_int_equal(merged.first, 1);
    assert_int_equal(merged.other, 2);
    struct convoy_mask newer = mask_of(0, 3, 0xf);
    convoy_mask_merge(&merged, &newer, MEMBERS);
    assert_int_equal(merged.other, CONVOY_MASK_NOBODY); /* a conflict in an older version does not matter any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_every_mask_of_four_members_reads_back),
        cmocka_unit_test(test_mask_short_or_missing_is_all_active),
        cmocka_unit_test(test_mask_bits_behind_the_last_member_are_refused),
        cmocka_unit_test(test_mask_highest_version_wins_and_skew_is_counted),
        cmocka_unit_test(test_mask_merge_is_associative_and_commutative),
        cmocka_unit_test(test_mask_conflict_names_the_two_lowest_members),
    };
    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}
