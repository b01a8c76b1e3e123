/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put and get. Over TCP: refused, with the reason. Over System V shared memory UCX 1.13 truly has them, for memory that
 * it has allocated itself, so the same code that would use InfiniBand runs here.
 */
#include "core/clock.h"
#include "core/error.h"
#include "net/bulk_rma.h"
#include "net/link_rma.h"
#include "tests/lib/bulknode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static enum convoy_link_rma rma_of(const char *first, const char *second)
{
    struct convoy_ucx_resources resources = {.count = second != NULL ? 2 : first != NULL ? 1 : 0};
    if (first != NULL) {
        (void)snprintf(resources.rows[0].transport, CONVOY_UCX_NAME_BYTES, "%s", first);
    }
    if (second != NULL) {
        (void)snprintf(resources.rows[1].transport, CONVOY_UCX_NAME_BYTES, "%s", second);
    }
    return convoy_link_rma_of(&resources);
}

static void test_bulk_rma_is_where_the_transport_has_it(void **state)
{
    (void)state;
    assert_int_equal(rma_of("rc_verbs", NULL), CONVOY_LINK_RMA_ANY);
    assert_int_equal(rma_of("dc_mlx5", "rc_mlx5"), CONVOY_LINK_RMA_ANY);
    assert_int_equal(rma_of("posix", NULL), CONVOY_LINK_RMA_ALLOCATED);
    assert_int_equal(rma_of("rc_mlx5", "sysv"), CONVOY_LINK_RMA_ALLOCATED);
    assert_int_equal(rma_of("tcp", NULL), CONVOY_LINK_RMA_NEVER);
    assert_int_equal(rma_of("rc_mlx5", "tcp"), CONVOY_LINK_RMA_NEVER); /* UCX would take which it wants */
    assert_int_equal(rma_of("ud_verbs", NULL), CONVOY_LINK_RMA_NEVER);
    assert_int_equal(rma_of("cma", NULL), CONVOY_LINK_RMA_NEVER);
    assert_int_equal(rma_of(NULL, NULL), CONVOY_LINK_RMA_NEVER); /* unknown */
}

/* As UCX 1.13 prints endpoints: what it emulates has no line of puts. */
static void test_bulk_rma_lanes_are_read_from_what_ucx_prints(void **state)
{
    static const char mixed[] = "#                 lane[0]:  1:sysv/memory.0 md[1]           -> md[1]/sysv/sysdev[255] am\n"
                                "#                 lane[1]:  0:tcp/eth0.0 md[0]              -> md[0]/tcp/sysdev[255] wireup\n"
                                "#\n#                  put[0]: 0..<short>..4294967296..<bcopy>..(inf)\n"
                                "#                  get[0]: 0..<bcopy>..(inf)\n";
    static const char emulated[] = "#      lane[0]:  1:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[255] am\n# rma_bw: mds \n";
    struct convoy_ucx_resources resources;
    (void)state;
    convoy_ucx_resources_parse_rma(mixed, &resources);
    assert_int_equal(resources.count, 1);
    assert_string_equal(resources.rows[0].transport, "sysv");
    convoy_ucx_resources_parse_rma(emulated, &resources);
    assert_int_equal(resources.count, 0);
    convoy_ucx_resources_parse_rma("# put[7]: 0\n# put[x]\nput[", &resources);
    assert_int_equal(resources.count, 0);
}

/* The key travels in shared memory. */
struct shared {
    struct bulknode_shared node;
    uint64_t bytes;
    uint8_t key[CONVOY_BULK_KEY_BYTES_MAX];
};

static void open_pair(struct bulknode *node, const struct rank *rank, bool is_shared)
{
    const struct convoy_bulk_options options = {.with_rma = true, .without_peer_errors = is_shared};
    bulknode_open(node, rank, 4 * MIB, &options);
    bulknode_connect(node, 1 - rank->index);
    rank_barrier(rank);
}

static struct convoy_bulk_memory *publish(struct bulknode *node, void *address)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct shared *shared = node->rank->shared;
    struct convoy_bulk_memory *memory;
    size_t bytes;
    EXPECT_OK(convoy_bulk_memory_open(node->bulk, address, 4 * MIB, &memory, &error), &error);
    EXPECT_STATUS(convoy_bulk_memory_pack(memory, 1 - node->rank->index, shared->key, 4, &bytes, &error),
                  CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_OK(convoy_bulk_memory_pack(memory, 1 - node->rank->index, shared->key, sizeof shared->key, &bytes, &error),
              &error);
    shared->bytes = bytes;
    return memory;
}

static void refused_over_tcp(const struct rank *rank, void *argument)
{
    struct bulknode node;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct shared *shared = rank->shared;
    struct convoy_bulk_key *key;
    char why[160];
    (void)argument;
    open_pair(&node, rank, false);
    if (rank->index == 1) {
        struct convoy_bulk_memory *memory = publish(&node, node.memory);
        rank_barrier(rank);
        rank_await_mark(rank, 0, 1);
        convoy_bulk_memory_close(memory);
    } else {
        rank_barrier(rank);
        EXPECT(!convoy_bulk_can_rma(node.bulk, 1, true, why, sizeof why));
        EXPECT_TEXT(why, "tcp/");
        EXPECT_TEXT(why, "only emulates");
        EXPECT_STATUS(convoy_bulk_key_open(node.bulk, 1, shared->key, (size_t)shared->bytes, &key, &error),
                      CONVOY_UNSUPPORTED, &error);
        EXPECT_TEXT(error.text, "only emulates");
        rank_mark(rank, 1);
    }
    (void)bulknode_close(&node, CONVOY_NS_PER_S);
}

static void run_pair(rank_fn run)
{
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run, NULL, 0);
    ranks_finish(ranks);
}

static void test_bulk_rma_over_tcp_is_refused_with_the_reason(void **state)
{
    (void)state;
    run_pair(refused_over_tcp);
}

static void try_wrong_keys(struct bulknode *node, const struct shared *shared)
{
    struct convoy_bulk_key *key;
    uint8_t wrong[CONVOY_BULK_KEY_BYTES_MAX];
    for (size_t bytes = 0; bytes < shared->bytes; bytes++) { /* every cut */
        EXPECT_EQUAL(convoy_bulk_key_open(node->bulk, 1, shared->key, bytes, &key, NULL), CONVOY_MALFORMED);
    }
    memcpy(wrong, shared->key, sizeof wrong);
    wrong[5] ^= 1;
    EXPECT_EQUAL(convoy_bulk_key_open(node->bulk, 1, wrong, (size_t)shared->bytes, &key, NULL), CONVOY_STALE_EPOCH);
    memcpy(wrong, shared->key, sizeof wrong);
    wrong[28] = 0; /* plain memory: emulated over shared memory */
    EXPECT_EQUAL(convoy_bulk_key_open(node->bulk, 1, wrong, (size_t)shared->bytes, &key, NULL), CONVOY_UNSUPPORTED);
    EXPECT_EQUAL(convoy_bulk_key_open(node->bulk, 9, shared->key, (size_t)shared->bytes, &key, NULL),
                 CONVOY_INVALID_ARGUMENT);
}

/* The target makes no progress: what is one-sided does not need it. */
static void move_both_ways(struct bulknode *node, const struct shared *shared)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bulk_key *key;
    uint8_t *data = malloc(4 * MIB);
    EXPECT_OK(convoy_bulk_key_open(node->bulk, 1, shared->key, (size_t)shared->bytes, &key, &error), &error);
    bulknode_fill(data, 0, 0, 4 * MIB);
    EXPECT_OK(convoy_bulk_put(key, 0, data, 4 * MIB, 1, &error), &error);
    EXPECT(bulknode_await(node, &node->moved, 1, 5000));
    EXPECT_EQUAL(node->statuses[1], CONVOY_OK);
    EXPECT_OK(convoy_bulk_get(key, MIB, node->memory + MIB, 2 * MIB, 2, &error), &error);
    EXPECT(bulknode_await(node, &node->moved, 2, 5000));
    EXPECT_EQUAL(node->statuses[2], CONVOY_OK);
    EXPECT_BYTES(node->memory + MIB, data + MIB, 2 * MIB);
    EXPECT_STATUS(convoy_bulk_put(key, 4 * MIB, data, 1, 3, &error), CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_STATUS(convoy_bulk_put(key, 4 * MIB - 1, data, 2, 3, &error), CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_STATUS(convoy_bulk_put(key, UINT64_MAX, data, 2, 3, &error), CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_STATUS(convoy_bulk_get(key, 0, data, 0, 3, &error), CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_OK(convoy_bulk_key_close(key, &error), &error);
    free(data);
}

/* A frame each way: UCX has connected. */
static void greet(struct bulknode *node)
{
    EXPECT_EQUAL(bulknode_frame(node, 1 - node->rank->index, 0, 8), CONVOY_OK);
    EXPECT(bulknode_await(node, &node->frames, 1, 5000));
    bulknode_work(node, 50);
}

static void over_shared_memory(const struct rank *rank, void *argument)
{
    struct bulknode node;
    char why[160];
    (void)argument;
    bulknode_settings = "{\"ucx_tls\": \"sysv,tcp\"}";
    open_pair(&node, rank, true);
    struct shared *shared = rank->shared;
    if (rank->index == 1) {
        struct convoy_bulk_memory *memory = publish(&node, NULL);
        greet(&node);
        rank_barrier(rank);
        rank_await_mark(rank, 0, 1);
        const uint8_t *at = convoy_bulk_memory_address(memory);
        memcpy(node.memory, at, 4 * MIB);
        EXPECT(bulknode_is_right(&node, 0, 4 * MIB));
        convoy_bulk_memory_close(memory);
    } else {
        greet(&node);
        rank_barrier(rank);
        convoy_bulk_transports(node.bulk, 1, why, sizeof why);
        EXPECT_TEXT(why, "sysv");
        EXPECT(!convoy_bulk_can_rma(node.bulk, 1, false, why, sizeof why));
        EXPECT(convoy_bulk_can_rma(node.bulk, 1, true, why, sizeof why));
        try_wrong_keys(&node, shared);
        move_both_ways(&node, shared);
        rank_mark(rank, 1);
    }
    (void)bulknode_close(&node, CONVOY_NS_PER_S);
}

static void test_bulk_rma_over_shared_memory_puts_and_gets_without_the_target(void **state)
{
    (void)state;
    run_pair(over_shared_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_rma_is_where_the_transport_has_it),
        cmocka_unit_test(test_bulk_rma_lanes_are_read_from_what_ucx_prints),
        cmocka_unit_test(test_bulk_rma_over_tcp_is_refused_with_the_reason),
        cmocka_unit_test(test_bulk_rma_over_shared_memory_puts_and_gets_without_the_target),
    };
    return cmocka_run_group_tests_name("bulk_rma", tests, NULL, NULL);
}
