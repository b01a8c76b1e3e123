/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stats.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_BYTES 65536u
#define RACE_ROUNDS 5000
#define POLL "group=\"tp\",rank=\"3\",operation=\"poll\""

static struct convoy_group_stats stats;
static char text[TEXT_BYTES];

static int setup(void **state)
{
    (void)state;
    memset(&stats, 0, sizeof stats);
    return 0;
}

static struct convoy_stats_source source_of(const char *group, int32_t rank)
{
    return (struct convoy_stats_source){.stats = &stats, .group = group, .group_length = strlen(group), .rank = rank};
}

static void record_three(void)
{
    const struct convoy_stats_sample samples[] = {
        {.operation = CONVOY_OPERATION_POLL, .status = CONVOY_OK, .wait_kind = CONVOY_WAIT_SPIN, .call_ns = 300,
         .wait_ns = 100, .bytes_sent = 64, .bytes_received = 192, .entries = 3, .foreign_stamps = 2, .demoted = 1},
        {.operation = CONVOY_OPERATION_POLL, .status = CONVOY_TIMED_OUT, .wait_kind = CONVOY_WAIT_SLEEP,
         .call_ns = 5000, .wait_ns = 4900, .sleeps = 4, .yields = 9},
        {.operation = CONVOY_OPERATION_SYNC, .status = CONVOY_NO_MEMORY, .call_ns = 1, .unknown_states = 5},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        convoy_stats_round(&stats, &samples[i]);
    }
    convoy_stats_event(&stats, CONVOY_EVENT_STALL);
}

/* A number by a dotted path of names. */
static long long at(const json_t *json, const char *path)
{
    char copy[128];
    char *rest = NULL;
    (void)snprintf(copy, sizeof copy, "%s", path);
    for (char *name = strtok_r(copy, ".", &rest); name != NULL; name = strtok_r(NULL, ".", &rest)) {
        json = json_object_get(json, name);
    }
    assert_true(json_is_integer(json));
    return json_integer_value(json);
}

static void test_stats_json_has_what_was_recorded(void **state)
{
    (void)state;
    record_three();
    const struct convoy_stats_source source = source_of("tp", 3);
    json_t *json = convoy_stats_json(&source);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "group")), "tp");
    assert_int_equal(at(json, "rank"), 3);
    assert_int_equal(at(json, "operations.poll.rounds.OK"), 1);
    assert_int_equal(at(json, "operations.poll.rounds.TIMED_OUT"), 1);
    assert_int_equal(at(json, "operations.poll.rounds.OTHER"), 0);
    assert_int_equal(at(json, "operations.sync.rounds.OTHER"), 1);
    assert_int_equal(at(json, "operations.poll.waits.sleep"), 1);
    assert_int_equal(at(json, "operations.poll.yields"), 9);
    assert_int_equal(at(json, "operations.poll.sleeps"), 4);
    assert_int_equal(at(json, "operations.poll.bytes_received"), 192);
    assert_int_equal(at(json, "operations.poll.foreign_stamps"), 2);
    assert_int_equal(at(json, "operations.sync.unknown_states"), 5);
    assert_int_equal(at(json, "operations.poll.call_ns.count"), 2);
    assert_int_equal(at(json, "operations.poll.call_ns.max"), 5000);
    assert_int_equal(at(json, "operations.poll.wait_ns.sum"), 5000);
    assert_int_equal(at(json, "operations.poll_keyed.call_ns.count"), 0);
    assert_int_equal(at(json, "events.stall"), 1);
    json_decref(json);
}

static void test_stats_unknown_operation_is_not_counted(void **state)
{
    (void)state;
    const struct convoy_group_stats empty = {0};
    convoy_stats_round(&stats, &(struct convoy_stats_sample){.operation = CONVOY_OPERATION_NONE, .call_ns = 1});
    convoy_stats_round(&stats, &(struct convoy_stats_sample){.operation = 99, .call_ns = 1});
    assert_memory_equal(&stats, &empty, sizeof stats);
}

static size_t count_of(const char *what)
{
    size_t count = 0;
    for (const char *found = strstr(text, what); found != NULL; found = strstr(found + 1, what)) {
        count++;
    }
    return count;
}

static void test_stats_prometheus_of_two_groups_has_one_head_per_metric(void **state)
{
    (void)state;
    record_three();
    const struct convoy_stats_source sources[] = {source_of("tp", 3), source_of("a\"b\\c\nd", 0)};
    size_t length = convoy_stats_prometheus(sources, 2, text, sizeof text);
    assert_true(length < sizeof text);
    assert_int_equal(strlen(text), length);
    assert_int_equal(text[length - 1], '\n');
    assert_int_equal(count_of("# HELP convoy_rounds_total "), 1);
    assert_int_equal(count_of("# TYPE convoy_call_seconds histogram\n"), 1);
    assert_int_equal(count_of("convoy_rounds_total{group=\"tp\",rank=\"3\",operation=\"poll\",status=\"OK\"} 1\n"), 1);
    assert_int_equal(count_of("s_total{group=\"a\\\"b\\\\c\\nd\",rank=\"0\",operation=\"poll\",status=\"OK\"} "), 1);
    assert_int_equal(count_of("convoy_foreign_stamps_total{group=\"tp\",rank=\"3\",operation=\"poll\"} 2\n"), 1);
    assert_int_equal(count_of("convoy_events_total{group=\"tp\",rank=\"3\",event=\"stall\"} 1\n"), 1);
    assert_int_equal(count_of("\n\n"), 0);
}

/* Cumulative, ends in +Inf, and +Inf equals the count. */
static void test_stats_prometheus_histogram_is_cumulative(void **state)
{
    (void)state;
    record_three();
    const struct convoy_stats_source source = source_of("tp", 3);
    (void)convoy_stats_prometheus(&source, 1, text, sizeof text);
    assert_int_equal(count_of("convoy_call_seconds_bucket{" POLL ",le=\"2.56e-07\"} 0\n"), 1);
    assert_int_equal(count_of("operation=\"poll\",le=\"1.024e-06\"} 1\n"), 2);
    assert_int_equal(count_of("operation=\"poll\",le=\"1.6384e-05\"} 2\n"), 2); /* calls and waits */
    assert_int_equal(count_of("convoy_call_seconds_bucket{" POLL ",le=\"+Inf\"} 2\n"), 1);
    assert_int_equal(count_of("convoy_call_seconds_sum{group=\"tp\",rank=\"3\",operation=\"poll\"} 5.3e-06\n"), 1);
    assert_int_equal(count_of("convoy_call_seconds_count{group=\"tp\",rank=\"3\",operation=\"poll\"} 2\n"), 1);
}

static void test_stats_prometheus_too_little_room_tells_the_length_and_stays_inside(void **state)
{
    (void)state;
    const struct convoy_stats_source source = source_of("tp", 3);
    size_t needed = convoy_stats_prometheus(&source, 1, NULL, 0);
    char *exact = malloc(needed + 1);
    assert_int_equal(convoy_stats_prometheus(&source, 1, exact, needed + 1), needed);
    for (size_t capacity = 1; capacity < 300; capacity++) {
        char *room = malloc(capacity); /* its end is guarded by the address sanitizer */
        assert_int_equal(convoy_stats_prometheus(&source, 1, room, capacity), needed);
        assert_int_equal(strlen(room), capacity - 1);
        assert_memory_equal(room, exact, capacity - 1);
        free(room);
    }
    free(exact);
}

static void *record_main(void *argument)
{
    (void)argument;
    for (int i = 0; i < RACE_ROUNDS; i++) {
        record_three();
    }
    return NULL;
}

static void test_stats_readers_beside_the_writer(void **state)
{
    (void)state;
    pthread_t writer;
    const struct convoy_stats_source source = source_of("tp", 3);
    assert_int_equal(pthread_create(&writer, NULL, record_main, NULL), 0);
    for (int i = 0; i < 5; i++) {
        json_decref(convoy_stats_json(&source));
        assert_true(convoy_stats_prometheus(&source, 1, text, sizeof text) < sizeof text);
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    json_t *json = convoy_stats_json(&source);
    assert_int_equal(at(json, "operations.poll.rounds.OK"), RACE_ROUNDS);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_stats_json_has_what_was_recorded, setup),
        cmocka_unit_test_setup(test_stats_unknown_operation_is_not_counted, setup),
        cmocka_unit_test_setup(test_stats_prometheus_of_two_groups_has_one_head_per_metric, setup),
        cmocka_unit_test_setup(test_stats_prometheus_histogram_is_cumulative, setup),
        cmocka_unit_test_setup(test_stats_prometheus_too_little_room_tells_the_length_and_stays_inside, setup),
        cmocka_unit_test_setup(test_stats_readers_beside_the_writer, setup),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
