/* SPDX-License-Identifier: Apache-2.0 */
/* All kinds of calls in one group, in an order that is drawn: whatever came before a call, it ends as it must, and at the
 * end everything was counted and logged. */
#include "tests/conformance/suite.h"
#include "tests/lib/describe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MIXED_STEPS 700u
#define MIXED_WATCHED_STEPS 200u
#define MIXED_LISTS 8u
#define MIXED_ROOM 600u

static const char *const mixed_names[MIXED_LISTS] = {"bootstrap", "", "transfer", "x", "y", "z", "a long name", "w"};
static const struct convoy_sync_schema mixed_schema = {
    .struct_size = sizeof mixed_schema, .builtin = "sglang-8", .builtin_length = 8};

/* What was done so far, and what is being done. */
struct mixed {
    struct suite *suite;
    struct plugin_member *member;
    uint32_t step;
    uint32_t polls; /* rounds that ended OK */
    uint32_t gathers;
    uint64_t entries;
    uint64_t last; /* number of the last round that ended OK */
    size_t count;  /* states of all lists */
    uint8_t states[MIXED_ROOM];
    struct convoy_poll_list lists[MIXED_LISTS];
    struct convoy_poll_list_result list_results[MIXED_LISTS];
    struct convoy_poll_call call;
    struct convoy_poll_result result;
    int64_t table[SUITE_MEMBERS * 8];
    struct convoy_sync_call row_call;
    struct convoy_sync_result row_result;
};

static uint32_t mixed_draw(uint32_t step, uint32_t what, uint32_t below)
{
    uint64_t x = (step + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (what + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 29;
    x *= UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x >> 33) % below);
}

static uint8_t mixed_state(uint32_t step, uint32_t rank, size_t at)
{
    return (uint8_t)mixed_draw(step, 1000 + rank * MIXED_ROOM + (uint32_t)at, 5);
}

static uint8_t mixed_least(uint32_t step, size_t at)
{
    uint8_t least = CONVOY_STATE_SUCCESS;
    for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
        uint8_t state = mixed_state(step, rank, at);
        least = state < least ? state : least;
    }
    return least;
}

static int64_t mixed_value(uint32_t step, uint32_t rank, uint32_t column)
{
    int64_t value = mixed_draw(step, 100 + rank * 8 + column, 1000);
    return mixed_draw(step, 90, 4) == 0 && rank == step % SUITE_MEMBERS ? value << 40 : value;
}

/* One of four shapes, which stays for a while. Results lie where the states do. */
static void mixed_poll_fill(struct mixed *mixed)
{
    static const size_t counts[4][MIXED_LISTS] = {{5}, {0, 17, 3}, {1, 2, 3, 4, 5, 6, 7, 8}, {100, 0, 300}};
    static const size_t list_counts[4] = {1, 3, 8, 3};
    uint32_t shape = mixed_draw(mixed->step / 8, 0, 4);
    mixed->count = 0;
    for (size_t i = 0; i < list_counts[shape]; i++) {
        size_t count = counts[shape][i];
        mixed->lists[i] = (struct convoy_poll_list){.name = mixed_names[i],
                                                    .name_length = strlen(mixed_names[i]),
                                                    .count = count,
                                                    .digest = i == 1 ? 77 : 0,
                                                    .states = count != 0 ? mixed->states + mixed->count : NULL};
        mixed->list_results[i] = (struct convoy_poll_list_result){.states = mixed->states + mixed->count,
                                                                  .states_capacity = count};
        mixed->count += count;
    }
    for (size_t i = 0; i < mixed->count; i++) {
        mixed->states[i] = mixed_state(mixed->step, mixed->suite->rank->index, i);
    }
    mixed->call = (struct convoy_poll_call){.struct_size = sizeof mixed->call,
                                            .votes = 16u | 1u << mixed->suite->rank->index,
                                            .tag = mixed->step + 1,
                                            .lists = mixed->lists,
                                            .list_stride = sizeof mixed->lists[0],
                                            .list_count = list_counts[shape]};
    mixed->result = (struct convoy_poll_result){.struct_size = sizeof mixed->result,
                                                .lists = mixed->list_results,
                                                .list_stride = sizeof mixed->list_results[0],
                                                .list_capacity = MIXED_LISTS};
}

static void mixed_poll_check(struct mixed *mixed)
{
    for (size_t i = 0; i < mixed->count; i++) {
        EXPECT_EQUAL(mixed->states[i], mixed_least(mixed->step, i));
    }
    EXPECT_EQUAL(mixed->result.votes_and, 16);
    EXPECT_EQUAL(mixed->result.votes_or, 31);
    EXPECT(mixed->result.round > mixed->last);
    mixed->last = mixed->result.round;
    mixed->polls++;
    mixed->entries += mixed->count;
}

static void mixed_row_fill(struct mixed *mixed)
{
    for (uint32_t i = 0; i < 8; i++) {
        mixed->table[i] = mixed_value(mixed->step, mixed->suite->rank->index, i);
    }
    mixed->row_call =
        (struct convoy_sync_call){.struct_size = sizeof mixed->row_call, .row = mixed->table, .tag = mixed->step + 1};
    mixed->row_result = (struct convoy_sync_result){
        .struct_size = sizeof mixed->row_result, .table = mixed->table, .table_capacity = SUITE_MEMBERS * 8};
}

static void mixed_row_check(struct mixed *mixed)
{
    for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
        for (uint32_t i = 0; i < 8; i++) {
            EXPECT_EQUAL(mixed->table[rank * 8 + i], mixed_value(mixed->step, rank, i));
        }
    }
    EXPECT(mixed->row_result.round > mixed->last);
    mixed->last = mixed->row_result.round;
    mixed->gathers++;
}

/* Waits until it is over: a deadline may have passed, or an earlier cancel have come to a wait. */
static int32_t mixed_poll_wait(struct mixed *mixed, convoy_operation operation)
{
    struct plugin_member *member = mixed->member;
    int32_t status;
    do {
        status = member->plugin.poll->reduce_wait(member->group, operation, SUITE_LONG_NS, &mixed->result, &member->error);
    } while (status == CONVOY_CANCELED);
    return status;
}

static int32_t mixed_row_wait(struct mixed *mixed, convoy_operation operation)
{
    struct plugin_member *member = mixed->member;
    int32_t status;
    do {
        status =
            member->plugin.sync->gather_wait(member->group, operation, SUITE_LONG_NS, &mixed->row_result, &member->error);
    } while (status == CONVOY_CANCELED);
    return status;
}

static int32_t mixed_reduce(struct mixed *mixed, uint64_t timeout_ns)
{
    struct plugin_member *member = mixed->member;
    int32_t status =
        member->plugin.poll->reduce(member->group, &mixed->call, timeout_ns, &mixed->result, &member->error);
    bool is_open = status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED;
    return is_open ? mixed_poll_wait(mixed, suite_info(mixed->suite).operation) : status;
}

static void mixed_poll(struct mixed *mixed, uint64_t timeout_ns)
{
    EXPECT_OK(mixed_reduce(mixed, timeout_ns), &mixed->member->error);
    mixed_poll_check(mixed);
}

static void mixed_gather(struct mixed *mixed, uint64_t timeout_ns)
{
    struct plugin_member *member = mixed->member;
    int32_t status =
        member->plugin.sync->gather(member->group, &mixed->row_call, timeout_ns, &mixed->row_result, &member->error);
    bool is_open = status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED;
    status = is_open ? mixed_row_wait(mixed, suite_info(mixed->suite).operation) : status;
    EXPECT_OK(status, &member->error);
    mixed_row_check(mixed);
}

static void mixed_split(struct mixed *mixed, bool is_poll)
{
    struct plugin_member *member = mixed->member;
    convoy_operation operation = 0;
    if (is_poll) {
        EXPECT_OK(member->plugin.poll->reduce_start(member->group, &mixed->call, &operation, &member->error),
                  &member->error);
        EXPECT_OK(mixed_poll_wait(mixed, operation), &member->error);
        mixed_poll_check(mixed);
    } else {
        EXPECT_OK(member->plugin.sync->gather_start(member->group, &mixed->row_call, &operation, &member->error),
                  &member->error);
        EXPECT_OK(mixed_row_wait(mixed, operation), &member->error);
        mixed_row_check(mixed);
    }
}

/* One gives up on its round; whether that came in time is the same for all. */
static void mixed_abandon(struct mixed *mixed)
{
    struct plugin_member *member = mixed->member;
    convoy_operation operation = 0;
    int32_t status;
    if (mixed->suite->rank->index == mixed->step % SUITE_MEMBERS) {
        status = member->plugin.poll->reduce_start(member->group, &mixed->call, &operation, &member->error);
        if (status == CONVOY_OK) {
            status = member->plugin.core->operation_abandon(member->group, operation, &member->error);
        }
        if (status == CONVOY_OK) {
            status = mixed_poll_wait(mixed, operation);
        }
    } else {
        status = mixed_reduce(mixed, SUITE_LONG_NS);
    }
    if (status == CONVOY_OK) {
        mixed_poll_check(mixed);
    } else {
        EXPECT_STATUS(status, CONVOY_BROKEN, &member->error);
        EXPECT_EQUAL(suite_reopen(mixed->suite).lost_count, 0);
    }
    rank_barrier(mixed->suite->rank); /* else a late one's reopen could stand for two */
}

/* One brings no lists, or refuses its own first. */
static void mixed_error(struct mixed *mixed)
{
    struct plugin_member *member = mixed->member;
    bool is_odd = mixed->suite->rank->index == mixed->step % SUITE_MEMBERS;
    uint8_t kept = mixed->states[0];
    if (is_odd && mixed->count != 0) {
        mixed->states[0] = 5;
        EXPECT_STATUS(member->plugin.poll->reduce(member->group, &mixed->call, SUITE_LONG_NS, &mixed->result,
                                                  &member->error),
                      CONVOY_INVALID_ARGUMENT, &member->error);
        mixed->states[0] = kept;
    }
    mixed->call.critical_flags = is_odd ? CONVOY_CALL_ERROR_ROW : 0;
    EXPECT_STATUS(mixed_reduce(mixed, SUITE_LONG_NS), CONVOY_PEER_ERROR, &member->error);
    mixed->call.critical_flags = 0;
    EXPECT_EQUAL(mixed->states[0], kept);
}

/* The bytes of one logged round, which its tag tells. */
static void mixed_look_at(const struct mixed *mixed, const json_t *entry)
{
    const uint32_t step = (uint32_t)strtoul(json_string_value(json_object_get(entry, "tag")), NULL, 10) - 1;
    const json_t *lists = json_object_get(entry, "lists");
    const uint32_t own = mixed->suite->rank->index;
    bool is_poll = strcmp(json_string_value(json_object_get(entry, "operation")), "poll") == 0;
    if (strcmp(json_string_value(json_object_get(entry, "status")), "OK") != 0) {
        return;
    }
    if (!is_poll) {
        const json_t *output = json_object_get(json_array_get(lists, 0), "output");
        EXPECT_EQUAL(json_array_size(output), SUITE_MEMBERS);
        for (uint32_t rank = 0; rank < SUITE_MEMBERS; rank++) {
            for (uint32_t i = 0; i < 8; i++) {
                EXPECT_EQUAL(json_integer_value(json_array_get(json_array_get(output, rank), i)),
                             mixed_value(step, rank, i));
            }
        }
        return;
    }
    EXPECT_EQUAL(json_integer_value(json_object_get(entry, "votes")), 16u | 1u << own);
    EXPECT_EQUAL(json_integer_value(json_object_get(entry, "votes_or")), 31);
    for (size_t list = 0, at = 0; list < json_array_size(lists); list++) {
        const json_t *input = json_object_get(json_array_get(lists, list), "input");
        const json_t *output = json_object_get(json_array_get(lists, list), "output");
        EXPECT_EQUAL(json_array_size(input), json_array_size(output));
        EXPECT_TEXT(json_string_value(json_object_get(json_array_get(lists, list), "name")), mixed_names[list]);
        for (size_t i = 0; i < json_array_size(input); i++, at++) {
            EXPECT_EQUAL(json_integer_value(json_array_get(input, i)), mixed_state(step, own, at));
            EXPECT_EQUAL(json_integer_value(json_array_get(output, i)), mixed_least(step, at));
        }
    }
}

static void mixed_look(struct mixed *mixed)
{
    json_t *stats = describe_group(mixed->member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), mixed->polls);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), mixed->gathers);
    json_decref(stats);
    json_t *log = describe_group(mixed->member, CONVOY_TOPIC_CALL_LOG);
    uint64_t last = 0;
    for (size_t i = 0; i < json_array_size(log); i++) {
        uint64_t round = (uint64_t)json_integer_value(json_object_get(json_array_get(log, i), "round"));
        bool is_ok = strcmp(json_string_value(json_object_get(json_array_get(log, i), "status")), "OK") == 0;
        EXPECT(round > last); /* after a reopen the number of one that failed may come again */
        last = is_ok ? round : last;
        mixed_look_at(mixed, json_array_get(log, i));
    }
    EXPECT(last == mixed->last || json_array_size(log) == 1); /* that one may have failed */
    json_decref(log);
}

static void mixed_step(struct mixed *mixed)
{
    struct plugin_member *member = mixed->member;
    mixed_poll_fill(mixed);
    mixed_row_fill(mixed);
    switch (mixed_draw(mixed->step, 1, 18)) {
    case 0:
        mixed_split(mixed, true);
        break;
    case 1:
        mixed_split(mixed, false);
        break;
    case 2:
        mixed_poll(mixed, 1);
        break;
    case 3:
        mixed_gather(mixed, 1);
        break;
    case 4:
        if (mixed->suite->transport == SUITE_THREADS || mixed->suite->transport == SUITE_SHARED_MEMORY) {
            mixed_abandon(mixed); /* across hosts such a round may be OK for some */
        }
        break;
    case 5:
        mixed_error(mixed);
        break;
    case 6:
        EXPECT_OK(member->plugin.core->group_cancel(member->group, "", 0, &member->error), &member->error);
        mixed_poll(mixed, SUITE_LONG_NS);
        mixed_gather(mixed, SUITE_LONG_NS);
        break;
    case 7:
        mixed_look(mixed);
        break;
    default:
        if (mixed_draw(mixed->step, 2, 3) == 0) {
            mixed_gather(mixed, SUITE_LONG_NS);
        } else {
            mixed_poll(mixed, SUITE_LONG_NS);
        }
    }
}

static void mixed_steps(struct mixed *mixed, uint32_t steps)
{
    for (mixed->step = 0; mixed->step < steps; mixed->step++) {
        mixed_step(mixed);
    }
    json_t *stats = describe_group(mixed->member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), mixed->polls);
    EXPECT(describe_number(stats, "operations.poll.entries") >= (long long)mixed->entries);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), mixed->gathers);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.entries"), mixed->gathers);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.bytes_sent"), mixed->gathers * 64);
    json_decref(stats);
}

static void mixed_run(struct suite *suite, uint32_t log_entries)
{
    struct mixed mixed = {.suite = suite, .member = suite->member};
    suite->member->options.schema = &mixed_schema;
    suite->member->options.call_log_entries = log_entries;
    suite_open(suite);
    mixed_steps(&mixed, MIXED_STEPS);
}

/* Everything that may be called from any thread, again and again. */
struct watcher {
    struct plugin_member member; /* its own error, the same handles */
    _Atomic bool is_stopping;
};

static void *watcher_run(void *argument)
{
    struct watcher *watcher = argument;
    struct plugin_member *member = &watcher->member;
    struct convoy_member_report rows[SUITE_MEMBERS];
    uint64_t seen = 0;
    while (!atomic_load(&watcher->is_stopping)) {
        struct convoy_group_info info = {.struct_size = sizeof info};
        struct convoy_report report = {.struct_size = sizeof report,
                                       .members = rows,
                                       .member_stride = sizeof rows[0],
                                       .member_capacity = SUITE_MEMBERS};
        EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
        EXPECT(info.round + 1 >= seen); /* it may have been seen between the number and the state of an open one */
        seen = info.round;
        EXPECT_OK(member->plugin.core->operation_report(member->group, &report, &member->error), &member->error);
        for (uint32_t topic = CONVOY_TOPIC_DUMP; topic <= CONVOY_TOPIC_CALL_LOG; topic++) {
            if (topic != CONVOY_TOPIC_PROMETHEUS) {
                json_decref(describe_group(member, topic));
            }
        }
        json_decref(describe_context(member, CONVOY_TOPIC_STATS));
        EXPECT_OK(member->plugin.core->group_cancel(member->group, "watched", 7, &member->error), &member->error);
    }
    return NULL;
}

static void case_mixed_watched(struct suite *suite)
{
    struct watcher watcher = {.member = *suite->member};
    pthread_t thread;
    suite->member->options.schema = &mixed_schema;
    suite_open(suite);
    watcher.member.context = suite->member->context;
    watcher.member.group = suite->member->group;
    EXPECT_EQUAL(pthread_create(&thread, NULL, watcher_run, &watcher), 0);
    struct mixed mixed = {.suite = suite, .member = suite->member};
    mixed_steps(&mixed, MIXED_WATCHED_STEPS);
    atomic_store(&watcher.is_stopping, true);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
}

static void case_mixed(struct suite *suite)
{
    mixed_run(suite, 0);
}

static void case_mixed_little_log(struct suite *suite)
{
    mixed_run(suite, 1);
}

const struct suite_case suite_mixed_cases[] = {
    {.name = "test_conformance_mixed_calls", .run = case_mixed},
    {.name = "test_conformance_mixed_calls_with_a_log_of_one", .run = case_mixed_little_log},
    {.name = "test_conformance_mixed_calls_while_others_look", .run = case_mixed_watched},
};
const size_t suite_mixed_count = sizeof suite_mixed_cases / sizeof suite_mixed_cases[0];
