/* SPDX-License-Identifier: Apache-2.0 */
/* What a host finds changed after it has loaded, asked, used and closed a plugin: nothing but its mapping. */
#include "tests/abi/hygiene.h"

#include "tests/abi/pair.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif
#define QUERY_CYCLES 1000
#define OPEN_CYCLES 200
#define EXIT_CYCLES 25

/* Loads, asks for everything, unloads. */
static void query_cycle(void)
{
    struct plugin plugin;
    plugin_load(&plugin);
    EXPECT(plugin.core != NULL && plugin.poll != NULL && plugin.sync != NULL);
    EXPECT_EQUAL(dlclose(plugin.library), 0);
}

static void test_hygiene_query_cycles_change_nothing(void **state)
{
    (void)state;
    struct hygiene before;
    struct hygiene first;
    struct hygiene after;
    hygiene_take(&before);
    query_cycle();
    hygiene_take(&first);
    hygiene_compare(&before, &first, 0); /* the mapping is all that a load adds */
    for (int i = 0; i < QUERY_CYCLES; i++) {
        query_cycle();
    }
    hygiene_take(&after);
    hygiene_compare(&first, &after, 1);
}

/* A group of one member: opened, used, closed. */
static void open_cycle(void)
{
    struct plugin_member *member = plugin_member_create(0, 1, "hygiene", 0);
    uint8_t states[3] = {1, 3, 4};
    uint8_t reduced[3] = {0};
    plugin_member_open(member);
    plugin_member_reduce(member, states, 3, reduced);
    EXPECT_BYTES(reduced, states, 3);
    plugin_member_destroy(member);
}

/* The second open and close must end where the first did. */
static void test_hygiene_open_cycles_change_nothing(void **state)
{
    (void)state;
    struct hygiene before;
    struct hygiene first;
    struct hygiene after;
    hygiene_take(&before);
    open_cycle();
    hygiene_take(&first);
    hygiene_compare(&before, &first, 0);
    for (int i = 0; i < OPEN_CYCLES; i++) {
        open_cycle();
    }
    hygiene_take(&after);
    hygiene_compare(&first, &after, 1);
}

struct pair_case {
    const char *settings;
    uint16_t port;
};

/* A group of two members, both in this process: opened, used, closed. */
static void pair_cycle(const struct pair_case *one)
{
    struct pair *pair = pair_create_at(one->port, one->settings);
    pair_open(pair);
    pair_round(pair);
    pair_destroy(pair);
}

/* In a process of its own: what was opened first stays mapped. */
static void run_pair_cycles(const struct rank *rank, void *one)
{
    (void)rank;
    struct hygiene before;
    struct hygiene first;
    struct hygiene second;
    hygiene_take(&before);
    pair_cycle(one);
    hygiene_take(&first);
    hygiene_compare(&before, &first, 0);
    pair_cycle(one);
    hygiene_take(&second);
    hygiene_compare(&first, &second, 1);
}

static void expect_pair_cycles_change_nothing(const char *settings)
{
    struct pair_case one = {.settings = settings, .port = plugin_port()};
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, run_pair_cycles, &one, 0);
    ranks_finish(ranks);
}

static void test_hygiene_two_members_over_shared_memory_change_nothing(void **state)
{
    (void)state;
    expect_pair_cycles_change_nothing("{\"net\":\"shm\"}");
}

/* With UCX loaded, and gone from everything but the mappings. */
static void test_hygiene_two_members_over_ucx_change_nothing(void **state)
{
    (void)state;
    expect_pair_cycles_change_nothing("{\"net\":\"ucx\"}");
}

/* What is bad is refused and leaves nothing behind either, in whatever step of open it is found. */
static void test_hygiene_refused_opens_change_nothing(void **state)
{
    (void)state;
    static const char *const settings[] = {"[]", "{\"no_such_name\":1}", "{\"timeout_ms\":-1}"};
    struct hygiene before;
    struct hygiene after;
    struct plugin_member *member = plugin_member_create(0, 1, "hygiene", 0);
    hygiene_take(&before);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct convoy_context_config config = {
            .struct_size = sizeof config, .settings = settings[i], .settings_length = strlen(settings[i])};
        convoy_context *context = NULL;
        EXPECT_EQUAL(member->plugin.core->context_open(&config, &context, NULL), CONVOY_INVALID_ARGUMENT);
        EXPECT(context == NULL);
    }
    convoy_context *context = NULL;
    struct convoy_context_config config = {.struct_size = sizeof config};
    EXPECT_OK(member->plugin.core->context_open(&config, &context, &member->error), &member->error);
    struct convoy_group_options options = member->options;
    convoy_group *group = NULL;
    options.own_id = 77; /* not the id at its index */
    EXPECT_EQUAL(member->plugin.core->group_open(context, &options, &group, NULL), CONVOY_INVALID_ARGUMENT);
    EXPECT(group == NULL);
    EXPECT_OK(member->plugin.core->context_close(context, 0, &member->error), &member->error);
    hygiene_take(&after);
    hygiene_compare(&before, &after, 1);
    plugin_member_destroy(member);
}

/* aws/aws-ofi-nccl PR 327: a library that only loaded where another one had been preloaded. Here nothing else is
 * loaded, all symbols are bound at once, and none of them is visible to others. */
static void test_hygiene_plain_local_dlopen_binds_everything_and_shows_nothing(void **state)
{
    (void)state;
    void *library = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail_msg("%s", dlerror());
    }
    assert_non_null(dlsym(library, CONVOY_QUERY_SYMBOL));
    assert_null(dlsym(RTLD_DEFAULT, CONVOY_QUERY_SYMBOL));
    assert_null(dlsym(library, "json_object"));
    assert_null(dlsym(library, "sodium_init"));
    assert_int_equal(dlclose(library), 0);
}

/* aws/aws-ofi-nccl PR 327 again, from Python in an empty environment; -101 is INVALID_ARGUMENT for three NULLs. */
static void test_hygiene_python_ctypes_loads_it_in_a_clean_environment(void **state)
{
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: the run-time library of a sanitizer must be loaded first, and python3 has none\n");
        skip();
    }
    char path[1100];
    static const char program[] =
        "import ctypes,os,sys\n"
        "q=ctypes.CDLL(sys.argv[1],mode=os.RTLD_NOW|os.RTLD_LOCAL).convoy_query\n"
        "sys.exit(0 if ctypes.c_int32(q(None,None,None)).value==-101 else 1)\n";
    if (realpath(plugin_path(), path) == NULL) {
        fail_msg("%s is not there", plugin_path());
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *const environment[] = {NULL};
        execle("/usr/bin/python3", "python3", "-c", program, path, NULL, environment);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* How a host may end; each leaves something undone. */
enum ending { END_DLCLOSE_AFTER_CLOSE, END_DLCLOSE_WITHOUT_CLOSE, END_EXIT_WITHOUT_CLOSE, END_COUNT };

static void end_host(enum ending ending, int map_count)
{
    static struct plugin_member *member; /* as in a host that forgets it; what is reachable is no leak */
    member = plugin_member_create(0, 1, "ending", 0);
    uint8_t state = 2;
    plugin_member_open(member);
    plugin_member_reduce(member, &state, 1, &state);
    void *library = member->plugin.library;
    if (ending == END_DLCLOSE_AFTER_CLOSE) {
        plugin_member_destroy(member);
    }
    if (ending != END_EXIT_WITHOUT_CLOSE) {
        (void)dlclose(library);
        (void)dlclose(library); /* once too often: its code must stay */
    }
    for (int i = 0; i < map_count; i++) { /* a hook that outlived its library would be called here */
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(page != MAP_FAILED && munmap(page, 4096) == 0);
    }
    EXPECT(dlopen(NULL, RTLD_NOW) != NULL);
    exit(0); /* runs everything that was registered for the end */
}

/* NVIDIA/cuopt PR 1883, ROCm/rocm-systems PR 4934: code unmapped under a running thread, races at the end.
 * open-mpi/ompi PR 10758, openucx/ucx issue 4190: a memory hook that outlived its library; dlopen(NULL) under it. */
static void test_hygiene_host_ends_well_whatever_it_left_undone(void **state)
{
    (void)state;
    for (int i = 0; i < EXIT_CYCLES * END_COUNT; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            end_host((enum ending)(i % END_COUNT), i < END_COUNT ? 10000 : 10);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fail_msg("ending %d, try %d: wait status 0x%x", i % END_COUNT, i, (unsigned)status);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hygiene_query_cycles_change_nothing),
        cmocka_unit_test(test_hygiene_plain_local_dlopen_binds_everything_and_shows_nothing),
        cmocka_unit_test(test_hygiene_python_ctypes_loads_it_in_a_clean_environment),
        cmocka_unit_test(test_hygiene_open_cycles_change_nothing),
        cmocka_unit_test(test_hygiene_two_members_over_shared_memory_change_nothing),
        cmocka_unit_test(test_hygiene_two_members_over_ucx_change_nothing),
        cmocka_unit_test(test_hygiene_refused_opens_change_nothing),
        cmocka_unit_test(test_hygiene_host_ends_well_whatever_it_left_undone),
    };
    return cmocka_run_group_tests_name("hygiene", tests, NULL, NULL);
}
