/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/order.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int32_t take(struct convoy_order *order, struct convoy_poll_list *lists, uint32_t count,
                    struct convoy_error *error)
{
    struct convoy_payload_shape shape = {0};
    for (uint32_t i = 0; i < count; i++) {
        convoy_payload_shape_add(&shape, (uint32_t)lists[i].count, CONVOY_POLL_KEYED);
    }
    return convoy_order_take(order, lists, &shape, error);
}

static void assert_sorted(const struct convoy_order *order, const struct convoy_poll_list *list, uint32_t start)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t at = start + order->ranks[start + i];
        uint32_t generation = list->generations != NULL ? list->generations[i] : 0;
        assert_true(order->sorted_keys[at] == list->keys[i] && order->sorted_generations[at] == generation);
    }
    for (uint32_t i = start + 1; i < start + list->count; i++) {
        bool ascends = order->sorted_keys[i - 1] < order->sorted_keys[i] ||
                       (order->sorted_keys[i - 1] == order->sorted_keys[i] &&
                        order->sorted_generations[i - 1] < order->sorted_generations[i]);
        assert_true(ascends);
    }
}

/* Returns what is freed behind it. */
static void *make(struct convoy_order *order, uint32_t capacity)
{
    struct convoy_memory_plan plan = {0};
    convoy_order_place(order, capacity, &plan);
    assert_true(convoy_memory_plan_make(&plan));
    convoy_order_place(order, capacity, &plan);
    return plan.base;
}

static void test_order_random_lists_are_sorted_at_every_length(void **state)
{
    (void)state;
    uint64_t keys[130];
    uint32_t generations[130];
    uint64_t random = 5;
    struct convoy_order order;
    void *memory = make(&order, 130);
    for (size_t count = 0; count <= 130; count++) {
        for (size_t i = 0; i < count; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            keys[i] = (random >> 60) << 60;
            generations[i] = (uint32_t)i;
        }
        struct convoy_poll_list list = {.count = count, .keys = keys, .generations = generations};
        assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
        assert_sorted(&order, &list, 0);
    }
    convoy_memory_table_free(memory);
}

static void test_order_unchanged_list_keeps_its_version_and_any_change_does_not(void **state)
{
    (void)state;
    uint64_t keys[] = {3, 1, 2};
    uint32_t generations[] = {0, 0, 0};
    struct convoy_order order;
    void *memory = make(&order, 8);
    struct convoy_poll_list list = {.count = 3, .keys = keys};
    assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
    uint64_t version = order.version;
    list.generations = generations; /* all 0 is the same as none */
    assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
    assert_true(order.version == version);
    generations[2] = 1;
    assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
    assert_true(order.version != version);
    assert_true(convoy_order_has_generations(&order));
    version = order.version;
    list.generations = NULL;
    assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
    assert_true(order.version != version);
    convoy_memory_table_free(memory);
}

/* The second list stays the same, but the first one's new length moves it: it must be sorted anew where it is now. */
static void test_order_list_moved_by_the_one_before_is_taken_anew(void **state)
{
    (void)state;
    const uint64_t all[] = {9, 8, 5, 7, 6, 3};
    struct convoy_order order;
    void *memory = make(&order, 16);
    for (uint32_t split = 0; split <= 6; split++) {
        struct convoy_poll_list lists[2] = {{.count = split, .keys = all}, {.count = 6 - split, .keys = all + split}};
        assert_int_equal(take(&order, lists, 2, NULL), CONVOY_OK);
        assert_sorted(&order, &lists[0], 0);
        assert_sorted(&order, &lists[1], split);
    }
    convoy_memory_table_free(memory);
}

static void test_order_duplicate_is_refused_and_the_next_list_is_taken(void **state)
{
    (void)state;
    const uint64_t twice[] = {4, 9, 4};
    const uint64_t once[] = {4, 9, 5};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_order order;
    void *memory = make(&order, 8);
    struct convoy_poll_list list = {.name = "decode", .name_length = 6, .count = 3, .keys = twice};
    assert_int_equal(take(&order, &list, 1, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "list 0 \"decode\": key 4, generation 0"));
    assert_int_equal(take(&order, &list, 1, &error), CONVOY_INVALID_ARGUMENT); /* not "unchanged, so fine" */
    list.keys = once;
    assert_int_equal(take(&order, &list, 1, NULL), CONVOY_OK);
    assert_sorted(&order, &list, 0);
    convoy_memory_table_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_random_lists_are_sorted_at_every_length),
        cmocka_unit_test(test_order_unchanged_list_keeps_its_version_and_any_change_does_not),
        cmocka_unit_test(test_order_list_moved_by_the_one_before_is_taken_anew),
        cmocka_unit_test(test_order_duplicate_is_refused_and_the_next_list_is_taken),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
