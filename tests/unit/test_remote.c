/* SPDX-License-Identifier: Apache-2.0 */
/* Members that are hosts of their own, over real links and with their progress threads, in one process: rounds, waits,
 * goodbyes, and what an open refuses. */
#include "round/remote_internal.h"

#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 40u

static const char *const each_a_host = "{\"net\": \"ucx\"}";

/* Each asks when the other has had its turn; the progress threads look in, too. */
static int32_t remote_end(struct neighbours *all, uint32_t index)
{
    uint64_t deadline = convoy_now_ns() + NEIGHBOURS_LONG_NS;
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS && convoy_now_ns() < deadline) {
        for (uint32_t i = 0; i < all->count; i++) {
            if (i != index && all->members[i].engine != NULL) {
                (void)neighbours_test(all, i);
            }
        }
        status = neighbours_test(all, index);
    }
    return status;
}

static void test_remote_round_is_the_sum_of_all_hosts(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, each_a_host, 0);
    struct convoy_group_info info = {.struct_size = sizeof info};
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            EXPECT_OK(neighbours_start(all, i, (uint8_t)(round + i)), &all->members[i].error);
        }
        for (uint32_t i = 0; i < 3; i++) {
            EXPECT_OK(remote_end(all, i), &all->members[i].error);
            EXPECT_EQUAL(all->members[i].sum, 3 * round + 3);
            EXPECT_EQUAL(all->members[i].summary.round, round);
        }
    }
    convoy_engine_info(all->members[1].engine, &info);
    EXPECT_EQUAL(info.host_count, 3);
    EXPECT_EQUAL(info.segment_bytes, 0); /* nobody shares one */
    json_t *dump = convoy_engine_dump(all->members[0].engine);
    char *text = json_dumps(dump, JSON_COMPACT);
    EXPECT_TEXT(text, "\"link\":\"up\"");
    EXPECT_TEXT(text, "\"dropped_token\":0");
    EXPECT_TEXT(text, "\"hosts\":3");
    free(text);
    json_decref(dump);
    neighbours_destroy(all);
}

/* Nobody asks: the threads alone bring a round to its end. */
static void test_remote_progress_threads_go_on_alone(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, each_a_host, 0);
    struct convoy_group_info info = {.struct_size = sizeof info};
    uint64_t deadline = convoy_now_ns() + NEIGHBOURS_LONG_NS;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    do {
        convoy_engine_info(all->members[1].engine, &info);
    } while (info.round == 0 && convoy_now_ns() < deadline);
    EXPECT_EQUAL(info.round, 1);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_ACTIVE); /* nobody has been told */
    EXPECT_OK(neighbours_wait(all, 1, NEIGHBOURS_LONG_NS), NULL);
    EXPECT_EQUAL(all->members[1].sum, 3);
    EXPECT_OK(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), NULL);
    neighbours_destroy(all);
}

static void *rounds_main(void *argument)
{
    struct neighbour *member = argument;
    struct neighbours *all = member->all;
    uint32_t index = (uint32_t)(member - all->members);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (neighbours_start(all, index, (uint8_t)(round + index)) != CONVOY_OK ||
            neighbours_wait(all, index, NEIGHBOURS_LONG_NS) != CONVOY_OK || member->sum != 2 * round + 1) {
            return member;
        }
    }
    return NULL;
}

/* Spinning, yielding and asleep on the link. */
static void test_remote_rounds_of_two_threads(void **state)
{
    (void)state;
    static const char *const settings[] = {"{\"net\": \"ucx\"}",
                                           "{\"net\": \"ucx\", \"yield_us\": 0, \"spin_pauses\": 0}"};
    for (uint32_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct neighbours *all = neighbours_create(2, settings[i], 0);
        pthread_t thread;
        void *failed = NULL;
        EXPECT_EQUAL(pthread_create(&thread, NULL, rounds_main, &all->members[1]), 0);
        void *own = rounds_main(&all->members[0]);
        EXPECT_EQUAL(pthread_join(thread, &failed), 0);
        EXPECT_TEXT(own != NULL ? all->members[0].error.text : "", "");
        EXPECT(own == NULL && failed == NULL);
        EXPECT_EQUAL(all->members[0].summary.round, ROUNDS);
        neighbours_destroy(all);
    }
}

static void test_remote_timeout_and_goodbye(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, "{\"net\": \"ucx\", \"yield_us\": 0}", 0);
    struct neighbour *member = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, 10 * CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "did not hear from rank 11");
    EXPECT_EQUAL(convoy_engine_waited(member->engine)->kind, CONVOY_WAIT_NETWORK);
    neighbours_close(all, 1);
    EXPECT_STATUS(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), CONVOY_PEER_LOST, &member->error);
    EXPECT_EQUAL(member->error.rank, 11);
    neighbours_report(all, 0);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->host, 1);
    neighbours_destroy(all);
}

/* Who is in a group of several hosts waits with few pauses when it leads, and with none on a shared processor. */
static void test_remote_pauses(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, each_a_host, 0);
    struct convoy_engine *engine = all->members[0].engine;
    convoy_remote_enter(engine);
    engine->waiting.pauses = 1000;
    engine->waiting.shared = 0;
    EXPECT_EQUAL(convoy_remote_pauses(engine), 16);
    engine->waiting.pauses = 3;
    EXPECT_EQUAL(convoy_remote_pauses(engine), 3);
    engine->waiting.shared = 1;
    EXPECT_EQUAL(convoy_remote_pauses(engine), 0);
    convoy_remote_leave(engine);
    neighbours_destroy(all);
}

/* -- what an open refuses ---------------------------------------------------------------------------------------- */

static void test_remote_open_of_too_many_hosts(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct convoy_engine *engine = all->members[0].engine;
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint32_t count = engine->local.hosts.host_count;
    engine->local.hosts.host_count = CONVOY_HOSTS_MAX + 1;
    EXPECT_STATUS(convoy_remote_open(engine, NULL, 0, &error), CONVOY_LIMIT, &error);
    EXPECT_TEXT(error.text, "group near spans ");
    EXPECT_TEXT(error.text, "hosts, at most ");
    EXPECT(engine->remote == NULL);
    engine->local.hosts.host_count = count;
    neighbours_destroy(all);
}

/* UCX would end the process. */
static void test_remote_open_without_descriptors(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct convoy_engine *engine = all->members[0].engine;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct rlimit before;
    EXPECT_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = eventfd(0, EFD_CLOEXEC);
    EXPECT(next >= 0);
    (void)close(next);
    struct rlimit few = {.rlim_cur = (rlim_t)next + 11, .rlim_max = before.rlim_max};
    EXPECT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    int32_t status = convoy_remote_open(engine, NULL, 0, &error);
    few.rlim_cur = (rlim_t)next;
    EXPECT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct convoy_error first = CONVOY_ERROR_INIT;
    int32_t none = convoy_remote_open(engine, NULL, 0, &first);
    EXPECT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_STATUS(status, CONVOY_SYSTEM, &error);
    EXPECT_TEXT(error.text, "links to other hosts need 24 descriptors, ");
    EXPECT_STATUS(none, CONVOY_SYSTEM, &first);
    EXPECT_TEXT(first.text, "eventfd of a progress thread");
    EXPECT(engine->remote == NULL);
    neighbours_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_open_of_too_many_hosts),
        cmocka_unit_test(test_remote_open_without_descriptors),
        cmocka_unit_test(test_remote_round_is_the_sum_of_all_hosts),
        cmocka_unit_test(test_remote_progress_threads_go_on_alone),
        cmocka_unit_test(test_remote_rounds_of_two_threads),
        cmocka_unit_test(test_remote_timeout_and_goodbye),
        cmocka_unit_test(test_remote_pauses),
    };
    return cmocka_run_group_tests_name("remote", tests, NULL, NULL);
}
