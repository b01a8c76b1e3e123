/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    struct convoy_trace trace;
    struct convoy_error error;
};

static int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.error = CONVOY_ERROR_INIT};
    (void)snprintf(fixture.path, sizeof fixture.path, "/tmp/convoy_trace_XXXXXX");
    int file = mkstemp(fixture.path);
    *state = &fixture;
    return file < 0 ? -1 : close(file);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    convoy_trace_fini(&fixture->trace);
    return unlink(fixture->path);
}

static int32_t load(struct fixture *fixture, const char *text, size_t length)
{
    FILE *file = fopen(fixture->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return convoy_trace_load(&fixture->trace, fixture->path, &fixture->error);
}

static void refuse(struct fixture *fixture, const char *text, const char *line, const char *reason)
{
    char where[128];
    assert_int_equal(load(fixture, text, strlen(text)), CONVOY_INVALID_ARGUMENT);
    (void)snprintf(where, sizeof where, "%s:%s: ", fixture->path, line);
    assert_ptr_equal(strstr(fixture->error.text, where), fixture->error.text);
    if (strstr(fixture->error.text, reason) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", fixture->error.text, reason);
    }
    assert_int_equal(fixture->trace.count, 0);
}

#define GOOD "{\"timestamp\": 40, \"input_length\": 7, \"output_length\": 2}\n"

static void test_trace_unknown_fields_are_ignored(void **state)
{
    struct fixture *fixture = *state;
    const char *text =
        "{\"hash_ids\": [18446744073709551615, 2.5, \"\\u0000\"], \"output_length\": 0, \"timestamp\": 59, "
        "\"input_length\": 10000000}\n";
    assert_int_equal(load(fixture, text, strlen(text)), CONVOY_OK);
    assert_int_equal(fixture->trace.count, 1);
    assert_int_equal(fixture->trace.requests[0].timestamp_ms, 59);
    assert_int_equal(fixture->trace.requests[0].input_tokens, 10000000);
    assert_int_equal(fixture->trace.requests[0].output_tokens, 0);
    assert_int_equal(convoy_trace_step(&fixture->trace, 0), 2);
}

static void test_trace_crlf_blank_lines_and_a_last_line_without_end_are_read(void **state)
{
    struct fixture *fixture = *state;
    const char *text = "{\"timestamp\":1,\"input_length\":2,\"output_length\":3}\r\n\r\n \n"
                       "{\"timestamp\":1,\"input_length\":4,\"output_length\":5}";
    assert_int_equal(load(fixture, text, strlen(text)), CONVOY_OK);
    assert_int_equal(fixture->trace.count, 2);
    assert_int_equal(fixture->trace.requests[1].output_tokens, 5);
}

static void test_trace_bad_line_is_refused_with_file_line_and_reason(void **state)
{
    static const struct {
        const char *text;
        const char *line;
        const char *reason;
    } cases[] = {
        {"", "0", "no requests"},
        {"\n\n", "2", "no requests"},
        {GOOD "nonsense\n", "2", "not JSON"},
        {GOOD GOOD "{\"timestamp\": 50,\n", "3", "not JSON"},
        {"[1]\n", "1", "not a JSON object"},
        {"7\n", "1", "not a JSON object"},
        {"{\"timestamp\": 1, \"input_length\": 1}\n", "1", "\"output_length\" is missing"},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}\n", "1", "\"timestamp\" is negative"},
        {"{\"timestamp\": 1, \"input_length\": 1.5, \"output_length\": 1}\n", "1", "\"input_length\" is not a whole"},
        {"{\"timestamp\": 1, \"input_length\": \"1\", \"output_length\": 1}\n", "1",
         "\"input_length\" is not a number"},
        {"{\"timestamp\": 1, \"input_length\": null, \"output_length\": 1}\n", "1", "\"input_length\" is not a number"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 10000001}\n", "1",
         "\"output_length\" is too large"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 99999999999999999999}\n", "1", "is too large"},
        {"{\"timestamp\": 1, \"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n", "1", "not JSON"},
        {GOOD "\n{\"timestamp\": 39, \"input_length\": 1, \"output_length\": 1}\n", "3",
         "39 is before the 40 of line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuse(*state, cases[i].text, cases[i].line, cases[i].reason);
    }
}

static void test_trace_byte_zero_in_a_line_is_refused(void **state)
{
    struct fixture *fixture = *state;
    static const char text[] = "{\"timestamp\":1,\"input_length\":2,\0\"output_length\":3}\n";
    assert_int_equal(load(fixture, text, sizeof text - 1), CONVOY_INVALID_ARGUMENT);
}

static void test_trace_overlong_line_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char *text = calloc(1, CONVOY_TRACE_LINE_BYTES_MAX + 100);
    assert_non_null(text);
    memset(text, ' ', CONVOY_TRACE_LINE_BYTES_MAX + 50);
    refuse(fixture, text, "1", "longer than");
    free(text);
}

static void test_trace_missing_file_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(convoy_trace_load(&fixture->trace, "/nowhere/at/all", &fixture->error), CONVOY_NOT_FOUND);
}

static void test_trace_next_step_skips_to_the_next_arrival(void **state)
{
    struct fixture *fixture = *state;
    const char *text = "{\"timestamp\":0,\"input_length\":2,\"output_length\":3}\n"
                       "{\"timestamp\":45,\"input_length\":2,\"output_length\":3}\n"
                       "{\"timestamp\":59,\"input_length\":2,\"output_length\":3}\n"
                       "{\"timestamp\":60,\"input_length\":2,\"output_length\":3}\n";
    assert_int_equal(load(fixture, text, strlen(text)), CONVOY_OK);
    assert_int_equal(convoy_trace_next_step(&fixture->trace, 0), 2);
    assert_int_equal(convoy_trace_next_step(&fixture->trace, 1), 2);
    assert_int_equal(convoy_trace_next_step(&fixture->trace, 2), 3);
    assert_true(convoy_trace_next_step(&fixture->trace, 3) == UINT64_MAX);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_trace_unknown_fields_are_ignored),
        CASE(test_trace_crlf_blank_lines_and_a_last_line_without_end_are_read),
        CASE(test_trace_bad_line_is_refused_with_file_line_and_reason),
        CASE(test_trace_byte_zero_in_a_line_is_refused),
        CASE(test_trace_overlong_line_is_refused),
        CASE(test_trace_missing_file_is_not_found),
        CASE(test_trace_next_step_skips_to_the_next_arrival),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
