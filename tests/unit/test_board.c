/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a replay shares with its ranks: what a child writes is seen, phases are counted. */
#include "cli/board.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_board_is_empty_at_first(void **state)
{
    (void)state;
    struct convoy_board *board = convoy_board_create(3);
    assert_non_null(board);
    assert_int_equal(board->rank_count, 3);
    assert_int_equal(board->is_stop_wanted, 0);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_OPENING), 3);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_RUNNING), 0);
    assert_int_equal(board->ranks[2].outcome, CONVOY_BOARD_NONE);
    convoy_board_destroy(board);
    convoy_board_destroy(NULL);
}

/* Who is in a later phase has reached the earlier ones; ranks behind the count do not count. */
static void test_board_counts_who_reached_a_phase(void **state)
{
    (void)state;
    struct convoy_board *board = convoy_board_create(3);
    assert_non_null(board);
    atomic_store(&board->ranks[0].phase, CONVOY_BOARD_RUNNING);
    atomic_store(&board->ranks[1].phase, CONVOY_BOARD_ENDED);
    atomic_store(&board->ranks[3].phase, CONVOY_BOARD_ENDED);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_OPENING), 3);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_RUNNING), 2);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_DECIDED), 1);
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_ENDED), 1);
    convoy_board_destroy(board);
}

/* The reason for the shared mapping: what a rank wrote is there although it was killed. */
static void test_board_keeps_what_a_killed_child_wrote(void **state)
{
    (void)state;
    int wait_status = 0;
    struct convoy_board *board = convoy_board_create(CONVOY_SHAPE_RANKS_MAX);
    assert_non_null(board);
    struct convoy_board_rank *last = &board->ranks[CONVOY_SHAPE_RANKS_MAX - 1];
    pid_t child = fork();
    if (child == 0) {
        (void)strcpy(last->failure.call, "gather");
        atomic_store(&last->steps, 77);
        atomic_store_explicit(&last->phase, CONVOY_BOARD_DECIDED, memory_order_release);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(convoy_board_count(board, CONVOY_BOARD_DECIDED), 1);
    assert_int_equal(last->steps, 77);
    assert_string_equal(last->failure.call, "gather");
    convoy_board_destroy(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_board_is_empty_at_first),
        cmocka_unit_test(test_board_counts_who_reached_a_phase),
        cmocka_unit_test(test_board_keeps_what_a_killed_child_wrote),
    };
    return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
