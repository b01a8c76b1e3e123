/* SPDX-License-Identifier: Apache-2.0 */
/* The tables as a host with one member calls them: contexts, a group that needs nobody, what is described of both, and
 * structs of older and newer hosts. */
#include "table_member.h"

#include <stdint.h>

#include <cmocka.h>

static int alone_setup(void **state)
{
    *state = alone_open();
    return 0;
}

static int alone_teardown(void **state)
{
    alone_close(*state);
    return 0;
}

/* -- contexts ------------------------------------------------------------------------------------------------------ */

struct config_row {
    struct convoy_context_config config;
    int32_t status;
    const char *words;
};

static void test_tables_context_config_is_refused_by_name_and_range(void **state)
{
    const struct config_row rows[] = {
        {{.struct_size = 4}, CONVOY_TOO_OLD, "context_config"},
        {{.critical_flags = 2}, CONVOY_UNSUPPORTED, "config.critical_flags: 0x2 is unknown, none is defined"},
        {{.log_level = 6}, CONVOY_INVALID_ARGUMENT, "config.log_level: 6 is not in 0..5"},
        {{.secret = "s", .secret_bytes = 1025}, CONVOY_INVALID_ARGUMENT, "config.secret_bytes: 1025 is not in 0..1024"},
        {{.secret_bytes = 1}, CONVOY_INVALID_ARGUMENT, "config.secret_bytes: 1"},
        {{.settings_length = 3}, CONVOY_INVALID_ARGUMENT, "config.settings is NULL with settings_length 3"},
        {{.settings = "{\"nonsense\":1}", .settings_length = 14}, CONVOY_INVALID_ARGUMENT, "nonsense"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        convoy_context *context = NULL;
        struct convoy_context_config config = rows[i].config;
        config.struct_size = config.struct_size != 0 ? config.struct_size : (uint32_t)sizeof config;
        assert_int_equal(core->context_open(&config, &context, &error), rows[i].status);
        assert_null(context);
        if (strstr(error.text, rows[i].words) == NULL) {
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, error.text, rows[i].words);
        }
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(core->context_open(NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "context_out is NULL");
    assert_int_equal(core->context_close(NULL, 0, NULL), CONVOY_OK);
}

static void test_tables_context_describes_itself_and_its_groups(void **state)
{
    static const char *const words[] = {
        [CONVOY_TOPIC_STATS] = "\"groups\":[{", [CONVOY_TOPIC_PROMETHEUS] = "convoy_rounds_total{group=\"tp\",rank=\"10\"",
        [CONVOY_TOPIC_CONFIG] = "\"timeout_ms\"", [CONVOY_TOPIC_NET] = "{"};
    struct table_member *alone = *state;
    for (uint32_t topic = 0; topic <= 7; topic++) {
        int32_t status = core->context_describe(alone->context, topic, &alone->text, &alone->error);
        if (topic < sizeof words / sizeof words[0] && words[topic] != NULL) {
            assert_int_equal(status, CONVOY_OK);
            assert_non_null(strstr(alone->bytes, words[topic]));
        } else {
            char refused[64];
            (void)snprintf(refused, sizeof refused, "topic: %u is none of this object's topics", topic);
            assert_int_equal(status, CONVOY_INVALID_ARGUMENT);
            assert_string_equal(alone->error.text, refused);
        }
    }
    alone->text.capacity = 1;
    assert_int_equal(core->context_describe(alone->context, CONVOY_TOPIC_STATS, &alone->text, NULL),
                     CONVOY_BUFFER_TOO_SMALL);
    assert_true(alone->text.length > 100);
    assert_int_equal(core->context_describe(NULL, CONVOY_TOPIC_STATS, &alone->text, NULL), CONVOY_INVALID_ARGUMENT);
}

/* -- a group ------------------------------------------------------------------------------------------------------- */

static void test_tables_group_open_without_a_place_or_context_is_refused(void **state)
{
    struct table_member *alone = *state;
    convoy_group *group = NULL;
    assert_int_equal(core->group_open(alone->context, &alone->options, NULL, &alone->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(alone->error.text, "group_out is NULL");
    assert_int_equal(core->group_open_start(alone->context, &alone->options, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_open(NULL, &alone->options, &group, &alone->error), CONVOY_INVALID_ARGUMENT);
    alone->options.member_count = 0;
    assert_int_equal(core->group_open_start(alone->context, &alone->options, &group, NULL), CONVOY_INVALID_ARGUMENT);
    assert_null(group);
    assert_int_equal(core->group_open_test(NULL, &alone->error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_open_wait(NULL, 0, NULL), CONVOY_INVALID_ARGUMENT);
}

static void test_tables_group_says_what_it_is_until_it_is_closed_and_after(void **state)
{
    struct table_member *alone = *state;
    struct convoy_group_info info = {.struct_size = sizeof info};
    assert_int_equal(core->group_open_test(alone->group, NULL), CONVOY_OK);
    assert_int_equal(core->group_info(alone->group, &info, NULL), CONVOY_OK);
    assert_int_equal(info.state, CONVOY_GROUP_READY);
    assert_int_equal(info.member_count, 1);
    assert_int_equal(polls->reduce(alone->group, &alone->poll, LONG_NS, &alone->poll_result, NULL), CONVOY_OK);
    assert_non_null(strstr(group_text(alone, CONVOY_TOPIC_DUMP), "\"group\":\"tp\""));
    assert_non_null(strstr(group_text(alone, CONVOY_TOPIC_CALL_LOG), "\"operation\":\"poll\""));
    assert_int_equal(core->group_close(alone->group, 0, NULL), CONVOY_OK);
    assert_int_equal(core->group_close(alone->group, 0, NULL), CONVOY_OK);
    assert_int_equal(core->group_info(alone->group, &info, NULL), CONVOY_OK);
    assert_int_equal(info.state, CONVOY_GROUP_CLOSED);
    assert_int_equal(info.segment_bytes, 0);
    assert_string_equal(group_text(alone, CONVOY_TOPIC_DUMP), "{\"group\":\"tp\",\"state\":\"closed\"}");
    assert_string_equal(group_text(alone, CONVOY_TOPIC_CALL_LOG), "[]");
    assert_non_null(strstr(group_text(alone, CONVOY_TOPIC_STATS), "\"poll\""));
    assert_non_null(strstr(group_text(alone, CONVOY_TOPIC_PROMETHEUS), "status=\"OK\"} 1"));
    assert_int_equal(core->group_describe(alone->group, CONVOY_TOPIC_CONFIG, &alone->text, NULL),
                     CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_cancel(alone->group, "x", 1, &alone->error), CONVOY_CLOSED);
    assert_int_equal(core->group_open_test(alone->group, NULL), CONVOY_CLOSED);
    assert_int_equal(core->group_reopen(alone->group, 0, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(core->operation_abandon(alone->group, 1, NULL), CONVOY_CLOSED);
}

static void test_tables_looks_without_a_group_or_a_place_are_refused(void **state)
{
    struct table_member *alone = *state;
    struct convoy_group_info info = {.struct_size = 8};
    struct convoy_report report = {.struct_size = sizeof report};
    assert_int_equal(core->group_info(NULL, &info, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_info(alone->group, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_info(alone->group, &info, NULL), CONVOY_TOO_OLD);
    assert_int_equal(core->operation_report(NULL, &report, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->operation_report(alone->group, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->operation_report(alone->group, &report, NULL), CONVOY_OK);
    assert_int_equal(report.own_rank, 10);
    assert_int_equal(core->group_describe(NULL, CONVOY_TOPIC_DUMP, &alone->text, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_cancel(NULL, NULL, 0, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(core->group_cancel(alone->group, NULL, 4, &alone->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(alone->error.text, "reason is NULL with reason_length 4");
    assert_int_equal(core->group_cancel(alone->group, "x", 1, NULL), CONVOY_OK);
    assert_int_equal(core->group_close(NULL, 0, NULL), CONVOY_OK);
}

/* -- structs of other sizes ---------------------------------------------------------------------------------------- */

static void test_tables_reduce_takes_newer_structs_and_wider_strides(void **state)
{
    struct table_member *alone = *state;
    struct {
        struct convoy_poll_call call;
        uint64_t newer;
    } call = {.call = alone->poll};
    struct {
        struct convoy_poll_list_result result;
        uint64_t newer;
    } lists[2] = {{.result = alone->list_result, .newer = 77}, {.newer = 78}};
    alone->report = (struct convoy_report){.struct_size = sizeof alone->report};
    call.call.struct_size = sizeof call;
    alone->poll_result.lists = &lists[0].result;
    alone->poll_result.list_stride = sizeof lists[0];
    alone->poll_result.list_capacity = 2;
    alone->poll_result.report = &alone->report;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(polls->reduce(alone->group, &call.call, LONG_NS, &alone->poll_result, NULL), CONVOY_OK);
        assert_int_equal(lists[0].result.states_count, 2);
        assert_int_equal(lists[0].newer, 77);
        assert_int_equal(alone->states_out[1], 2);
        assert_ptr_equal(alone->poll_result.lists, lists);
        assert_ptr_equal(alone->poll_result.report, &alone->report);
        assert_int_equal(alone->poll_result.votes_or, 1);
    }
}

static void test_tables_reduce_refuses_what_it_cannot_read_or_write(void **state)
{
    struct table_member *alone = *state;
    convoy_operation operation = 0;
    assert_int_equal(polls->reduce(alone->group, NULL, 0, &alone->poll_result, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce(alone->group, &alone->poll, 0, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce_start(alone->group, &alone->poll, NULL, &alone->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(alone->error.text, "operation_out is NULL");
    alone->poll.list_count = 9;
    assert_int_equal(polls->reduce_start(alone->group, &alone->poll, &operation, &alone->error),
                     CONVOY_INVALID_ARGUMENT);
    assert_string_equal(alone->error.text, "call.list_count: 9 is not in 0..8");
    alone->poll.list_count = 1;
    alone->poll.list_stride = 8;
    assert_int_equal(polls->reduce_start(alone->group, &alone->poll, &operation, &alone->error), CONVOY_TOO_OLD);
    alone->poll.list_stride = sizeof alone->list;
    alone->poll_result.list_stride = 8;
    assert_int_equal(polls->reduce(alone->group, &alone->poll, 0, &alone->poll_result, &alone->error), CONVOY_TOO_OLD);
    assert_non_null(strstr(alone->error.text, "poll_list_result"));
    assert_int_equal(operation, 0);
    assert_int_equal(polls->reduce_test(alone->group, 12345, &alone->poll_result, NULL), CONVOY_TOO_OLD);
    member_calls(alone);
    assert_int_equal(polls->reduce_test(alone->group, 12345, &alone->poll_result, NULL), CONVOY_CLOSED);
    assert_int_equal(polls->reduce_wait(NULL, 1, 0, &alone->poll_result, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce(NULL, &alone->poll, 0, &alone->poll_result, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(group_state(alone), CONVOY_GROUP_READY);
}

static void test_tables_gather_takes_newer_structs_and_reports(void **state)
{
    struct table_member *alone = *state;
    struct {
        struct convoy_sync_call call;
        uint64_t newer;
    } call = {.call = alone->sync};
    alone->report = (struct convoy_report){.struct_size = sizeof alone->report};
    call.call.struct_size = sizeof call;
    alone->sync_result.report = &alone->report;
    assert_int_equal(syncs->gather(alone->group, &call.call, LONG_NS, &alone->sync_result, NULL), CONVOY_OK);
    assert_memory_equal(alone->table, alone->row, sizeof alone->row);
    assert_ptr_equal(alone->sync_result.report, &alone->report);
    assert_int_equal(syncs->gather_start(alone->group, &call.call, &alone->operation, NULL), CONVOY_OK);
    assert_int_equal(syncs->gather_test(alone->group, alone->operation, &alone->sync_result, NULL), CONVOY_OK);
    assert_int_equal(alone->sync_result.width, WIDTH);
    alone->report.struct_size = 8;
    assert_int_equal(syncs->gather(alone->group, &alone->sync, 0, &alone->sync_result, NULL), CONVOY_TOO_OLD);
    assert_int_equal(syncs->gather_test(alone->group, alone->operation, &alone->sync_result, NULL), CONVOY_TOO_OLD);
    assert_int_equal(syncs->gather_wait(alone->group, alone->operation, 0, &alone->sync_result, NULL), CONVOY_TOO_OLD);
    assert_int_equal(syncs->gather_start(alone->group, &alone->sync, NULL, &alone->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(alone->error.text, "operation_out is NULL");
    assert_int_equal(syncs->gather(alone->group, NULL, 0, &alone->sync_result, NULL), CONVOY_INVALID_ARGUMENT);
}

static void test_tables_gather_without_a_schema_is_unsupported(void **state)
{
    struct table_member *alone = *state;
    alone->options.schema = NULL;
    alone->options.name = "bare";
    alone->options.name_length = 4;
    convoy_group *bare;
    assert_int_equal(core->group_open(alone->context, &alone->options, &bare, NULL), CONVOY_OK);
    assert_int_equal(syncs->gather(bare, &alone->sync, 0, &alone->sync_result, &alone->error), CONVOY_UNSUPPORTED);
    assert_string_equal(alone->error.text, "group bare was opened without a schema");
    assert_int_equal(syncs->gather_start(bare, &alone->sync, &alone->operation, NULL), CONVOY_UNSUPPORTED);
    assert_int_equal(syncs->gather_test(bare, 1, &alone->sync_result, NULL), CONVOY_UNSUPPORTED);
    assert_int_equal(syncs->gather_wait(bare, 1, 0, &alone->sync_result, NULL), CONVOY_UNSUPPORTED);
    assert_int_equal(polls->reduce(bare, &alone->poll, 0, &alone->poll_result, NULL), CONVOY_OK); /* nobody is left inside */
}

/* -- what needs no group ------------------------------------------------------------------------------------------- */

static void test_tables_pure_functions_check_their_structs(void **state)
{
    const uint64_t ids[] = {1, 2, 3};
    const int64_t tokens[] = {5, 8};
    struct convoy_poll_consensus consensus = {.struct_size = sizeof consensus, .success_state = 4, .ids = ids,
        .id_count = 3, .good = ids, .good_count = 2, .bad = ids, .bad_count = 1};
    struct convoy_sync_padding padding = {.struct_size = sizeof padding, .tokens = tokens, .token_count = 2};
    struct convoy_sync_padded padded = {.struct_size = sizeof padded};
    uint8_t states[3];
    int64_t starts[2] = {-1, -1};
    (void)state;
    assert_int_equal(polls->consensus(&consensus, states, NULL), CONVOY_OK);
    assert_memory_equal(states, "\0\4\377", 3);
    assert_int_equal(polls->consensus(NULL, states, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(syncs->padded_size(&padding, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.figure, 8);
    assert_int_equal(syncs->starts(&padding, 8, starts, NULL), CONVOY_OK);
    assert_int_equal(starts[1], 8);
    padded.struct_size = 8;
    assert_int_equal(syncs->padded_size(&padding, &padded, NULL), CONVOY_TOO_OLD);
    padding.struct_size = 8;
    assert_int_equal(syncs->padded_size(&padding, &padded, NULL), CONVOY_TOO_OLD);
    assert_int_equal(syncs->starts(&padding, 8, starts, NULL), CONVOY_TOO_OLD);
}

#define ALONE_TEST(test) cmocka_unit_test_setup_teardown(test, alone_setup, alone_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_context_config_is_refused_by_name_and_range),
        ALONE_TEST(test_tables_context_describes_itself_and_its_groups),
        ALONE_TEST(test_tables_group_open_without_a_place_or_context_is_refused),
        ALONE_TEST(test_tables_group_says_what_it_is_until_it_is_closed_and_after),
        ALONE_TEST(test_tables_looks_without_a_group_or_a_place_are_refused),
        ALONE_TEST(test_tables_reduce_takes_newer_structs_and_wider_strides),
        ALONE_TEST(test_tables_reduce_refuses_what_it_cannot_read_or_write),
        ALONE_TEST(test_tables_gather_takes_newer_structs_and_reports),
        ALONE_TEST(test_tables_gather_without_a_schema_is_unsupported),
        cmocka_unit_test(test_tables_pure_functions_check_their_structs),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
