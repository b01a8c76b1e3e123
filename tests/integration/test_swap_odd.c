/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that do odd things: swaps from inside callbacks, from two threads at once, while other threads open, close and look
 * at everything, by paths that mean something else by now, and of files that are being replaced. A swap may refuse; nothing
 * hangs, and whatever runs goes on.
 */
#include "tests/lib/swap_host.h"

#include "core/clock.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"

#include <fcntl.h>
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

#define SHORT_NS UINT64_C(100000000)
#define LATE_NS UINT64_C(1000000000)
#define SWAPS 30u
#define FOLDER_BYTES 64u

/* -- from callbacks ------------------------------------------------------------------------------------------------ */

/* Swaps once, from inside whatever calls it. */
struct inside {
    struct swap_host *host;
    uint32_t build;
    uint32_t calls;
    bool is_armed;
    int32_t status;
    uint64_t took_ns;
    struct convoy_error error;
};

static void swap_inside(struct inside *inside)
{
    if (!inside->is_armed) {
        return;
    }
    inside->is_armed = false;
    inside->error = (struct convoy_error){.struct_size = sizeof inside->error};
    uint64_t begun_ns = convoy_now_ns();
    inside->status =
        convoy_loader_swap(inside->host->loader, swap_host_build(inside->build), SHORT_NS, NULL, &inside->error);
    inside->took_ns = convoy_now_ns() - begun_ns;
    inside->calls++;
}

static void on_log(void *user, uint32_t level, const char *text, size_t length)
{
    (void)level;
    (void)text;
    (void)length;
    swap_inside(user);
}

static int32_t on_advance(void *user, size_t list, size_t entry)
{
    (void)list;
    (void)entry;
    swap_inside(user);
    return 1;
}

/* Its loader and its context log to `inside`. */
static void open_logged(struct swap_host *host, struct inside *inside)
{
    *host = (struct swap_host){.error = {.struct_size = sizeof host->error}};
    *inside = (struct inside){.host = host, .build = 1};
    const struct convoy_loader_options options = {.path = swap_host_build(0),
                                                  .flags = CONVOY_LOADER_REQUIRE_ALL,
                                                  .log_level = CONVOY_LOG_DEBUG,
                                                  .log = on_log,
                                                  .log_user = inside};
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .log = on_log, .log_user = inside, .log_level = CONVOY_LOG_DEBUG};
    EXPECT_OK(convoy_loader_open(&options, &host->loader, &host->error), &host->error);
    EXPECT_OK(convoy_host_context_open(host->loader, &config, &host->context, &host->error), &host->error);
}

static void test_swap_odd_from_log_callbacks_of_a_call_and_of_a_swap(void **state)
{
    (void)state;
    struct swap_host host;
    struct inside inside;
    open_logged(&host, &inside);
    inside.is_armed = true; /* in the middle of an open */
    swap_host_join(&host, "logged", 0, 0, 1);
    EXPECT_EQUAL(inside.calls, inside.status != 0); /* it is refused, if there was a line at all */
    EXPECT(inside.took_ns < SHORT_NS + LATE_NS);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    for (uint32_t i = 0; i < 4; i++) { /* the line that tells of a swap: the swap is over, and the next may come */
        uint32_t calls = inside.calls;
        inside.is_armed = true;
        inside.build = i % 2;
        EXPECT_OK(swap_host_swap(&host, 1 - i % 2, SWAP_HOST_NS), &host.error);
        EXPECT_EQUAL(inside.calls, calls + 1);
        EXPECT(inside.status == CONVOY_OK || inside.status == CONVOY_BUSY);
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
        if (inside.status == CONVOY_OK) {
            EXPECT_OK(swap_host_swap(&host, 1 - i % 2, SWAP_HOST_NS), &host.error);
        }
    }
    swap_host_close(&host);
}

static void test_swap_odd_from_a_staging_callback_is_refused_in_time(void **state)
{
    (void)state;
    struct swap_host host;
    const uint8_t own = 4;
    const uint8_t flags = CONVOY_ENTRY_STAGED;
    uint8_t out = 9;
    swap_host_open(&host, 0, NULL);
    struct inside inside = {.host = &host, .build = 1, .is_armed = true};
    swap_host_join(&host, "staging", 0, 0, 1);
    const struct convoy_poll_list list = {
        .count = 1, .states = &own, .entry_flags = &flags, .advance = on_advance, .user = &inside};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = &out, .states_capacity = 1};
    struct convoy_poll_result result = {
        .struct_size = sizeof result, .lists = &list_result, .list_stride = sizeof list_result, .list_capacity = 1};
    EXPECT_OK(convoy_host_reduce(host.group, &call, 0, &result, &host.error), &host.error);
    EXPECT_EQUAL(out, own);
    EXPECT_STATUS(inside.status, CONVOY_DRAIN_TIMEOUT, &inside.error);
    EXPECT_TEXT(inside.error.text, "group staging");
    EXPECT(inside.took_ns < SHORT_NS + LATE_NS);
    host.round = 1;
    swap_host_must_swap(&host, 1);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    swap_host_close(&host);
}

/* -- threads ------------------------------------------------------------------------------------------------------- */

struct crew {
    struct swap_host *host;
    _Atomic uint32_t is_over;
    _Atomic uint32_t turns;
};

static void *open_and_close_groups(void *argument)
{
    struct crew *crew = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    struct swap_host own = {.error = {.struct_size = sizeof own.error}};
    while (atomic_load(&crew->is_over) == 0) {
        const struct convoy_group_options options = swap_host_options(&own, "brief", 0, 0, 1);
        own.round = 0;
        EXPECT_OK(convoy_host_group_open(crew->host->context, &options, &own.group, &error), &error);
        EXPECT_OK(swap_host_round(&own, 0), &own.error);
        EXPECT_OK(convoy_host_group_close(own.group, SWAP_HOST_NS, &error), &error);
        EXPECT_STATUS(swap_host_round(&own, 0), CONVOY_CLOSED, &own.error);
        atomic_fetch_add(&crew->turns, 1);
    }
    return NULL;
}

static void *open_and_close_contexts(void *argument)
{
    struct crew *crew = argument;
    while (atomic_load(&crew->is_over) == 0) {
        struct swap_host own = {.loader = crew->host->loader, .error = {.struct_size = sizeof own.error}};
        EXPECT_OK(convoy_host_context_open(own.loader, NULL, &own.context, &own.error), &own.error);
        swap_host_join(&own, "short", 0, 0, 1);
        swap_host_engine(&own);
        EXPECT_OK(swap_host_round(&own, 0), &own.error);
        EXPECT_OK(convoy_host_context_close(own.context, SWAP_HOST_NS, &own.error), &own.error);
        atomic_fetch_add(&crew->turns, 1);
    }
    return NULL;
}

static void *look_at_all(void *argument)
{
    struct crew *crew = argument;
    static char text[1 << 20];
    struct convoy_error error = {.struct_size = sizeof error};
    for (uint32_t i = 0; atomic_load(&crew->is_over) == 0; i++) {
        struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = sizeof text};
        uint32_t topic = i % 4 + CONVOY_TOPIC_DUMP;
        EXPECT_OK(convoy_host_group_describe(crew->host->group, topic, &buffer, &error), &error);
        EXPECT_OK(convoy_host_engine_describe(crew->host->engine, i % 3 + CONVOY_TOPIC_DUMP, &buffer, &error), &error);
        EXPECT_OK(convoy_host_context_describe(crew->host->context, i % 2 + CONVOY_TOPIC_STATS, &buffer, &error), &error);
        struct convoy_group_info info = {.struct_size = sizeof info};
        EXPECT_OK(convoy_host_group_info(crew->host->group, &info, &error), &error);
        atomic_fetch_add(&crew->turns, 1);
    }
    return NULL;
}

static void swap_beside(void *(*first)(void *), void *(*second)(void *))
{
    struct swap_host host;
    pthread_t threads[2];
    swap_host_open(&host, 0, NULL);
    swap_host_join(&host, "steady", 0, 0, 1);
    swap_host_engine(&host);
    struct crew crew = {.host = &host};
    EXPECT_EQUAL(pthread_create(&threads[0], NULL, first, &crew), 0);
    EXPECT_EQUAL(pthread_create(&threads[1], NULL, second, &crew), 0);
    for (uint32_t i = 0; i < SWAPS; i++) {
        EXPECT_OK(swap_host_swap(&host, 1 - i % 2, SWAP_HOST_NS), &host.error);
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
    }
    atomic_store(&crew.is_over, 1);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_EQUAL(pthread_join(threads[i], NULL), 0);
    }
    EXPECT(atomic_load(&crew.turns) != 0);
    swap_host_close(&host);
}

static void test_swap_odd_while_threads_open_and_close_groups_and_contexts(void **state)
{
    (void)state;
    swap_beside(open_and_close_groups, open_and_close_contexts);
    swap_beside(open_and_close_groups, open_and_close_groups);
}

static void test_swap_odd_while_threads_look_at_everything(void **state)
{
    (void)state;
    swap_beside(look_at_all, open_and_close_groups);
}

static void *swap_too(void *argument)
{
    struct crew *crew = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    for (uint32_t i = 0; atomic_load(&crew->is_over) == 0; i++) {
        int32_t status = convoy_loader_swap(crew->host->loader, swap_host_build(i % 2), SWAP_HOST_NS, NULL, &error);
        EXPECT(status == CONVOY_OK || status == CONVOY_BUSY || status == CONVOY_INVALID_ARGUMENT);
        atomic_fetch_add(&crew->turns, status == CONVOY_OK);
    }
    return NULL;
}

static void test_swap_odd_from_two_threads_at_once_is_one_after_the_other(void **state)
{
    (void)state;
    struct swap_host host;
    pthread_t thread;
    uint32_t good = 0;
    swap_host_open(&host, 0, NULL);
    swap_host_join(&host, "wanted", 0, 0, 1);
    swap_host_engine(&host);
    struct crew crew = {.host = &host};
    EXPECT_EQUAL(pthread_create(&thread, NULL, swap_too, &crew), 0);
    uint64_t until_ns = convoy_now_ns() + SWAP_HOST_NS;
    for (uint32_t i = 0; good + atomic_load(&crew.turns) < SWAPS; i++) { /* most are refused: another is under way */
        int32_t status = swap_host_swap(&host, 1 - i % 2, SWAP_HOST_NS);
        EXPECT(status == CONVOY_OK || status == CONVOY_BUSY || status == CONVOY_INVALID_ARGUMENT);
        good += status == CONVOY_OK;
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
        EXPECT(convoy_now_ns() < until_ns);
    }
    atomic_store(&crew.is_over, 1);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    swap_host_close(&host);
}

static void *close_it(void *argument)
{
    struct swap_host *host = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    EXPECT_OK(convoy_host_context_close(host->context, SWAP_HOST_NS, &error), &error);
    return NULL;
}

static void test_swap_odd_while_its_only_context_is_closed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        struct swap_host host;
        pthread_t thread;
        swap_host_open(&host, 0, NULL);
        swap_host_join(&host, "closing", 0, 0, 1);
        swap_host_engine(&host);
        EXPECT_EQUAL(pthread_create(&thread, NULL, close_it, &host), 0);
        EXPECT_OK(swap_host_swap(&host, 1, SWAP_HOST_NS), &host.error);
        EXPECT_EQUAL(pthread_join(thread, NULL), 0);
        EXPECT_OK(convoy_loader_close(host.loader, &host.error), &host.error);
    }
}

/* -- files --------------------------------------------------------------------------------------------------------- */

/* The first `bytes` of a file; a place for it is taken by rename. */
static void install(const char *from, const char *to, size_t bytes)
{
    char fresh[FOLDER_BYTES + 32];
    static _Thread_local char block[1 << 16];
    (void)snprintf(fresh, sizeof fresh, "%s.new", to);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    EXPECT(in >= 0 && out >= 0);
    while (bytes != 0) {
        ssize_t got = read(in, block, bytes < sizeof block ? bytes : sizeof block);
        EXPECT(got >= 0);
        EXPECT_EQUAL(write(out, block, (size_t)got), got);
        bytes = got != 0 ? bytes - (size_t)got : 0;
    }
    (void)close(in);
    (void)close(out);
    EXPECT_EQUAL(rename(fresh, to), 0);
}

static size_t size_of(const char *path)
{
    struct stat is;
    EXPECT_EQUAL(stat(path, &is), 0);
    return (size_t)is.st_size;
}

static void in_folder(char folder[FOLDER_BYTES], char path[FOLDER_BYTES + 16])
{
    (void)snprintf(folder, FOLDER_BYTES, "/tmp/convoy-test-XXXXXX");
    EXPECT(mkdtemp(folder) != NULL);
    (void)snprintf(path, FOLDER_BYTES + 16, "%s/it.so", folder);
}

static void leave_folder(const char *folder, const char *path)
{
    (void)unlink(path);
    EXPECT_EQUAL(rmdir(folder), 0);
}

static void must_refuse(struct swap_host *host, const char *path, int32_t wanted)
{
    EXPECT_STATUS(convoy_loader_swap(host->loader, path, SHORT_NS, &host->result, &host->error), wanted, &host->error);
    EXPECT_EQUAL(host->result.phase, CONVOY_SWAP_LOADING);
    EXPECT_TEXT(host->error.text, "loading: ");
    EXPECT_OK(swap_host_round(host, 0), &host->error);
}

/* A disk that is full leaves a part of a file; or its length, and zeros. */
static void test_swap_odd_files_that_are_no_whole_build_are_refused(void **state)
{
    (void)state;
    struct swap_host host;
    char folder[FOLDER_BYTES];
    char path[FOLDER_BYTES + 16];
    size_t whole = size_of(swap_host_build(1));
    in_folder(folder, path);
    swap_host_open(&host, 0, NULL);
    swap_host_join(&host, "picky", 0, 0, 1);
    for (size_t part = 0; part < 16; part++) {
        install(swap_host_build(1), path, whole * part / 16);
        must_refuse(&host, path, CONVOY_BAD_FILE);
    }
    install(swap_host_build(1), path, 2 * FOLDER_BYTES); /* behind the end of what is loaded zeros would do no harm */
    EXPECT_EQUAL(truncate(path, (off_t)whole), 0);
    must_refuse(&host, path, CONVOY_BAD_FILE);
    install(swap_host_build(1), path, whole / 16);
    EXPECT_EQUAL(truncate(path, (off_t)whole), 0);
    must_refuse(&host, path, CONVOY_BAD_FILE);
    must_refuse(&host, folder, CONVOY_BAD_FILE);
    EXPECT_EQUAL(unlink(path), 0);
    must_refuse(&host, path, CONVOY_NOT_FOUND);
    EXPECT_EQUAL(mkfifo(path, 0600), 0); /* nobody ever writes to it */
    must_refuse(&host, path, CONVOY_BAD_FILE);
    EXPECT_EQUAL(unlink(path), 0);
    EXPECT_EQUAL(symlink(path, path), 0);
    must_refuse(&host, path, CONVOY_NOT_FOUND);
    swap_host_must_swap(&host, 1);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    swap_host_close(&host);
    leave_folder(folder, path);
}

struct replacing {
    const char *path;
    _Atomic uint32_t is_over;
};

static void *replace_it(void *argument)
{
    struct replacing *replacing = argument;
    for (uint32_t i = 0; atomic_load(&replacing->is_over) == 0; i++) {
        const char *from = swap_host_build(i % 2);
        install(from, replacing->path, i % 5 == 4 ? size_of(from) / 2 : size_of(from));
    }
    return NULL;
}

static void test_swap_odd_file_that_is_replaced_meanwhile_gives_one_of_them_or_none(void **state)
{
    (void)state;
    struct swap_host host;
    pthread_t thread;
    char folder[FOLDER_BYTES];
    char path[FOLDER_BYTES + 16];
    in_folder(folder, path);
    install(swap_host_build(1), path, size_of(swap_host_build(1)));
    struct replacing replacing = {.path = path};
    swap_host_open(&host, 0, NULL);
    swap_host_join(&host, "replaced", 0, 0, 1);
    EXPECT_EQUAL(pthread_create(&thread, NULL, replace_it, &replacing), 0);
    for (uint32_t i = 0; i < 100; i++) {
        int32_t status = convoy_loader_swap(host.loader, path, SWAP_HOST_NS, &host.result, &host.error);
        EXPECT(status == CONVOY_OK || status == CONVOY_BAD_FILE || status == CONVOY_INIT_FAILED ||
               status == CONVOY_INVALID_ARGUMENT); /* the last: the very build that runs */
        if (status == CONVOY_OK) {
            EXPECT(strcmp(convoy_loader_info(host.loader)->file.build_id, host.result.to.build_id) == 0);
        }
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
    }
    atomic_store(&replacing.is_over, 1);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    swap_host_close(&host);
    leave_folder(folder, path);
}

/* One name, seen from two folders, is two files. */
static void test_swap_odd_relative_paths_mean_the_file_that_they_mean_now(void **state)
{
    (void)state;
    static const char *const names[2] = {"it.so", "./it.so"};
    struct swap_host host = {.error = {.struct_size = sizeof host.error}};
    char folders[2][FOLDER_BYTES];
    char paths[2][FOLDER_BYTES + 16];
    char before[1024];
    (void)swap_host_build(0);
    EXPECT(getcwd(before, sizeof before) != NULL);
    for (uint32_t i = 0; i < 2; i++) {
        in_folder(folders[i], paths[i]);
        install(swap_host_build(i), paths[i], size_of(swap_host_build(i)));
    }
    EXPECT_EQUAL(chdir(folders[0]), 0);
    const struct convoy_loader_options options = {.path = "./it.so", .flags = CONVOY_LOADER_REQUIRE_ALL};
    EXPECT_OK(convoy_loader_open(&options, &host.loader, &host.error), &host.error);
    EXPECT_OK(convoy_host_context_open(host.loader, NULL, &host.context, &host.error), &host.error);
    swap_host_join(&host, "moved", 0, 0, 1);
    for (uint32_t i = 1; i < 9; i++) {
        EXPECT_EQUAL(chdir(folders[i % 2]), 0);
        EXPECT_OK(convoy_loader_swap(host.loader, names[i / 2 % 2], SWAP_HOST_NS, &host.result, &host.error), &host.error);
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
        EXPECT_STATUS(convoy_loader_swap(host.loader, "./it.so", SWAP_HOST_NS, NULL, &host.error), CONVOY_INVALID_ARGUMENT,
                      &host.error);
    }
    EXPECT_EQUAL(chdir(before), 0);
    swap_host_close(&host);
    for (uint32_t i = 0; i < 2; i++) {
        leave_folder(folders[i], paths[i]);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_odd_from_log_callbacks_of_a_call_and_of_a_swap),
        cmocka_unit_test(test_swap_odd_from_a_staging_callback_is_refused_in_time),
        cmocka_unit_test(test_swap_odd_while_threads_open_and_close_groups_and_contexts),
        cmocka_unit_test(test_swap_odd_while_threads_look_at_everything),
        cmocka_unit_test(test_swap_odd_from_two_threads_at_once_is_one_after_the_other),
        cmocka_unit_test(test_swap_odd_while_its_only_context_is_closed),
        cmocka_unit_test(test_swap_odd_files_that_are_no_whole_build_are_refused),
        cmocka_unit_test(test_swap_odd_file_that_is_replaced_meanwhile_gives_one_of_them_or_none),
        cmocka_unit_test(test_swap_odd_relative_paths_mean_the_file_that_they_mean_now),
    };
    return cmocka_run_group_tests_name("swap_odd", tests, NULL, NULL);
}
