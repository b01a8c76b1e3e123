/* SPDX-License-Identifier: Apache-2.0 */
/* Each case runs in a process of its own (a rank): UCX stays mapped once it was opened, and does not survive a fork. */
#include "core/error.h"
#include "core/memory.h"
#include "net/ucx.h"
#include "net/ucx_guard.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

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

static void run_alone(rank_fn run)
{
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, run, NULL, 0);
    ranks_finish(ranks);
}

static struct convoy_runtime *runtime_open(const char *settings)
{
    struct convoy_runtime *runtime;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    EXPECT_OK(convoy_runtime_open(&config, &runtime, &error), &error);
    return runtime;
}

/* Opens UCX in a fresh context; the error's text is checked to have all parts. */
static void expect_refusal(const char *settings, const char *const *parts)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_runtime *runtime = runtime_open(settings);
    EXPECT_STATUS(convoy_ucx_probe(runtime, &error), CONVOY_INIT_FAILED, &error);
    for (size_t i = 0; parts[i] != NULL; i++) {
        EXPECT_TEXT(error.text, parts[i]);
    }
    convoy_runtime_destroy(runtime);
}

/* Path of a small library that was built beside this program. */
static void shim_path(const char *name, char *path, size_t bytes)
{
    char own[512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    EXPECT(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(path, bytes, "%s/../lib/%s.so", own, name);
}

static void shim_settings(const char *name, char *settings, size_t bytes)
{
    char path[600];
    shim_path(name, path, sizeof path);
    (void)snprintf(settings, bytes, "{\"ucx_library\": \"%s\"}", path);
}

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
    struct convoy_runtime *runtime = runtime_open(NULL);
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    EXPECT_EQUAL(convoy_ucx_snapshot_signals_changed(&before, false), 0);
    EXPECT_EQUAL(convoy_ucx_snapshot_hooks_changed(&before), 0);
    EXPECT(environ == entries && getenv("UCX_MEM_EVENTS") == NULL);
    EXPECT_TEXT(getenv("UCX_ERROR_SIGNALS"), "SIGBUS");
    EXPECT_EQUAL(runtime->ucx->library.signals_changed, 0);
    EXPECT_EQUAL(runtime->ucx->library.loaded_by_host, false);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    EXPECT(memcmp(&mask_before, &mask_after, sizeof mask_before) == 0);
    convoy_runtime_destroy(runtime);
    (void)raise(SIGSEGV);
    EXPECT_EQUAL(caught, SIGSEGV);
}

/* openucx/ucx 3337, bytedance/byteps 424: signal handlers of the host stay the host's; openucx/ucx 7210, 4767: so do
 * the memory functions of libc; and environ is the same array as before. */
static void test_ucx_open_changes_no_handler_no_libc_code_and_no_environ(void **state)
{
    (void)state;
    run_alone(open_quietly);
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
    run_alone(open_plainly);
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
    struct convoy_runtime *runtime = runtime_open(NULL);
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
    run_alone(host_first);
}

static void convoy_first(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)rank;
    (void)argument;
    struct convoy_runtime *first = runtime_open(NULL);
    EXPECT_OK(convoy_ucx_probe(first, &error), &error);
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_GLOBAL) != NULL);
    struct convoy_runtime *second = runtime_open(NULL);
    EXPECT_OK(convoy_ucx_probe(second, &error), &error);
    EXPECT_EQUAL(second->ucx->library.loaded_by_host, false);
    convoy_runtime_destroy(first);
    convoy_runtime_destroy(second);
}

static void test_ucx_host_may_load_it_after_convoy(void **state)
{
    (void)state;
    run_alone(convoy_first);
}

static void global_names(const struct rank *rank, void *argument)
{
    char path[600];
    (void)rank;
    (void)argument;
    shim_path("global_ucp", path, sizeof path);
    EXPECT(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL);
    expect_refusal(NULL, (const char *const[]){"two copies of UCX", "libucp.so", "global_ucp.so", NULL});
}

/* ai-dynamo/nixl 1668: calls of UCX to itself would end in the other library. */
static void test_ucx_hidden_by_global_names_of_another_library_is_refused(void **state)
{
    (void)state;
    run_alone(global_names);
}

static void other_file(const struct rank *rank, void *argument)
{
    char settings[700];
    (void)rank;
    (void)argument;
    EXPECT(dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL) != NULL);
    shim_settings("old_ucp", settings, sizeof settings);
    expect_refusal(settings, (const char *const[]){"old_ucp.so", "the host has loaded", "libucp.so.0", NULL});
}

static void test_ucx_library_other_than_the_loaded_one_is_refused_with_both(void **state)
{
    (void)state;
    run_alone(other_file);
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
        struct convoy_runtime *runtime = runtime_open(NULL);
        EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
        memcpy(rank->shared, runtime->ucx->library.file, sizeof runtime->ucx->library.file);
        convoy_runtime_destroy(runtime);
    }
    rank_barrier(rank);
    if (rank->index == 1) {
        (void)snprintf(path, sizeof path, "/tmp/convoy-ucp-%d.so", (int)getpid());
        copy_file(rank->shared, path);
        (void)snprintf(settings, sizeof settings, "{\"ucx_library\": \"%s\"}", path);
        expect_refusal(settings, (const char *const[]){"two copies of UCX", path, "is bound to", "libucs", NULL});
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
    shim_settings("old_ucp", settings, sizeof settings);
    expect_refusal(settings, (const char *const[]){"UCX 1.12.1", "old_ucp.so", "1.13 <= v < 2", "built against", NULL});
}

/* ai-dynamo/nixl 386, 166, sgl-project/sglang 5709: refused with both versions, not warned about. */
static void test_ucx_older_than_supported_is_refused_with_both_versions(void **state)
{
    (void)state;
    run_alone(old_version);
}

static void absent(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    expect_refusal("{\"ucx_library\": \"/nowhere/libucp.so.0\"}",
                   (const char *const[]){"/nowhere/libucp.so.0", "No such file", "libucx0", NULL});
    expect_refusal("{\"ucx_library\": \"libm.so.6\"}", (const char *const[]){"libm.so.6 is not UCX", NULL});
    struct convoy_runtime *runtime = runtime_open("{\"ucx_library\": \"/nowhere/x.so\", \"ucx_probe\": 1}");
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
    run_alone(absent);
}

static void forked(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)rank;
    (void)argument;
    struct convoy_runtime *runtime = runtime_open(NULL);
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    pid_t child = fork();
    if (child == 0) {
        struct convoy_runtime *own = runtime_open(NULL);
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
    run_alone(forked);
}

/* -- configuration ------------------------------------------------------------------------------------------------- */

/* Runs with stdout and stderr in a file; fails if anything was written. */
static void refuse_silently(const char *name, const char *value, const char *const *parts)
{
    int sink = memfd_create("sink", MFD_CLOEXEC);
    int out = dup(1);
    int err = dup(2);
    (void)setenv(name, value, 1);
    (void)fflush(NULL);
    EXPECT(dup2(sink, 1) == 1 && dup2(sink, 2) == 2);
    expect_refusal(NULL, parts);
    (void)fflush(NULL);
    EXPECT(dup2(out, 1) == 1 && dup2(err, 2) == 2);
    (void)unsetenv(name);
    EXPECT_EQUAL(lseek(sink, 0, SEEK_END), 0);
}

static void odd_environment(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    refuse_silently("UCX_TLS", "rc_x", (const char *const[]){"TLS=\"rc_x\" (UCX_*)", "available here", "tcp/lo", NULL});
    refuse_silently("UCX_TLS", "", (const char *const[]){"TLS=\"\" (UCX_*)", "tcp/lo", NULL});
    refuse_silently("UCX_NET_DEVICES", "nosuch0",
                    (const char *const[]){"NET_DEVICES=\"nosuch0\" (UCX_*)", "tcp/lo", NULL});
}

/* openucx/ucx 2953, 9610, PR 4793: what does not exist here is an error that lists what does, and nothing is printed. */
static void test_ucx_environment_naming_what_is_not_here_is_refused_silently(void **state)
{
    (void)state;
    run_alone(odd_environment);
}

static void expect_setting(struct convoy_runtime *runtime, const char *name, const char *value, const char *source)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    json_t *all = convoy_ucx_describe(runtime);
    const json_t *row = json_object_get(json_object_get(all, "settings"), name);
    EXPECT(strcmp(json_string_value(json_object_get(row, "value")), value) == 0);
    EXPECT(strcmp(json_string_value(json_object_get(row, "source")), source) == 0);
    EXPECT(json_is_true(json_object_get(row, "read_back")));
    json_decref(all);
    convoy_runtime_destroy(runtime);
}

static void precedence(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    expect_setting(runtime_open(NULL), "TLS", "^sm", "convoy default");
    (void)setenv("UCX_TLS", "tcp,self", 1);
    expect_setting(runtime_open(NULL), "TLS", "tcp,self", "UCX_*");
    (void)setenv("CONVOY_UCX_TLS", "all", 1);
    expect_setting(runtime_open(NULL), "TLS", "all", "CONVOY_*");
    expect_setting(runtime_open("{\"ucx_tls\": \"tcp\"}"), "TLS", "tcp", "object");
    expect_setting(runtime_open("{\"ucx_net_devices\": \"lo\"}"), "NET_DEVICES", "lo", "object");
}

static void test_ucx_settings_come_from_object_then_convoy_then_ucx(void **state)
{
    (void)state;
    run_alone(precedence);
}

#ifdef CONVOY_FAULTS
static void every_allocation(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = CONVOY_NO_MEMORY;
    (void)rank;
    (void)argument;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        struct convoy_runtime *runtime = runtime_open(NULL);
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
    run_alone(every_allocation);
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
        cmocka_unit_test(test_ucx_environment_naming_what_is_not_here_is_refused_silently),
        cmocka_unit_test(test_ucx_settings_come_from_object_then_convoy_then_ucx),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_ucx_open_failing_at_each_allocation_leaves_the_process_usable),
#endif
    };
    return cmocka_run_group_tests_name("ucx", tests, NULL, NULL);
}
