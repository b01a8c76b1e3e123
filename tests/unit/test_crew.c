/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/crew.h"
#include "core/error.h"

#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#ifdef CONVOY_COVERAGE
void __gcov_dump(void); /* a child ends by _exit, which would lose what it counted */
#else
#define __gcov_dump() ((void)0)
#endif

static struct convoy_crew crew;

static int child_exit_with_index(void *user, uint32_t index)
{
    (void)user;
    __gcov_dump();
    return (int)index + 3;
}

static int child_wait_for_ever(void *user, uint32_t index)
{
    (void)user;
    (void)index;
    while (pause() != 0) {
    }
    return 0;
}

static void start(convoy_crew_fn run, uint32_t count)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_crew_init(&crew);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(convoy_crew_fork(&crew, run, NULL, &error), CONVOY_OK);
    }
    assert_int_equal(crew.alive, count);
}

static void wait_for_all(void)
{
    for (uint32_t i = 0; i < 600 && crew.alive != 0; i++) {
        (void)convoy_crew_wait(&crew, 100);
    }
    assert_int_equal(crew.alive, 0);
}

static void test_crew_children_are_reaped_with_their_codes(void **state)
{
    (void)state;
    start(child_exit_with_index, 3);
    wait_for_all();
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(crew.has_ended[i] && WIFEXITED(crew.wait_status[i]));
        assert_int_equal(WEXITSTATUS(crew.wait_status[i]), i + 3);
    }
    convoy_crew_fini(&crew);
}

static void test_crew_fini_ends_and_reaps_who_is_left(void **state)
{
    (void)state;
    start(child_wait_for_ever, 2);
    convoy_crew_fini(&crew);
    assert_int_equal(crew.alive, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(WIFSIGNALED(crew.wait_status[i]));
        assert_int_equal(WTERMSIG(crew.wait_status[i]), SIGKILL);
        assert_int_equal(kill(crew.pids[i], 0), -1);
    }
}

static void test_crew_signal_arrives_as_an_event_and_the_mask_comes_back(void **state)
{
    (void)state;
    sigset_t mask;
    start(child_wait_for_ever, 1);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(convoy_crew_wait(&crew, 60000), CONVOY_CREW_INTERRUPT);
    assert_int_equal(convoy_crew_wait(&crew, 0), CONVOY_CREW_TICK);
    convoy_crew_fini(&crew);
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
}

/* A child keeps the write end of a pipe open until it dies, and its parent just goes away: no kill, no fini. */
static int child_of_a_parent_that_ends(void *user, uint32_t index)
{
    const int *ends = user;
    (void)index;
    (void)write(ends[1], "x", 1);
    return child_wait_for_ever(NULL, 0);
}

static void test_crew_children_die_with_their_parent(void **state)
{
    (void)state;
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        convoy_crew_init(&crew);
        int32_t status = convoy_crew_fork(&crew, child_of_a_parent_that_ends, ends, &error);
        int code = status == CONVOY_OK && read(ends[0], &byte, 1) == 1 ? 0 : 1; /* the child runs */
        _exit(code);
    }
    int wait_status = 0;
    (void)close(ends[1]);
    assert_int_equal(waitpid(parent, &wait_status, 0), parent);
    assert_int_equal(wait_status, 0);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody has the other end any more */
    (void)close(ends[0]);
}

/* Ctrl-C reaches the whole terminal: the child leaves it to the parent, and its mask is the one from before. */
static int child_looks_at_its_signals(void *user, uint32_t index)
{
    sigset_t mask;
    struct sigaction action;
    (void)user;
    (void)index;
    if (sigprocmask(SIG_SETMASK, NULL, &mask) != 0 || sigaction(SIGINT, NULL, &action) != 0) {
        return 1;
    }
    return action.sa_handler == SIG_IGN && sigismember(&mask, SIGTERM) == 0 && sigismember(&mask, SIGCHLD) == 0 ? 0 : 2;
}

static void test_crew_child_ignores_the_terminals_interrupt(void **state)
{
    (void)state;
    start(child_looks_at_its_signals, 1);
    wait_for_all();
    assert_int_equal(crew.wait_status[0], 0);
    convoy_crew_fini(&crew);
}

static void test_crew_bound_is_named(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_crew_init(&crew);
    crew.count = CONVOY_CREW_MAX;
    assert_int_equal(convoy_crew_fork(&crew, child_exit_with_index, NULL, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "more than 64 processes");
    crew.count = 0;
    convoy_crew_fini(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crew_children_are_reaped_with_their_codes),
        cmocka_unit_test(test_crew_fini_ends_and_reaps_who_is_left),
        cmocka_unit_test(test_crew_signal_arrives_as_an_event_and_the_mask_comes_back),
        cmocka_unit_test(test_crew_children_die_with_their_parent),
        cmocka_unit_test(test_crew_child_ignores_the_terminals_interrupt),
        cmocka_unit_test(test_crew_bound_is_named),
    };
    return cmocka_run_group_tests_name("crew", tests, NULL, NULL);
}
