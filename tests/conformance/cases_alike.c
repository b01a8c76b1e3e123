/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds like the one before, which a group may shorten: nothing of what goes wrong between them, comes late, or is read
 * from another thread meanwhile may get lost or be told otherwise than in any other round.
 */
#include "tests/conformance/suite.h"
#include "tests/lib/describe.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIKE_ROUNDS 400u
#define ALIKE_LATE_NS 3000000
#define ALIKE_REST_NS 300000 /* many times what counts as one */
#define ALIKE_RESTED 60u     /* rounds, fewer than the call log has */
#define ALIKE_COARSE_NS 20000000 /* some ages are by a clock that moves every few milliseconds */

static const struct convoy_sync_schema alike_schema = {
    .struct_size = sizeof alike_schema, .builtin = "sglang-8", .builtin_length = 8};

static uint8_t alike_state(uint32_t rank, uint32_t round, size_t entry)
{
    uint64_t x = (rank + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (round + 1) * UINT64_C(0xbf58476d1ce4e5b9) ^ (entry * 77);
    x ^= x >> 31;
    x *= UINT64_C(0x94d049bb133111eb);
    return (uint8_t)((x >> 40) % 5);
}

/* Lengths of every size class, each for a while: what follows the first round of one is like it. */
static size_t alike_count(uint32_t round)
{
    static const size_t counts[] = {1, 3, 7, 8, 13, 16, 19, 31, 32, 47, 64, 200};
    return counts[round / 8 % (sizeof counts / sizeof counts[0])];
}

static int64_t alike_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Comes late without sleeping. */
static void alike_pass(int64_t duration_ns)
{
    int64_t start = alike_now_ns();
    do {
        (void)sched_yield();
    } while (alike_now_ns() - start < duration_ns);
}

static void alike_dawdle(void)
{
    alike_pass(ALIKE_LATE_NS);
}

static void alike_fill(struct suite *suite, uint32_t round)
{
    struct exchange *exchange = &suite->exchange;
    exchange_init(exchange, alike_count(round), 0);
    for (size_t i = 0; i < exchange->list.count; i++) {
        exchange->states[i] = alike_state(suite->rank->index, round, i);
    }
    exchange->call.tag = round + 1;
    exchange->call.votes = 1u << (round + suite->rank->index) % 8 | 0x100;
}

static void alike_expect(const struct suite *suite, uint32_t round)
{
    const struct exchange *exchange = &suite->exchange;
    uint32_t votes_or = 0x100;
    for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
        votes_or |= 1u << (round + rank) % 8;
    }
    for (size_t i = 0; i < exchange->list.count; i++) {
        uint8_t least = CONVOY_STATE_SUCCESS;
        for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
            uint8_t state = alike_state(rank, round, i);
            least = state < least ? state : least;
        }
        EXPECT_EQUAL(exchange->states_out[i], least);
    }
    EXPECT_EQUAL(exchange->states_out[exchange->list.count], 0xa5);
    EXPECT_EQUAL(exchange->result.votes_and, 0x100);
    EXPECT_EQUAL(exchange->result.votes_or, votes_or);
}

static int64_t alike_value(uint32_t rank, uint32_t round, size_t column)
{
    int64_t value = (int64_t)alike_state(rank, round, column) * 1000 - (int64_t)column;
    bool is_wide = rank == 1 && round % 17 == 16; /* one member's row takes another form than the others' */
    return is_wide && column == 2 ? INT64_MIN / 2 + value : value;
}

/* The row lies where its own result goes: it was captured when the call started. */
static void alike_gather(struct suite *suite, uint32_t round)
{
    struct plugin_member *member = suite->member;
    int64_t table[SUITE_MEMBERS * 8];
    for (size_t column = 0; column < 8; column++) {
        table[column] = alike_value(suite->rank->index, round, column);
    }
    const struct convoy_sync_call call = {.struct_size = sizeof call, .row = table, .tag = round + 1, .votes = 3};
    struct convoy_sync_result result = {
        .struct_size = sizeof result, .table = table, .table_capacity = SUITE_MEMBERS * 8};
    EXPECT_OK(member->plugin.sync->gather(member->group, &call, SUITE_LONG_NS, &result, &member->error),
              &member->error);
    for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
        for (size_t column = 0; column < 8; column++) {
            EXPECT_EQUAL(table[rank * 8 + column], alike_value(rank, round, column));
        }
    }
    EXPECT_EQUAL(result.votes_or, 3);
    EXPECT_EQUAL(result.mask_skew, 0);
}

/* What the group remembers, right after a call: all of them, and the last one with its bytes. */
static void alike_expect_memory(struct suite *suite, uint32_t polls, uint32_t rows)
{
    json_t *stats = describe_group(suite->member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), polls);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), rows);
    long long waits = 0;
    static const char *const kinds[] = {"none", "spin", "yield", "sleep", "network"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "operations.poll.waits.%s", kinds[i]);
        waits += describe_number(stats, path);
    }
    EXPECT_EQUAL(waits, polls + describe_number(stats, "operations.poll.rounds.TIMED_OUT"));
    json_decref(stats);
    json_t *log = describe_group(suite->member, CONVOY_TOPIC_CALL_LOG);
    const json_t *last = json_array_get(log, json_array_size(log) - 1);
    const struct exchange *exchange = &suite->exchange;
    EXPECT_EQUAL(json_integer_value(json_object_get(last, "round")), exchange->result.round);
    describe_expect_call(last, "poll", exchange->states, exchange->states_out, exchange->list.count);
    json_decref(log);
}

static void case_alike(struct suite *suite)
{
    uint32_t rows = 0;
    suite->member->options.schema = &alike_schema;
    suite_open(suite);
    for (uint32_t round = 0; round < ALIKE_ROUNDS; round++) {
        if (round % 5 != 4) {
            alike_gather(suite, round);
            rows++;
        }
        if (round % 61 == 60 && suite->rank->index == round % SUITE_MEMBERS) {
            alike_dawdle();
        }
        alike_fill(suite, round);
        suite->exchange.result.report = round % 3 == 0 ? suite->exchange.result.report : NULL;
        EXPECT_OK(exchange_reduce(&suite->exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
        alike_expect(suite, round);
        if (round % 37 == 0 || round + 1 == ALIKE_ROUNDS) {
            alike_expect_memory(suite, round + 1, rows);
        }
    }
}

/* Log and counters after rounds of eight entries with tags 1 to ALIKE_RESTED, and one after them that failed. */
static void alike_expect_rested(const struct suite *suite, uint32_t rows)
{
    json_t *stats = describe_group(suite->member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), ALIKE_RESTED);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.DIVERGED"), 1);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), rows);
    json_decref(stats);
    json_t *log = describe_group(suite->member, CONVOY_TOPIC_CALL_LOG);
    size_t size = json_array_size(log);
    EXPECT(size > ALIKE_RESTED / 2);
    EXPECT(strcmp(json_string_value(json_object_get(json_array_get(log, size - 1), "status")), "DIVERGED") == 0);
    EXPECT_EQUAL(json_integer_value(json_object_get(json_array_get(log, size - 1), "round")), ALIKE_RESTED + rows + 1);
    for (size_t i = 0; i + 1 < size; i++) {
        const json_t *call = json_array_get(log, i);
        EXPECT_EQUAL(json_integer_value(json_object_get(call, "round")), ALIKE_RESTED + rows + 2 - size + i);
        if (strcmp(json_string_value(json_object_get(call, "operation")), "poll") != 0) {
            continue;
        }
        uint32_t round = (uint32_t)strtoul(json_string_value(json_object_get(call, "tag")), NULL, 10) - 1;
        uint8_t own[8];
        uint8_t least[8];
        for (size_t entry = 0; entry < sizeof own; entry++) {
            own[entry] = alike_state(suite->rank->index, round, entry);
            least[entry] = CONVOY_STATE_SUCCESS;
            for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
                uint8_t state = alike_state(rank, round, entry);
                least[entry] = state < least[entry] ? state : least[entry];
            }
        }
        describe_expect_call(call, "poll", own, least, sizeof own);
    }
    json_decref(log);
}

/* Members come after rests, mostly as the last: what was not written yet, of many rounds in a row, is in the log and in
 * the counters when these are read, in order, also before a round that fails. */
static void case_alike_rested(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    uint32_t rows = 0;
    member->options.schema = &alike_schema;
    suite_open(suite);
    for (uint32_t round = 0; round <= ALIKE_RESTED; round++) {
        if (suite->rank->index == round / 20 % SUITE_MEMBERS) {
            alike_pass(ALIKE_REST_NS);
        }
        exchange_init(exchange, 8, 0);
        for (size_t i = 0; i < exchange->list.count; i++) {
            exchange->states[i] = alike_state(suite->rank->index, round, i);
        }
        exchange->result.report = NULL; /* a call with one is not of the current sizes alone, and writes what is late */
        exchange->call.tag = round + 1 + (round == ALIKE_RESTED && suite->rank->index == 0);
        EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LONG_NS), round < ALIKE_RESTED ? CONVOY_OK : CONVOY_DIVERGED,
                      &member->error);
        if (round % 4 == 3) {
            alike_gather(suite, round);
            rows++;
        }
    }
    alike_expect_rested(suite, rows);
}

/* One member brings something else: that round, and no other, ends as it must. */
static void case_alike_disturbed(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < ALIKE_ROUNDS; round++) {
        bool is_odd = suite->rank->index == round % SUITE_MEMBERS;
        alike_fill(suite, 0);
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
        alike_expect(suite, 0);
        alike_fill(suite, 0);
        int32_t wanted = CONVOY_DIVERGED;
        switch (round % 4) {
        case 0:
            exchange->call.tag = is_odd ? 99 : 1;
            break;
        case 1:
            exchange->list.digest = is_odd;
            break;
        case 2:
            exchange->list.count = is_odd ? 2 : 1;
            break;
        default:
            exchange->call.critical_flags = is_odd ? CONVOY_CALL_ERROR_ROW : 0;
            exchange->call.error_reason = 7;
            wanted = CONVOY_PEER_ERROR;
        }
        EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LONG_NS), wanted, &member->error);
        exchange_expect_untouched(exchange);
        EXPECT(exchange_row(exchange, (int32_t)(round % SUITE_MEMBERS)) != NULL);
    }
}

/* A refusal in between sends nothing and spoils nothing. */
static void case_alike_refused(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < 50; round++) {
        alike_fill(suite, 50);
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
        alike_expect(suite, 50);
        alike_fill(suite, 50);
        if (round % 2 == 0) {
            exchange->states[exchange->list.count - 1] = 5;
            EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LONG_NS), CONVOY_INVALID_ARGUMENT, &member->error);
            EXPECT_TEXT(member->error.text, "5");
        } else {
            exchange->list_result.states_capacity = exchange->list.count - 1;
            EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LONG_NS), CONVOY_BUFFER_TOO_SMALL, &member->error);
        }
        exchange_expect_untouched(exchange);
    }
}

/* Nobody else comes: the deadline holds, the operation stays open, and abandoning it works as in any round. */
static void case_alike_late(struct suite *suite)
{
    struct plugin_member *member = suite->member;
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 0; round < 10; round++) {
        alike_fill(suite, 90);
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
    }
    alike_fill(suite, 90);
    if (suite->rank->index == 1) { /* comes when the others have seen their deadlines */
        rank_barrier(suite->rank);
    }
    if (suite->rank->index != 1) {
        EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LATE_NS), CONVOY_TIMED_OUT, &member->error);
        EXPECT(exchange_row(exchange, 1) != NULL);
        exchange_expect_untouched(exchange);
        convoy_operation operation = suite_info(suite).operation;
        EXPECT(operation != 0);
        EXPECT_STATUS(exchange_reduce(exchange, member, SUITE_LATE_NS), CONVOY_BUSY, &member->error);
        rank_barrier(suite->rank);
        EXPECT_OK(member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &exchange->result,
                                                   &member->error),
                  &member->error);
    } else {
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
    }
    alike_expect(suite, 90);
    for (uint32_t round = 0; round < 10; round++) {
        alike_fill(suite, 90);
        EXPECT_OK(exchange_reduce(exchange, member, SUITE_LONG_NS), &member->error);
        alike_expect(suite, 90);
    }
    alike_expect_memory(suite, 21, 0);
}

/* One that reads all the time from another thread. */
struct reader {
    struct plugin_member *member;
    _Atomic bool is_stopping;
    uint32_t reads;
};

/* The counters never go back, and every entry of the log is whole: ascending rounds, all OK. */
static void *reader_run(void *argument)
{
    struct reader *reader = argument;
    struct plugin_member own = *reader->member; /* its own error, the same handles */
    long long seen = 0;
    while (!atomic_load(&reader->is_stopping)) {
        json_t *stats = describe_group(&own, CONVOY_TOPIC_STATS);
        long long rounds = describe_number(stats, "operations.poll.rounds.OK");
        EXPECT(rounds >= seen);
        seen = rounds;
        json_decref(stats);
        json_t *log = describe_group(&own, CONVOY_TOPIC_CALL_LOG);
        long long last = 0;
        for (size_t i = 0; i < json_array_size(log); i++) {
            long long round = json_integer_value(json_object_get(json_array_get(log, i), "round"));
            EXPECT(round > last);
            last = round;
        }
        json_decref(log);
        reader->reads++;
    }
    return NULL;
}

static void case_alike_read(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    struct reader reader = {.member = suite->member};
    pthread_t thread;
    suite_open(suite);
    if (suite->rank->index == 0) {
        EXPECT_EQUAL(pthread_create(&thread, NULL, reader_run, &reader), 0);
    }
    for (uint32_t round = 0; round < 4000; round++) {
        alike_fill(suite, 30);
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error); /* never BUSY */
        alike_expect(suite, 30);
    }
    if (suite->rank->index == 0) {
        atomic_store(&reader.is_stopping, true);
        EXPECT_EQUAL(pthread_join(thread, NULL), 0);
        EXPECT(reader.reads != 0);
    }
    alike_expect_memory(suite, 4000, 0);
}

static void alike_expect_age(const struct suite *suite, int64_t least, int64_t before)
{
    json_t *dump = describe_group(suite->member, CONVOY_TOPIC_DUMP);
    int64_t most = alike_now_ns() - before + ALIKE_COARSE_NS;
    const json_t *members = json_object_get(dump, "members");
    EXPECT(describe_number(dump, "age_ns") >= least && describe_number(dump, "age_ns") <= most);
    for (size_t i = 0; i < SUITE_MEMBERS; i++) {
        const json_t *member = json_array_get(members, i);
        if (suite_is_neighbour(suite, (uint32_t)i)) { /* of others, a leader's look is the last that was heard */
            EXPECT(describe_number(member, "age_ns") >= least && describe_number(member, "age_ns") <= most);
        }
    }
    json_decref(dump);
}

/* How long ago the last round was, when rounds take no look at the clock. */
static void case_alike_age(struct suite *suite)
{
    suite_open(suite);
    for (uint32_t turn = 0; turn < 3; turn++) {
        int64_t before = 0;
        for (uint8_t round = 0; round < 20; round++) {
            before = alike_now_ns();
            suite_expect_round(suite, 8, round % 5);
        }
        alike_expect_age(suite, 0, before);
        int64_t after = alike_now_ns();
        for (uint32_t i = 0; i < 4; i++) {
            alike_dawdle();
        }
        alike_expect_age(suite, alike_now_ns() - after, before);
        rank_barrier(suite->rank);
    }
}

const struct suite_case suite_alike_cases[] = {
    {.name = "test_conformance_alike_rounds", .run = case_alike},
    {.name = "test_conformance_alike_rounds_after_rests", .run = case_alike_rested},
    {.name = "test_conformance_alike_rounds_disturbed", .run = case_alike_disturbed},
    {.name = "test_conformance_alike_rounds_refused", .run = case_alike_refused},
    {.name = "test_conformance_alike_rounds_late", .run = case_alike_late},
    {.name = "test_conformance_alike_rounds_have_an_age", .run = case_alike_age},
    {.name = "test_conformance_alike_rounds_read_from_another_thread", .run = case_alike_read},
};
const size_t suite_alike_count = sizeof suite_alike_cases / sizeof suite_alike_cases[0];
