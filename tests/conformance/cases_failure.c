/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds that go wrong while everybody lives: divergence, lateness, abandon, cancel, error rows, bad arguments. */
#include "tests/conformance/suite.h"

#include "tests/lib/describe.h"

#include <pthread.h>
#include <string.h>

/* sgl-project/sglang PR 37909, NVIDIA/nccl issues 1394 and 1417: one member brings another count. All get the same
 * status in that round, nothing is written, and the next round works. */
static void case_counts_differ(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    for (uint32_t round = 1; round <= 20; round++) {
        bool is_odd = suite->rank->index == round % SUITE_MEMBERS;
        exchange_init(exchange, is_odd ? 8 + round % 3 + 1 : 8, CONVOY_STATE_SUCCESS);
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_DIVERGED, &suite->member->error);
        exchange_expect_untouched(exchange);
        EXPECT_EQUAL(exchange->report.field, CONVOY_FIELD_COUNTS);
        EXPECT_EQUAL(exchange->report.member_count, SUITE_MEMBERS);
        EXPECT_EQUAL(exchange_row(exchange, (int32_t)(round % SUITE_MEMBERS))->counts >> 8, 8 + round % 3 + 1);
        suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    }
}

/* sgl-project/sglang PR 37909: equal counts, other requests. */
static void case_digests_differ(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    exchange->list.digest = suite->rank->index == 2 ? 77 : 76;
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_DIVERGED, &suite->member->error);
    EXPECT_EQUAL(exchange->report.field, CONVOY_FIELD_DIGEST);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* pytorch/pytorch issues 22071, 72435 and 78022, pytorch/gloo PR 456: different calls on one group name each other. */
static void case_operations_differ(struct suite *suite)
{
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    struct exchange *exchange = &suite->exchange;
    suite->member->options.schema = &schema;
    suite_open(suite);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    if (suite->rank->index == 1) {
        const int64_t row[7] = {0};
        const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
        struct convoy_sync_result result = {.struct_size = sizeof result, .report = &exchange->report};
        EXPECT_STATUS(suite->member->plugin.sync->gather(suite->member->group, &call, SUITE_LONG_NS, &result,
                                                         &suite->member->error),
                      CONVOY_DIVERGED, &suite->member->error);
    } else {
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_DIVERGED, &suite->member->error);
    }
    EXPECT_EQUAL(exchange->report.field, CONVOY_FIELD_OPERATION);
    EXPECT_EQUAL(exchange_row(exchange, 1)->operation, CONVOY_OPERATION_SYNC);
    EXPECT_EQUAL(exchange_row(exchange, 0)->operation, CONVOY_OPERATION_POLL);
    EXPECT_EQUAL(exchange_row(exchange, 1)->round, 1);
    EXPECT_EQUAL(exchange_row(exchange, 0)->epoch, suite_info(suite).epoch);
    EXPECT_TEXT(suite->member->error.text, "sync");
    EXPECT_TEXT(suite->member->error.text, "poll");
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* vllm-project/vllm issue 28224: a member that is a step ahead is found in that very round. */
static void case_tags_differ(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    exchange->call.tag = suite->rank->index == 0 ? 58 : 57;
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_DIVERGED, &suite->member->error);
    EXPECT_EQUAL(exchange->report.field, CONVOY_FIELD_TAG);
    EXPECT_EQUAL(exchange_row(exchange, 0)->tag, 58);
    EXPECT_EQUAL(exchange_row(exchange, 3)->tag, 57);
    EXPECT_TEXT(suite->member->error.text, "58");
    EXPECT_TEXT(suite->member->error.text, "57");
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* sgl-project/sglang PR 25404: "no row, reason r" is seen by all in that round, and the group goes on. */
static void case_error_row(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    exchange->call.critical_flags = suite->rank->index == 3 ? CONVOY_CALL_ERROR_ROW : 0;
    exchange->call.error_reason = 4711;
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_PEER_ERROR, &suite->member->error);
    exchange_expect_untouched(exchange);
    EXPECT_EQUAL(exchange_row(exchange, 3)->condition, CONVOY_MEMBER_ERROR);
    EXPECT_EQUAL(exchange_row(exchange, 3)->reason, 4711);
    EXPECT_EQUAL(suite->member->error.rank, 3);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* sgl-project/sglang PR 31075: a state outside 0..4 is refused on that rank, which tells the peers at once. */
static void case_bad_state_is_told(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    exchange_init(exchange, 8, CONVOY_STATE_SUCCESS);
    exchange->call.hint_flags = CONVOY_CALL_POST_ERROR;
    exchange->call.error_reason = 9;
    exchange->states[5] = suite->rank->index == 1 ? 255 : CONVOY_STATE_SUCCESS;
    int32_t wanted = suite->rank->index == 1 ? CONVOY_INVALID_ARGUMENT : CONVOY_PEER_ERROR;
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), wanted, &suite->member->error);
    exchange_expect_untouched(exchange);
    if (suite->rank->index == 1) {
        EXPECT_TEXT(suite->member->error.text, "255");
    }
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* pytorch/gloo issue 511: a late member is named; the operation stays open and completes when it comes. */
static void case_late(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    if (suite->rank->index != 2) {
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LATE_NS), CONVOY_TIMED_OUT, &suite->member->error);
        exchange_expect_untouched(exchange);
        EXPECT_EQUAL(exchange->report.member_count, 1);
        EXPECT_EQUAL(exchange->rows[0].rank, 2);
        EXPECT_EQUAL(exchange->rows[0].condition, CONVOY_MEMBER_MISSING);
        EXPECT_EQUAL(exchange->rows[0].round, 1);
        EXPECT_EQUAL(exchange->report.own_rank, suite->rank->index);
        EXPECT_TEXT(suite->member->error.text, "2");
    }
    rank_barrier(suite->rank);
    if (suite->rank->index == 2) {
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
    } else {
        struct convoy_group_info info = suite_info(suite);
        EXPECT_EQUAL(info.state, CONVOY_GROUP_STUCK);
        struct exchange again;
        exchange_init(&again, 8, CONVOY_STATE_FAILED);
        EXPECT_STATUS(exchange_reduce(&again, suite->member, SUITE_LONG_NS), CONVOY_BUSY, &suite->member->error);
        EXPECT_OK(suite->member->plugin.poll->reduce_wait(suite->member->group, info.operation, SUITE_LONG_NS,
                                                          &exchange->result, &suite->member->error),
                  &suite->member->error);
    }
    EXPECT_EQUAL(exchange->states_out[7], CONVOY_STATE_TRANSFERRING);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

struct hanging {
    struct suite *suite;
    int32_t status;
};

static void *hanging_wait(void *argument)
{
    struct hanging *hanging = argument;
    struct suite *suite = hanging->suite;
    struct exchange *exchange = &suite->exchange;
    hanging->status = suite->member->plugin.poll->reduce(suite->member->group, &exchange->call, SUITE_LONG_NS,
                                                         &exchange->result, NULL);
    return NULL;
}

/* On a busy machine the other thread may be late between opening its round and sending it. */
static bool hanging_is_sent(const json_t *dump)
{
    const json_t *members = json_object_get(dump, "members");
    return describe_number(json_array_get(members, 2), "round_sent") == 2 &&
           describe_number(json_array_get(members, 3), "round_sent") == 2;
}

/* The dump once the round of the other thread is open, sent, and hangs. gives (json_decref) */
static json_t *hanging_dump(struct suite *suite)
{
    json_t *dump = describe_group(suite->member, CONVOY_TOPIC_DUMP);
    while (describe_number(dump, "round") != 2 || !hanging_is_sent(dump) || describe_number(dump, "age_ns") < 50000000) {
        json_decref(dump); /* ends with the rank's deadline */
        dump = describe_group(suite->member, CONVOY_TOPIC_DUMP);
    }
    return dump;
}

/* A member that has not come to round 2. */
static void hanging_expect_row(const struct suite *suite, const json_t *row, uint32_t other)
{
    const char *link = json_string_value(json_object_get(row, "link"));
    const char *transport = json_string_value(json_object_get(row, "transport"));
    const json_t *age = json_object_get(row, "age_ns");
    bool leads = suite->transport == SUITE_UCX || suite->rank->index == 0;
    EXPECT(link != NULL && transport != NULL);
    EXPECT_EQUAL(describe_number(row, "round_sent"), 2);
    EXPECT_EQUAL(describe_number(row, "round_received"), 1);
    EXPECT(json_is_integer(age) && json_integer_value(age) > 0 && (uint64_t)json_integer_value(age) < SUITE_LONG_NS);
    if (suite_is_neighbour(suite, other)) {
        EXPECT_EQUAL(strcmp(link, "connected"), 0);
        EXPECT_EQUAL(strcmp(transport, "shared memory"), 0);
    } else { /* a leader names what the link goes over; a member behind it has no link of its own */
        EXPECT_EQUAL(strcmp(link, leads ? "up" : "none"), 0);
        EXPECT_EQUAL(strncmp(transport, "ucx ", 4) == 0, leads);
        EXPECT(leads || strcmp(transport, "ucx") == 0);
    }
}

/* sgl-project/sglang issue 34582: while a wait hangs, another thread sees link, transport, rounds and age of all. */
static void case_dump_of_hanging_round(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    struct hanging hanging = {.suite = suite};
    pthread_t thread;
    bool hangs = suite->rank->index < 2;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    if (hangs) {
        EXPECT_EQUAL(pthread_create(&thread, NULL, hanging_wait, &hanging), 0);
        json_t *dump = hanging_dump(suite);
        const json_t *members = json_object_get(dump, "members");
        const json_t *endpoints = json_object_get(json_object_get(json_object_get(dump, "hosts"), "link"), "endpoints");
        EXPECT_EQUAL(json_array_size(members), SUITE_MEMBERS);
        EXPECT_TEXT(json_string_value(json_object_get(json_array_get(members, suite->rank->index), "link")), "self");
        hanging_expect_row(suite, json_array_get(members, 2), 2);
        hanging_expect_row(suite, json_array_get(members, 3), 3);
        EXPECT(json_is_array(endpoints) == !(suite_is_neighbour(suite, 2)));
        json_decref(dump);
    }
    rank_barrier(suite->rank);
    if (hangs) {
        EXPECT_EQUAL(pthread_join(thread, NULL), 0);
        EXPECT_EQUAL(hanging.status, CONVOY_OK);
    } else {
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
    }
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

/* Abandon breaks the round on all members, also on one that only comes later; reopen mends it. */
static void case_abandon(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    const struct convoy_core_table *core = suite->member->plugin.core;
    suite_open(suite);
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
    uint64_t epoch = suite_info(suite).epoch;
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    if (suite->rank->index == 0) {
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LATE_NS), CONVOY_TIMED_OUT, &suite->member->error);
        EXPECT_STATUS(core->operation_abandon(suite->member->group, suite_info(suite).operation, &suite->member->error),
                      CONVOY_BROKEN, &suite->member->error);
    } else if (suite->rank->index != 3) {
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_BROKEN, &suite->member->error);
    }
    rank_barrier(suite->rank);
    uint32_t *is_complete = (uint32_t *)suite->rank->shared;
    if (suite->rank->index == 3) {
        int32_t status = exchange_reduce(exchange, suite->member, SUITE_LONG_NS);
        bool has_hosts = suite->transport == SUITE_UCX || suite->transport == SUITE_NAMESPACES;
        *is_complete = has_hosts && status == CONVOY_OK;
        if (*is_complete == 0) {
            EXPECT_STATUS(status, CONVOY_BROKEN, &suite->member->error);
        }
    }
    rank_barrier(suite->rank);
    if (*is_complete != 0) { /* across hosts the late one may complete what others gave up on: reopen hands it over */
        if (suite->rank->index != 3) {
            EXPECT_EQUAL(suite_reopen(suite).next_round, 3);
        }
        rank_barrier(suite->rank);
        return;
    }
    EXPECT_EQUAL(suite_info(suite).state, CONVOY_GROUP_BROKEN);
    EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_BROKEN, &suite->member->error);
    exchange_expect_untouched(exchange);
    struct convoy_reopen_result result = suite_reopen(suite);
    EXPECT_EQUAL(result.epoch, epoch + 1);
    EXPECT_EQUAL(result.next_round, 2);
    EXPECT_EQUAL(result.lost_count, 0);
    for (uint8_t i = 0; i < 20; i++) {
        suite_expect_round(suite, 8, i % 5);
    }
    EXPECT_EQUAL(suite_info(suite).round, 21);
}

/* Breaking and reopening again and again keeps numbers and results right. */
static void case_reopen_often(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    const struct convoy_core_table *core = suite->member->plugin.core;
    suite_open(suite);
    for (uint32_t turn = 0; turn < 10; turn++) {
        suite_expect_round(suite, 8, (uint8_t)(turn % 5));
        exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
        if (suite->rank->index == turn % SUITE_MEMBERS) {
            convoy_operation operation = 0;
            EXPECT_OK(suite->member->plugin.poll->reduce_start(suite->member->group, &exchange->call, &operation,
                                                               &suite->member->error),
                      &suite->member->error);
            EXPECT_STATUS(core->operation_abandon(suite->member->group, operation, &suite->member->error),
                          CONVOY_BROKEN, &suite->member->error);
        }
        rank_barrier(suite->rank);
        if (suite->rank->index != turn % SUITE_MEMBERS) {
            EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_BROKEN,
                          &suite->member->error);
        }
        EXPECT_EQUAL(suite_reopen(suite).next_round, turn + 2);
        rank_barrier(suite->rank);
    }
    suite_expect_round(suite, 8, CONVOY_STATE_SUCCESS);
}

static void *failure_cancel(void *argument)
{
    struct suite *suite = argument;
    const char reason[] = "shutting down";
    struct convoy_error error = {.struct_size = sizeof error};
    while (suite_info(suite).operation == 0) { /* until the round is open; ends with the rank's deadline */
    }
    EXPECT_OK(suite->member->plugin.core->group_cancel(suite->member->group, reason, sizeof reason - 1, &error), &error);
    return NULL;
}

/* Cancel from another thread ends the wait, not the operation. */
static void case_cancel(struct suite *suite)
{
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    if (suite->rank->index == 1) {
        pthread_t thread;
        EXPECT_EQUAL(pthread_create(&thread, NULL, failure_cancel, suite), 0);
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), CONVOY_CANCELED, &suite->member->error);
        EXPECT_TEXT(suite->member->error.text, "shutting down");
        EXPECT_EQUAL(pthread_join(thread, NULL), 0);
        exchange_expect_untouched(exchange);
    }
    rank_barrier(suite->rank);
    if (suite->rank->index == 1) {
        EXPECT_OK(suite->member->plugin.poll->reduce_wait(suite->member->group, suite_info(suite).operation,
                                                          SUITE_LONG_NS, &exchange->result, &suite->member->error),
                  &suite->member->error);
    } else {
        EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
    }
    EXPECT_EQUAL(exchange->states_out[0], CONVOY_STATE_TRANSFERRING);
    suite_expect_round(suite, 4, CONVOY_STATE_SUCCESS);
}

/* Meta: groups are independent. sgl-project/sglang issues 34442 and 36802: the big group hangs and names who is absent,
 * the small one goes on. */
static void case_other_group_goes_on(struct suite *suite)
{
    uint32_t index = suite->rank->index;
    const int32_t pair[2] = {2, 3};
    struct exchange *exchange = &suite->exchange;
    suite_open(suite);
    struct plugin_member *small = index >= 2 ? suite_member(suite, "pair", pair, 2, index - 2, 0) : NULL;
    if (small != NULL) {
        plugin_member_open(small);
        for (uint8_t i = 0; i < 50; i++) {
            uint8_t states[4] = {i % 5, 4, 4, 4};
            uint8_t out[4];
            plugin_member_reduce(small, states, 4, out);
            EXPECT_EQUAL(out[0], i % 5);
        }
    } else {
        exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
        EXPECT_STATUS(exchange_reduce(exchange, suite->member, SUITE_LATE_NS), CONVOY_TIMED_OUT, &suite->member->error);
        EXPECT_EQUAL(exchange->report.member_count, 2);
        EXPECT(exchange_row(exchange, 2) != NULL && exchange_row(exchange, 3) != NULL);
    }
    rank_barrier(suite->rank);
    if (small != NULL) {
        plugin_member_destroy(small);
    }
}

const struct suite_case suite_failure_cases[] = {
    {.name = "test_conformance_counts_that_differ_diverge_on_all", .run = case_counts_differ},
    {.name = "test_conformance_digests_that_differ_diverge_on_all", .run = case_digests_differ},
    {.name = "test_conformance_operations_that_differ_name_each_other", .run = case_operations_differ},
    {.name = "test_conformance_tags_that_differ_diverge_in_that_round", .run = case_tags_differ},
    {.name = "test_conformance_error_row_reaches_all", .run = case_error_row},
    {.name = "test_conformance_refused_call_posts_an_error", .run = case_bad_state_is_told},
    {.name = "test_conformance_late_member_is_named_and_awaited", .run = case_late},
    {.name = "test_conformance_dump_of_a_hanging_round_names_links_and_ages", .run = case_dump_of_hanging_round},
    {.name = "test_conformance_abandon_breaks_all_and_reopen_mends", .run = case_abandon},
    {.name = "test_conformance_reopen_often", .run = case_reopen_often},
    {.name = "test_conformance_cancel_ends_the_wait_only", .run = case_cancel},
    {.name = "test_conformance_absent_members_of_one_group_leave_another_alone", .run = case_other_group_goes_on},
};
const size_t suite_failure_count = sizeof suite_failure_cases / sizeof suite_failure_cases[0];
