/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two builds in one process: members of one group, one swapped to the other while that is in use, beside a plugin that the
 * host has opened by itself and beside other copies of UCX. And what two hundred swaps leave behind: nothing.
 */
#include "tests/lib/swap_host.h"

#include "tests/abi/hygiene.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"
#include "tests/lib/ranks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CYCLES 1000u
#define SWAPS_FIRST 20u
#define SWAPS 200u
#define GROWTH_BYTES 65536u /* of memory, for each swap: the handles that a late call may still look at */
#define USERS 4u
#define OVER_UCX "{\"net\":\"ucx\"}"

/* Stands in front of the C library's, for the plugin too. */
static _Atomic unsigned atexit_count;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which do so themselves */
extern int __cxa_atexit(void (*run)(void *), void *argument, void *dso) /* NOLINT(bugprone-reserved-identifier) */
    __attribute__((visibility("default")));

int __cxa_atexit(void (*run)(void *), void *argument, void *dso) /* NOLINT(bugprone-reserved-identifier) */
{
    static int (*real)(void (*)(void *), void *, void *);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "__cxa_atexit");
    }
    atomic_fetch_add(&atexit_count, 1);
    return real(run, argument, dso);
}
#endif

static void in_a_process(rank_fn run)
{
    uint16_t ports[2] = {plugin_port(), plugin_port()};
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, run, ports, 60000);
    ranks_finish(ranks);
}

/* -- two loaders --------------------------------------------------------------------------------------------------- */

struct busy {
    struct swap_host hosts[2];
    _Atomic uint32_t is_over;
    uint64_t rounds;
};

static void *be_busy(void *argument)
{
    struct busy *busy = argument;
    while (atomic_load(&busy->is_over) == 0) {
        swap_couple_round(busy->hosts);
        busy->rounds++;
    }
    return NULL;
}

static void run_both(const struct rank *rank, void *argument)
{
    static struct busy busy;
    static struct swap_host hosts[2];
    const uint16_t *ports = argument;
    pthread_t thread;
    (void)rank;
    swap_couple_open(busy.hosts, NULL, "busy", ports[0]);
    swap_couple_open(hosts, NULL, "swapped", ports[1]);
    EXPECT_EQUAL(pthread_create(&thread, NULL, be_busy, &busy), 0);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t which = i / 2 % 2; /* to where the other is, and back */
        swap_host_must_swap(&hosts[which], i % 2 == 0 ? 1 - which : which);
        EXPECT(hosts[which].result.was_mapped != 0);
        swap_couple_round(hosts);
    }
    atomic_store(&busy.is_over, 1);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    EXPECT(busy.rounds != 0);
    swap_couple_close(hosts);
    swap_couple_round(busy.hosts);
    swap_couple_close(busy.hosts);
}

static void test_swap_coexist_one_is_swapped_to_the_other_while_that_is_in_use(void **state)
{
    (void)state;
    in_a_process(run_both);
}

static void run_plain(const struct rank *rank, void *argument)
{
    const uint8_t state = 3;
    uint8_t out = 9;
    struct swap_host host;
    (void)rank;
    (void)argument;
    struct plugin_member *member = plugin_member_create(0, 1, "plain", 0); /* by dlopen */
    plugin_member_open(member);
    swap_host_open(&host, 0, NULL);
    swap_host_join(&host, "loaded", 0, 0, 1);
    for (uint32_t i = 0; i < 6; i++) {
        swap_host_must_swap(&host, 1 - i % 2);
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
        plugin_member_reduce(member, &state, 1, &out);
    }
    swap_host_close(&host);
    plugin_member_reduce(member, &state, 1, &out);
    EXPECT_EQUAL(out, state);
    plugin_member_destroy(member);
}

static void test_swap_coexist_with_a_host_that_opens_the_plugin_by_itself(void **state)
{
    (void)state;
    in_a_process(run_plain);
}

/* -- beside UCX ---------------------------------------------------------------------------------------------------- */

static void swap_over_ucx(struct swap_host hosts[2])
{
    for (uint32_t i = 0; i < 4; i++) {
        swap_couple_round(hosts);
        swap_host_must_swap(&hosts[i % 2], i < 2 ? 1 - i : i % 2);
        swap_couple_round(hosts);
    }
}

static void open_ucx(void)
{
    EXPECT(dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL) != NULL);
}

static void run_ucx_first(const struct rank *rank, void *argument)
{
    static struct swap_host hosts[2];
    (void)rank;
    open_ucx();
    swap_couple_open(hosts, OVER_UCX, "first", *(const uint16_t *)argument);
    swap_over_ucx(hosts);
    swap_couple_close(hosts);
}

static void run_ucx_later(const struct rank *rank, void *argument)
{
    static struct swap_host hosts[2];
    (void)rank;
    swap_couple_open(hosts, OVER_UCX, "later", *(const uint16_t *)argument);
    swap_over_ucx(hosts);
    open_ucx();
    swap_over_ucx(hosts);
    swap_couple_close(hosts);
}

/* A library that has some names of UCX comes in meanwhile: the new build will not use UCX beside it, so the old one stays. */
static void run_false_ucx(const struct rank *rank, void *argument)
{
    static struct swap_host hosts[2];
    char own[512];
    char path[600];
    (void)rank;
    swap_couple_open(hosts, OVER_UCX, "false", *(const uint16_t *)argument);
    swap_couple_round(hosts);
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    EXPECT(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(path, sizeof path, "%s/../lib/global_ucp.so", own);
    EXPECT(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL);
    int32_t status = swap_host_swap(&hosts[0], 1, SWAP_HOST_NS);
    EXPECT(status == CONVOY_OK || status == CONVOY_INIT_FAILED); /* OK: UCX is open here already, by the other one */
    swap_couple_round(hosts);
    swap_couple_close(hosts);
}

static void test_swap_coexist_with_a_host_that_has_ucx_first_or_later(void **state)
{
    (void)state;
    in_a_process(run_ucx_first);
    in_a_process(run_ucx_later);
    in_a_process(run_false_ucx);
}

/* -- what is left behind ------------------------------------------------------------------------------------------- */

static void ask_once(const char *path)
{
    struct plugin plugin;
    plugin_load_from(&plugin, path);
    EXPECT_EQUAL(dlclose(plugin.library), 0);
}

static void run_queries(const struct rank *rank, void *argument)
{
    struct hygiene before;
    struct hygiene after;
    (void)rank;
    (void)argument;
    ask_once(swap_host_build(0));
    ask_once(swap_host_build(1));
    hygiene_take(&before);
    for (uint32_t i = 0; i < CYCLES; i++) {
        ask_once(swap_host_build(i % 2));
    }
    hygiene_take(&after);
    hygiene_compare(&before, &after, 1);
}

static void test_swap_coexist_queries_of_both_change_nothing(void **state)
{
    (void)state;
    in_a_process(run_queries);
}

static void swap_often(struct swap_host hosts[2], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        swap_host_must_swap(&hosts[0], 1 - i % 2);
        swap_couple_round(hosts);
    }
}

static void run_often(const struct rank *rank, void *argument)
{
    static struct swap_host hosts[2];
    struct hygiene before;
    struct hygiene after;
    struct hygiene closed;
    struct hygiene fresh;
    (void)rank;
    ask_once(swap_host_build(0));
    ask_once(swap_host_build(1));
    hygiene_take(&fresh);
    swap_couple_open(hosts, NULL, "often", *(const uint16_t *)argument);
    swap_host_engine(&hosts[0]);
    const struct convoy_stage stage = engine_stage("staged", NULL, 0);
    convoy_transfer staged = 0;
    EXPECT_OK(convoy_host_stage_start(hosts[0].engine, &stage, &staged, &hosts[0].error), &hosts[0].error);
    swap_often(hosts, SWAPS_FIRST);
    hygiene_take(&before);
    size_t heap_before = mallinfo2().uordblks;
    unsigned exits_before = atomic_load(&atexit_count);
    swap_often(hosts, SWAPS);
    size_t heap_after = mallinfo2().uordblks;
    hygiene_take(&after);
    hygiene_compare(&before, &after, 1);
    EXPECT_EQUAL(atomic_load(&atexit_count), exits_before);
    size_t grown = heap_after > heap_before ? heap_after - heap_before : 0;
    (void)printf("memory grows by %zu bytes for each swap\n", grown / SWAPS);
    EXPECT(grown < (size_t)SWAPS * GROWTH_BYTES);
    EXPECT_OK(swap_host_end(&hosts[0], staged, SWAP_HOST_NS), &hosts[0].error);
    swap_couple_close(hosts);
    hygiene_take(&closed);
    hygiene_compare(&fresh, &closed, 1);
    (void)fflush(stdout);
}

static void test_swap_coexist_two_hundred_swaps_leave_nothing(void **state)
{
    (void)state;
    in_a_process(run_often);
}

/* -- a file that is replaced --------------------------------------------------------------------------------------- */

static void copy_over(const char *from, const char *to)
{
    char fresh[600];
    char block[65536];
    ssize_t got;
    (void)snprintf(fresh, sizeof fresh, "%s.new", to);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    EXPECT(in >= 0 && out >= 0);
    while ((got = read(in, block, sizeof block)) > 0) {
        EXPECT_EQUAL(write(out, block, (size_t)got), got);
    }
    (void)close(in);
    (void)close(out);
    EXPECT_EQUAL(rename(fresh, to), 0);
}

static void *use_it(void *argument)
{
    convoy_loader *loader = argument;
    struct swap_host host = {.loader = loader, .error = {.struct_size = sizeof host.error}};
    EXPECT_OK(convoy_host_context_open(loader, NULL, &host.context, &host.error), &host.error);
    swap_host_join(&host, "user", 0, 0, 1);
    for (uint32_t i = 0; i < 100; i++) {
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
    }
    EXPECT_OK(convoy_host_context_close(host.context, SWAP_HOST_NS, &host.error), &host.error);
    return NULL;
}

static void open_at(const char *path, const char *of, convoy_loader **loader_out)
{
    const struct convoy_loader_options options = {.path = path, .flags = CONVOY_LOADER_REQUIRE_ALL};
    struct convoy_error error = {.struct_size = sizeof error};
    static struct convoy_file_info wanted;
    EXPECT_OK(convoy_loader_inspect(of, &wanted, &error), &error);
    EXPECT_OK(convoy_loader_open(&options, loader_out, &error), &error);
    EXPECT(strcmp(convoy_loader_info(*loader_out)->file.build_id, wanted.build_id) == 0);
}

/* rust-lang/rust issue 59629: threads that have used a library keep it mapped, and opening its name gives the old code. */
static void run_replaced(const struct rank *rank, void *argument)
{
    char folder[] = "/tmp/convoy-test-XXXXXX";
    char path[64];
    pthread_t users[USERS];
    (void)rank;
    (void)argument;
    EXPECT(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/it.so", folder);
    for (uint32_t i = 0; i < 4; i++) {
        convoy_loader *loader = NULL;
        copy_over(swap_host_build(i % 2), path);
        open_at(path, swap_host_build(i % 2), &loader);
        for (uint32_t user = 0; user < USERS; user++) {
            EXPECT_EQUAL(pthread_create(&users[user], NULL, use_it, loader), 0);
        }
        for (uint32_t user = 0; user < USERS; user++) {
            EXPECT_EQUAL(pthread_join(users[user], NULL), 0);
        }
        EXPECT_OK(convoy_loader_close(loader, NULL), NULL);
    }
    (void)unlink(path);
    (void)rmdir(folder);
}

static void test_swap_coexist_file_replaced_after_threads_used_it_gives_the_other_build(void **state)
{
    (void)state;
    in_a_process(run_replaced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_coexist_one_is_swapped_to_the_other_while_that_is_in_use),
        cmocka_unit_test(test_swap_coexist_with_a_host_that_opens_the_plugin_by_itself),
        cmocka_unit_test(test_swap_coexist_with_a_host_that_has_ucx_first_or_later),
        cmocka_unit_test(test_swap_coexist_queries_of_both_change_nothing),
        cmocka_unit_test(test_swap_coexist_two_hundred_swaps_leave_nothing),
        cmocka_unit_test(test_swap_coexist_file_replaced_after_threads_used_it_gives_the_other_build),
    };
    return cmocka_run_group_tests_name("swap_coexist", tests, NULL, NULL);
}
