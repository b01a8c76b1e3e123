/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/decided.h"

#include "convoy/poll.h"
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_decided_identity_is_list_key_and_generation(void **state)
{
    (void)state;
    struct convoy_decided decided;
    assert_int_equal(convoy_decided_init(&decided, 8), CONVOY_OK);
    convoy_decided_add(&decided, 1, 7, 2, CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_decided_find(&decided, 1, 7, 2), CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_decided_find(&decided, 0, 7, 2), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 1, 7, 3), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 1, 8, 2), CONVOY_DECIDED_NONE);
    convoy_decided_fini(&decided);
}

static void test_decided_forgets_the_longest_unseen_first(void **state)
{
    (void)state;
    struct convoy_decided decided;
    assert_int_equal(convoy_decided_init(&decided, 4), CONVOY_OK);
    for (uint64_t key = 0; key < 4; key++) {
        convoy_decided_add(&decided, 0, key, 0, CONVOY_STATE_FAILED);
    }
    assert_int_equal(convoy_decided_find(&decided, 0, 0, 0), CONVOY_STATE_FAILED); /* seen: now the newest */
    convoy_decided_add(&decided, 0, 4, 0, CONVOY_STATE_FAILED);
    assert_int_equal(convoy_decided_find(&decided, 0, 1, 0), CONVOY_DECIDED_NONE);
    assert_int_equal(convoy_decided_find(&decided, 0, 0, 0), CONVOY_STATE_FAILED);
    assert_int_equal(convoy_decided_find(&decided, 0, 4, 0), CONVOY_STATE_FAILED);
    convoy_decided_fini(&decided);
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
    assert_int_equal(convoy_decided_init(&decided, ROOM), CONVOY_OK);
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
    convoy_decided_fini(&decided);
}

#ifdef CONVOY_FAULTS
static void test_decided_init_without_memory_leaves_it_fit_for_fini(void **state)
{
    (void)state;
    struct convoy_decided decided;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_decided_init(&decided, 8), CONVOY_NO_MEMORY);
    assert_int_equal(convoy_memory_fail_after(-1), 1); /* there is no other that could fail */
    assert_null(decided.entries);
    convoy_decided_fini(&decided);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decided_identity_is_list_key_and_generation),
        cmocka_unit_test(test_decided_forgets_the_longest_unseen_first),
        cmocka_unit_test(test_decided_random_use_equals_a_plain_list),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_decided_init_without_memory_leaves_it_fit_for_fini),
#endif
    };
    return cmocka_run_group_tests_name("decided", tests, NULL, NULL);
}
