/* SPDX-License-Identifier: Apache-2.0 */
/* The line that tells how far a replay is: its figures, when it is printed, and how a terminal is told from a file. */
#include "cli/progress.h"

#include "core/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct convoy_trace_request requests[] = {{.timestamp_ms = 0}, {.timestamp_ms = 5025000}};
static const struct convoy_trace trace = {.requests = requests, .count = 2, .capacity = 2};
static struct convoy_board board;
static struct convoy_progress progress;
static char *text;
static size_t text_length;

/* Four ranks in two shards of two, all running, 1234 steps done. */
static int setup(void **state)
{
    (void)state;
    memset(&board, 0, sizeof board);
    board.rank_count = 4;
    for (uint32_t i = 0; i < 4; i++) {
        atomic_store(&board.ranks[i].phase, CONVOY_BOARD_RUNNING);
        atomic_store(&board.ranks[i].committed, 700 + i);
        atomic_store(&board.ranks[i].dropped, 10 * i);
    }
    atomic_store(&board.ranks[0].steps, 1234);
    atomic_store(&board.ranks[0].trace_step, 3600 * 50 + 61 * 50);
    progress = (struct convoy_progress){.out = open_memstream(&text, &text_length),
                                        .started_ns = 5 * CONVOY_NS_PER_S,
                                        .shown_ns = 5 * CONVOY_NS_PER_S,
                                        .board = &board,
                                        .trace = &trace,
                                        .shape = {.dp = 2, .tp = 2, .cp = 1}};
    return progress.out != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)fclose(progress.out);
    free(text);
    text = NULL;
    return 0;
}

/* Requests are those of one rank of each shard, 700 of rank 0 and 702 + 20 of rank 2. */
#define STATE "step 1,234  trace 1:01:01, last arrival 1:23:45  requests 1,422 of 2  "
#define LINE STATE "617 steps/s"

static void test_progress_plain_line_comes_every_two_seconds(void **state)
{
    (void)state;
    convoy_progress_show(&progress, 7 * CONVOY_NS_PER_S - 1);
    assert_int_equal(fflush(progress.out), 0);
    assert_int_equal(text_length, 0);
    convoy_progress_show(&progress, 7 * CONVOY_NS_PER_S);
    assert_string_equal(text, LINE "\n");
    assert_int_equal(progress.shown_ns, 7 * CONVOY_NS_PER_S);
    convoy_progress_show(&progress, 8 * CONVOY_NS_PER_S);
    assert_string_equal(text, LINE "\n");
}

static void test_progress_terminal_line_is_redrawn_ten_times_a_second(void **state)
{
    (void)state;
    progress.is_terminal = true;
    progress.shown_ns = 7 * CONVOY_NS_PER_S - 100 * CONVOY_NS_PER_MS;
    convoy_progress_show(&progress, 7 * CONVOY_NS_PER_S - 1);
    assert_int_equal(fflush(progress.out), 0);
    assert_int_equal(text_length, 0);
    convoy_progress_show(&progress, 7 * CONVOY_NS_PER_S);
    assert_string_equal(text, "\r" LINE "\033[K");
}

static void test_progress_says_who_is_ready_while_groups_open(void **state)
{
    (void)state;
    atomic_store(&board.ranks[2].phase, CONVOY_BOARD_OPENING);
    convoy_progress_show(&progress, 7 * CONVOY_NS_PER_S);
    assert_string_equal(text, "opening: 3 of 4 ranks are ready\n");
}

/* The end prints at once, whenever the last line was; a terminal's line is ended too. */
static void test_progress_end_prints_for_good(void **state)
{
    (void)state;
    progress.is_terminal = true;
    progress.started_ns = convoy_now_ns();
    progress.shown_ns = UINT64_MAX;
    convoy_progress_end(&progress);
    assert_int_equal(strncmp(text, "\r" STATE, strlen("\r" STATE)), 0);
    assert_string_equal(text + text_length - strlen(" steps/s\033[K\n"), " steps/s\033[K\n");
}

/* No time has passed: the rate is not a division by zero. */
static void test_progress_first_moment_has_a_rate(void **state)
{
    (void)state;
    progress.shown_ns = 0;
    convoy_progress_show(&progress, progress.started_ns);
    assert_non_null(strstr(text, "  1,234 steps/s\n"));
}

static void test_progress_numbers_are_in_groups_of_three(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        const char *text;
    } cases[] = {{0, "0"},           {7, "7"},
                 {999, "999"},       {1000, "1,000"},
                 {12345, "12,345"},  {1234567, "1,234,567"},
                 {999999, "999,999"}, {UINT64_MAX, "18,446,744,073,709,551,615"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char number[32];
        assert_string_equal(convoy_progress_number(number, cases[i].number), cases[i].text);
    }
}

static void test_progress_terminal_is_told_from_a_file_and_a_dumb_one(void **state)
{
    (void)state;
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0) {
        print_message("skipped: no terminal can be made here\n");
        skip();
    }
    FILE *terminal = fdopen(fd, "w");
    FILE *file = tmpfile();
    assert_non_null(terminal);
    assert_non_null(file);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_true(convoy_progress_is_terminal(terminal));
    assert_false(convoy_progress_is_terminal(file));
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    assert_false(convoy_progress_is_terminal(terminal));
    assert_int_equal(unsetenv("TERM"), 0);
    assert_false(convoy_progress_is_terminal(terminal));
    (void)fclose(file);
    (void)fclose(terminal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_progress_plain_line_comes_every_two_seconds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_terminal_line_is_redrawn_ten_times_a_second, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_says_who_is_ready_while_groups_open, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_end_prints_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_first_moment_has_a_rate, setup, teardown),
        cmocka_unit_test(test_progress_numbers_are_in_groups_of_three),
        cmocka_unit_test(test_progress_terminal_is_told_from_a_file_and_a_dumb_one),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
