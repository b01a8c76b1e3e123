/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay prints: progress lines, the table, and the failures (src/cli/progress.c, report.c, board.c). */
#include "cli/progress.h"
#include "cli/report.h"
#include "core/clock.h"
#include "core/error.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct convoy_board *board;
static struct convoy_crew crew;
static struct convoy_trace_request requests[2] = {{.timestamp_ms = 0}, {.timestamp_ms = 7322000}};
static const struct convoy_trace trace = {.requests = requests, .count = 2};
static const struct convoy_run_report report = {.crew = &crew, .shape = {.dp = 2, .tp = 1, .cp = 1}};
static char *text;
static size_t length;

static int setup(void **state)
{
    (void)state;
    board = convoy_board_create(2);
    crew = (struct convoy_crew){.count = 2};
    return board != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    convoy_board_destroy(board);
    free(text);
    text = NULL;
    return 0;
}

static void expect(const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, text);
    }
}

static void test_progress_numbers_have_thousands(void **state)
{
    (void)state;
    char number[32];
    assert_string_equal(convoy_progress_number(number, 0), "0");
    assert_string_equal(convoy_progress_number(number, 999), "999");
    assert_string_equal(convoy_progress_number(number, 1000), "1,000");
    assert_string_equal(convoy_progress_number(number, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void test_progress_plain_lines_say_how_far_it_is(void **state)
{
    (void)state;
    FILE *out = open_memstream(&text, &length);
    struct convoy_progress progress = {
        .out = out, .board = board, .trace = &trace, .shape = report.shape, .started_ns = 1, .shown_ns = 1};
    convoy_progress_show(&progress, 1 + CONVOY_NS_PER_S);
    assert_int_equal(length, 0); /* not yet time */
    atomic_store(&board->ranks[1].phase, CONVOY_BOARD_RUNNING);
    convoy_progress_show(&progress, 1 + 2 * CONVOY_NS_PER_S);
    expect("opening: 1 of 2 ranks are ready\n");
    atomic_store(&board->ranks[0].phase, CONVOY_BOARD_RUNNING);
    atomic_store(&board->ranks[0].steps, 5000);
    atomic_store(&board->ranks[0].trace_step, 3050);
    atomic_store(&board->ranks[1].committed, 1);
    convoy_progress_show(&progress, 1 + 4 * CONVOY_NS_PER_S);
    expect("step 5,000  trace 0:01:01, last arrival 2:02:02  requests 1 of 2  1,250 steps/s\n");
    (void)fclose(out);
}

static void print_report(void)
{
    struct convoy_run_report full = report;
    full.board = board;
    FILE *out = open_memstream(&text, &length);
    convoy_report_table(out, &full);
    convoy_report_failures(out, &full);
    (void)fclose(out);
}

static void test_report_says_how_each_rank_ended(void **state)
{
    (void)state;
    board->ranks[0].outcome = CONVOY_BOARD_FINISHED;
    atomic_store(&board->ranks[0].committed, 1234);
    (void)strcpy(board->ranks[0].release, "1.2.3");
    convoy_histogram_add(&board->ranks[0].gather, 2000);
    crew.has_ended[1] = true;
    crew.wait_status[1] = SIGKILL; /* as waitpid says it */
    print_report();
    expect("finished\n");
    expect("  2.0      2.0       2.0");
    expect("killed by SIGKILL\n");
    expect("rank 1: killed by SIGKILL in step 0\n");
    expect("requests committed 1,234, dropped 0");
    expect("plugin release 1.2.3");
}

static void test_report_failure_has_error_field_and_members(void **state)
{
    (void)state;
    struct convoy_board_failure *failure = &board->ranks[1].failure;
    board->ranks[1].outcome = CONVOY_BOARD_FAILED;
    (void)strcpy(failure->call, "gather");
    failure->error = (struct convoy_error)CONVOY_ERROR_INIT;
    (void)convoy_error_set(&failure->error, CONVOY_TIMED_OUT, "group world: rank 0 is late");
    failure->elapsed_ns = 250 * CONVOY_NS_PER_MS;
    failure->field = CONVOY_FIELD_TAG;
    failure->member_count = 2;
    failure->members[0] = (struct convoy_member_report){.rank = 0,
                                                        .condition = CONVOY_MEMBER_LOST,
                                                        .noticed_by = CONVOY_NOTICED_PROCESS,
                                                        .behind = -1,
                                                        .operation = CONVOY_OPERATION_SYNC,
                                                        .round = 40,
                                                        .tag = 41,
                                                        .age_ns = UINT64_MAX};
    failure->members[1] = (struct convoy_member_report){
        .rank = 7, .condition = CONVOY_MEMBER_UNKNOWN, .behind = 3, .reason = CONVOY_BROKEN, .age_ns = 1500000};
    failure->was_abandoned = true;
    failure->abandon_status = CONVOY_BROKEN;
    print_report();
    expect("rank 1: gather in step 0 ended TIMED_OUT after 250.0 ms: group world: rank 0 is late\n");
    expect("    first field that differs: step tag\n");
    expect("        rank 0: lost (its process ended); last round 40 (sync, tag 41, epoch 0), never heard\n");
    expect("        rank 7: unknown; last round 0 (nothing, tag 0, epoch 0), 1.5 ms ago, behind rank 3, "
           "reason -305 BROKEN\n");
    expect("    gave the round up: BROKEN\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_progress_numbers_have_thousands),
        CASE(test_progress_plain_lines_say_how_far_it_is),
        CASE(test_report_says_how_each_rank_ended),
        CASE(test_report_failure_has_error_field_and_members),
    };
    return cmocka_run_group_tests_name("run_report", tests, NULL, NULL);
}
