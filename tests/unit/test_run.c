/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `convoy run` from its words to its verdict: a small trace through one or two real rank processes. The last line says
 * what the replay was worth, and the exit code says the same.
 */
#include "cli/run.h"

#include "tests/lib/plugin.h"

#include <signal.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "plugin_files.h"

#include <cmocka.h>

static struct cli_output output;
static char trace_path[PLUGIN_FILE_PATH_BYTES];
static char folder[PLUGIN_FILE_PATH_BYTES];

/* With two data-parallel ranks each has one request; with one it has both. */
static const char trace_lines[] = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 3}\n"
                                  "{\"timestamp\": 30000, \"input_length\": 50, \"output_length\": 2}\n";

static int setup(void **state)
{
    int result = folder_setup(state);
    (void)snprintf(folder, sizeof folder, "%s", (const char *)*state);
    folder_path(state, "trace.jsonl", trace_path);
    file_write(trace_path, trace_lines, sizeof trace_lines - 1);
    return result;
}

#define RUN(...)                                                                                                       \
    CLI_RUN(&output, convoy_cli_run, "--tp=1", "--requests=0", "--trace", trace_path, "--plugin", plugin_path(),       \
            "--out", folder, __VA_ARGS__)

static const char *last_line(void)
{
    size_t length = strlen(output.out);
    if (length == 0) {
        return "";
    }
    output.out[length - 1] = '\0'; /* the last line break */
    const char *start = strrchr(output.out, '\n');
    return start != NULL ? start + 1 : output.out;
}

static void test_run_of_a_small_trace_passes(void **state)
{
    char old[PLUGIN_FILE_PATH_BYTES];
    folder_path(state, "rank-5.log", old);
    file_write(old, "of a larger replay", 18);
    RUN("--dp=2", "--seed=4");
    assert_int_equal(output.code, 0);
    assert_string_equal(output.err, "");
    assert_int_equal(strncmp(output.out, "replaying 2 requests of /", 25), 0);
    assert_non_null(strstr(output.out, " on 2 processes (dp 2 x tp 1 x cp 1), seed 4\n"));
    assert_non_null(strstr(output.out, "\nreference: "));
    assert_string_equal(last_line(), "replay passed: every result equals the reference");
    assert_int_not_equal(access(old, F_OK), 0);
    folder_path(state, "rank-1.log", old);
    assert_int_equal(access(old, R_OK), 0);
}

/* Behind a replay that was right come the tensors; the exit code is then theirs. */
static void test_run_with_requests_carries_tensors_too(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    RUN("--dp=1", "--requests=1", "--roles=1:1:1");
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "\nreplay passed: every result equals the reference\n\npipeline: 1 requests "));
    assert_int_equal(strncmp(last_line(), "pipeline passed: every tensor of 1 requests equals ", 51), 0);
    folder_path(state, "out.safetensors", path);
    assert_int_equal(access(path, R_OK), 0);
    RUN("--dp=1", "--requests=1", "--tensors=/nowhere/it");
    assert_int_equal(output.code, 1);
    assert_string_equal(output.out, ""); /* before the replay */
    assert_non_null(strstr(output.err, "/nowhere/it"));
}

static void test_run_help_and_wrong_words(void **state)
{
    (void)state;
    CLI_RUN(&output, convoy_cli_run, "--help");
    assert_int_equal(output.code, 0);
    assert_int_equal(strncmp(output.out, "usage: convoy run", 17), 0);
    assert_non_null(strstr(output.out, "  --fault "));
    CLI_RUN(&output, convoy_cli_run, "--dp=0");
    assert_int_equal(output.code, 2);
    assert_int_equal(strncmp(output.err, "convoy run: --dp is \"0\": must be a whole number from 1 to ", 58), 0);
    assert_non_null(strstr(output.err, " (see convoy run --help)\n"));
    assert_string_equal(output.out, "");
}

static void test_run_that_cannot_begin_says_why(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        const char *text;
    } cases[] = {
        {"--trace=/nowhere/trace", "/nowhere/trace"},
        {"--plugin=/nowhere/it.so", "convoy run: cannot read the plugin /nowhere/it.so\n"},
        {"--out=/proc/self/exe/logs", "convoy run: making the folder /proc/self/exe"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RUN("--dp=1", cases[i].option);
        assert_int_equal(output.code, 1);
        assert_int_equal(strncmp(output.err, "convoy run: ", 12), 0);
        assert_non_null(strstr(output.err, cases[i].text));
        assert_string_equal(output.out, "");
    }
}

/* What came before the fault is checked all the same. */
static void test_run_with_a_fault_ends_early_and_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        const char *line;
    } cases[] = {
        {"--fault=kill:1@2",
         "replay ended early: the fault kill:1@2 was injected; up to there every result equals the reference"},
        {"--fault=diverge:0@3",
         "replay ended early: the fault diverge:0@3 was injected; up to there every result equals the reference"},
        {"--fault=kill:0@900000",
         "replay finished, but the fault kill:0@900000 was never reached; every result equals the reference"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char announced[64];
        RUN("--dp=2", cases[i].fault);
        assert_int_equal(output.code, 1);
        (void)snprintf(announced, sizeof announced, "\ninjecting %s\n", cases[i].fault + strlen("--fault="));
        assert_non_null(strstr(output.out, announced));
        assert_string_equal(last_line(), cases[i].line);
    }
}

static void test_run_whose_ranks_cannot_open_the_plugin_fails(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file("no_entry", path);
    RUN("--dp=1", "--plugin", path);
    assert_int_equal(output.code, 1);
    assert_non_null(strstr(output.out, "no_entry.so: it has convoy's note but no function convoy_query"));
    assert_int_equal(strncmp(last_line(), "replay ended early: a rank failed; up to there ", 47), 0);
}

/* Paced, the trace would take eight hours. */
static void test_run_stops_at_its_deadline(void **state)
{
    (void)state;
    RUN("--dp=1", "--speed=0.001", "--deadline=1");
    assert_int_equal(output.code, 1);
    assert_string_equal(last_line(), "replay ended early: its deadline passed (raise --deadline); up to there every "
                                     "result equals the reference");
}

/* The signal waits, blocked, until the command listens for it. */
static void test_run_stops_when_it_is_interrupted(void **state)
{
    (void)state;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(raise(SIGINT), 0);
    RUN("--dp=1", "--speed=0.001");
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
    assert_int_equal(output.code, 1);
    assert_string_equal(last_line(),
                        "replay ended early: it was interrupted; up to there every result equals the reference");
}

/* One long request on one rank writes more than a log of one MiB may hold. */
static void test_run_stops_when_a_log_is_full(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    static const char line[] = "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 60000}\n";
    folder_path(state, "long.jsonl", path);
    file_write(path, line, sizeof line - 1);
    RUN("--dp=1", "--log-mib=1", "--trace", path);
    assert_int_equal(output.code, 1);
    assert_string_equal(last_line(), "replay ended early: a log is full (raise --log-mib); up to there every result "
                                     "equals the reference");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_of_a_small_trace_passes),
        cmocka_unit_test(test_run_with_requests_carries_tensors_too),
        cmocka_unit_test(test_run_help_and_wrong_words),
        cmocka_unit_test(test_run_that_cannot_begin_says_why),
        cmocka_unit_test(test_run_with_a_fault_ends_early_and_says_so),
        cmocka_unit_test(test_run_whose_ranks_cannot_open_the_plugin_fails),
        cmocka_unit_test(test_run_stops_at_its_deadline),
        cmocka_unit_test(test_run_stops_when_it_is_interrupted),
        cmocka_unit_test(test_run_stops_when_a_log_is_full),
    };
    return cmocka_run_group_tests_name("run", tests, setup, folder_teardown);
}
