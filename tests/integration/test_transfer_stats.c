/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of itself: the Prometheus text is one that a strict reader takes, it says what the JSON says, and the
 * phases are those of the timeline and of the results that the host gets. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/exposition.h"
#include "tests/lib/scene.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

#define PAGE_BYTES (4u << 20)
#define ROUNDS 5u
#define EARLY_BYTES (1u << 20) /* from here on a send that stages for itself is offered early */
#define PHASES 7u
#define PATHS 7u

/* The phases by what the timeline tells: kind, whether its path must be a pushed one (1), must not (0), or may (-1), and the
 * two moments. */
static const struct {
    const char *name;
    const char *kind;
    int pushed;
    const char *from;
    const char *to;
} phases[PHASES] = {
    {"stage", "stage", -1, "ready_ns", "staged_ns"},   {"reserve", "send", 1, "staged_ns", "offered_ns"},
    {"push", "send", 1, "offered_ns", "loaded_ns"},    {"offer", "send", 0, "offered_ns", "loaded_ns"},
    {"ready", "load", -1, "started_ns", "offered_ns"}, {"load", "load", -1, "offered_ns", "loaded_ns"},
    {"release", "send", -1, "loaded_ns", "returned_ns"},
};

static const char *const paths[PATHS] = {"none", "lend", "push", "pull", "process_vm", "messages", "rma"};

static char *text_of(struct engine *engine, uint32_t topic, size_t *length_out)
{
    char *bytes = malloc(PAGE_BYTES);
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = PAGE_BYTES};
    EXPECT(bytes != NULL);
    CALL_OK(engine, engine_describe, topic, &text);
    *length_out = text.length;
    return bytes;
}

static json_t *json_of(struct engine *engine, uint32_t topic)
{
    size_t length;
    char *text = text_of(engine, topic, &length);
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(json != NULL);
    free(text);
    return json;
}

static struct exposition *page_of(struct engine *engine)
{
    size_t length;
    char *text = text_of(engine, CONVOY_TOPIC_PROMETHEUS, &length);
    struct exposition *page = exposition_read(text, length);
    free(text);
    return page;
}

/* -- the two forms ------------------------------------------------------------------------------------------------- */

static void check_number(const struct exposition *page, const char *name, const char *labels, const json_t *number)
{
    EXPECT(json_is_integer(number));
    EXPECT(exposition_value(page, name, labels) == (double)json_integer_value(number));
}

/* Every number of a section stands in the page too. */
static void check_section(const struct exposition *page, json_t *stats, const char *section, const char *prefix,
                          const char *label)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(stats, section), key, value)
    {
        char name[160];
        bool is_total = strcmp(section, "counters") == 0 || strcmp(key, "exhausted") == 0 || strcmp(key, "stale") == 0;
        (void)snprintf(name, sizeof name, "convoy_transfer_%s%s%s", prefix, key, is_total ? "_total" : "");
        const char *inner;
        json_t *number;
        if (json_is_integer(value)) {
            check_number(page, name, "", value);
        }
        json_object_foreach(json_is_object(value) ? value : NULL, inner, number)
        {
            char labels[64];
            (void)snprintf(labels, sizeof labels, "%s=\"%s\"", strcmp(key, "queued") == 0 ? "queue" : label, inner);
            check_number(page, name, labels, number);
        }
    }
}

static void check_phases(const struct exposition *page, json_t *stats)
{
    const char *phase;
    json_t *by_path;
    json_object_foreach(json_object_get(stats, "phases"), phase, by_path)
    {
        const char *path;
        json_t *one;
        json_object_foreach(by_path, path, one)
        {
            char name[80];
            char labels[40];
            (void)snprintf(labels, sizeof labels, "path=\"%s\"", path);
            (void)snprintf(name, sizeof name, "convoy_transfer_%s_seconds_count", phase);
            check_number(page, name, labels, json_object_get(one, "count"));
            (void)snprintf(name, sizeof name, "convoy_transfer_%s_seconds_sum", phase);
            double sum = (double)json_integer_value(json_object_get(one, "sum_ns")) * 1e-9;
            EXPECT(fabs(exposition_value(page, name, labels) - sum) < 2e-9);
        }
    }
}

static void check_forms(struct engine *engine)
{
    (void)engine_figures(engine); /* takes what there is to take */
    json_t *stats = json_of(engine, CONVOY_TOPIC_STATS);
    struct exposition *page = page_of(engine);
    check_section(page, stats, "counters", "", "");
    check_section(page, stats, "engine", "", "state");
    check_section(page, stats, "pool", "pool_", "state");
    check_section(page, stats, "notes", "notes_", "state");
    check_phases(page, stats);
    exposition_free(page);
    json_decref(stats);
}

/* -- the phases ---------------------------------------------------------------------------------------------------- */

struct total {
    uint64_t count;
    uint64_t sum_ns;
};

static int is_pushed(const char *path)
{
    return strcmp(path, "push") == 0 || strcmp(path, "messages") == 0 || strcmp(path, "rma") == 0;
}

static uint64_t time_of(const json_t *past, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(past, name));
}

static struct total total_of(json_t *timeline, uint32_t phase, const char *path)
{
    struct total total = {0};
    size_t index;
    json_t *past;
    json_array_foreach(timeline, index, past)
    {
        const char *taken = json_string_value(json_object_get(past, "path"));
        bool is_good = strcmp(json_string_value(json_object_get(past, "status")), "OK") == 0;
        bool is_kind = strcmp(json_string_value(json_object_get(past, "kind")), phases[phase].kind) == 0;
        uint64_t from = time_of(past, phases[phase].from);
        uint64_t to = time_of(past, phases[phase].to);
        if (is_good && is_kind && strcmp(taken, path) == 0 && from != 0 && to >= from &&
            (phases[phase].pushed < 0 || phases[phase].pushed == is_pushed(taken))) {
            total.count++;
            total.sum_ns += to - from;
        }
    }
    return total;
}

/* Each phase of each path is the sum of what the timeline has, to the nanosecond. Returns how many there are. */
static uint32_t check_timeline(struct engine *engine)
{
    json_t *stats = json_of(engine, CONVOY_TOPIC_STATS);
    json_t *timeline = json_of(engine, CONVOY_TOPIC_TIMELINE);
    uint32_t found = 0;
    for (uint32_t i = 0; i < PHASES * PATHS; i++) {
        const json_t *phase = json_object_get(json_object_get(stats, "phases"), phases[i / PATHS].name);
        const json_t *one = json_object_get(phase, paths[i % PATHS]);
        struct total total = total_of(timeline, i / PATHS, paths[i % PATHS]);
        EXPECT_EQUAL(json_integer_value(json_object_get(one, "count")), total.count);
        EXPECT_EQUAL(json_integer_value(json_object_get(one, "sum_ns")), total.sum_ns);
        found += total.count != 0;
    }
    json_decref(stats);
    json_decref(timeline);
    return found;
}

/* The times that the host gets are those of the timeline. */
static void check_result(struct engine *engine, convoy_transfer transfer, const char *request, const char *kind)
{
    static const char *const names[CONVOY_TIMES] = {"started_ns", "ready_ns",  "staged_ns",
                                                    "offered_ns", "loaded_ns", "returned_ns"};
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    CALL_OK(engine, transfer_test, transfer, &result);
    if (strcmp(kind, "send") == 0) { /* also of a send that stages for itself, and was offered before that had begun */
        EXPECT(result.times_ns[CONVOY_TIME_READY] != 0);
        EXPECT(result.times_ns[CONVOY_TIME_STAGED] >= result.times_ns[CONVOY_TIME_READY]);
    }
    json_t *timeline = json_of(engine, CONVOY_TOPIC_TIMELINE);
    uint32_t found = 0;
    size_t index;
    json_t *past;
    json_array_foreach(timeline, index, past)
    {
        if (strcmp(json_string_value(json_object_get(past, "request")), request) == 0 &&
            strcmp(json_string_value(json_object_get(past, "kind")), kind) == 0) {
            for (uint32_t i = 0; i < CONVOY_TIMES && names[i] != NULL; i++) {
                EXPECT_EQUAL(time_of(past, names[i]), result.times_ns[i]);
            }
            EXPECT(strcmp(json_string_value(json_object_get(past, "path")), paths[result.path]) == 0);
            found++;
        }
    }
    EXPECT_EQUAL(found, 1);
    json_decref(timeline);
}

/* -- what there is to measure -------------------------------------------------------------------------------------- */

static void move_bytes(struct two *two, const uint8_t *memory, const uint64_t *bytes, uint32_t number, uint32_t mode)
{
    const struct convoy_tensor_source tensor = engine_tensor(memory, bytes);
    char request[32];
    (void)snprintf(request, sizeof request, "move %u %u", mode, number);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    CALL_OK(two->receiver, accept, &load, &loaded);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->receiver, loaded);
    engine_await_empty(two->receiver);
    AWAIT(engine_figures(two->sender).reader_count == 0); /* it is back, so that the result has all its times */
    check_result(two->sender, sent, request, "send");
    release(two->sender, sent);
}

static void move(struct two *two, uint32_t number, uint32_t mode)
{
    move_bytes(two, two->memory, &two->bytes, number, mode);
}

static void push(struct two *two, uint32_t number)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    char request[32];
    (void)snprintf(request, sizeof request, "push %u", number);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, request, BYTES, 0, NULL);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = two->peer, .address = (uint64_t)(uintptr_t)slot.address};
    convoy_transfer sent = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    check_result(two->sender, sent, request, "send");
    release(two->sender, sent);
    release(two->receiver, slot.transfer);
}

static void exercise(struct two *two)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        move(two, i, CONVOY_LOAD_VIEW);
        move(two, i, CONVOY_LOAD_COPY);
        push(two, i);
    }
}

static void check_engines(uint32_t sender_phases, uint32_t receiver_phases)
{
    struct two *two = two_open();
    check_forms(two->sender); /* nothing has happened yet */
    exercise(two);
    EXPECT_EQUAL(check_timeline(two->sender), sender_phases);
    EXPECT_EQUAL(check_timeline(two->receiver), receiver_phases);
    check_forms(two->sender);
    check_forms(two->receiver);
    struct exposition *page = page_of(two->sender);
    EXPECT(exposition_value(page, "convoy_transfer_sent_total", "") == 3 * ROUNDS);
    EXPECT(exposition_value(page, "convoy_transfer_peers", "state=\"connected\"") == 1);
    EXPECT(exposition_value(page, "convoy_transfer_pool_leases", "state=\"retired\"") == 0);
    exposition_free(page);
    two_close(two);
}

/* Lent: stage, offer, release; pushed: reserve, push, release. The receiver: ready and load, in place and copied. */
static void test_transfer_stats_say_the_same_in_both_forms_and_in_the_timeline(void **state)
{
    (void)state;
    check_engines(6, 4);
}

static void test_transfer_stats_of_peers_without_shared_memory_are_those_of_the_timeline(void **state)
{
    (void)state;
    engine_settings = "{\"net\": \"ucx\"}";
    check_engines(4, 2);
    engine_settings = NULL;
}

/* So large that it is offered before its copy has begun. */
static void test_transfer_stats_of_what_is_offered_early_have_all_times(void **state)
{
    (void)state;
    static const char *const nets[] = {NULL, "{\"net\": \"ucx\"}"};
    const uint64_t bytes = EARLY_BYTES;
    uint8_t *memory = calloc(1, bytes);
    EXPECT(memory != NULL);
    for (uint32_t i = 0; i < 2; i++) {
        engine_settings = nets[i];
        struct two *two = two_open();
        move_bytes(two, memory, &bytes, 0, CONVOY_LOAD_VIEW);
        move_bytes(two, memory, &bytes, 0, CONVOY_LOAD_COPY);
        (void)check_timeline(two->sender);
        two_close(two);
        engine_settings = NULL;
    }
    free(memory);
}

/* What is held shows where it is held: a lease that is read, an offer that waits, a completion that nobody has taken. */
static void test_transfer_stats_show_what_is_held_and_what_waits(void **state)
{
    (void)state;
    struct two *two = two_open();
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("held", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    const struct convoy_load load = {.struct_size = sizeof load};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    while (engine_counter(two->receiver, "offers") == 0) {
        (void)engine_figures(two->receiver);
    }
    struct exposition *page = page_of(two->receiver);
    EXPECT(exposition_value(page, "convoy_transfer_queued", "queue=\"offers\"") == 1);
    exposition_free(page);
    CALL_OK(two->receiver, accept, &load, &loaded);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, sent);
    page = page_of(two->sender);
    EXPECT(exposition_value(page, "convoy_transfer_lent", "") == 1);
    EXPECT(exposition_value(page, "convoy_transfer_pool_readers", "") == 1);
    EXPECT(exposition_value(page, "convoy_transfer_pool_quarantined_bytes", "") > 0); /* released, and still read */
    EXPECT(exposition_value(page, "convoy_transfer_transfers", "state=\"SENT\"") == 1);
    exposition_free(page);
    page = page_of(two->receiver);
    EXPECT(exposition_value(page, "convoy_transfer_queued", "queue=\"offers\"") == 0);
    EXPECT(exposition_value(page, "convoy_transfer_queued", "queue=\"completions\"") == 1);
    EXPECT(exposition_value(page, "convoy_transfer_transfers", "state=\"LOADED\"") == 1);
    exposition_free(page);
    release(two->receiver, loaded);
    two_close(two);
}

/* -- messages that nobody takes ------------------------------------------------------------------------------------ */

#define MESSAGES_MAX 200000u

static void stand_still(const struct rank *rank, struct engine *engine)
{
    (void)engine;
    rank_await_mark(rank, 1, 3);
}

/* More than the ring and what may wait behind it hold are dropped, counted, and those that wait are seen. */
static void talk_to_one_that_stands(const struct rank *rank, struct engine *engine)
{
    convoy_peer peer = scene_connect(rank, engine, 0);
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* it has stopped rank 0 */
    const struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "x", .request_length = 1, .peer = peer};
    uint32_t asked = 0;
    for (; engine_counter(engine, "messages_dropped") == 0; asked += 1000) {
        struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
        EXPECT(asked < MESSAGES_MAX);
        for (uint32_t i = 0; i < 1000; i++) {
            CALL_STATUS(engine, CONVOY_TIMED_OUT, query, &query, 1, &answer);
        }
    }
    struct exposition *page = page_of(engine);
    double dropped = exposition_value(page, "convoy_transfer_messages_dropped_total", "");
    double waiting = exposition_value(page, "convoy_transfer_queued", "queue=\"messages\"");
    EXPECT(dropped > 0 && dropped <= 1000);
    EXPECT(dropped + waiting < asked && dropped + waiting > asked / 2.0); /* the rest lies in the ring */
    exposition_free(page);
    rank_mark(rank, 3);
}

static void test_transfer_stats_count_messages_that_are_dropped(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {stand_still, talk_to_one_that_stands}};
    struct ranks *ranks = scene_create(&plan, sizeof(struct scene_sessions));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 1, 2);
    ranks_stop(ranks, 0);
    ranks_mark(ranks, 1);
    ranks_await_mark(ranks, 1, 3);
    ranks_signal(ranks, 0, SIGCONT);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_stats_say_the_same_in_both_forms_and_in_the_timeline),
        cmocka_unit_test(test_transfer_stats_of_peers_without_shared_memory_are_those_of_the_timeline),
        cmocka_unit_test(test_transfer_stats_of_what_is_offered_early_have_all_times),
        cmocka_unit_test(test_transfer_stats_show_what_is_held_and_what_waits),
        cmocka_unit_test(test_transfer_stats_count_messages_that_are_dropped),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_stats", tests, NULL, NULL);
}
