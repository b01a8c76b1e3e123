/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One data-parallel rank of several members: sgl-project/sglang PRs 14294, 25025, 36568. The gather takes no exchange,
 * so it is over though the others never call, and its outputs are those of the gathered path with equal rows.
 */
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ALONE_MEMBERS 4u

struct alone_tables {
    int64_t table[ALONE_MEMBERS * 8];
    int64_t first[8];
    uint8_t presence[ALONE_MEMBERS];
    struct convoy_sync_reduced reduced[8];
    struct convoy_sync_result result;
};

static int32_t alone_gather(struct plugin_member *member, uint32_t policy, int32_t reason, struct alone_tables *out)
{
    static const int64_t row[8] = {64, 3, 1, 0, 1, 2, 1, INT64_MAX};
    const struct convoy_sync_call call = {.struct_size = sizeof call,
                                          .critical_flags = reason != 0 ? CONVOY_CALL_ERROR_ROW : 0,
                                          .row = row,
                                          .votes = 6,
                                          .policy = policy,
                                          .error_reason = reason};
    memset(out, 0xa5, sizeof *out);
    out->result = (struct convoy_sync_result){.struct_size = sizeof out->result,
                                              .table = out->table,
                                              .table_capacity = ALONE_MEMBERS * 8,
                                              .first = out->first,
                                              .first_capacity = 8,
                                              .reduced = out->reduced,
                                              .reduced_capacity = 8,
                                              .presence = out->presence,
                                              .presence_capacity = ALONE_MEMBERS};
    return member->plugin.sync->gather(member->group, &call, 20000000000ull, &out->result, &member->error);
}

static void alone_rank(const struct rank *rank, void *argument)
{
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "dp1", *(const uint16_t *)argument);
    struct alone_tables local;
    struct alone_tables exchanged;
    member->options.schema = &schema;
    member->options.sync_inner = ALONE_MEMBERS;
    plugin_member_open(member);
    if (rank->index == 2) { /* the only one that calls: nobody is waited for */
        EXPECT_OK(alone_gather(member, 0, 0, &local), &member->error);
        EXPECT_EQUAL(local.result.round, 0);
        EXPECT_STATUS(alone_gather(member, 0, 5, &local), CONVOY_PEER_ERROR, &member->error);
    }
    rank_barrier(rank);
    EXPECT_OK(alone_gather(member, 0, 0, &local), &member->error);
    EXPECT_OK(alone_gather(member, CONVOY_SYNC_EXCHANGE, 0, &exchanged), &member->error);
    EXPECT_BYTES(local.table, exchanged.table, sizeof local.table);
    EXPECT_BYTES(local.first, exchanged.first, sizeof local.first);
    EXPECT_BYTES(local.presence, exchanged.presence, sizeof local.presence);
    EXPECT_BYTES(local.reduced, exchanged.reduced, sizeof local.reduced);
    EXPECT_EQUAL(local.result.votes_or, 6);
    EXPECT_EQUAL(exchanged.result.round, 1);
    EXPECT_EQUAL(local.result.epoch, exchanged.result.epoch);
    plugin_member_destroy(member);
}

static void test_alone_equals_the_exchanged_path_without_an_exchange(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(ALONE_MEMBERS, 0);
    ranks_start(ranks, alone_rank, &port, 0);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone_equals_the_exchanged_path_without_an_exchange)};
    return cmocka_run_group_tests_name("alone", tests, NULL, NULL);
}
