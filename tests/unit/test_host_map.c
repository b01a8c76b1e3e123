/* SPDX-License-Identifier: Apache-2.0 */
#include "core/memory.h"
#include "net/host_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ALL (CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_NETWORK | CONVOY_HOST_HAS_DIRECTORY)
#define NET (CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_NETWORK)
#define DIR (CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_DIRECTORY)

static struct convoy_host_keys keys_of(uint32_t flags, uint8_t boot, uint64_t network, uint64_t directory)
{
    struct convoy_host_keys keys = {.flags = flags, .network = {4, network}, .directory = {5, directory}};
    memset(keys.boot, boot, sizeof keys.boot);
    return keys;
}

struct candidate_case {
    const char *what;
    uint32_t count;
    struct convoy_host_keys keys[4];
    uint32_t leader_of[4];
};

static void test_host_map_candidates_follow_the_keys(void **state)
{
    (void)state;
    const struct candidate_case cases[] = {
        {"one namespace", 3, {keys_of(NET, 1, 1, 0), keys_of(NET, 1, 1, 0), keys_of(NET, 1, 1, 0)}, {0, 0, 0}},
        {"two machines whose numbers agree", 2, {keys_of(ALL, 1, 1, 1), keys_of(ALL, 2, 1, 1)}, {0, 1}},
        {"two namespaces", 3, {keys_of(NET, 1, 1, 0), keys_of(NET, 1, 2, 0), keys_of(NET, 1, 1, 0)}, {0, 1, 0}},
        {"two namespaces, one directory", 2, {keys_of(ALL, 1, 1, 3), keys_of(ALL, 1, 2, 3)}, {0, 0}},
        {"directories differ", 2, {keys_of(DIR, 1, 0, 3), keys_of(DIR, 1, 0, 4)}, {0, 1}},
        {"no keys", 2, {keys_of(0, 1, 1, 1), keys_of(0, 1, 1, 1)}, {0, 1}},
        {"no boot id", 2, {keys_of(CONVOY_HOST_HAS_NETWORK, 1, 1, 1), keys_of(NET, 1, 1, 1)}, {0, 1}},
        {"one insists on ucx", 3,
         {keys_of(CONVOY_HOST_ONLY_UCX | ALL, 1, 1, 1), keys_of(ALL, 1, 1, 1), keys_of(ALL, 1, 1, 1)}, {0, 1, 1}},
        /* 2 shares a key with 1 only, which follows 0: whom 2 joins must be reachable for 2 itself */
        {"a chain", 3, {keys_of(DIR, 1, 0, 3), keys_of(ALL, 1, 7, 3), keys_of(NET, 1, 7, 0)}, {0, 0, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t leader_of[4];
        convoy_host_map_candidates(cases[i].keys, cases[i].count, leader_of);
        for (uint32_t j = 0; j < cases[i].count; j++) {
            if (leader_of[j] != cases[i].leader_of[j]) {
                fail_msg("%s: member %u joins %u, not %u", cases[i].what, j, leader_of[j], cases[i].leader_of[j]);
            }
        }
    }
}

static void test_host_map_numbers_hosts_by_their_lowest_member(void **state)
{
    (void)state;
    const uint32_t leader_of[] = {0, 1, 0, 1, 0};
    const uint32_t joined[] = {0, 1, 2, 1, 0}; /* 2 could not reach 0 */
    const uint32_t host_of[] = {0, 1, 2, 1, 0};
    struct convoy_host_map map;
    assert_int_equal(convoy_host_map_init(joined, leader_of, 5, &map), CONVOY_OK);
    assert_int_equal(map.host_count, 3);
    assert_memory_equal(map.host_of, host_of, sizeof host_of);
    assert_int_equal(convoy_host_map_size(&map, 3), 2);
    assert_int_equal(convoy_host_map_size(&map, 2), 1);
    convoy_host_map_fini(&map);
    assert_null(map.host_of);
}

static void test_host_map_contradictions_are_malformed(void **state)
{
    (void)state;
    struct convoy_host_map map;
    const uint32_t leader_of[] = {0, 0, 0};
    const uint32_t not_candidate[] = {0, 0, 1};
    assert_int_equal(convoy_host_map_init(not_candidate, leader_of, 3, &map), CONVOY_MALFORMED);
    const uint32_t far[] = {0, 0, 70000};
    assert_int_equal(convoy_host_map_init(far, leader_of, 3, &map), CONVOY_MALFORMED);
    const uint32_t chain_leader[] = {0, 0, 1};
    const uint32_t chain[] = {0, 0, 1};
    assert_int_equal(convoy_host_map_init(chain, chain_leader, 3, &map), CONVOY_MALFORMED);
}

static void test_host_map_without_memory_gives_a_status(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    struct convoy_host_map map;
    const uint32_t own[] = {0, 1};
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_host_map_init(own, own, 2, &map), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
#else
    skip(); /* needs a variant with fault hooks */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_map_candidates_follow_the_keys),
        cmocka_unit_test(test_host_map_numbers_hosts_by_their_lowest_member),
        cmocka_unit_test(test_host_map_contradictions_are_malformed),
        cmocka_unit_test(test_host_map_without_memory_gives_a_status),
    };
    return cmocka_run_group_tests_name("host_map", tests, NULL, NULL);
}
