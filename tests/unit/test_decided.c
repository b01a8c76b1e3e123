/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/decided.h"

#include "convoy/poll.h"
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Returns what is freed behind it. */
static void *make(struct convoy_decided *decided, uint32_t capacity)
{
    struct convoy_memory_plan plan = {0};
    convoy_decided_place(decided, capacity, &plan);
    assert_true(convoy_memory_plan_make(&plan));
    convoy_decided_place(decided, capacity, &plan);
    return plan.base;
}

static void test_decided_identity_is_list_key_and_generation(void **state)
{
    (void)state;
    struct convoy_decided decided;
    void *memory = make(&decided, 8);
    convoy_decided_add(&decided, 1, 7, 2, CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_decided_find(&decided, 1, 7, 2), CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_decided_find(&decided, 0, 7, 2), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 1, 7, 3), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 1, 8, 2), CONVOY_DECIDED_NONE);
    convoy_memory_table_free(memory);
}

static void test_decided_forgets_the_longest_unseen_first(void **state)
{
    (void)state;
    struct convoy_decided decided;
    void *memory = make(&decided, 4);
    for (uint64_t key = 0; key < 4; key++) {
        convoy_decided_add(&decided, 0, key, 0, CONVOY_STATE_FAILED);
    }
    assert_int_equal(convoy_decided_find(&decided, 0, 0, 0), CONVOY_STATE_FAILED); /* seen: now the newest */
    convoy_decided_add(&decided, 0, 4, 0, CONVOY_STATE_FAILED);
    assert_int_equal(convoy_decided_find(&decided, 0, 1, 0), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 0, 0, 0), CONVOY_STATE_FAILED);
    assert_int_equal(convoy_decided_find(&decided, 0, 4, 0), CONVOY_STATE_FAILED);
    convoy_memory_table_free(memory);
}

/* Against a plain list of (key, last seen), with many removals from the hash table. */
static void test_decided_random_use_equals_a_plain_list(void **state)
{
    (void)state;
    enum { KEYS = 200, ROOM = 64 };
    uint64_t seen[KEYS] = {0};
    uint32_t present = 0;
    uint64_t random = 99;
    struct convoy_decided decided;
    void *memory = make(&decided, ROOM);
    for (uint64_t now = 1; now < 50000; now++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t key = (uint32_t)(random >> 40) % KEYS;
        bool is_known = convoy_decided_find(&decided, 0, (uint64_t)key << 50, 1) != CONVOY_DECIDED_NONE;
        assert_int_equal(is_known, seen[key] != 0);
        if (!is_known) {
            uint32_t oldest = key;
            for (uint32_t i = 0; i < KEYS && present == ROOM; i++) {
                oldest = seen[i] != 0 && (oldest == key || seen[i] < seen[oldest]) ? i : oldest;
            }
            seen[oldest] = 0;
            present += present < ROOM;
            convoy_decided_add(&decided, 0, (uint64_t)key << 50, 1, CONVOY_STATE_SUCCESS);
        }
        seen[key] = now;
    }
    assert_int_equal(decided.count, ROOM);
    convoy_memory_table_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decided_identity_is_list_key_and_generation),
        cmocka_unit_test(test_decided_forgets_the_longest_unseen_first),
        cmocka_unit_test(test_decided_random_use_equals_a_plain_list),
    };
    return cmocka_run_group_tests_name("decided", tests, NULL, NULL);
}
