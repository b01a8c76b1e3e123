/* SPDX-License-Identifier: Apache-2.0 */
/* The test library itself: ranks must report what went wrong, or every test that uses them is worth nothing. */
#include "tests/lib/ranks.h"

#include "tests/lib/expect.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT 4
#define ROUNDS 200

static void add_own_index(const struct rank *rank, void *argument)
{
    uint32_t *results = rank->shared;
    results[rank->index] = rank->index + *(const uint32_t *)argument;
    rank_mark(rank, 1);
}

static void check_results(struct ranks *ranks)
{
    const uint32_t *results = ranks_shared(ranks);
    for (uint32_t i = 0; i < COUNT; i++) {
        ranks_await_mark(ranks, i, 1);
        assert_int_equal(results[i], 100 + i);
    }
    ranks_finish(ranks);
}

static void test_ranks_results_reach_the_parent(void **state)
{
    (void)state;
    uint32_t base = 100;
    struct ranks *processes = ranks_create(COUNT, COUNT * sizeof(uint32_t));
    ranks_start(processes, add_own_index, &base, 0);
    check_results(processes);
    struct ranks *threads = ranks_create(COUNT, COUNT * sizeof(uint32_t));
    ranks_start_threads(threads, add_own_index, &base, 0);
    check_results(threads);
}

/* Every round all ranks add 1, then all must see the full sum: a leaky barrier shows as a smaller or larger one. */
static void count_rounds(const struct rank *rank, void *argument)
{
    (void)argument;
    uint32_t *sum = rank->shared;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        (void)__atomic_add_fetch(sum, 1, __ATOMIC_RELAXED);
        rank_barrier(rank);
        EXPECT_EQUAL(__atomic_load_n(sum, __ATOMIC_RELAXED), round * rank->count);
        rank_barrier(rank);
    }
}

static void test_ranks_barrier_holds_until_all_are_there(void **state)
{
    (void)state;
    struct ranks *processes = ranks_create(COUNT, sizeof(uint32_t));
    ranks_start(processes, count_rounds, NULL, 0);
    ranks_finish(processes);
    struct ranks *threads = ranks_create(COUNT, sizeof(uint32_t));
    ranks_start_threads(threads, count_rounds, NULL, 0);
    ranks_finish(threads);
}

/* Rank 1 pauses on a mark that only rank 0 sets after the parent has killed rank 2. */
static void wait_in_order(const struct rank *rank, void *argument)
{
    (void)argument;
    if (rank->index == 2) {
        rank_mark(rank, 1);
        (void)pause();
    }
    if (rank->index == 1) {
        rank_await_mark(rank, 0, 5);
    }
    if (rank->index == 0) {
        rank_barrier_of(rank, 1, 1);
        rank_mark(rank, 5);
    }
}

static void test_ranks_killed_rank_ends_as_expected(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(3, 0);
    ranks_start(ranks, wait_in_order, NULL, 0);
    ranks_await_mark(ranks, 2, 1);
    ranks_signal(ranks, 2, SIGKILL);
    ranks_await_exit(ranks, 2);
    assert_int_equal(kill(ranks_pid(ranks, 2), 0), 0); /* still a zombie */
    ranks_finish(ranks);
}

static void stop_and_go(const struct rank *rank, void *argument)
{
    (void)argument;
    rank_mark(rank, 1);
    rank_await_parent(rank, 2); /* not the first one, which was there before the start */
    EXPECT_EQUAL(__atomic_load_n((uint32_t *)rank->shared, __ATOMIC_ACQUIRE), 1);
}

static void test_ranks_stopped_rank_goes_on(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, sizeof(uint32_t));
    uint32_t *go = ranks_shared(ranks);
    ranks_mark(ranks, 1);
    ranks_start(ranks, stop_and_go, NULL, 0);
    ranks_await_mark(ranks, 0, 1);
    ranks_stop(ranks, 0);
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    ranks_mark(ranks, 2);
    ranks_signal(ranks, 0, SIGCONT);
    ranks_finish(ranks);
}

/* -- failures must be seen: these run a failing test in a process of its own and read what it prints --------------- */

typedef void (*failing_fn)(void **state);

/* Runs `failing` as a cmocka test in a child; what it printed comes back. Returns the number of failed tests. */
static int run_failing(failing_fn failing, char *output, size_t bytes)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(fds[1], STDOUT_FILENO);
        (void)dup2(fds[1], STDERR_FILENO);
        (void)close(fds[1]); /* so that the pipe ends with this process and its ranks */
        const struct CMUnitTest tests[] = {cmocka_unit_test(failing)};
        int failed = cmocka_run_group_tests_name("inner", tests, NULL, NULL);
        (void)fflush(NULL);
        _exit(failed);
    }
    (void)close(fds[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (used < bytes - 1 && (got = read(fds[0], output + used, bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    output[used] = '\0';
    (void)close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fail_in_rank_two(const struct rank *rank, void *argument)
{
    (void)argument;
    if (rank->index == 2) {
        EXPECT_EQUAL(1 + 1, 3);
    }
    rank_barrier(rank); /* the others wait here for ever unless they learn of it */
}

static void failing_expectation(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(COUNT, 0);
    ranks_start(ranks, fail_in_rank_two, NULL, 0);
    ranks_finish(ranks);
}

static void failing_expectation_in_thread(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(COUNT, 0);
    ranks_start_threads(ranks, fail_in_rank_two, NULL, 0);
    ranks_finish(ranks);
}

static void test_ranks_failed_expectation_names_rank_file_and_text(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_expectation, output, sizeof output), 1);
    assert_non_null(strstr(output, "rank 2: "));
    assert_non_null(strstr(output, "test_ranks.c:"));
    assert_non_null(strstr(output, "1 + 1 is 2, expected 3"));
    assert_int_equal(run_failing(failing_expectation_in_thread, output, sizeof output), 1);
    assert_non_null(strstr(output, "1 + 1 is 2, expected 3"));
}

/* Goes on with something of its own until the other one has come to a mark. */
static void count_until_marked(const struct rank *rank, void *argument)
{
    uint32_t *count = rank->shared;
    (void)argument;
    if (rank->index == 0) {
        EXPECT(!rank_has_marked(rank, 1, 1));
        rank_mark(rank, 1);
        while (!rank_has_marked(rank, 1, 2)) {
            (void)__atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
        }
        EXPECT(rank_has_marked(rank, 1, 1) && !rank_has_marked(rank, 1, 4));
    } else {
        rank_await_mark(rank, 0, 1);
        while (__atomic_load_n(count, __ATOMIC_RELAXED) == 0) {
        }
        rank_mark(rank, 3);
    }
}

static void test_ranks_mark_is_seen_without_waiting_for_it(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, sizeof(uint32_t));
    ranks_start(ranks, count_until_marked, NULL, 0);
    ranks_finish(ranks);
}

static void wait_for_parent(const struct rank *rank, void *argument)
{
    (void)argument;
    rank_await_parent(rank, 2);
}

static void failing_parent(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, 0);
    ranks_mark(ranks, 1);
    ranks_start(ranks, wait_for_parent, NULL, 300);
    ranks_finish(ranks);
}

static void test_ranks_mark_of_the_parent_that_never_comes_is_told(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_parent, output, sizeof output), 1);
    assert_non_null(strstr(output, "rank 0: "));
}

static void hang(const struct rank *rank, void *argument)
{
    (void)argument;
    rank_mark(rank, 3);
    (void)pause();
}

static void failing_hang(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, hang, NULL, 100);
    ranks_finish(ranks);
}

static void test_ranks_hung_rank_is_killed_and_named(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_hang, output, sizeof output), 1);
    assert_non_null(strstr(output, "rank 0: still ran after 100 ms, at mark 3"));
}

static void crash(const struct rank *rank, void *argument)
{
    (void)argument;
    if (rank->index == 1) {
        (void)signal(SIGABRT, SIG_DFL);
        abort();
    }
}

static void failing_crash(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, 0);
    ranks_start(ranks, crash, NULL, 0);
    ranks_finish(ranks);
}

static void test_ranks_crashed_rank_is_named(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_crash, output, sizeof output), 1);
    assert_non_null(strstr(output, "rank 1: ended by signal 6, expected 0"));
}

/* A rank that should have been killed and was not is a failure too. */
static void failing_survivor(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, 0);
    ranks_expect_signal(ranks, 1, SIGKILL);
    ranks_start(ranks, crash, NULL, 0);
    ranks_finish(ranks);
}

static void test_ranks_wrong_signal_is_named(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_survivor, output, sizeof output), 1);
    assert_non_null(strstr(output, "rank 1: ended by signal 6, expected 9"));
}

static void leave_early(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    _exit(0);
}

static void failing_early_exit(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, leave_early, NULL, 0);
    ranks_finish(ranks);
}

static void test_ranks_rank_that_leaves_early_is_a_failure(void **state)
{
    (void)state;
    char output[4096];
    assert_int_equal(run_failing(failing_early_exit, output, sizeof output), 1);
    assert_non_null(strstr(output, "left with exit status 0 before its end"));
}

/* A child of a rank (which may hold its sockets) must not outlive the test. */
static void fork_holder(const struct rank *rank, void *argument)
{
    (void)argument;
    pid_t pid = fork();
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    *(pid_t *)rank->shared = pid;
}

static void test_ranks_children_of_ranks_are_killed(void **state)
{
    (void)state;
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    struct ranks *ranks = ranks_create(1, sizeof(pid_t));
    ranks_start(ranks, fork_holder, NULL, 0);
    ranks_finish(ranks);
    (void)close(fds[1]); /* the child holds the other copy: end-of-file comes with its death */
    assert_int_equal(read(fds[0], &byte, 1), 0);
    (void)close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_results_reach_the_parent),
        cmocka_unit_test(test_ranks_barrier_holds_until_all_are_there),
        cmocka_unit_test(test_ranks_killed_rank_ends_as_expected),
        cmocka_unit_test(test_ranks_stopped_rank_goes_on),
        cmocka_unit_test(test_ranks_mark_is_seen_without_waiting_for_it),
        cmocka_unit_test(test_ranks_mark_of_the_parent_that_never_comes_is_told),
        cmocka_unit_test(test_ranks_failed_expectation_names_rank_file_and_text),
        cmocka_unit_test(test_ranks_hung_rank_is_killed_and_named),
        cmocka_unit_test(test_ranks_crashed_rank_is_named),
        cmocka_unit_test(test_ranks_wrong_signal_is_named),
        cmocka_unit_test(test_ranks_rank_that_leaves_early_is_a_failure),
        cmocka_unit_test(test_ranks_children_of_ranks_are_killed),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
