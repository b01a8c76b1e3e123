/* SPDX-License-Identifier: Apache-2.0 */
/* What comes between rounds that are alike, or is kept of them: other calls, of the same group or of one that shares it,
 * long lists, old operation values, callbacks that look at the group. */
#include "tests/conformance/suite.h"
#include "tests/lib/describe.h"

#include <stdio.h>
#include <string.h>

#define BETWEEN_ROUNDS 20u
#define BETWEEN_LONG 3000u

/* More states than the call log keeps of a round are counted and logged all the same. */
static void case_between_long(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    uint8_t states[BETWEEN_LONG];
    uint8_t least[BETWEEN_LONG];
    suite_open(suite);
    for (uint32_t round = 1; round <= BETWEEN_ROUNDS; round++) {
        exchange_init(exchange, 1, 0);
        for (size_t i = 0; i < sizeof states; i++) {
            states[i] = (uint8_t)((i + round + suite->rank->index) % 5);
        }
        exchange->list.count = sizeof states;
        exchange->list.states = states;
        exchange->list_result.states = least;
        exchange->list_result.states_capacity = sizeof least;
        exchange->call.tag = round;
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
        for (size_t i = 0; i < sizeof least; i++) {
            EXPECT_EQUAL(least[i], (i + round) % 5 >= 2 ? 0 : (i + round) % 5);
        }
        json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
        EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), round);
        EXPECT_EQUAL(describe_number(stats, "operations.poll.entries"), round * sizeof states);
        EXPECT_EQUAL(describe_number(stats, "operations.poll.bytes_sent"), round * sizeof states);
        json_decref(stats);
        json_t *log = describe_group(member, CONVOY_TOPIC_CALL_LOG);
        EXPECT_EQUAL(json_array_size(log), round);
        const json_t *last = json_array_get(log, round - 1);
        EXPECT_EQUAL(json_integer_value(json_object_get(last, "round")), exchange->result.round);
        const json_t *list = json_array_get(json_object_get(last, "lists"), 0);
        const json_t *input = json_object_get(list, "input");
        EXPECT_EQUAL(json_integer_value(json_object_get(list, "count")), sizeof states);
        EXPECT(json_array_size(input) != 0);
        EXPECT_EQUAL(json_integer_value(json_array_get(input, 7)), states[7]);
        json_decref(log);
    }
}

const struct suite_case suite_between_cases[] = {
    {.name = "test_conformance_between_long_lists_are_recorded", .run = case_between_long},
};
const size_t suite_between_count = sizeof suite_between_cases / sizeof suite_between_cases[0];
