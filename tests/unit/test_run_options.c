/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_options.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cli_capture.h"

#include <cmocka.h>

static struct convoy_run_options options;
static struct convoy_error error;
static bool wants_help;

static int32_t parse(const char *first, const char *second)
{
    char *argv[] = {(char *)"run", (char *)first, (char *)second, NULL};
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    wants_help = false;
    int argc = first == NULL ? 1 : second == NULL ? 2 : 3;
    return convoy_run_options_parse(&options, argc, argv, &wants_help, &error);
}

static void test_run_options_defaults_lie_beside_the_executable(void **state)
{
    (void)state;
    assert_int_equal(parse(NULL, NULL), CONVOY_OK);
    assert_int_equal(options.shape.dp, 2);
    assert_int_equal(options.shape.tp, 2);
    assert_int_equal(options.shape.cp, 1);
    assert_int_equal(options.fault.kind, CONVOY_RUN_FAULT_NONE);
    assert_int_equal(options.trace[0], '/');
    assert_non_null(strstr(options.trace, "/trace/default.jsonl"));
    assert_non_null(strstr(options.plugin, "/libconvoy.so.1"));
    assert_int_equal(options.requests, 100);
    assert_int_equal(options.hosts, 1);
    assert_int_equal(options.roles.counts[0], 1);
    assert_int_equal(options.roles.counts[1], 2);
    assert_int_equal(options.roles.counts[2], 1);
    assert_null(options.tensors);
    assert_null(options.trace_out);
    assert_false(wants_help);
}

static void test_run_options_of_the_pipeline_are_checked(void **state)
{
    (void)state;
    assert_int_equal(parse("--roles=2:3:4", "--tensors=a.safetensors"), CONVOY_OK);
    assert_int_equal(options.roles.counts[1], 3);
    assert_string_equal(options.tensors, "a.safetensors");
    assert_int_equal(parse("--roles=2:3", NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(parse("--hosts=3", NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(parse("--requests=100001", NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(parse("--requests=0", "--trace-out=t.json"), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "--requests is 0: must be at least 1 with --trace-out, which is of the pipeline");
}

static void test_run_options_given_values_win(void **state)
{
    (void)state;
    assert_int_equal(parse("--trace=a.jsonl", "--dp=5"), CONVOY_OK);
    assert_string_equal(options.trace, "a.jsonl");
    assert_int_equal(options.shape.dp, 5);
    assert_int_equal(parse("--fault", "kill:3@7"), CONVOY_OK);
    assert_int_equal(options.fault.kind, CONVOY_RUN_FAULT_KILL);
    assert_string_equal(options.fault_text, "kill:3@7");
}

/* The fault's rank is checked against the shape that was asked for, wherever the two stand. */
static void test_run_options_fault_of_a_rank_outside_the_shape_is_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("--fault=kill:4@7", NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(parse("--fault=kill:4@7", "--dp=3"), CONVOY_OK);
}

static void test_run_options_too_many_processes_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("--dp=33", "--tp=2"), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "--dp x --tp x --cp is 66 processes: must be 1 to 64");
}

static int parse_help(int argc, char **argv)
{
    return convoy_run_options_parse(&options, argc, argv, &wants_help, &error);
}

/* Every option is in the text, once, and nothing is checked any more behind --help. */
static void test_run_options_help_has_every_option(void **state)
{
    (void)state;
    static const char *const names[] = {"--trace ", "--dp ",      "--tp ",       "--cp ",      "--seed ", "--speed ",
                                        "--fault ", "--out ",     "--plugin ",   "--timeout-ms ",
                                        "--deadline ", "--log-mib ", "--requests ", "--roles ", "--tensors ", "--hosts ",
                                        "--trace-out ", "--help "};
    static struct cli_output output;
    wants_help = false;
    CLI_RUN(&output, parse_help, "--help", "--dp=0");
    assert_int_equal(output.code, CONVOY_OK);
    assert_true(wants_help);
    assert_int_equal(strncmp(output.out, "usage: convoy run", 17), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[32];
        (void)snprintf(line, sizeof line, "\n  %s", names[i]);
        const char *found = strstr(output.out, line);
        if (found == NULL || strstr(found + 1, line) != NULL) {
            fail_msg("%s is in the help text never or twice:\n%s", names[i], output.out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_options_defaults_lie_beside_the_executable),
        cmocka_unit_test(test_run_options_of_the_pipeline_are_checked),
        cmocka_unit_test(test_run_options_given_values_win),
        cmocka_unit_test(test_run_options_fault_of_a_rank_outside_the_shape_is_refused),
        cmocka_unit_test(test_run_options_too_many_processes_are_refused),
        cmocka_unit_test(test_run_options_help_has_every_option),
    };
    return cmocka_run_group_tests_name("run_options", tests, NULL, NULL);
}
