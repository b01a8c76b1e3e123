/* SPDX-License-Identifier: Apache-2.0 */
/* What comes between rounds that are alike, or is kept of them: other calls, of the same group or of one that shares it,
 * long lists, old operation values, callbacks that look at the group. */
#include "tests/conformance/suite.h"
#include "tests/lib/describe.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BETWEEN_ROUNDS 20u
#define BETWEEN_LONG 3000u
#define BETWEEN_GATHERS 5

static const struct convoy_sync_schema between_schema = {
    .struct_size = sizeof between_schema, .builtin = "sglang-8", .builtin_length = 8};

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

static int32_t between_gather(struct suite *suite, uint32_t policy, int64_t *table, struct convoy_sync_result *result)
{
    struct plugin_member *member = suite->member;
    for (size_t i = 0; i < 8; i++) {
        table[i] = (int64_t)(suite->rank->index * 100 + i);
    }
    const struct convoy_sync_call call = {
        .struct_size = sizeof call, .row = table, .policy = policy, .votes = 1u << suite->rank->index};
    *result = (struct convoy_sync_result){
        .struct_size = sizeof *result, .table = table, .table_capacity = SUITE_MEMBERS * 8};
    return member->plugin.sync->gather(member->group, &call, SUITE_LONG_NS, result, &member->error);
}

/* With one data-parallel rank a plain gather is local, whatever rounds were made before. */
static void case_between_local(struct suite *suite)
{
    int64_t table[SUITE_MEMBERS * 8];
    struct convoy_sync_result result;
    suite->member->options.schema = &between_schema;
    suite->member->options.sync_inner = SUITE_MEMBERS;
    suite_open(suite);
    for (uint32_t round = 0; round < BETWEEN_ROUNDS; round++) {
        EXPECT_OK(between_gather(suite, CONVOY_SYNC_EXCHANGE, table, &result), &suite->member->error);
        EXPECT_EQUAL(result.votes_or, (1u << SUITE_MEMBERS) - 1);
        EXPECT_EQUAL(table[8 * 3], 300);
        if (suite->rank->index == round % SUITE_MEMBERS) {
            EXPECT_OK(between_gather(suite, 0, table, &result), &suite->member->error);
            EXPECT_EQUAL(result.votes_or, 1u << suite->rank->index);
            EXPECT_EQUAL(result.round, 0);
            EXPECT_EQUAL(table[8 * 3], suite->rank->index * 100);
        }
    }
}

/* A group that has rounds of its own while it waits to be the second of two levels. */
static void case_between_levels(struct suite *suite)
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
    second->options.schema = &between_schema;
    plugin_member_open(first);
    plugin_member_open(second);
    for (uint32_t round = 0; round < BETWEEN_ROUNDS; round++) {
        struct exchange *two = &suite->exchange;
        struct exchange own;
        convoy_operation operation = 0;
        exchange_init(two, 40, CONVOY_STATE_SUCCESS);
        EXPECT_OK(first->plugin.poll->reduce2_start(first->group, second->group, &two->call, &operation, &first->error),
                  &first->error);
        for (uint8_t i = 0; i < 3; i++) {
            exchange_init(&own, 5, (uint8_t)(1 + (i + round) % 3));
            EXPECT_OK(exchange_reduce(&own, second, SUITE_LONG_NS), &second->error);
        }
        EXPECT_OK(first->plugin.poll->reduce2_wait(first->group, operation, SUITE_LONG_NS, &two->result, &first->error),
                  &first->error);
        EXPECT_EQUAL(two->states_out[39], CONVOY_STATE_SUCCESS);
        json_t *log = describe_group(second, CONVOY_TOPIC_CALL_LOG);
        const size_t size = json_array_size(log);
        EXPECT_EQUAL(json_integer_value(json_object_get(json_array_get(log, size - 1), "round")), two->result.round);
        describe_expect_call(json_array_get(log, size - 1), "poll", two->states, two->states_out, 40);
        EXPECT_EQUAL(json_integer_value(json_object_get(json_array_get(log, size - 2), "round")), own.result.round);
        describe_expect_call(json_array_get(log, size - 2), "poll", own.states, own.states_out, 5);
        json_decref(log);
    }
    json_t *stats = describe_group(second, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), 4 * BETWEEN_ROUNDS);
    json_decref(stats);
    rank_barrier(suite->rank);
    plugin_member_destroy(second);
    plugin_member_destroy(first);
}

struct levels_looker {
    struct plugin_member member; /* its own error, the same handles */
    _Atomic bool is_over;
};

/* Looks at the first group again and again, from before a call waits in the second one until after it, so that it looks
 * while the call is inside. */
static void *levels_look(void *argument)
{
    struct levels_looker *looker = argument;
    bool is_over = false;
    do {
        is_over = atomic_load(&looker->is_over);
        json_t *stats = describe_group(&looker->member, CONVOY_TOPIC_STATS);
        EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), BETWEEN_GATHERS);
        json_decref(stats);
        (void)sched_yield();
    } while (!is_over);
    return NULL;
}

static void levels_gather(struct plugin_member *first)
{
    for (int64_t round = 0; round < BETWEEN_GATHERS; round++) {
        const int64_t row[8] = {round};
        int64_t table[2 * 8];
        const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
        struct convoy_sync_result result = {.struct_size = sizeof result, .table = table, .table_capacity = 2 * 8};
        EXPECT_OK(first->plugin.sync->gather(first->group, &call, SUITE_LONG_NS, &result, &first->error), &first->error);
        EXPECT_EQUAL(table[8], round);
    }
}

/* Gathers in the first group while the second level still waits for ranks 2 and 3: they are there to see at once. */
static void case_between_levels_look(struct suite *suite)
{
    uint32_t index = suite->rank->index;
    const int32_t tp[2] = {(int32_t)(index & ~1u), (int32_t)(index | 1u)};
    const int32_t cp[2] = {(int32_t)(index & 1u), (int32_t)(index | 2u)};
    struct plugin_member *first = suite_member(suite, index < 2 ? "tp0" : "tp1", tp, 2, index & 1u, 0);
    struct plugin_member *second = suite_member(suite, index % 2 == 0 ? "cp0" : "cp1", cp, 2, index >> 1, 1);
    struct exchange *two = &suite->exchange;
    convoy_operation operation = 0;
    first->options.schema = &between_schema;
    plugin_member_open(first);
    plugin_member_open(second);
    exchange_init(two, 40, CONVOY_STATE_SUCCESS);
    if (index >= 2) {
        rank_await_mark(suite->rank, 0, 1);
        rank_await_mark(suite->rank, 1, 1);
    }
    EXPECT_OK(first->plugin.poll->reduce2_start(first->group, second->group, &two->call, &operation, &first->error),
              &first->error);
    if (index < 2) {
        struct convoy_group_info info = {.struct_size = sizeof info};
        pthread_t thread;
        do {
            EXPECT_STATUS(first->plugin.poll->reduce2_test(first->group, operation, &two->result, &first->error),
                          CONVOY_IN_PROGRESS, &first->error);
            EXPECT_OK(second->plugin.core->group_info(second->group, &info, &second->error), &second->error);
        } while (info.state != CONVOY_GROUP_ACTIVE);
        levels_gather(first);
        struct levels_looker looker = {.member = *first};
        EXPECT_EQUAL(pthread_create(&thread, NULL, levels_look, &looker), 0);
        EXPECT_STATUS(first->plugin.poll->reduce2_wait(first->group, operation, SUITE_LATE_NS, &two->result,
                                                       &first->error),
                      CONVOY_TIMED_OUT, &first->error);
        atomic_store(&looker.is_over, true);
        EXPECT_EQUAL(pthread_join(thread, NULL), 0);
        rank_mark(suite->rank, 1);
    }
    EXPECT_OK(first->plugin.poll->reduce2_wait(first->group, operation, SUITE_LONG_NS, &two->result, &first->error),
              &first->error);
    rank_barrier(suite->rank);
    plugin_member_destroy(second);
    plugin_member_destroy(first);
}

/* The operation that ended last answers again until the next start, and is not in the way of that. */
static void case_between_read_again(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    int64_t table[SUITE_MEMBERS * 8];
    struct convoy_sync_result result;
    convoy_operation operation = 0;
    suite->member->options.schema = &between_schema;
    suite_open(suite);
    for (uint32_t round = 0; round < BETWEEN_ROUNDS; round++) {
        EXPECT_OK(between_gather(suite, 0, table, &result), &member->error);
        EXPECT_EQUAL(table[8], 100);
        suite_expect_round(suite, 3, (uint8_t)(round % 5));
        EXPECT_OK(between_gather(suite, 0, table, &result), &member->error);
        EXPECT_OK(member->plugin.poll->reduce_start(member->group, &exchange->call, &operation, &member->error),
                  &member->error);
        EXPECT_OK(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &exchange->result,
                                                   &member->error),
                  &member->error);
        EXPECT_OK(between_gather(suite, 0, table, &result), &member->error);
        const uint64_t last = result.round;
        (void)memset(table, 0, sizeof table);
        if (suite->rank->index == round % SUITE_MEMBERS) { /* values count up: this is the gather's */
            EXPECT_OK(member->plugin.sync->gather_wait(member->group, operation + 0x100, SUITE_LONG_NS, &result,
                                                       &member->error),
                      &member->error);
            EXPECT_EQUAL(result.round, last);
            EXPECT_EQUAL(table[8], 100);
        }
        EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &exchange->result,
                                                       &member->error),
                      CONVOY_CLOSED, &member->error);
        EXPECT_OK(between_gather(suite, 0, table, &result), &member->error);
        EXPECT_EQUAL(table[8], 100);
        EXPECT_EQUAL(result.round, last + 1);
    }
}

/* Looks at the group from inside a call of it. */
struct looker {
    struct plugin_member member; /* its own error, the same handles */
    uint32_t looks;
    long long rounds;
};

static void looker_log(void *user, uint32_t level, const char *text, size_t length)
{
    struct looker *looker = user;
    (void)level;
    (void)length;
    if (looker->member.group != NULL && strstr(text, "stalled") != NULL) {
        json_t *stats = describe_group(&looker->member, CONVOY_TOPIC_STATS);
        looker->rounds = describe_number(stats, "operations.poll.rounds.OK");
        looker->looks++;
        json_decref(stats);
    }
}

/* The notice of a stall comes after the round was counted. */
static void case_between_look(struct suite *suite)
{
    struct looker looker = {0};
    suite->member->config.log = looker_log;
    suite->member->config.log_user = &looker;
    suite->member->config.log_level = CONVOY_LOG_INFO;
    suite_open(suite);
    looker.member = *suite->member;
    uint32_t seen = 0;
    for (uint32_t round = 1; round <= 2100; round++) {
        suite_expect_round(suite, 8, CONVOY_STATE_TRANSFERRING);
        if (looker.looks != seen) {
            seen = looker.looks;
            EXPECT_EQUAL(looker.rounds, round);
        }
    }
    EXPECT_EQUAL(seen, 2);
    looker.member.group = NULL;
}

/* In a child the group is nobody's, also with a round that is still to be recorded. */
static void between_fork(struct plugin_member *member)
{
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct exchange exchange;
        struct convoy_text_buffer text = {.struct_size = sizeof text};
        exchange_init(&exchange, 8, 0);
        bool is_forked = member->plugin.core->group_describe(member->group, CONVOY_TOPIC_STATS, &text, &member->error) ==
                             CONVOY_FORKED &&
                         exchange_reduce(&exchange, member, 1) == CONVOY_FORKED &&
                         member->plugin.core->context_close(member->context, 1, &member->error) == CONVOY_OK;
        _exit(is_forked ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQUAL(waitpid(child, &status, 0), child);
    EXPECT_EQUAL(status, 0);
}

/* A closed group still says how many rounds it had. */
static void case_between_close(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    suite_open(suite);
    for (uint32_t round = 0; round < BETWEEN_ROUNDS; round++) {
        suite_expect_round(suite, 8, (uint8_t)(round % 5));
        if (round == 9 && suite->rank->index == 1 && suite->transport != SUITE_THREADS) {
            between_fork(member);
        }
    }
    EXPECT_OK(member->plugin.core->group_close(member->group, 0, &member->error), &member->error);
    json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), BETWEEN_ROUNDS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.entries"), 8 * BETWEEN_ROUNDS);
    json_decref(stats);
    json_t *log = describe_group(member, CONVOY_TOPIC_CALL_LOG);
    EXPECT_EQUAL(json_array_size(log), 0);
    json_decref(log);
}

/* One member alone, and a log as long as it can be. */
static void case_between_nobody(struct suite *suite)
{
    const int32_t ids[1] = {(int32_t)suite->rank->index};
    struct plugin_member *alone = suite_member(suite, "alone", ids, 1, 0, 0);
    alone->options.schema = &between_schema;
    alone->options.call_log_entries = 65536;
    plugin_member_open(alone);
    for (uint32_t round = 0; round < BETWEEN_ROUNDS; round++) {
        struct exchange exchange;
        int64_t row[8] = {round, round % 3 == 0 ? INT64_MAX : 1};
        int64_t kept = row[1];
        const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
        struct convoy_sync_result result = {.struct_size = sizeof result, .table = row, .table_capacity = 8};
        EXPECT_OK(alone->plugin.sync->gather(alone->group, &call, SUITE_LONG_NS, &result, &alone->error), &alone->error);
        EXPECT_EQUAL(row[0], round);
        EXPECT_EQUAL(row[1], kept);
        exchange_init(&exchange, 9, (uint8_t)(round % 5));
        EXPECT_OK(exchange_reduce(&exchange, alone, 1), &alone->error);
        EXPECT_EQUAL(exchange.states_out[8], round % 5);
    }
    json_t *log = describe_group(alone, CONVOY_TOPIC_CALL_LOG);
    EXPECT_EQUAL(json_array_size(log), 2 * BETWEEN_ROUNDS);
    json_decref(log);
    plugin_member_destroy(alone);
}

const struct suite_case suite_between_cases[] = {
    {.name = "test_conformance_between_long_lists_are_recorded", .run = case_between_long},
    {.name = "test_conformance_between_exchanges_a_local_gather_stays_local", .run = case_between_local},
    {.name = "test_conformance_between_two_levels_the_second_has_rounds_of_its_own", .run = case_between_levels},
    {.name = "test_conformance_between_two_levels_the_first_is_looked_at", .run = case_between_levels_look},
    {.name = "test_conformance_between_rounds_the_last_is_read_again", .run = case_between_read_again},
    {.name = "test_conformance_between_rounds_a_callback_looks", .run = case_between_look},
    {.name = "test_conformance_between_rounds_a_child_is_forked_and_the_group_closed", .run = case_between_close},
    {.name = "test_conformance_between_nobody_else", .run = case_between_nobody},
};
const size_t suite_between_count = sizeof suite_between_cases / sizeof suite_between_cases[0];
