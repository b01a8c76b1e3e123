/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a slot are written: against a map of every byte, in any order, twice, and with no room left. */
#include "xfer/extents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 512u
#define ROUNDS 3000u
#define PARTS_MAX 8u

static bool add_one(struct convoy_extents *extents, uint64_t from, uint64_t to)
{
    const struct convoy_extent part = {from, to};
    return convoy_extents_add(extents, &part, 1);
}

static void test_extents_what_comes_twice_is_not_what_is_missing(void **state)
{
    (void)state;
    struct convoy_extents extents = {0};
    assert_true(convoy_extents_cover(&extents, 0));
    assert_false(convoy_extents_cover(&extents, 1));
    assert_true(add_one(&extents, 0, 50));
    assert_true(add_one(&extents, 0, 50));
    assert_false(convoy_extents_cover(&extents, 100));
    assert_int_equal(extents.count, 1);
    assert_true(add_one(&extents, 60, 100));
    assert_true(add_one(&extents, 100, 200)); /* beyond what is asked for counts for nothing before it */
    assert_int_equal(extents.count, 2);
    assert_int_equal(convoy_extents_bytes(&extents), 190);
    assert_false(convoy_extents_cover(&extents, 100));
    assert_true(add_one(&extents, 49, 61));
    assert_int_equal(extents.count, 1);
    assert_true(convoy_extents_cover(&extents, 200));
    assert_false(convoy_extents_cover(&extents, 201));
    convoy_extents_free(&extents);
}

/* What is there, byte by byte. */
static void check(const struct convoy_extents *extents, const uint8_t *map)
{
    uint64_t whole = 0;
    uint64_t bytes = 0;
    uint32_t runs = 0;
    while (whole < BYTES && map[whole] != 0) {
        whole++;
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes += map[i];
        runs += map[i] != 0 && (i == 0 || map[i - 1] == 0);
    }
    assert_int_equal(extents->count, runs);
    assert_int_equal(convoy_extents_bytes(extents), bytes);
    assert_true(convoy_extents_cover(extents, whole));
    assert_false(convoy_extents_cover(extents, whole + 1));
    for (uint32_t i = 1; i < extents->count; i++) {
        assert_true(extents->all[i - 1].to < extents->all[i].from);
    }
}

static int by_start(const void *left, const void *right)
{
    const struct convoy_extent *a = left;
    const struct convoy_extent *b = right;
    return a->from < b->from ? -1 : a->from > b->from;
}

static void test_extents_any_order_of_any_parts_is_what_a_map_says(void **state)
{
    (void)state;
    struct convoy_extents extents = {0};
    uint8_t map[BYTES + 1] = {0};
    srand(5);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct convoy_extent parts[PARTS_MAX];
        uint32_t count = 1 + (uint32_t)rand() % PARTS_MAX;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t from = (uint64_t)rand() % BYTES;
            uint64_t bytes = (uint64_t)rand() % 6;
            parts[i] = (struct convoy_extent){from, from + bytes < BYTES ? from + bytes : BYTES};
            memset(map + from, 1, parts[i].to - from);
        }
        qsort(parts, count, sizeof parts[0], by_start);
        assert_true(convoy_extents_add(&extents, parts, count));
        check(&extents, map);
        if (convoy_extents_cover(&extents, BYTES)) { /* anew, in the same memory */
            struct convoy_extents other = {0};
            convoy_extents_move(&extents, &other);
            assert_int_equal(extents.count, 0);
            assert_int_equal(other.count, 1);
            convoy_extents_free(&other);
            memset(map, 0, sizeof map);
        }
    }
    convoy_extents_free(&extents);
}

/* Holes without end: what finds no room is missing, never the other way round. */
static void test_extents_without_room_forget_and_say_so(void **state)
{
    (void)state;
    struct convoy_extents extents = {0};
    for (uint64_t i = 0; i < CONVOY_EXTENTS_MAX; i++) {
        assert_true(add_one(&extents, 2 * i, 2 * i + 1));
    }
    assert_false(add_one(&extents, 2 * CONVOY_EXTENTS_MAX, 2 * CONVOY_EXTENTS_MAX + 1));
    assert_int_equal(extents.count, CONVOY_EXTENTS_MAX);
    assert_int_equal(convoy_extents_bytes(&extents), CONVOY_EXTENTS_MAX);
    assert_true(add_one(&extents, 1, 2 * CONVOY_EXTENTS_MAX)); /* the holes are closed */
    assert_int_equal(extents.count, 1);
    assert_true(convoy_extents_cover(&extents, 2 * CONVOY_EXTENTS_MAX));
    assert_false(convoy_extents_cover(&extents, 2 * CONVOY_EXTENTS_MAX + 1));
    convoy_extents_free(&extents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extents_what_comes_twice_is_not_what_is_missing),
        cmocka_unit_test(test_extents_any_order_of_any_parts_is_what_a_map_says),
        cmocka_unit_test(test_extents_without_room_forget_and_say_so),
    };
    return cmocka_run_group_tests_name("extents", tests, NULL, NULL);
}
