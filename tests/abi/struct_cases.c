/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/struct_cases.h"

#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>

/* -- core -- */

static int32_t run_config(struct struct_host *host, void *given, size_t stride)
{
    convoy_context *context = NULL;
    (void)stride;
    int32_t status = host->member->plugin.core->context_open(given, &context, &host->error);
    EXPECT((status == CONVOY_OK) == (context != NULL));
    (void)host->member->plugin.core->context_close(context, 0, NULL);
    return status;
}

static int32_t open_group(struct struct_host *host, const struct convoy_group_options *options)
{
    convoy_group *group = NULL;
    const struct convoy_core_table *core = host->member->plugin.core;
    int32_t status = core->group_open(host->member->context, options, &group, &host->error);
    EXPECT((status == CONVOY_OK) == (group != NULL));
    (void)core->group_close(group, 0, NULL);
    return status;
}

static int32_t run_options(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return open_group(host, given);
}

static int32_t run_schema(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_group_options options = host->member->options;
    (void)stride;
    options.schema = given;
    return open_group(host, &options);
}

static int32_t run_column(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .columns = given, .column_stride = stride, .column_count = 1};
    return run_schema(host, &schema, 0);
}

static int32_t run_faults(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_group_options options = host->member->options;
    (void)stride;
    options.poll_faults = given;
    return open_group(host, &options);
}

static int32_t run_fault(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_poll_faults faults = {
        .struct_size = sizeof faults, .script = given, .script_stride = stride, .script_count = 1};
    return run_faults(host, &faults, 0);
}

static int32_t run_info(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.core->group_info(host->calls.group, given, &host->error);
}

static int32_t run_reopened(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.core->group_reopen(host->calls.group, 0, given, &host->error);
}

static int32_t run_text(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.core->group_describe(host->calls.group, CONVOY_TOPIC_DUMP, given, &host->error);
}

static int32_t run_text_of_context(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.core->context_describe(host->member->context, CONVOY_TOPIC_CONFIG, given, &host->error);
}

static int32_t run_report(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.core->operation_report(host->calls.group, given, &host->error);
}

static int32_t run_report_row(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_report report = {
        .struct_size = sizeof report, .members = given, .member_stride = stride, .member_capacity = 1};
    return run_report(host, &report, 0);
}

/* -- poll -- */

static int32_t reduce(struct struct_host *host, const struct convoy_poll_call *call, struct convoy_poll_result *result)
{
    return host->calls.plugin.poll->reduce(host->calls.group, call, 0, result, &host->error);
}

static int32_t run_poll_call(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return reduce(host, given, &host->calls.poll_result);
}

static int32_t run_poll_list(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_poll_call call = host->calls.poll;
    call.lists = given;
    call.list_stride = stride;
    return reduce(host, &call, &host->calls.poll_result);
}

static int32_t run_poll_result(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return reduce(host, &host->calls.poll, given);
}

static int32_t run_poll_list_result(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_poll_result result = host->calls.poll_result;
    result.lists = given;
    result.list_stride = stride;
    return reduce(host, &host->calls.poll, &result);
}

static int32_t run_poll_report(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_poll_result result = host->calls.poll_result;
    (void)stride;
    result.report = given;
    return reduce(host, &host->calls.poll, &result);
}

static int32_t run_poll_report_row(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_report report = {
        .struct_size = sizeof report, .members = given, .member_stride = stride, .member_capacity = 1};
    return run_poll_report(host, &report, 0);
}

static int32_t run_consensus(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.poll->consensus(given, host->states, &host->error);
}

/* -- sync -- */

static int32_t gather(struct struct_host *host, const struct convoy_sync_call *call, struct convoy_sync_result *result)
{
    return host->calls.plugin.sync->gather(host->calls.group, call, 0, result, &host->error);
}

static int32_t run_sync_call(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return gather(host, given, &host->calls.sync_result);
}

static int32_t run_sync_result(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return gather(host, &host->calls.sync, given);
}

static int32_t run_sync_report(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_sync_result result = host->calls.sync_result;
    (void)stride;
    result.report = given;
    return gather(host, &host->calls.sync, &result);
}

static int32_t run_sync_report_row(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_report report = {
        .struct_size = sizeof report, .members = given, .member_stride = stride, .member_capacity = 1};
    return run_sync_report(host, &report, 0);
}

static int32_t run_padding(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.sync->padded_size(given, &host->padded, &host->error);
}

static int32_t run_padding_starts(struct struct_host *host, void *given, size_t stride)
{
    int64_t starts[2];
    (void)stride;
    return host->calls.plugin.sync->starts(given, 8, starts, &host->error);
}

static int32_t run_padded(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->calls.plugin.sync->padded_size(&host->padding, given, &host->error);
}

/* -- query -- */

static int32_t run_host_info(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->member->plugin.query(given, &host->plugin_info, &host->error);
}

static int32_t run_plugin_info(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return host->member->plugin.query(&host->info, given, &host->error);
}

static int32_t run_request(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_host_info info = host->info;
    info.families = given;
    info.family_stride = stride;
    return run_host_info(host, &info, 0);
}

static int32_t run_answer(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_plugin_info info = host->plugin_info;
    info.answers = given;
    info.answer_stride = stride;
    return run_plugin_info(host, &info, 0);
}

#define PART(tag, field) #tag, sizeof(struct convoy_##tag), offsetof(struct struct_host, field)

/* A good one of each lies in struct struct_host. */
const struct struct_case struct_cases[] = {
    {PART(context_config, config), false, run_config, false},
    {PART(group_options, options), false, run_options, false},
    {PART(sync_schema, schema), false, run_schema, false},
    {PART(sync_column, column), false, run_column, true},
    {PART(poll_faults, faults), false, run_faults, false},
    {PART(poll_fault, fault), false, run_fault, true},
    {PART(group_info, calls.info), true, run_info, false},
    {PART(reopen_result, calls.reopened), true, run_reopened, false},
    {PART(text_buffer, calls.text), true, run_text, false},
    {PART(text_buffer, calls.text), true, run_text_of_context, false},
    {PART(report, calls.report), true, run_report, false},
    {PART(member_report, calls.rows), true, run_report_row, true},
    {PART(poll_call, calls.poll), false, run_poll_call, false},
    {PART(poll_list, calls.list), false, run_poll_list, true},
    {PART(poll_result, calls.poll_result), true, run_poll_result, false},
    {PART(poll_list_result, calls.list_result), true, run_poll_list_result, true},
    {PART(report, calls.report), true, run_poll_report, false},
    {PART(member_report, calls.rows), true, run_poll_report_row, true},
    {PART(poll_consensus, consensus), false, run_consensus, false},
    {PART(sync_call, calls.sync), false, run_sync_call, false},
    {PART(sync_result, calls.sync_result), true, run_sync_result, false},
    {PART(report, calls.report), true, run_sync_report, false},
    {PART(member_report, calls.rows), true, run_sync_report_row, true},
    {PART(sync_padding, padding), false, run_padding, false},
    {PART(sync_padding, padding), false, run_padding_starts, false},
    {PART(sync_padded, padded), true, run_padded, false},
    {PART(host_info, info), false, run_host_info, false},
    {PART(plugin_info, plugin_info), true, run_plugin_info, false},
    {PART(family_request, request), false, run_request, true},
    {PART(family_answer, answer), true, run_answer, true},
#define ENGINE_CASE(tag, field, is_out, function, is_array) {PART(tag, engines.field), is_out, function, is_array},
    STRUCT_ENGINE_CASES(ENGINE_CASE)
};

const size_t struct_case_count = sizeof struct_cases / sizeof struct_cases[0];

/* Structs that are longer than in 1.0, by the first field since. */
#define GROWN(tag, field) {#tag, offsetof(struct convoy_##tag, field)}
static const struct {
    const char *name;
    size_t first_bytes;
} grown[] = {
    GROWN(engine_info, admitted_count),
    GROWN(payload, priority),
    GROWN(send, priority),
    GROWN(stage, priority),
};

size_t struct_case_first_bytes(const struct struct_case *one)
{
    for (size_t i = 0; i < sizeof grown / sizeof grown[0]; i++) {
        if (strcmp(one->name, grown[i].name) == 0) {
            return grown[i].first_bytes;
        }
    }
    return one->bytes;
}

static void fill_pure(struct struct_host *host)
{
    host->ids[0] = 7;
    host->ids[1] = 9;
    host->tokens[0] = 3;
    host->tokens[1] = 5;
    host->consensus = (struct convoy_poll_consensus){.struct_size = sizeof host->consensus,
                                                     .success_state = CONVOY_STATE_SUCCESS,
                                                     .ids = host->ids,
                                                     .id_count = 2,
                                                     .good = host->ids,
                                                     .good_count = 1};
    host->padding = (struct convoy_sync_padding){
        .struct_size = sizeof host->padding, .layout = CONVOY_LAYOUT_SUM, .tokens = host->tokens, .token_count = 2};
    host->padded = (struct convoy_sync_padded){.struct_size = sizeof host->padded};
}

static void fill_query(struct struct_host *host)
{
    host->request = (struct convoy_family_request){.name = "poll", .name_length = 4, .major_min = 1, .major_max = 1};
    host->info = (struct convoy_host_info){.struct_size = sizeof host->info,
                                           .families = &host->request,
                                           .family_stride = sizeof host->request,
                                           .family_count = 1};
    host->plugin_info = (struct convoy_plugin_info){.struct_size = sizeof host->plugin_info,
                                                    .answers = &host->answer,
                                                    .answer_stride = sizeof host->answer,
                                                    .answer_capacity = 1};
}

struct struct_host *struct_host_create(void)
{
    struct struct_host *host = calloc(1, sizeof *host);
    EXPECT(host != NULL);
    host->schema = (struct convoy_sync_schema){
        .struct_size = sizeof host->schema, .builtin = "sglang-7", .builtin_length = 8};
    host->column = (struct convoy_sync_column){.name = "tokens", .name_length = 6};
    host->faults = (struct convoy_poll_faults){.struct_size = sizeof host->faults};
    host->fault = (struct convoy_poll_fault){.round = 1};
    host->error.struct_size = sizeof host->error;
    host->member = plugin_member_create(0, 1, "structs", 0);
    host->config = host->member->config;
    host->options = host->member->options;
    host->member->options.schema = &host->schema;
    plugin_member_open(host->member);
    host->member->options.schema = NULL;
    EXPECT_OK(host->member->plugin.core->group_open(host->member->context, &host->options, &host->alone, &host->error),
              &host->error);
    calls_init(&host->calls, &host->member->plugin, host->member->group, host->alone);
    fill_pure(host);
    fill_query(host);
    struct_engines_open(host);
    return host;
}

void struct_host_destroy(struct struct_host *host)
{
    struct_engines_close(host);
    plugin_member_destroy(host->member);
    free(host);
}
