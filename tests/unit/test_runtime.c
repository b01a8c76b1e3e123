/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "net/runtime.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_runtime_copies_the_secret_and_draws_an_incarnation(void **state)
{
    (void)state;
    char secret[] = "abc";
    const struct convoy_context_config config = {.struct_size = sizeof config, .secret = secret, .secret_bytes = 3};
    struct convoy_runtime *first;
    struct convoy_runtime *second;
    assert_int_equal(convoy_runtime_open(&config, &first, NULL), CONVOY_OK);
    assert_int_equal(convoy_runtime_open(&config, &second, NULL), CONVOY_OK);
    memset(secret, 'x', 3);
    assert_memory_equal(first->secret, "abc", 3);
    assert_true(first->incarnation != 0 && first->incarnation != second->incarnation);
    convoy_runtime_destroy(first);
    convoy_runtime_destroy(second);
}

static void test_runtime_salts_differ_and_start_anywhere(void **state)
{
    (void)state;
    const struct convoy_context_config config = {.struct_size = sizeof config};
    struct convoy_runtime *runtime;
    assert_int_equal(convoy_runtime_open(&config, &runtime, NULL), CONVOY_OK);
    runtime->incarnation = 0x1fffffe; /* so that they wrap */
    uint32_t seen[4];
    for (uint32_t i = 0; i < 4; i++) {
        seen[i] = convoy_runtime_salt(runtime);
        assert_true(seen[i] <= 0xffffff);
    }
    assert_int_equal(seen[0], 0xfffffe);
    assert_int_equal(seen[1], 0xffffff);
    assert_int_equal(seen[2], 0);
    assert_int_equal(seen[3], 1);
    convoy_runtime_destroy(runtime);
}

static void test_runtime_bad_settings_leave_nothing_behind(void **state)
{
    (void)state;
    const struct convoy_context_config config = {.struct_size = sizeof config, .settings = "[1]", .settings_length = 3};
    struct convoy_runtime *runtime = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_runtime_open(&config, &runtime, &error), CONVOY_INVALID_ARGUMENT);
    assert_null(runtime);
}

struct seen {
    sigset_t mask;
    char name[16];
    int go[2];
};

static void *look(void *argument)
{
    struct seen *seen = argument;
    char byte;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    (void)!read(seen->go[0], &byte, 1);
    (void)pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    return NULL;
}

/* A signal of the host must never be delivered on a thread of the plugin. */
static void test_runtime_thread_blocks_signals_and_is_named_and_counted(void **state)
{
    (void)state;
    const struct convoy_context_config config = {.struct_size = sizeof config};
    struct convoy_runtime *runtime;
    assert_int_equal(convoy_runtime_open(&config, &runtime, NULL), CONVOY_OK);
    struct seen seen = {.name = ""};
    assert_int_equal(pipe(seen.go), 0);
    pthread_t thread;
    sigset_t own;
    assert_int_equal(convoy_runtime_thread_start(runtime, "look", look, &seen, &thread), CONVOY_OK);
    assert_int_equal(runtime->thread_count, 1);
    assert_int_equal(write(seen.go[1], "x", 1), 1);
    convoy_runtime_thread_join(runtime, thread);
    assert_int_equal(runtime->thread_count, 0);
    assert_string_equal(seen.name, "convoy-look");
    assert_true(sigismember(&seen.mask, SIGTERM) && sigismember(&seen.mask, SIGPROF));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &own);
    assert_false(sigismember(&own, SIGTERM));
    (void)close(seen.go[0]);
    (void)close(seen.go[1]);
    convoy_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime_copies_the_secret_and_draws_an_incarnation),
        cmocka_unit_test(test_runtime_salts_differ_and_start_anywhere),
        cmocka_unit_test(test_runtime_bad_settings_leave_nothing_behind),
        cmocka_unit_test(test_runtime_thread_blocks_signals_and_is_named_and_counted),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
