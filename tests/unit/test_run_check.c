/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running the reference checker over the logs of a replay: equal logs are accepted, one wrong value is refused with its
 * step, rank and value, and a checker that cannot run is told apart from one that says no.
 */
#include "cli/run_check.h"
#include "cli/run_log.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "plugin_files.h"

#include <cmocka.h>

static struct cli_output output;
static struct convoy_run_check check;
static struct convoy_error error;
static int32_t status;

/* Two idle data-parallel ranks that gather twice and end. */
static void write_gather(struct convoy_run_log *log, uint64_t step, uint64_t votes, int64_t wrong)
{
    static const int64_t row[8] = {0, 0, 1, 0, 1, 4, 0, 0};
    convoy_run_log_begin(log, 'G');
    convoy_run_log_number(log, step);
    convoy_run_log_number(log, 10 * step);
    convoy_run_log_number(log, votes);
    for (int i = 0; i < 8; i++) {
        convoy_run_log_signed(log, row[i]);
    }
    convoy_run_log_end(log);
    convoy_run_log_begin(log, 'g');
    convoy_run_log_signed(log, 0);
    convoy_run_log_number(log, step + 1);
    convoy_run_log_number(log, votes);
    convoy_run_log_number(log, votes);
    for (int i = 0; i < 32; i++) { /* the table of both ranks, then their first rows, which are the same here */
        convoy_run_log_signed(log, row[i % 8] + (i == 11 ? wrong : 0));
    }
    convoy_run_log_bytes(log, (const uint8_t[]){0, 0}, 2);
    for (int i = 0; i < 8; i++) {
        convoy_run_log_signed(log, row[i]);
        convoy_run_log_number(log, i != 5);
    }
    convoy_run_log_end(log);
}

/* wrong: added to one table value of the second gather of rank 1; has_end: both logs are whole. */
static void write_logs(const char *folder, int64_t wrong, bool has_end)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        char path[PLUGIN_FILE_PATH_BYTES];
        struct convoy_run_log log;
        const struct convoy_run_log_header header = {.shape = {.dp = 2, .tp = 1, .cp = 1}, .rank = rank};
        (void)snprintf(path, sizeof path, "%s/rank-%u.log", folder, rank);
        assert_int_equal(convoy_run_log_open(&log, path, 1u << 20, &header, &error), CONVOY_OK);
        write_gather(&log, 0, 1, 0);
        if (has_end) {
            write_gather(&log, 1, 1, rank == 1 ? wrong : 0);
            convoy_run_log_begin(&log, 'E');
            convoy_run_log_number(&log, CONVOY_RUN_LOG_END_FINISHED);
            convoy_run_log_end(&log);
        }
        convoy_run_log_close(&log);
    }
}

static int run_the_check(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    status = convoy_run_check(&check, &error);
    return 0;
}

static int32_t run_check(const char *folder, const char *program, bool may_end_early)
{
    check = (struct convoy_run_check){
        .program = program, .log_directory = folder, .rank_count = 2, .may_end_early = may_end_early};
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    cli_run(&output, run_the_check, (const char *const[]){"check", NULL});
    return status;
}

/* The checker is the one beside this program. */
static void test_run_check_equal_logs_are_accepted(void **state)
{
    write_logs(*state, 0, true);
    assert_int_equal(run_check(*state, NULL, false), CONVOY_OK);
    assert_string_equal(output.out, "reference: 2 steps, 0 reductions, 0 commits and 0 drops on 2 ranks are equal to "
                                    "the local computation\n");
    assert_string_equal(output.err, "");
    assert_int_equal(error.status, CONVOY_OK);
}

static void test_run_check_one_wrong_value_is_refused_with_its_place(void **state)
{
    static const struct {
        int64_t wrong;
        const char *text;
    } cases[] = {
        {1, "step 1, rank 1: table row 1 column 3 is 1, expected 0"},
        {-7, "step 1, rank 1: table row 1 column 3 is -7, expected 0"},
        {INT64_MAX, "step 1, rank 1: table row 1 column 3 is 9223372036854775807, expected 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[sizeof output.out + sizeof output.err];
        write_logs(*state, cases[i].wrong, true);
        assert_int_equal(run_check(*state, NULL, false), CONVOY_INVARIANT);
        (void)snprintf(text, sizeof text, "%s%s", output.out, output.err);
        if (strstr(text, cases[i].text) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", text, cases[i].text);
        }
        assert_int_equal(error.status, CONVOY_OK); /* the checker did run */
    }
}

/* Logs that end without saying so are a fault, unless a rank failed and the replay ended there. */
static void test_run_check_incomplete_last_step_needs_leave(void **state)
{
    write_logs(*state, 0, false);
    assert_int_equal(run_check(*state, NULL, false), CONVOY_INVARIANT);
    assert_int_equal(run_check(*state, NULL, true), CONVOY_OK);
    assert_non_null(strstr(output.out, "; the last step is incomplete\n"));
}

static void test_run_check_logs_that_are_not_there_are_refused(void **state)
{
    (void)state;
    assert_int_equal(run_check("/nowhere", NULL, false), CONVOY_INVARIANT);
    assert_non_null(strstr(output.err, "/nowhere/rank-0.log"));
}

static void test_run_check_program_that_cannot_run_is_an_error_of_its_own(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    static const char killed[] = "#!/bin/sh\nkill -9 $$\n";
    static const char words[] = "#!/bin/sh\necho \"$1|$2|$3|$#\"\n";
    assert_int_equal(run_check(*state, "/nowhere/checker", false), CONVOY_NOT_FOUND);
    assert_int_equal(strncmp(error.text, "starting the reference checker /nowhere/checker", 47), 0);
    assert_int_equal(error.sys_errno, 2);
    folder_path(state, "killed", path);
    file_write(path, killed, sizeof killed - 1);
    assert_int_equal(run_check(*state, path, false), CONVOY_SYSTEM);
    assert_string_equal(error.text, "the reference checker was ended by signal 9");
    folder_path(state, "words", path);
    file_write(path, words, sizeof words - 1);
    assert_int_equal(run_check("logs", path, false), CONVOY_OK);
    assert_string_equal(output.out, "logs|2||2\n");
    assert_int_equal(run_check("logs", path, true), CONVOY_OK);
    assert_string_equal(output.out, "logs|2|--ended-early|3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_check_equal_logs_are_accepted),
        cmocka_unit_test(test_run_check_one_wrong_value_is_refused_with_its_place),
        cmocka_unit_test(test_run_check_incomplete_last_step_needs_leave),
        cmocka_unit_test(test_run_check_logs_that_are_not_there_are_refused),
        cmocka_unit_test(test_run_check_program_that_cannot_run_is_an_error_of_its_own),
    };
    return cmocka_run_group_tests_name("run_check", tests, folder_setup, folder_teardown);
}
