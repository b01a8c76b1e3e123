/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds that work: values, sizes, votes, lists, rows, levels, opening again. */
#include "tests/conformance/suite.h"

#include <string.h>

/* The state that a rank brings for an entry in a round; all ranks can compute all of them. */
static uint8_t round_state(uint32_t rank, uint32_t round, size_t entry)
{
    uint64_t x = (rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (round + 1) * UINT64_C(0xbf58476d1ce4e5b9) ^ (entry * 77);
    x ^= x >> 31;
    x *= UINT64_C(0x94d049bb133111eb);
    return (uint8_t)((x >> 40) % 5);
}

static void round_check_min(const struct exchange *exchange, uint32_t members, uint32_t round)
{
    for (size_t i = 0; i < exchange->list.count; i++) {
        uint8_t least = CONVOY_STATE_SUCCESS;
        for (uint32_t rank = 0; rank < members; rank++) {
            uint8_t state = round_state(rank, round, i);
            least = state < least ? state : least;
        }
        EXPECT_EQUAL(exchange->states_out[i], least);
    }
}

/* MIN over all members, every length from 0 on, no memory of the round before. */
static void case_poll_is_min(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < 400; round++) {
        exchange_init(exchange, round % 97, 0);
        for (size_t i = 0; i < exchange->list.count; i++) {
            exchange->states[i] = round_state(suite->rank->index, round, i);
        }
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        EXPECT_EQUAL(exchange->result.round, round + 1);
        round_check_min(exchange, SUITE_MEMBERS, round);
    }
}

/* pytorch/gloo issue 179, pytorch/pytorch issue 85234: zero elements are a success with no data written; NULL is fine. */
static void case_empty_lists(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < 200; round++) {
        exchange_init(exchange, 0, 0);
        exchange->list.states = NULL;
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        exchange_expect_untouched(exchange);
        suite_expect_round(suite, 3, CONVOY_STATE_WAITING_FOR_INPUT);
    }
}

/* NVIDIA/TensorRT-LLM PR 14986: an all/any vote before an optional step, alone and beside lists. */
static void case_votes(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t size = 32; size >= 8; size /= 2) {
        exchange_init(exchange, 0, 0);
        exchange->call.list_count = size == 16 ? 1 : 0;
        bool can = !(size == 32 && suite->rank->index == 1);
        exchange->call.votes = (can ? 1u : 0u) | 1u << (8 + suite->rank->index);
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        EXPECT_EQUAL(exchange->result.votes_and & 1u, size != 32);
        EXPECT_EQUAL(exchange->result.votes_or, 0xf01u);
    }
}

/* Three lists of one scheduler in one round. */
static void case_several_lists(struct suite *suite)
{
    struct convoy_poll_list lists[3] = {{.count = 5}, {.count = 0}, {.count = 64}};
    struct convoy_poll_list_result results[3] = {{.states = NULL}};
    uint8_t in[3][64];
    uint8_t out[3][64];
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < 100; round++) {
        exchange_init(exchange, 0, 0);
        for (size_t l = 0; l < 3; l++) {
            for (size_t i = 0; i < lists[l].count; i++) {
                in[l][i] = round_state(suite->rank->index, round, i + l * 100);
            }
            lists[l].states = in[l];
            results[l] = (struct convoy_poll_list_result){.states = out[l], .states_capacity = 64};
        }
        exchange->call.lists = lists;
        exchange->call.list_count = 3;
        exchange->result.lists = results;
        exchange->result.list_capacity = 3;
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        for (size_t i = 0; i < 64; i++) {
            uint8_t least = CONVOY_STATE_SUCCESS;
            for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
                uint8_t state = round_state(rank, round, i + 200);
                least = state < least ? state : least;
            }
            EXPECT_EQUAL(out[2][i], least);
        }
    }
}

/* sgl-project/sglang issue 21297, SemiAnalysisAI/InferenceX issue 2151: lists in other orders, with members missing. */
static void case_keyed(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    uint64_t keys[4];
    struct convoy_poll_outcome outcomes[8];
    suite_open(suite);
    for (uint32_t round = 0; round < 100; round++) {
        size_t count = suite->rank->index == 1 ? 0 : 4; /* rank 1 lists nothing and still takes part */
        exchange_init(exchange, count, CONVOY_STATE_TRANSFERRING);
        for (size_t i = 0; i < count; i++) {
            keys[i] = 100 + (i + suite->rank->index + round) % 4;
            exchange->states[i] = keys[i] == 102 ? CONVOY_STATE_WAITING_FOR_INPUT : CONVOY_STATE_TRANSFERRING;
        }
        exchange->list.flags = CONVOY_POLL_KEYED | (round % 2 != 0 ? CONVOY_POLL_ABSENT_SKIP : 0);
        exchange->list.keys = keys;
        exchange->list_result.outcomes = outcomes;
        exchange->list_result.outcome_stride = sizeof outcomes[0];
        exchange->list_result.outcome_capacity = 8;
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        EXPECT_EQUAL(exchange->list_result.outcome_count, 4);
        for (size_t i = 0; i < 4; i++) {
            bool skips = round % 2 != 0;
            uint8_t listed = i == 2 ? CONVOY_STATE_WAITING_FOR_INPUT : CONVOY_STATE_TRANSFERRING;
            EXPECT_EQUAL(outcomes[i].key, 100 + i);
            EXPECT_EQUAL(outcomes[i].listed_by, 3);
            EXPECT_EQUAL(outcomes[i].state, skips ? listed : CONVOY_STATE_BOOTSTRAPPING);
        }
    }
}

static int64_t round_value(uint32_t rank, uint32_t round, size_t column)
{
    int64_t value = (int64_t)round_state(rank, round, column) * 1000 + (int64_t)column;
    return column == 5 ? 1 + (int64_t)(round % 3) : round % 7 == 0 ? value * INT64_C(5000000000) : value;
}

/* Every row of every member, packed (all values fit 32 bits) and not. */
static void case_rows(struct suite *suite)
{
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    suite->member->options.schema = &schema;
    suite_open(suite);
    for (uint32_t round = 0; round < 200; round++) {
        int64_t row[8];
        int64_t table[SUITE_MEMBERS * 8];
        int64_t first[SUITE_MEMBERS * 8];
        uint8_t presence[SUITE_MEMBERS];
        struct convoy_sync_reduced reduced[8];
        for (size_t column = 0; column < 8; column++) {
            row[column] = round_value(suite->rank->index, round, column);
        }
        const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row, .tag = round + 1};
        struct convoy_sync_result result = {.struct_size = sizeof result,
                                            .table = table,
                                            .table_capacity = SUITE_MEMBERS * 8,
                                            .first = first,
                                            .first_capacity = SUITE_MEMBERS * 8,
                                            .reduced = reduced,
                                            .reduced_capacity = 8,
                                            .presence = presence,
                                            .presence_capacity = SUITE_MEMBERS};
        EXPECT_OK(suite->member->plugin.sync->gather(suite->member->group, &call, SUITE_LONG_NS, &result,
                                                     &suite->member->error),
                  &suite->member->error);
        for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
            EXPECT_EQUAL(presence[rank], CONVOY_PRESENT);
            for (size_t column = 0; column < 8; column++) {
                EXPECT_EQUAL(table[rank * 8 + column], round_value(rank, round, column));
            }
        }
        EXPECT_BYTES(first, table, sizeof table);
        EXPECT_EQUAL(reduced[5].agreed, 1);
        EXPECT_EQUAL(reduced[5].value, row[5]);
    }
}

/* attention-TP {0,1},{2,3}, then attention-CP {0,2},{1,3}: MIN over all four. sgl-project/sglang issue 29725: groups are
 * explicit lists. */
static void case_two_levels(struct suite *suite)
{
    uint32_t index = suite->rank->index;
    const int32_t tp[2] = {(int32_t)(index & ~1u), (int32_t)(index | 1u)};
    const int32_t cp[2] = {(int32_t)(index & 1u), (int32_t)(index | 2u)};
    char tp_name[8] = "tp0";
    char cp_name[8] = "cp0";
    tp_name[2] = (char)('0' + index / 2);
    cp_name[2] = (char)('0' + index % 2);
    struct plugin_member *first = suite_member(suite, tp_name, tp, 2, index & 1u, 0);
    struct plugin_member *second = suite_member(suite, cp_name, cp, 2, index >> 1, 1);
    plugin_member_open(first);
    plugin_member_open(second);
    for (uint32_t round = 0; round < 100; round++) {
        struct exchange *exchange = &suite->exchange;
        convoy_operation operation = 0;
        exchange_init(exchange, 9, 0);
        for (size_t i = 0; i < 9; i++) {
            exchange->states[i] = round_state(index, round, i);
        }
        EXPECT_OK(first->plugin.poll->reduce2_start(first->group, second->group, &exchange->call, &operation,
                                                    &first->error),
                  &first->error);
        EXPECT_OK(first->plugin.poll->reduce2_wait(first->group, operation, SUITE_LONG_NS, &exchange->result,
                                                   &first->error),
                  &first->error);
        round_check_min(exchange, SUITE_MEMBERS, round);
    }
    rank_barrier(suite->rank);
    plugin_member_destroy(second);
    plugin_member_destroy(first);
}

/* pytorch/pytorch issues 55967, 114585, 119196: opening again on the same port after close, without sleeping. */
static void case_open_again(struct suite *suite)
{
    const struct convoy_core_table *core = suite->member->plugin.core;
    uint64_t last = 0;
    suite_open(suite);
    for (uint32_t life = 0; life < 8; life++) {
        suite_expect_round(suite, 8, (uint8_t)(life % 5));
        struct convoy_group_info info = suite_info(suite);
        EXPECT(info.epoch > last);
        EXPECT_EQUAL(info.round, 1);
        last = info.epoch;
        EXPECT_OK(core->group_close(suite->member->group, 0, &suite->member->error), &suite->member->error);
        suite->member->group = NULL;
        EXPECT_OK(core->group_open(suite->member->context, &suite->member->options, &suite->member->group,
                                   &suite->member->error),
                  &suite->member->error);
    }
    suite_expect_round(suite, 1, 4);
}

/* The split form: start everywhere, then test until it is over. */
static void case_split(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    const struct convoy_poll_table *poll = suite->member->plugin.poll;
    suite_open(suite);
    for (uint32_t round = 0; round < 200; round++) {
        convoy_operation operation = 0;
        int32_t status = CONVOY_IN_PROGRESS;
        exchange_init(exchange, 16, (uint8_t)(round % 5));
        EXPECT_OK(poll->reduce_start(suite->member->group, &exchange->call, &operation, &suite->member->error),
                  &suite->member->error);
        memset(exchange->states, 9, sizeof exchange->states); /* captured: what is here now does not count */
        EXPECT(operation != 0);
        while (status == CONVOY_IN_PROGRESS) {
            status = poll->reduce_test(suite->member->group, operation, &exchange->result, &suite->member->error);
        }
        EXPECT_STATUS(status, CONVOY_OK, &suite->member->error);
        EXPECT_EQUAL(exchange->states_out[15], round % 5);
    }
}

/* A value of one group is stale in another, however alike the two are. */
static void case_operations_are_of_one_group(struct suite *suite)
{
    static const int32_t ids[SUITE_MEMBERS] = {0, 1, 2, 3};
    struct exchange *exchange = &suite->exchange;
    const struct convoy_poll_table *poll = suite->member->plugin.poll;
    struct plugin_member *other = suite_member(suite, "other", ids, SUITE_MEMBERS, suite->rank->index, 0);
    convoy_operation operations[2] = {0, 0};
    suite_open(suite);
    plugin_member_open(other);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    EXPECT_OK(poll->reduce_start(suite->member->group, &exchange->call, &operations[0], &suite->member->error),
              &suite->member->error);
    EXPECT_OK(poll->reduce_start(other->group, &exchange->call, &operations[1], &other->error), &other->error);
    EXPECT_STATUS(poll->reduce_wait(suite->member->group, operations[1], SUITE_LONG_NS, &exchange->result,
                                    &suite->member->error),
                  CONVOY_CLOSED, &suite->member->error);
    EXPECT_STATUS(poll->reduce_wait(other->group, operations[0], SUITE_LONG_NS, &exchange->result, &other->error),
                  CONVOY_CLOSED, &other->error);
    EXPECT_OK(poll->reduce_wait(suite->member->group, operations[0], SUITE_LONG_NS, &exchange->result,
                                &suite->member->error),
              &suite->member->error);
    EXPECT_OK(poll->reduce_wait(other->group, operations[1], SUITE_LONG_NS, &exchange->result, &other->error),
              &other->error);
    rank_barrier(suite->rank);
    plugin_member_destroy(other);
}

const struct suite_case suite_round_cases[] = {
    {.name = "test_conformance_poll_is_min_over_members", .run = case_poll_is_min},
    {.name = "test_conformance_empty_lists_take_part", .run = case_empty_lists},
    {.name = "test_conformance_votes_are_merged", .run = case_votes},
    {.name = "test_conformance_several_lists_in_one_round", .run = case_several_lists},
    {.name = "test_conformance_keyed_lists_line_up", .run = case_keyed},
    {.name = "test_conformance_rows_reach_all", .run = case_rows},
    {.name = "test_conformance_two_levels_reduce_over_all", .run = case_two_levels},
    {.name = "test_conformance_opens_again_on_one_port", .run = case_open_again},
    {.name = "test_conformance_split_form_captures_at_start", .run = case_split},
    {.name = "test_conformance_operations_are_of_one_group", .run = case_operations_are_of_one_group},
};
const size_t suite_round_count = sizeof suite_round_cases / sizeof suite_round_cases[0];
