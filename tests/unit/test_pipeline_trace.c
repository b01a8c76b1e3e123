/* SPDX-License-Identifier: Apache-2.0 */
/* Trace events of several engines become one file, in which each member is a process with a name. */
#include "cli/pipeline_trace.h"
#include "cli/pipeline_role.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_files.h"

#include <cmocka.h>

static int32_t add(json_t *events, const char *text, struct convoy_error *error)
{
    *error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_pipeline_trace_add(events, 3, "decoder 0", text, strlen(text), error);
}

static void test_pipeline_trace_events_get_the_members_number(void **state)
{
    (void)state;
    static const char *const texts[] = {"[{\"name\":\"a\",\"pid\":77,\"ts\":1.5}]",
                                        "{\"traceEvents\":[{\"name\":\"a\",\"ts\":1.5}],\"more\":1}"};
    for (size_t i = 0; i < 2; i++) {
        struct convoy_error error;
        json_t *events = json_array();
        assert_int_equal(add(events, texts[i], &error), CONVOY_OK);
        assert_int_equal(json_array_size(events), 2);
        const json_t *name = json_array_get(events, 0);
        assert_string_equal(json_string_value(json_object_get(name, "ph")), "M");
        assert_string_equal(json_string_value(json_object_get(json_object_get(name, "args"), "name")), "decoder 0");
        const json_t *event = json_array_get(events, 1);
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), 3);
        assert_string_equal(json_string_value(json_object_get(event, "name")), "a");
        json_decref(events);
    }
}

static void test_pipeline_trace_what_is_no_list_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "nonsense", "{}", "{\"traceEvents\":1}", "[1]", "[{}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_error error;
        json_t *events = json_array();
        assert_int_equal(add(events, texts[i], &error), CONVOY_MALFORMED);
        assert_non_null(strstr(error.text, "decoder 0"));
        json_decref(events);
    }
}

static struct convoy_pipeline_board *board_in(const char *folder)
{
    static const struct convoy_pipeline_shape shape = {{1, 1, 1}};
    struct convoy_pipeline_board *board = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_create(&shape, 1, &board, &error), CONVOY_OK);
    (void)snprintf(board->setup.folder, sizeof board->setup.folder, "%s", folder);
    return board;
}

static void test_pipeline_trace_files_of_the_members_are_merged_and_gone(void **state)
{
    struct convoy_pipeline_board *board = board_in(*state);
    struct convoy_error error = CONVOY_ERROR_INIT;
    char path[CONVOY_PLACE_PATH_BYTES + 48];
    char out[PLUGIN_FILE_PATH_BYTES];
    size_t events = 0;
    folder_path(state, "all.json", out);
    assert_int_equal(convoy_pipeline_trace_write(board, out, &events, &error), CONVOY_SYSTEM); /* nobody wrote */
    for (uint32_t i = 0; i < 3; i++) {
        file_write(convoy_pipeline_role_trace_path(board, i, path), "[{\"name\":\"x\"}]", 14);
    }
    assert_int_equal(convoy_pipeline_trace_write(board, out, &events, &error), CONVOY_OK);
    assert_int_equal(events, 6);
    json_t *document = json_load_file(out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(document, "traceEvents")), 6);
    json_decref(document);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_not_equal(access(convoy_pipeline_role_trace_path(board, i, path), F_OK), 0);
    }
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_trace_place_that_cannot_be_written_is_named(void **state)
{
    struct convoy_pipeline_board *board = board_in(*state);
    struct convoy_error error = CONVOY_ERROR_INIT;
    char path[CONVOY_PLACE_PATH_BYTES + 48];
    size_t events = 0;
    for (uint32_t i = 0; i < 3; i++) {
        file_write(convoy_pipeline_role_trace_path(board, i, path), "[]", 2);
    }
    assert_int_equal(convoy_pipeline_trace_write(board, "/nowhere/all.json", &events, &error), CONVOY_SYSTEM);
    assert_non_null(strstr(error.text, "--trace-out /nowhere/all.json"));
    convoy_pipeline_board_destroy(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_trace_events_get_the_members_number),
        cmocka_unit_test(test_pipeline_trace_what_is_no_list_is_refused),
        cmocka_unit_test(test_pipeline_trace_files_of_the_members_are_merged_and_gone),
        cmocka_unit_test(test_pipeline_trace_place_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests_name("pipeline_trace", tests, folder_setup, folder_teardown);
}
