/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx_guard.h"

#include "core/memory.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* openucx/ucx issues 7210 and 4767, PR 7865: no hooks into the allocator of the host, and its environment as it was. */
static void test_ucx_environment_has_our_values_only_between_enter_and_leave(void **state)
{
    (void)state;
    struct convoy_ucx_environment environment = {0};
    (void)setenv("UCX_ERROR_SIGNALS", "SEGV", 1);
    (void)setenv("UCX_LOG_LEVEL", "info", 1);
    (void)unsetenv("UCX_MEM_EVENTS");
    char **before = environ;
    assert_true(convoy_ucx_environment_enter(&environment));
    assert_string_equal(getenv("UCX_ERROR_SIGNALS"), "");
    assert_string_equal(getenv("UCX_MEM_EVENTS"), "n");
    assert_string_equal(getenv("UCX_HANDLE_ERRORS"), "none");
    assert_string_equal(getenv("UCX_DEBUG_SIGNO"), "");
    assert_string_equal(getenv("UCX_LOG_LEVEL"), "info"); /* the host's wish counts where it harms nobody */
    convoy_ucx_environment_leave(&environment);
    assert_ptr_equal(environ, before);
    assert_string_equal(getenv("UCX_ERROR_SIGNALS"), "SEGV");
    assert_null(getenv("UCX_MEM_EVENTS"));
    convoy_memory_free(environment.placed);
    convoy_memory_free(environment.copy);
}

/* Another thread of the host may call setenv while the copy is in place. */
static void test_ucx_environment_keeps_what_another_thread_set_meanwhile(void **state)
{
    (void)state;
    struct convoy_ucx_environment environment = {0};
    (void)setenv("GUARD_OLD", "1", 1);
    (void)setenv("UCX_ERROR_SIGNALS", "SEGV", 1);
    (void)unsetenv("UCX_MEM_EVENTS");
    assert_true(convoy_ucx_environment_enter(&environment));
    (void)setenv("GUARD_NEW", "2", 1);
    (void)setenv("GUARD_OLD", "3", 1);
    convoy_ucx_environment_leave(&environment);
    assert_string_equal(getenv("GUARD_NEW"), "2");
    assert_string_equal(getenv("GUARD_OLD"), "3");
    assert_string_equal(getenv("UCX_ERROR_SIGNALS"), "SEGV");
    assert_null(getenv("UCX_MEM_EVENTS"));
    assert_null(getenv("UCX_HANDLE_ERRORS"));
    convoy_memory_free(environment.placed);
    convoy_memory_free(environment.copy);
}

static void test_ucx_environment_keeps_a_value_replaced_in_place(void **state)
{
    (void)state;
    struct convoy_ucx_environment environment = {0};
    static char changed[] = "GUARD_PLACE=new";
    (void)setenv("GUARD_PLACE", "old", 1);
    assert_true(convoy_ucx_environment_enter(&environment));
    for (char **entry = environ; *entry != NULL; entry++) {
        *entry = strncmp(*entry, "GUARD_PLACE=", 12) == 0 ? changed : *entry;
    }
    convoy_ucx_environment_leave(&environment);
    assert_string_equal(getenv("GUARD_PLACE"), "new");
    (void)unsetenv("GUARD_PLACE");
    convoy_memory_free(environment.placed);
    convoy_memory_free(environment.copy);
}

static void test_ucx_environment_may_be_empty(void **state)
{
    (void)state;
    struct convoy_ucx_environment environment = {0};
    char **before = environ;
    environ = NULL;
    bool is_in = convoy_ucx_environment_enter(&environment);
    bool is_set = is_in && getenv("UCX_MEM_EVENTS") != NULL;
    convoy_ucx_environment_leave(&environment);
    bool is_back = environ == NULL;
    environ = before;
    assert_true(is_in && is_set && is_back);
    convoy_memory_free(environment.placed);
    convoy_memory_free(environment.copy);
}

/* A host that tries again and again without UCX must not grow. */
static void test_ucx_environment_is_used_again(void **state)
{
    (void)state;
    struct convoy_ucx_environment environment = {0};
    char **copy = NULL;
    for (int i = 0; i < 3; i++) {
        assert_true(convoy_ucx_environment_enter(&environment));
        assert_string_equal(getenv("UCX_MEM_EVENTS"), "n");
        convoy_ucx_environment_leave(&environment);
        assert_true(copy == NULL || copy == environment.copy);
        copy = environment.copy;
    }
    convoy_memory_free(environment.placed);
    convoy_memory_free(environment.copy);
}

static void handler(int signal_number)
{
    (void)signal_number;
}

static void test_ucx_snapshot_changed_handler_is_seen_and_put_back(void **state)
{
    (void)state;
    struct convoy_ucx_snapshot before;
    struct sigaction now;
    convoy_ucx_snapshot_take(&before);
    assert_int_equal(convoy_ucx_snapshot_signals_changed(&before, false), 0);
    assert_int_equal(convoy_ucx_snapshot_hooks_changed(&before), 0);
    (void)signal(SIGUSR1, handler);
    assert_int_equal(convoy_ucx_snapshot_signals_changed(&before, false), 1);
    assert_int_equal(convoy_ucx_snapshot_signals_changed(&before, true), 1);
    (void)sigaction(SIGUSR1, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
}

static void test_ucx_snapshot_changed_code_is_seen_by_name(void **state)
{
    (void)state;
    struct convoy_ucx_snapshot before;
    convoy_ucx_snapshot_take(&before);
    before.code[0][3] ^= 1;
    before.code[7][15] ^= 1;
    assert_int_equal(convoy_ucx_snapshot_hooks_changed(&before), 0x81);
    assert_string_equal(convoy_ucx_hook_name(0), "mmap");
    assert_string_equal(convoy_ucx_hook_name(7), "madvise");
    assert_string_equal(convoy_ucx_hook_name(8), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ucx_environment_has_our_values_only_between_enter_and_leave),
        cmocka_unit_test(test_ucx_environment_keeps_what_another_thread_set_meanwhile),
        cmocka_unit_test(test_ucx_environment_keeps_a_value_replaced_in_place),
        cmocka_unit_test(test_ucx_environment_may_be_empty),
        cmocka_unit_test(test_ucx_environment_is_used_again),
        cmocka_unit_test(test_ucx_snapshot_changed_handler_is_seen_and_put_back),
        cmocka_unit_test(test_ucx_snapshot_changed_code_is_seen_by_name),
    };
    return cmocka_run_group_tests_name("ucx_guard", tests, NULL, NULL);
}
