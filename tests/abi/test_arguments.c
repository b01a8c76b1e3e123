/* SPDX-License-Identifier: Apache-2.0 */
/* What every call refuses, and how it says so: NULL for each pointer, unknown flags, values out of range. A refusal names
 * the parameter, the value and what is allowed, and changes nothing. */
#include "tests/abi/struct_cases.h"

#include "tests/lib/expect.h"
#include "tests/lib/tasks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void reset(struct struct_host *host)
{
    host->error = (struct convoy_error){.struct_size = sizeof host->error};
}

static void expect_refused(struct struct_host *host, int32_t status, int32_t wanted, const char *parameter)
{
    EXPECT_STATUS(status, wanted, &host->error);
    EXPECT_EQUAL(host->error.status, wanted);
    EXPECT_TEXT(host->error.text, parameter);
    reset(host);
}

static void expect_null(struct struct_host *host, int32_t status, const char *parameter)
{
    expect_refused(host, status, CONVOY_INVALID_ARGUMENT, parameter);
}

static void test_arguments_null_in_query_is_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    convoy_query_fn query = host->member->plugin.query;
    struct convoy_host_info info = host->info;
    struct convoy_plugin_info plugin_info = host->plugin_info;
    expect_null(host, query(NULL, &host->plugin_info, &host->error), "host_info is NULL");
    expect_null(host, query(&host->info, NULL, &host->error), "plugin_info is NULL");
    info.families = NULL;
    expect_null(host, query(&info, &host->plugin_info, &host->error), "family_request");
    plugin_info.answers = NULL;
    expect_null(host, query(&host->info, &plugin_info, &host->error), "family_answer");
    assert_int_equal(query(NULL, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(query(&host->info, &host->plugin_info, NULL), CONVOY_OK);
    struct_host_destroy(host);
}

static void test_arguments_null_in_context_calls_is_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_core_table *core = host->member->plugin.core;
    convoy_context *context = host->member->context;
    convoy_group *group = NULL;
    struct convoy_error *error = &host->error;
    expect_null(host, core->context_open(&host->config, NULL, error), "context_out is NULL");
    expect_null(host, core->context_describe(NULL, CONVOY_TOPIC_CONFIG, &host->calls.text, error), "context is NULL");
    expect_null(host, core->context_describe(context, CONVOY_TOPIC_CONFIG, NULL, error), "text_buffer is NULL");
    expect_null(host, core->group_open(NULL, &host->options, &group, error), "context is NULL");
    expect_null(host, core->group_open(context, NULL, &group, error), "group_options is NULL");
    expect_null(host, core->group_open(context, &host->options, NULL, error), "group_out is NULL");
    expect_null(host, core->group_open_start(NULL, &host->options, &group, error), "context is NULL");
    expect_null(host, core->group_open_start(context, NULL, &group, error), "group_options is NULL");
    expect_null(host, core->group_open_start(context, &host->options, NULL, error), "group_out is NULL");
    assert_null(group);
    assert_int_equal(core->context_close(NULL, 0, error), CONVOY_OK);
    EXPECT_OK(struct_cases[0].run(host, NULL, 0), error); /* a context with every default */
    struct_host_destroy(host);
}

static void test_arguments_null_group_is_refused_by_every_call(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    host->calls.group = NULL;
    for (size_t i = 0; i < calls_count; i++) {
        int32_t status = calls_list[i].run(&host->calls);
        if (calls_list[i].kind == CALL_CLOSE) {
            EXPECT_EQUAL(status, CONVOY_OK);
            continue;
        }
        EXPECT_STATUS(status, CONVOY_INVALID_ARGUMENT, &host->calls.error);
        EXPECT_TEXT(host->calls.error.text, "group is NULL");
    }
    struct_host_destroy(host);
}

static void test_arguments_null_in_group_calls_is_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_core_table *core = host->member->plugin.core;
    convoy_group *group = host->calls.group;
    struct convoy_error *error = &host->error;
    expect_null(host, core->group_cancel(group, NULL, 3, error), "reason is NULL");
    expect_null(host, core->operation_report(group, NULL, error), "report is NULL");
    expect_null(host, core->group_info(group, NULL, error), "group_info is NULL");
    expect_null(host, core->group_describe(group, CONVOY_TOPIC_DUMP, NULL, error), "text_buffer is NULL");
    struct convoy_report report = host->calls.report;
    report.members = NULL;
    expect_null(host, core->operation_report(group, &report, error), "member_report");
    EXPECT_OK(core->group_reopen(group, 0, NULL, error), error); /* who only wants to go on */
    struct_host_destroy(host);
}

static void test_arguments_null_in_poll_calls_is_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_poll_table *poll = host->member->plugin.poll;
    struct calls *calls = &host->calls;
    struct convoy_error *error = &host->error;
    struct convoy_poll_call call = calls->poll;
    convoy_operation operation = 0;
    expect_null(host, poll->reduce_start(calls->group, NULL, &operation, error), "poll_call is NULL");
    expect_null(host, poll->reduce_start(calls->group, &call, NULL, error), "operation_out is NULL");
    expect_null(host, poll->reduce(calls->group, NULL, 0, &calls->poll_result, error), "poll_call is NULL");
    expect_null(host, poll->reduce(calls->group, &call, 0, NULL, error), "poll_result is NULL");
    expect_null(host, poll->reduce2_start(calls->group, NULL, &call, &operation, error), "group is NULL");
    expect_null(host, poll->reduce2_start(calls->group, calls->group, &call, &operation, error), "same group");
    expect_null(host, poll->reduce2_start(calls->group, calls->second, NULL, &operation, error), "poll_call is NULL");
    expect_null(host, poll->reduce2_start(calls->group, calls->second, &call, NULL, error), "operation_out is NULL");
    call.lists = NULL;
    expect_null(host, poll->reduce_start(calls->group, &call, &operation, error), "list");
    assert_int_equal(operation, 0);
    expect_null(host, poll->consensus(NULL, host->states, error), "poll_consensus is NULL");
    expect_null(host, poll->consensus(&host->consensus, NULL, error), "states_out is NULL");
    struct_host_destroy(host);
}

static void test_arguments_null_result_is_refused_and_the_operation_stays(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    struct calls *calls = &host->calls;
    struct convoy_error *error = &host->error;
    const struct convoy_poll_table *poll = host->member->plugin.poll;
    const struct convoy_sync_table *sync = host->member->plugin.sync;
    calls_start(calls, CALL_POLL);
    expect_null(host, poll->reduce_test(calls->group, calls->operation, NULL, error), "poll_result is NULL");
    expect_null(host, poll->reduce_wait(calls->group, calls->operation, 0, NULL, error), "poll_result is NULL");
    EXPECT_OK(poll->reduce_test(calls->group, calls->operation, &calls->poll_result, error), error);
    calls_start(calls, CALL_POLL2);
    expect_null(host, poll->reduce2_test(calls->group, calls->operation, NULL, error), "poll_result is NULL");
    expect_null(host, poll->reduce2_wait(calls->group, calls->operation, 0, NULL, error), "poll_result is NULL");
    EXPECT_OK(poll->reduce2_wait(calls->group, calls->operation, 0, &calls->poll_result, error), error);
    calls_start(calls, CALL_SYNC);
    expect_null(host, sync->gather_test(calls->group, calls->operation, NULL, error), "sync_result is NULL");
    expect_null(host, sync->gather_wait(calls->group, calls->operation, 0, NULL, error), "sync_result is NULL");
    EXPECT_OK(sync->gather_test(calls->group, calls->operation, &calls->sync_result, error), error);
    struct_host_destroy(host);
}

static void test_arguments_null_in_sync_calls_is_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_sync_table *sync = host->member->plugin.sync;
    struct calls *calls = &host->calls;
    struct convoy_error *error = &host->error;
    convoy_operation operation = 0;
    int64_t starts[2];
    expect_null(host, sync->gather_start(calls->group, NULL, &operation, error), "sync_call is NULL");
    expect_null(host, sync->gather_start(calls->group, &calls->sync, NULL, error), "operation_out is NULL");
    expect_null(host, sync->gather(calls->group, NULL, 0, &calls->sync_result, error), "sync_call is NULL");
    expect_null(host, sync->gather(calls->group, &calls->sync, 0, NULL, error), "sync_result is NULL");
    expect_null(host, sync->padded_size(NULL, &host->padded, error), "sync_padding is NULL");
    expect_null(host, sync->padded_size(&host->padding, NULL, error), "sync_padded is NULL");
    expect_null(host, sync->starts(NULL, 8, starts, error), "sync_padding is NULL");
    expect_null(host, sync->starts(&host->padding, 8, NULL, error), "starts_out is NULL");
    struct_host_destroy(host);
}

/* The error struct itself may be NULL everywhere. */
static void test_arguments_null_error_is_accepted_everywhere(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct plugin *plugin = &host->member->plugin;
    assert_int_equal(plugin->core->context_open(&host->config, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(plugin->core->group_open(host->member->context, NULL, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(plugin->core->group_info(host->calls.group, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(plugin->poll->reduce_test(host->calls.group, 99, &host->calls.poll_result, NULL), CONVOY_CLOSED);
    assert_int_equal(plugin->sync->gather_test(host->calls.group, 99, &host->calls.sync_result, NULL), CONVOY_CLOSED);
    assert_int_equal(plugin->poll->reduce(host->calls.group, NULL, 0, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(plugin->sync->padded_size(NULL, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    struct_host_destroy(host);
}

/* critical_flags: an unknown bit refuses, everywhere as UNSUPPORTED; hint_flags: it is ignored. */
static void test_arguments_unknown_critical_flags_refuse_and_unknown_hints_do_not(void **state)
{
    (void)state;
    static const char *const names[] = {"context_config", "group_options", "sync_schema",
                                        "poll_call",      "sync_call",     "host_info"};
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        const struct struct_case *one = &struct_cases[i];
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++) {
            if (strcmp(one->name, names[j]) != 0) {
                continue;
            }
            uint32_t bytes[128];
            (void)memcpy(bytes, (const char *)host + one->offset, one->bytes);
            bytes[1] = 0x40000000u; /* critical_flags is the second field of each */
            expect_refused(host, one->run(host, bytes, 0), CONVOY_UNSUPPORTED, "critical_flags");
            bytes[1] = 0;
            if (strcmp(one->name, "sync_schema") != 0) { /* has no hints */
                bytes[2] = 0x40000000u;
                EXPECT_OK(one->run(host, bytes, 0), &host->error);
            }
        }
    }
    struct_host_destroy(host);
}

/* One bad value in good options, and what the text must name. */
struct bad_options {
    void (*spoil)(struct convoy_group_options *options);
    const char *texts[3];
};

static const int32_t ids_twice[3] = {4, 7, 4};
static const int32_t ids_negative[2] = {0, -3};
static const int32_t ids_good[2] = {0, 1};

static void no_name(struct convoy_group_options *options) { options->name = NULL; }
static void long_name(struct convoy_group_options *options) { options->name_length = 128; }
static void large_blob(struct convoy_group_options *options) { options->blob_bytes_max = 1048577; }
static void long_log(struct convoy_group_options *options) { options->call_log_entries = 65537; }
static void no_members(struct convoy_group_options *options) { options->member_count = 0; }
static void many_members(struct convoy_group_options *options) { options->member_count = 1025; }
static void null_members(struct convoy_group_options *options) { options->member_ids = NULL; }
static void far_index(struct convoy_group_options *options) { options->own_index = 1; }
static void far_listener(struct convoy_group_options *options) { options->listener_index = 9; }
static void foreign_id(struct convoy_group_options *options) { options->own_id = 77; }

static void twice(struct convoy_group_options *options)
{
    options->member_ids = ids_twice;
    options->member_count = 3;
    options->rendezvous = "tcp://127.0.0.1:1";
    options->rendezvous_length = strlen(options->rendezvous);
}

static void negative(struct convoy_group_options *options)
{
    twice(options);
    options->member_ids = ids_negative;
    options->member_count = 2;
}

static void no_way_to_meet(struct convoy_group_options *options)
{
    negative(options);
    options->member_ids = ids_good;
    options->rendezvous = NULL;
}

static void bad_inner(struct convoy_group_options *options) { options->sync_inner = 2; }

/* sgl-project/sglang issue 29725: members are given by an explicit list and an explicit own id, and both are checked. */
static const struct bad_options bad_options[] = {
    {no_name, {"name", "1..127", NULL}},
    {long_name, {"name_length", "128", "1..127"}},
    {large_blob, {"blob_bytes_max", "1048577", "0..1048576"}},
    {long_log, {"call_log_entries", "65537", "0..65536"}},
    {no_members, {"member_count", "0", "1..1024"}},
    {many_members, {"member_count", "1025", "1..1024"}},
    {null_members, {"member_", NULL, NULL}},
    {far_index, {"own_index", "1", "member_count"}},
    {far_listener, {"listener_index", "9", "member_count"}},
    {foreign_id, {"own_id", "77", "0"}},
    {twice, {"member id 4", "0 and 2", NULL}},
    {negative, {"member_ids[1]", "-3", "0"}},
    {no_way_to_meet, {"rendezvous", "allgather", NULL}},
    {bad_inner, {"sync_inner", "2", NULL}},
};

static void test_arguments_bad_options_are_named_with_value_and_range(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_core_table *core = host->member->plugin.core;
    for (size_t i = 0; i < sizeof bad_options / sizeof bad_options[0]; i++) {
        struct convoy_group_options options = host->options;
        convoy_group *group = NULL;
        bad_options[i].spoil(&options);
        EXPECT_STATUS(core->group_open(host->member->context, &options, &group, &host->error), CONVOY_INVALID_ARGUMENT,
                      &host->error);
        EXPECT(group == NULL);
        for (size_t j = 0; j < 3 && bad_options[i].texts[j] != NULL; j++) {
            EXPECT_TEXT(host->error.text, bad_options[i].texts[j]);
        }
        reset(host);
    }
    struct_host_destroy(host);
}

/* -- what a member gets wrong while the others are absent, or there ------------------------------------------------ */

struct bad_value {
    void (*spoil)(struct convoy_group_options *options);
    int32_t status;
    const char *texts[3];
};

static const struct convoy_poll_faults faults_often = {
    .struct_size = sizeof faults_often, .probability_ppm = 1000001};
static const struct convoy_poll_fault fault_far = {.round = 1, .list = CONVOY_POLL_LISTS_MAX};
static const struct convoy_poll_faults faults_far = {
    .struct_size = sizeof faults_far, .script = &fault_far, .script_stride = sizeof fault_far, .script_count = 1};
static const struct convoy_poll_fault fault_zero = {.round = 0};
static const struct convoy_poll_faults faults_zero = {
    .struct_size = sizeof faults_zero, .script = &fault_zero, .script_stride = sizeof fault_zero, .script_count = 1};
static const struct convoy_poll_faults faults_many = {
    .struct_size = sizeof faults_many, .script = &fault_far, .script_stride = sizeof fault_far, .script_count = 4097};
static const struct convoy_sync_schema row_schema = {
    .struct_size = sizeof row_schema, .builtin = "sglang-7", .builtin_length = 8};

static void set_rendezvous(struct convoy_group_options *options, const char *text)
{
    options->rendezvous = text;
    options->rendezvous_length = strlen(text);
}

static void inner_of_three(struct convoy_group_options *options) { options->sync_inner = 3; }
static void few_slots(struct convoy_group_options *options) { options->sync_slots = 1; }
static void many_slots(struct convoy_group_options *options) { options->sync_slots = 65537; }
static void often(struct convoy_group_options *options) { options->poll_faults = &faults_often; }
static void far_list(struct convoy_group_options *options) { options->poll_faults = &faults_far; }
static void round_zero(struct convoy_group_options *options) { options->poll_faults = &faults_zero; }
static void many_faults(struct convoy_group_options *options) { options->poll_faults = &faults_many; }
static void no_scheme(struct convoy_group_options *options) { set_rendezvous(options, "127.0.0.1:4711"); }
static void no_port(struct convoy_group_options *options) { set_rendezvous(options, "tcp://127.0.0.1"); }
static void far_port(struct convoy_group_options *options) { set_rendezvous(options, "tcp://127.0.0.1:70000"); }
static void other_path(struct convoy_group_options *options) { set_rendezvous(options, "tcp://127.0.0.1:1/dp"); }

static void long_row(struct convoy_group_options *options)
{
    options->schema = &row_schema;
    options->blob_bytes_max = 32;
}

static const struct bad_value bad_values[] = {
    {inner_of_three, CONVOY_INVALID_ARGUMENT, {"group pair: sync_inner is 3", "2 members", NULL}},
    {few_slots, CONVOY_INVALID_ARGUMENT, {"group pair: sync_slots is 1", "2 to 65536", NULL}},
    {many_slots, CONVOY_INVALID_ARGUMENT, {"group pair: sync_slots is 65537", "2 to 65536", NULL}},
    {often, CONVOY_INVALID_ARGUMENT, {"group pair: poll_faults.probability_ppm is 1000001", "0 to 1000000", NULL}},
    {far_list, CONVOY_INVALID_ARGUMENT, {"group pair: poll_faults.script[0].list is 8", "0 to 7", NULL}},
    {round_zero, CONVOY_INVALID_ARGUMENT, {"group pair: poll_faults.script[0].round is 0", "from 1", NULL}},
    {many_faults, CONVOY_INVALID_ARGUMENT, {"group pair: poll_faults.script_count is 4097", "0 to 4096", NULL}},
    {long_row, CONVOY_LIMIT, {"group pair: a row of 7 columns", "blob_bytes_max is 32", "raise it"}},
    {no_scheme, CONVOY_INVALID_ARGUMENT, {"group pair: rendezvous \"127.0.0.1:4711\"", "tcp://", NULL}},
    {no_port, CONVOY_INVALID_ARGUMENT, {"group pair: rendezvous \"tcp://127.0.0.1\"", "port", NULL}},
    {far_port, CONVOY_INVALID_ARGUMENT, {"tcp://127.0.0.1:70000", "1 to 65535", NULL}},
    {other_path, CONVOY_INVALID_ARGUMENT, {"tcp://127.0.0.1:1/dp", "name of the group", NULL}},
};

#define BAD_VALUE_COUNT (sizeof bad_values / sizeof bad_values[0])

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A port of loopback that takes connections and never answers. */
static int listen_silently(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQUAL(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    EXPECT_EQUAL(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    EXPECT_EQUAL(listen(fd, 16), 0);
    return fd;
}

/* Both forms of opening refuse the value themselves: no handle, and the text says what is wrong. */
static void expect_bad_value(struct plugin_member *member, const struct bad_value *bad)
{
    const struct convoy_core_table *core = member->plugin.core;
    struct convoy_group_options options = member->options;
    convoy_group *group = NULL;
    bad->spoil(&options);
    for (int is_split = 0; is_split < 2; is_split++) {
        member->error = (struct convoy_error){.struct_size = sizeof member->error};
        int32_t status = is_split ? core->group_open_start(member->context, &options, &group, &member->error)
                                  : core->group_open(member->context, &options, &group, &member->error);
        EXPECT_STATUS(status, bad->status, &member->error);
        EXPECT_EQUAL(member->error.status, bad->status);
        EXPECT(group == NULL);
        for (size_t i = 0; i < 3 && bad->texts[i] != NULL; i++) {
            EXPECT_TEXT(member->error.text, bad->texts[i]);
        }
    }
}

/* Nobody else is there, and whoever waited for them would wait for 20 seconds. No thread starts, nothing is sent. */
static void test_arguments_bad_values_are_refused_before_anybody_is_met(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    int fd = listen_silently(port);
    for (uint32_t index = 0; index < 2; index++) {
        struct plugin_member *member = plugin_member_create(index, 2, "pair", port);
        const struct convoy_core_table *core = member->plugin.core;
        EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
        unsigned threads = tasks_count();
        for (size_t i = 0; i < BAD_VALUE_COUNT; i++) {
            uint64_t before_ms = now_ms();
            expect_bad_value(member, &bad_values[i]);
            EXPECT(now_ms() - before_ms < 1000);
            EXPECT_EQUAL(tasks_count(), threads);
        }
        plugin_member_destroy(member);
    }
    EXPECT_EQUAL(accept(fd, NULL, NULL), -1); /* nobody has connected */
    EXPECT_EQUAL(errno, EAGAIN);
    (void)close(fd);
}

/* The others are opening; one member's bad values are its own matter, and it comes with good ones. */
static void test_arguments_bad_values_of_one_member_leave_the_others_opening(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct plugin_member *good = plugin_member_create(0, 2, "pair", port);
    struct plugin_member *bad = plugin_member_create(1, 2, "pair", port);
    const struct convoy_core_table *core = good->plugin.core;
    EXPECT_OK(core->context_open(&good->config, &good->context, &good->error), &good->error);
    EXPECT_OK(core->context_open(&bad->config, &bad->context, &bad->error), &bad->error);
    EXPECT_OK(core->group_open_start(good->context, &good->options, &good->group, &good->error), &good->error);
    for (size_t i = 0; i < BAD_VALUE_COUNT; i++) {
        expect_bad_value(bad, &bad_values[i]);
    }
    EXPECT_STATUS(core->group_open_test(good->group, &good->error), CONVOY_IN_PROGRESS, &good->error);
    EXPECT_OK(core->group_open(bad->context, &bad->options, &bad->group, &bad->error), &bad->error);
    EXPECT_OK(core->group_open_wait(good->group, PLUGIN_OPEN_TIMEOUT_NS, &good->error), &good->error);
    plugin_member_destroy(bad);
    plugin_member_destroy(good);
}

static void test_arguments_bad_config_is_named_with_value_and_range(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    struct convoy_context_config config = host->config;
    config.log_level = 6;
    expect_refused(host, struct_cases[0].run(host, &config, 0), CONVOY_INVALID_ARGUMENT, "log_level: 6 is not in 0..5");
    config = host->config;
    config.secret = "x";
    config.secret_bytes = 1025;
    expect_refused(host, struct_cases[0].run(host, &config, 0), CONVOY_INVALID_ARGUMENT, "1025 is not in 0..1024");
    config = host->config;
    config.secret_bytes = 5;
    expect_refused(host, struct_cases[0].run(host, &config, 0), CONVOY_INVALID_ARGUMENT, "secret is NULL");
    config = host->config;
    config.settings_length = 5;
    expect_refused(host, struct_cases[0].run(host, &config, 0), CONVOY_INVALID_ARGUMENT, "settings is NULL");
    struct_host_destroy(host);
}

static void test_arguments_unknown_topics_are_refused_by_number(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    const struct convoy_core_table *core = host->member->plugin.core;
    struct convoy_text_buffer *text = &host->calls.text;
    static const uint32_t topics[] = {0, CONVOY_TOPIC_CONFIG, 7, UINT32_MAX};
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        expect_null(host, core->group_describe(host->calls.group, topics[i], text, &host->error), "topic");
    }
    expect_null(host, core->context_describe(host->member->context, CONVOY_TOPIC_DUMP, text, &host->error), "topic: 1");
    struct_host_destroy(host);
}

/* sgl-project/sglang PR 31075, issue 40125: an unknown state, or one key twice, is an error with list and entry, and the
 * group goes on. */
static void test_arguments_bad_states_and_keys_are_named_and_the_group_goes_on(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    static const int32_t states[] = {5, 255, -1, INT32_MAX};
    static const char *const texts[] = {"5", "255", "-1", "2147483647"};
    static const uint64_t keys[3] = {7, 7, 9};
    static const uint8_t three[3] = {1, 1, 1};
    struct convoy_poll_list list = {.name = "queue", .name_length = 5, .count = 1, .state_bytes = 4};
    uint8_t room[3];
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        list.states = &states[i];
        expect_refused(host, struct_cases[13].run(host, &list, sizeof list), CONVOY_INVALID_ARGUMENT, texts[i]);
    }
    list = (struct convoy_poll_list){.name = "queue", .name_length = 5, .count = 3, .states = three, .keys = keys,
                                     .flags = CONVOY_POLL_KEYED};
    host->calls.list_result.states = room;
    host->calls.list_result.states_capacity = 3;
    expect_refused(host, struct_cases[13].run(host, &list, sizeof list), CONVOY_INVALID_ARGUMENT, "7");
    list.flags = 0;
    EXPECT_OK(struct_cases[13].run(host, &list, sizeof list), &host->error);
    struct_host_destroy(host);
}

/* A refused start of a two-level reduce leaves the open one as it is. */
static void test_arguments_refused_second_start_keeps_the_open_two_level_operation(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    struct calls *calls = &host->calls;
    convoy_group *other = NULL;
    convoy_operation operation = 0;
    EXPECT_OK(host->member->plugin.core->group_open(host->member->context, &host->options, &other, &host->error),
              &host->error);
    calls_start(calls, CALL_POLL2);
    EXPECT_EQUAL(calls->plugin.poll->reduce2_start(calls->group, other, &calls->poll, &operation, &host->error),
                 CONVOY_BUSY);
    EXPECT_OK(host->member->plugin.core->group_close(other, 0, &host->error), &host->error);
    EXPECT_OK(calls->plugin.poll->reduce2_wait(calls->group, calls->operation, 0, &calls->poll_result, &host->error),
              &host->error);
    struct_host_destroy(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments_null_in_query_is_refused),
        cmocka_unit_test(test_arguments_null_in_context_calls_is_refused),
        cmocka_unit_test(test_arguments_null_group_is_refused_by_every_call),
        cmocka_unit_test(test_arguments_null_in_group_calls_is_refused),
        cmocka_unit_test(test_arguments_null_in_poll_calls_is_refused),
        cmocka_unit_test(test_arguments_null_result_is_refused_and_the_operation_stays),
        cmocka_unit_test(test_arguments_null_in_sync_calls_is_refused),
        cmocka_unit_test(test_arguments_null_error_is_accepted_everywhere),
        cmocka_unit_test(test_arguments_unknown_critical_flags_refuse_and_unknown_hints_do_not),
        cmocka_unit_test(test_arguments_bad_options_are_named_with_value_and_range),
        cmocka_unit_test(test_arguments_bad_values_are_refused_before_anybody_is_met),
        cmocka_unit_test(test_arguments_bad_values_of_one_member_leave_the_others_opening),
        cmocka_unit_test(test_arguments_bad_config_is_named_with_value_and_range),
        cmocka_unit_test(test_arguments_unknown_topics_are_refused_by_number),
        cmocka_unit_test(test_arguments_bad_states_and_keys_are_named_and_the_group_goes_on),
        cmocka_unit_test(test_arguments_refused_second_start_keeps_the_open_two_level_operation),
    };
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
