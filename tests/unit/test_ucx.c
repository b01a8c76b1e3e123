/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "core/memory.h"
#include "net/ucx.h"
#include "net/ucx_guard.h"
#include "tests/lib/expect.h"
#include "tests/lib/ucx_case.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* -- leaving the process alone ------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;

static void host_handler(int signal_number)
{
    caught = signal_number;
}

static void open_quietly(const struct rank *rank, void *argument)
{
    struct convoy_ucx_snapshot before;
    struct convoy_error error = CONVOY_ERROR_INIT;
    sigset_t mask_before;
    sigset_t mask_after;
    (void)rank;
    (void)argument;
    (void)setenv("UCX_ERROR_SIGNALS", "SIGILL,SIGSEGV,SIGBUS,SIGFPE", 1);
    (void)signal(SIGSEGV, host_handler);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    char **entries = environ;
    convoy_ucx_snapshot_take(&before);
    struct convoy_runtime *runtime = ucx_case_runtime(NULL);
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    EXPECT_EQUAL(convoy_ucx_snapshot_signals_changed(&before, false), 0);
    EXPECT_EQUAL(convoy_ucx_snapshot_hooks_changed(&before), 0);
    EXPECT(environ == entries && getenv("UCX_MEM_EVENTS") == NULL);
    EXPECT_TEXT(getenv("UCX_ERROR_SIGNALS"), "SIGBUS");
    EXPECT_EQUAL(runtime->ucx->library.signals_changed, 0);
    EXPECT_EQUAL(runtime->ucx->library.loaded_by_host, false);
    EXPECT_EQUAL(runtime->ucx->memory_types & 1, 1); /* host memory at least */
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    EXPECT(memcmp(&mask_before, &mask_after, sizeof mask_before) == 0);
    convoy_runtime_destroy(runtime);
    (void)raise(SIGSEGV);
    EXPECT_EQUAL(caught, SIGSEGV);
}

/* openucx/ucx 3337, bytedance/byteps 424: signal handlers of the host stay the host's; openucx/ucx 7210, 4767, PR 7865: so do
 * the memory functions of libc; and environ is the same array as before. */
static void test_ucx_open_changes_no_handler_no_libc_code_and_no_environ(void **state)
{
    (void)state;
    ucx_case_run(open_quietly);
}

static void open_plainly(const struct rank *rank, void *argument)
{
    struct convoy_ucx_snapshot before;
    (void)rank;
    (void)argument;
    convoy_ucx_snapshot_take(&before);
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL) != NULL);
    EXPECT(convoy_ucx_snapshot_signals_changed(&before, false) != 0);
    EXPECT(convoy_ucx_snapshot_hooks_changed(&before) != 0);
}

/* What the test above would see if the guard did nothing. */
static void test_ucx_plain_dlopen_does_change_handlers_and_libc_code(void **state)
{
    (void)state;
    ucx_case_run(open_plainly);
}

/* -- one copy ------------------------------------------------------------------------------------------------------ */

static void host_first(const struct rank *rank, void *argument)
{
    struct convoy_ucx_snapshot before;
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)rank;
    (void)argument;
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_GLOBAL) != NULL);
    convoy_ucx_snapshot_take(&before);
    struct convoy_runtime *runtime = ucx_case_runtime(NULL);
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    json_t *all = convoy_ucx_describe(runtime);
    EXPECT_TEXT(json_string_value(json_object_get(all, "loaded_by")), "host");
    EXPECT_TEXT(json_string_value(json_object_get(all, "file")), "libucp.so");
    json_decref(all);
    EXPECT_EQUAL(convoy_ucx_snapshot_signals_changed(&before, false), 0);
    convoy_runtime_destroy(runtime);
}

/* ai-dynamo/nixl 1668, PR 1673: the copy that the host has loaded is used, said so, and left as it is. */
static void test_ucx_loaded_by_the_host_is_used_and_reported(void **state)
{
    (void)state;
    ucx_case_run(host_first);
}

static void convoy_first(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)rank;
    (void)argument;
    struct convoy_runtime *first = ucx_case_runtime(NULL);
    EXPECT_OK(convoy_ucx_probe(first, &error), &error);
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_GLOBAL) != NULL);
    struct convoy_runtime *second = ucx_case_runtime(NULL);
    EXPECT_OK(convoy_ucx_probe(second, &error), &error);
    EXPECT_EQUAL(second->ucx->library.loaded_by_host, false);
    convoy_runtime_destroy(first);
    convoy_runtime_destroy(second);
}

static void test_ucx_host_may_load_it_after_convoy(void **state)
{
    (void)state;
    ucx_case_run(convoy_first);
}

static void global_names(const struct rank *rank, void *argument)
{
    char path[600];
    (void)rank;
    (void)argument;
    ucx_case_shim("global_ucp", path, sizeof path);
    EXPECT(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL);
    ucx_case_refuse(NULL, (const char *const[]){"two copies of UCX", "libucp.so", "global_ucp.so", NULL});
}

/* ai-dynamo/nixl 1668: calls of UCX to itself would end in the other library. */
static void test_ucx_hidden_by_global_names_of_another_library_is_refused(void **state)
{
    (void)state;
    ucx_case_run(global_names);
}

static void other_file(const struct rank *rank, void *argument)
{
    char settings[700];
    (void)rank;
    (void)argument;
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL) != NULL);
    ucx_case_shim_settings("old_ucp", settings, sizeof settings);
    ucx_case_refuse(settings, (const char *const[]){"old_ucp.so", "the host has loaded", "libucp.so.0", NULL});
}

static void test_ucx_library_other_than_the_loaded_one_is_refused_with_both(void **state)
{
    (void)state;
    ucx_case_run(other_file);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[16384];
    FILE *in = fopen(from, "re");
    FILE *out = fopen(to, "we");
    EXPECT(in != NULL && out != NULL);
    for (size_t got = fread(bytes, 1, sizeof bytes, in); got != 0; got = fread(bytes, 1, sizeof bytes, in)) {
        EXPECT_EQUAL(fwrite(bytes, 1, got, out), got);
    }
    EXPECT(fclose(in) == 0 && fclose(out) == 0);
}

/* Rank 0 finds the system's file; rank 1 uses a copy of libucp alone, whose libucs is then the system's. */
static void half_a_copy(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    char path[64];
    char settings[128];
    (void)argument;
    if (rank->index == 0) {
        struct convoy_runtime *runtime = ucx_case_runtime(NULL);
        EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
        memcpy(rank->shared, runtime->ucx->library.file, sizeof runtime->ucx->library.file);
        convoy_runtime_destroy(runtime);
    }
    rank_barrier(rank);
    if (rank->index == 1) {
        (void)snprintf(path, sizeof path, "/tmp/convoy-ucp-%d.so", (int)getpid());
        copy_file(rank->shared, path);
        (void)snprintf(settings, sizeof settings, "{\"ucx_library\": \"%s\"}", path);
        ucx_case_refuse(settings, (const char *const[]){"two copies of UCX", path, "is bound to", "libucs", NULL});
        EXPECT_EQUAL(unlink(path), 0);
    }
}

/* ai-dynamo/nixl 1668: parts of two copies that bind to each other are found before they are used. */
static void test_ucx_bound_to_the_base_library_of_another_copy_is_refused(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, CONVOY_UCX_FILE_BYTES);
    ranks_start(ranks, half_a_copy, NULL, 0);
    ranks_finish(ranks);
}

/* -- version, absence, fork ---------------------------------------------------------------------------------------- */

static void old_version(const struct rank *rank, void *argument)
{
    char settings[700];
    (void)rank;
    (void)argument;
    ucx_case_shim_settings("old_ucp", settings, sizeof settings);
    ucx_case_refuse(settings,
                    (const char *const[]){"UCX 1.12.1", "old_ucp.so", "1.13 <= v < 2", "built against", NULL});
}

/* ai-dynamo/nixl 386, 166, sgl-project/sglang 5709: refused with both versions, not warned about. */
static void test_ucx_older_than_supported_is_refused_with_both_versions(void **state)
{
    (void)state;
    ucx_case_run(old_version);
}

static void absent(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    ucx_case_refuse("{\"ucx_library\": \"/nowhere/libucp.so.0\"}",
                   (const char *const[]){"/nowhere/libucp.so.0", "No such file", "libucx0", NULL});
    ucx_case_refuse("{\"ucx_library\": \"libm.so.6\"}", (const char *const[]){"libm.so.6 is not UCX", NULL});
    struct convoy_runtime *runtime = ucx_case_runtime("{\"ucx_library\": \"/nowhere/x.so\", \"ucx_probe\": 1}");
    json_t *all = convoy_ucx_describe(runtime);
    EXPECT(json_is_false(json_object_get(all, "opened")));
    EXPECT(json_is_null(json_object_get(all, "file")));
    EXPECT_TEXT(json_string_value(json_object_get(all, "error")), "libucx0");
    EXPECT_TEXT(json_string_value(json_object_get(all, "supported")), "1.13");
    json_decref(all);
    convoy_runtime_destroy(runtime);
}

static void test_ucx_absent_says_what_to_install(void **state)
{
    (void)state;
    ucx_case_run(absent);
}

static void forked(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)rank;
    (void)argument;
    struct convoy_runtime *runtime = ucx_case_runtime(NULL);
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    pid_t child = fork();
    if (child == 0) {
        struct convoy_runtime *own = ucx_case_runtime(NULL);
        int32_t status = convoy_ucx_probe(own, &error);
        _exit(status == CONVOY_INIT_FAILED && strstr(error.text, "only groups on one host") != NULL ? 0 : 1);
    }
    int wait_status = -1;
    EXPECT(waitpid(child, &wait_status, 0) == child);
    EXPECT_EQUAL(wait_status, 0);
    convoy_runtime_destroy(runtime);
}

/* openucx/ucx 10748, PR 7493: a forked child is refused with the reason, the parent is not disturbed. */
static void test_ucx_in_a_child_of_a_process_that_opened_it_is_refused(void **state)
{
    (void)state;
    ucx_case_run(forked);
}

#ifdef CONVOY_FAULTS
static void every_allocation(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = CONVOY_NO_MEMORY;
    (void)rank;
    (void)argument;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        struct convoy_runtime *runtime = ucx_case_runtime(NULL);
        EXPECT(skip < 100);
        (void)convoy_memory_fail_after(skip);
        status = convoy_ucx_probe(runtime, &error);
        (void)convoy_memory_fail_after(-1);
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
        convoy_runtime_destroy(runtime);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(page != MAP_FAILED && munmap(page, 4096) == 0);
    }
    EXPECT(dlopen(NULL, RTLD_NOW) != NULL);
}

/* open-mpi/ompi PR 10758, openucx/ucx 4190: an open that fails half-way leaves no hook behind. */
static void test_ucx_open_failing_at_each_allocation_leaves_the_process_usable(void **state)
{
    (void)state;
    ucx_case_run(every_allocation);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ucx_open_changes_no_handler_no_libc_code_and_no_environ),
        cmocka_unit_test(test_ucx_plain_dlopen_does_change_handlers_and_libc_code),
        cmocka_unit_test(test_ucx_loaded_by_the_host_is_used_and_reported),
        cmocka_unit_test(test_ucx_host_may_load_it_after_convoy),
        cmocka_unit_test(test_ucx_hidden_by_global_names_of_another_library_is_refused),
        cmocka_unit_test(test_ucx_library_other_than_the_loaded_one_is_refused_with_both),
        cmocka_unit_test(test_ucx_bound_to_the_base_library_of_another_copy_is_refused),
        cmocka_unit_test(test_ucx_older_than_supported_is_refused_with_both_versions),
        cmocka_unit_test(test_ucx_absent_says_what_to_install),
        cmocka_unit_test(test_ucx_in_a_child_of_a_process_that_opened_it_is_refused),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_ucx_open_failing_at_each_allocation_leaves_the_process_usable),
#endif
    };
    return cmocka_run_group_tests_name("ucx", tests, NULL, NULL);
}
