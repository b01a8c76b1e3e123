/* SPDX-License-Identifier: Apache-2.0 */
/* What a host can see: dump, statistics, call log, configuration, log lines. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define STALL_INTERVAL 1000 /* rounds without progress per notice */

/* -- helpers -- */

static json_t *parse(const char *text, size_t length)
{
    json_error_t error;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL) {
        fail_msg("no JSON: %s at %d", error.text, error.position);
    }
    return json;
}

static json_t *group_json(struct calls *calls, uint32_t topic)
{
    EXPECT_OK(calls->plugin.core->group_describe(calls->group, topic, &calls->text, &calls->error), &calls->error);
    return parse(calls->bytes, calls->text.length);
}

static json_int_t rounds_of(struct calls *calls, const char *operation, const char *status)
{
    json_t *stats = group_json(calls, CONVOY_TOPIC_STATS);
    json_t *rounds = json_object_get(json_object_get(json_object_get(stats, "operations"), operation), "rounds");
    EXPECT(json_is_integer(json_object_get(rounds, status)));
    json_int_t count = json_integer_value(json_object_get(rounds, status));
    json_decref(stats);
    return count;
}

static json_int_t events_of(struct calls *calls, const char *event)
{
    json_t *stats = group_json(calls, CONVOY_TOPIC_STATS);
    json_int_t count = json_integer_value(json_object_get(json_object_get(stats, "events"), event));
    json_decref(stats);
    return count;
}

static int32_t gather_wait(struct calls *calls, uint64_t timeout_ns)
{
    return calls->plugin.sync->gather_wait(calls->group, calls->operation, timeout_ns, &calls->sync_result,
                                           &calls->error);
}

static void sync_round(struct pair *pair)
{
    calls_start(&pair->peer_calls, CALL_SYNC);
    calls_start(&pair->calls, CALL_SYNC);
    EXPECT_OK(gather_wait(&pair->calls, LONG_NS), &pair->calls.error);
    EXPECT_OK(gather_wait(&pair->peer_calls, LONG_NS), &pair->peer_calls.error);
}

/* -- texts -- */

static void test_observability_every_json_topic_parses(void **state)
{
    (void)state;
    static const uint32_t topics[] = {CONVOY_TOPIC_CONFIG, CONVOY_TOPIC_NET, CONVOY_TOPIC_STATS};
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    pair_round(pair);
    sync_round(pair);
    json_decref(group_json(calls, CONVOY_TOPIC_DUMP));
    json_decref(group_json(calls, CONVOY_TOPIC_STATS));
    json_decref(group_json(calls, CONVOY_TOPIC_CALL_LOG));
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        EXPECT_OK(calls->plugin.core->context_describe(pair->own->context, topics[i], &calls->text, &calls->error),
                  &calls->error);
        json_t *json = parse(calls->bytes, calls->text.length);
        EXPECT(json_is_object(json) && json_object_size(json) > 0);
        json_decref(json);
    }
    pair_destroy(pair);
}

/* A buffer of any size: too small says what is needed, exactly enough is enough, a zero follows where there is room. */
static void test_observability_text_says_what_it_needs(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    char small[8];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = small, .capacity = sizeof small};
    pair_open(pair);
    const struct convoy_core_table *core = calls->plugin.core;
    (void)memset(small, 0x5a, sizeof small);
    EXPECT_EQUAL(core->group_describe(calls->group, CONVOY_TOPIC_STATS, &text, &calls->error),
                 CONVOY_BUFFER_TOO_SMALL);
    EXPECT(text.length > sizeof small);
    EXPECT_EQUAL(small[0], 0x5a);
    size_t needed = text.length;
    char *exact = malloc(needed); /* not a byte more: a sanitizer would see the zero */
    EXPECT(exact != NULL);
    text.data = exact;
    text.capacity = needed;
    EXPECT_OK(core->group_describe(calls->group, CONVOY_TOPIC_STATS, &text, &calls->error), &calls->error);
    json_decref(parse(exact, text.length));
    free(exact);
    EXPECT_OK(core->group_describe(calls->group, CONVOY_TOPIC_STATS, &calls->text, &calls->error), &calls->error);
    EXPECT_EQUAL(calls->bytes[calls->text.length], '\0');
    pair_destroy(pair);
}

static bool is_name(const char *text, size_t length)
{
    return length != 0 && strspn(text, "abcdefghijklmnopqrstuvwxyz_") >= length;
}

/* name{label="value",...} number */
static void check_sample(const char *line, const char *metric)
{
    const char *brace = strchr(line, '{');
    const char *end = brace != NULL ? strstr(brace, "} ") : NULL;
    char *rest = NULL;
    if (brace == NULL || end == NULL || !is_name(line, (size_t)(brace - line)) ||
        strncmp(line, metric, strlen(metric)) != 0) {
        fail_msg("metric %s: sample \"%s\"", metric, line);
    }
    for (const char *label = brace + 1; label < end;) {
        const char *equal = strstr(label, "=\"");
        const char *close = equal != NULL ? strchr(equal + 2, '"') : NULL;
        EXPECT(close != NULL && close < end && is_name(label, (size_t)(equal - label)));
        EXPECT(close[1] == ',' || close + 1 == end);
        label = close[1] == ',' ? close + 2 : close + 1;
    }
    (void)strtod(end + 2, &rest);
    EXPECT(rest != end + 2 && *rest == '\0');
}

/* HELP, TYPE, samples of that metric, and no metric twice. Returns the number of samples. */
static unsigned check_prometheus(char *text)
{
    char metric[96] = "";
    char seen[4096] = " ";
    unsigned samples = 0;
    char *save = NULL;
    EXPECT_EQUAL(text[strlen(text) - 1], '\n');
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        char name[80];
        char kind[16];
        if (sscanf(line, "# HELP %79s", name) == 1) {
            (void)snprintf(metric, sizeof metric, " %s ", name);
            EXPECT(strstr(seen, metric) == NULL);
            EXPECT(strlen(seen) + strlen(metric) < sizeof seen);
            (void)strcat(seen, metric);
            (void)snprintf(metric, sizeof metric, "%s", name);
        } else if (sscanf(line, "# TYPE %79s %15s", name, kind) == 2) {
            EXPECT(strcmp(name, metric) == 0);
            EXPECT(strcmp(kind, "counter") == 0 || strcmp(kind, "histogram") == 0 || strcmp(kind, "gauge") == 0);
        } else {
            check_sample(line, metric);
            samples++;
        }
    }
    return samples;
}

static void test_observability_prometheus_text_is_well_formed(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    pair_round(pair);
    EXPECT_OK(calls->plugin.core->group_describe(calls->group, CONVOY_TOPIC_PROMETHEUS, &calls->text, &calls->error),
              &calls->error);
    EXPECT(strstr(calls->bytes, "convoy_rounds_total{group=\"pair\",rank=\"0\",operation=\"poll\",status=\"OK\"} 1\n"));
    unsigned of_group = check_prometheus(calls->bytes);
    EXPECT_OK(calls->plugin.core->context_describe(pair->own->context, CONVOY_TOPIC_PROMETHEUS, &calls->text,
                                                   &calls->error),
              &calls->error);
    EXPECT_EQUAL(check_prometheus(calls->bytes), 2 * of_group); /* "pair" and "alone" */
    pair_destroy(pair);
}

/* -- counters -- */

static void test_observability_counters_move_by_what_happened(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    for (int i = 0; i < 5; i++) {
        pair_round(pair);
        sync_round(pair);
    }
    EXPECT_EQUAL(gather_wait(calls, LONG_NS), CONVOY_OK); /* the same result again is not one more round */
    calls_start(calls, CALL_SYNC);
    EXPECT_EQUAL(gather_wait(calls, 1000000), CONVOY_TIMED_OUT);
    EXPECT_EQUAL(calls->plugin.core->operation_abandon(calls->group, calls->operation, NULL), CONVOY_BROKEN);
    EXPECT_EQUAL(calls->plugin.sync->gather(calls->group, &calls->sync, 0, &calls->sync_result, NULL), CONVOY_BROKEN);
    EXPECT_EQUAL(rounds_of(calls, "poll", "OK"), 5);
    EXPECT_EQUAL(rounds_of(calls, "sync", "OK"), 5);
    EXPECT_EQUAL(rounds_of(calls, "sync", "TIMED_OUT"), 1);
    EXPECT_EQUAL(rounds_of(calls, "sync", "BROKEN"), 1); /* the refused call was no round */
    EXPECT_EQUAL(rounds_of(calls, "sync", "OTHER"), 0);
    EXPECT_EQUAL(events_of(calls, "abandon"), 1);
    EXPECT_OK(calls->plugin.core->group_reopen(calls->group, 0, &calls->reopened, &calls->error), &calls->error);
    EXPECT_EQUAL(events_of(calls, "reopen"), 1);
    EXPECT_OK(calls->plugin.core->group_cancel(calls->group, NULL, 0, &calls->error), &calls->error);
    EXPECT_EQUAL(events_of(calls, "cancel"), 1);
    pair_destroy(pair);
}

static void test_observability_given_up_poll_waits_count_once(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    const struct convoy_poll_table *poll = pair->own->plugin.poll;
    pair_open(pair);
    EXPECT_EQUAL(poll->reduce(calls->group, &calls->poll, 1000000, &calls->poll_result, NULL), CONVOY_TIMED_OUT);
    EXPECT_OK(calls->plugin.core->group_info(calls->group, &calls->info, &calls->error), &calls->error);
    EXPECT_EQUAL(poll->reduce_wait(calls->group, calls->info.operation, 1000000, &calls->poll_result, NULL),
                 CONVOY_TIMED_OUT);
    EXPECT_EQUAL(rounds_of(calls, "poll", "TIMED_OUT"), 1); /* of one operation */
    EXPECT_EQUAL(rounds_of(calls, "poll", "OK"), 0);
    pair_destroy(pair);
}

/* -- call log -- */

static json_int_t first_number(json_t *list, const char *part)
{
    json_t *values = json_object_get(list, part);
    json_t *first = json_array_get(values, 0);
    return json_integer_value(json_is_array(first) ? json_array_get(first, 0) : first);
}

/* sgl-project/sglang issues 34442 and 36802: found only by logging every operation on every rank. Here the last rounds
 * are kept with inputs and outputs in order, from the split and the blocking form, rows in their own result included. */
static void test_observability_call_log_holds_inputs_and_outputs_in_order(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair->own->options.call_log_entries = 8;
    pair_open(pair);
    for (uint32_t i = 0; i < 6; i++) {
        calls->state = CONVOY_STATE_SUCCESS;
        pair->peer_calls.state = (uint8_t)(i % 4);
        pair_round(pair);
        calls->table[0] = 100 + i;
        calls->sync.row = calls->table; /* captured before the result is written there */
        pair->peer_calls.row[0] = 200 + i;
        sync_round(pair);
    }
    json_t *log = group_json(calls, CONVOY_TOPIC_CALL_LOG);
    EXPECT_EQUAL(json_array_size(log), 8);
    for (size_t i = 0; i < 8; i++) {
        json_t *entry = json_array_get(log, i);
        json_t *list = json_array_get(json_object_get(entry, "lists"), 0);
        json_int_t round = json_integer_value(json_object_get(entry, "round"));
        bool is_poll = strcmp(json_string_value(json_object_get(entry, "operation")), "poll") == 0;
        EXPECT_EQUAL(round, 5 + i);
        EXPECT_EQUAL(is_poll, i % 2 == 0);
        EXPECT_EQUAL(first_number(list, "input"), is_poll ? CONVOY_STATE_SUCCESS : 100 + (round - 2) / 2);
        EXPECT_EQUAL(first_number(list, "output"), is_poll ? (round - 1) / 2 % 4 : 100 + (round - 2) / 2);
        EXPECT(strcmp(json_string_value(json_object_get(entry, "status")), "OK") == 0);
    }
    json_decref(log);
    pair_destroy(pair);
}

/* -- a round that hangs -- */

struct waiter {
    struct calls calls;
    pthread_t thread;
    int32_t status;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;
    struct calls *calls = &waiter->calls;
    waiter->status = calls->plugin.poll->reduce(calls->group, &calls->poll, LONG_NS, &calls->poll_result, NULL);
    return NULL;
}

static const json_t *member_part(const json_t *dump, size_t member, const char *field)
{
    return json_object_get(json_array_get(json_object_get(dump, "members"), member), field);
}

/* How a member is there, and how long ago it was heard: nobody, before the first round. */
static void test_observability_dump_has_age_and_end_of_each_member(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    pair_open(pair);
    json_t *dump = group_json(&pair->calls, CONVOY_TOPIC_DUMP);
    EXPECT(json_is_null(member_part(dump, 0, "age_ns")) && json_is_null(member_part(dump, 1, "age_ns")));
    EXPECT(json_is_null(json_object_get(dump, "age_ns")));
    EXPECT(strcmp(json_string_value(member_part(dump, 0, "link")), "self") == 0);
    EXPECT(strcmp(json_string_value(member_part(dump, 1, "link")), "connected") == 0);
    json_decref(dump);
    pair_round(pair);
    EXPECT_OK(pair->own->plugin.core->group_close(pair->peer->group, LONG_NS, &pair->peer->error), &pair->peer->error);
    dump = group_json(&pair->calls, CONVOY_TOPIC_DUMP);
    for (size_t i = 0; i < 2; i++) {
        const json_t *age = member_part(dump, i, "age_ns");
        EXPECT(json_is_integer(age) && json_integer_value(age) >= 0 && json_integer_value(age) < (json_int_t)LONG_NS);
    }
    EXPECT(strcmp(json_string_value(member_part(dump, 1, "link")), "closed") == 0);
    json_decref(dump);
    pair_destroy(pair);
}

static json_int_t member_number(json_t *dump, size_t member, const char *field)
{
    json_t *value = json_object_get(json_array_get(json_object_get(dump, "members"), member), field);
    EXPECT(json_is_integer(value));
    return json_integer_value(value);
}

/* sgl-project/sglang issue 34582: while a round hangs, another thread asks who is connected and who has sent what. */
static void test_observability_dump_while_a_round_hangs_names_links_and_rounds(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct waiter waiter;
    pair_open(pair);
    pair_round(pair);
    calls_init(&waiter.calls, &pair->own->plugin, pair->own->group, NULL);
    assert_int_equal(pthread_create(&waiter.thread, NULL, waiter_main, &waiter), 0);
    json_t *dump = group_json(&pair->calls, CONVOY_TOPIC_DUMP);
    while (member_number(dump, 0, "round_sent") != 2) { /* until the thread is inside and has contributed */
        json_decref(dump);
        dump = group_json(&pair->calls, CONVOY_TOPIC_DUMP);
    }
    EXPECT(strcmp(json_string_value(json_object_get(dump, "state")), "active") == 0);
    EXPECT(json_is_string(json_object_get(dump, "epoch"))); /* it exceeds 2^53 */
    json_t *peer = json_array_get(json_object_get(dump, "members"), 1);
    EXPECT_EQUAL(json_array_size(json_object_get(dump, "members")), 2);
    EXPECT_EQUAL(member_number(dump, 1, "round_received"), 1);
    EXPECT(strcmp(json_string_value(json_object_get(peer, "link")), "connected") == 0);
    EXPECT(strcmp(json_string_value(json_object_get(peer, "transport")), "shared memory") == 0);
    json_decref(dump);
    json_decref(group_json(&pair->calls, CONVOY_TOPIC_STATS));
    json_decref(group_json(&pair->calls, CONVOY_TOPIC_CALL_LOG));
    calls_start(&pair->peer_calls, CALL_POLL);
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.status, CONVOY_OK);
    pair_destroy(pair);
}

/* -- a group that is no more -- */

static struct convoy_group_info info_of(struct plugin_member *member)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    return info;
}

/* Which epoch it was, with how many hosts: the listener chose, so nothing but the group knows. */
static void test_observability_closed_group_says_what_it_was(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    pair_open(pair);
    pair_round(pair);
    struct convoy_group_info open = info_of(pair->own);
    EXPECT(open.epoch != 0 && open.wire != 0 && open.host_count == 1 && open.segment_bytes != 0);
    calls_start(&pair->calls, CALL_POLL);
    EXPECT_OK(pair->own->plugin.core->group_close(pair->own->group, LONG_NS, &pair->own->error), &pair->own->error);
    struct convoy_group_info closed = info_of(pair->own);
    EXPECT_EQUAL(closed.state, CONVOY_GROUP_CLOSED);
    EXPECT_EQUAL(closed.epoch, open.epoch);
    EXPECT_EQUAL(closed.wire, open.wire);
    EXPECT_EQUAL(closed.host_count, 1);
    EXPECT_EQUAL(closed.member_count, 2);
    EXPECT_EQUAL(closed.round, 1);
    EXPECT_EQUAL(closed.segment_bytes, 0);
    EXPECT_EQUAL(closed.operation, 0);
    pair_destroy(pair);
}

/* Both members have met, and then the shapes of their gathers differ, before they looked for each other's host. */
static void test_observability_failed_group_says_how_far_it_came(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    struct plugin_member *members[2] = {pair->own, pair->peer};
    const struct convoy_core_table *core = pair->own->plugin.core;
    for (int i = 0; i < 2; i++) {
        members[i]->options.sync_slots = 2 + (uint32_t)i;
        EXPECT_OK(core->group_open_start(members[i]->context, &members[i]->options, &members[i]->group,
                                         &members[i]->error),
                  &members[i]->error);
    }
    for (int i = 0; i < 2; i++) {
        EXPECT_STATUS(core->group_open_wait(members[i]->group, LONG_NS, &members[i]->error), CONVOY_DIVERGED,
                      &members[i]->error);
        EXPECT_EQUAL(info_of(members[i]).state, CONVOY_GROUP_FAILED);
        EXPECT_EQUAL(info_of(members[i]).host_count, 0);
        EXPECT(info_of(members[i]).epoch != 0 && info_of(members[i]).wire != 0);
    }
    EXPECT_EQUAL(info_of(pair->own).epoch, info_of(pair->peer).epoch);
    pair_destroy(pair);
}

/* -- log lines -- */

struct lines {
    pthread_t thread; /* that is allowed to be called on */
    unsigned count;
    unsigned stalls;
    unsigned wrong;
};

static void take_line(void *user, uint32_t level, const char *text, size_t length)
{
    struct lines *lines = user;
    bool is_finished = length != 0 && memchr(text, '\n', length) == NULL && memchr(text, '\0', length) == NULL;
    bool is_level = level >= CONVOY_LOG_ERROR && level <= CONVOY_LOG_TRACE;
    lines->count++;
    lines->stalls += memmem(text, length, "stalled", 7) != NULL;
    lines->wrong += !is_finished || !is_level || !pthread_equal(pthread_self(), lines->thread);
}

static struct pair *open_with_log(struct lines *lines)
{
    struct pair *pair = pair_create();
    struct plugin_member *own = pair->own;
    *lines = (struct lines){.thread = pthread_self()};
    EXPECT_OK(own->plugin.core->context_close(own->context, LONG_NS, &own->error), &own->error);
    own->config.log = take_line;
    own->config.log_user = lines;
    own->config.log_level = CONVOY_LOG_TRACE;
    EXPECT_OK(own->plugin.core->context_open(&own->config, &own->context, &own->error), &own->error);
    pair_open(pair);
    return pair;
}

/* vllm-project/vllm issue 57883: nothing moves for 10,000 rounds, and nothing is said. Here there is one notice for each
 * interval, and none while something moves; it reaches the host on the thread that called, as a finished line. */
static void test_observability_stall_notice_comes_once_per_interval_on_the_calling_thread(void **state)
{
    (void)state;
    struct lines lines;
    struct pair *pair = open_with_log(&lines);
    pair->calls.state = CONVOY_STATE_BOOTSTRAPPING;
    for (uint32_t i = 0; i < 10 * STALL_INTERVAL + 1; i++) { /* the first round is news */
        pair_round(pair);
        EXPECT_EQUAL(lines.stalls, i / STALL_INTERVAL);
    }
    EXPECT_EQUAL(events_of(&pair->calls, "stall"), 10);
    for (uint32_t i = 0; i < 2 * STALL_INTERVAL; i++) {
        pair->calls.state = (uint8_t)(CONVOY_STATE_BOOTSTRAPPING + i % 2);
        pair_round(pair);
    }
    EXPECT_EQUAL(lines.stalls, 10);
    pair_destroy(pair);
    EXPECT_EQUAL(lines.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_observability_every_json_topic_parses),
        cmocka_unit_test(test_observability_text_says_what_it_needs),
        cmocka_unit_test(test_observability_prometheus_text_is_well_formed),
        cmocka_unit_test(test_observability_counters_move_by_what_happened),
        cmocka_unit_test(test_observability_given_up_poll_waits_count_once),
        cmocka_unit_test(test_observability_call_log_holds_inputs_and_outputs_in_order),
        cmocka_unit_test(test_observability_dump_has_age_and_end_of_each_member),
        cmocka_unit_test(test_observability_dump_while_a_round_hangs_names_links_and_rounds),
        cmocka_unit_test(test_observability_closed_group_says_what_it_was),
        cmocka_unit_test(test_observability_failed_group_says_how_far_it_came),
        cmocka_unit_test(test_observability_stall_notice_comes_once_per_interval_on_the_calling_thread),
    };
    return cmocka_run_group_tests_name("observability", tests, NULL, NULL);
}
