/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that are opened, closed, left behind and opened again, by real processes. CONVOY_SCALE multiplies lives. */
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"
#include "tests/lib/scale.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMBERS 4
#define LIVES 200
#define LIVES_FULL 1000
#define ROUNDS_OF_LIFE 10
#define SHORT_OPEN_NS 2000000000ull
#define CLOSE_NS 20000000000ull /* ten times the 2 s that a flush waits for a stopped peer over UCX */
#define LONG_MS 120000u
#define SOAK_MS 1200000u
#define ENDINGS 25

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Work of a length that differs between members and lives, so that they come and go in every order. */
static uint32_t skew(uint32_t seed)
{
    uint32_t value = seed * 2654435761u + 1;
    uint32_t steps = value % 400000u;
    for (uint32_t i = 0; i < steps; i++) {
        value = value * 1664525u + 1013904223u;
    }
    return value;
}

static void do_rounds(struct plugin_member *member, uint32_t count)
{
    uint8_t states[2] = {CONVOY_STATE_TRANSFERRING, CONVOY_STATE_SUCCESS};
    uint8_t reduced[2];
    for (uint32_t i = 0; i < count; i++) {
        plugin_member_reduce(member, states, 2, reduced);
        EXPECT_BYTES(reduced, states, 2);
    }
}

static void run_lives(const struct rank *rank, void *port)
{
    volatile uint32_t sink = 0;
    for (uint32_t life = 0; life < test_scaled(LIVES, LIVES_FULL); life++) {
        struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "lives", *(const uint16_t *)port);
        void *library = member->plugin.library;
        sink += skew(rank->index * LIVES_FULL + life);
        plugin_member_open(member);
        do_rounds(member, ROUNDS_OF_LIFE);
        sink += skew(~(rank->index * LIVES_FULL + life));
        plugin_member_destroy(member);
        EXPECT_EQUAL(dlclose(library), 0);
    }
}

/* pytorch/pytorch issues 55967, 114585, 119196: destroy and init again meets what the first life left behind.
 * NVIDIA/cuopt PR 1883, ROCm/rocm-systems PR 4934: dlclose right after close, while threads of the library may run; the
 * 1,000 times of the report at scale 5. */
static void test_lifecycle_two_hundred_lives_on_one_port_with_dlclose_after_each(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run_lives, &port, test_scale() > 1 ? SOAK_MS : LONG_MS);
    ranks_finish(ranks);
}

static void run_one_behind(const struct rank *rank, void *port)
{
    struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "behind", *(const uint16_t *)port);
    const struct convoy_core_table *core = member->plugin.core;
    bool is_behind = rank->index == MEMBERS - 1;
    member->options.epoch = is_behind ? 41 : 42;
    member->options.open_timeout_ns = SHORT_OPEN_NS;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    int32_t status = core->group_open(member->context, &member->options, &member->group, &member->error);
    if (is_behind) {
        EXPECT_STATUS(status, CONVOY_STALE_EPOCH, &member->error);
        EXPECT_TEXT(member->error.text, "41");
        EXPECT_TEXT(member->error.text, "42");
    } else {
        EXPECT(status == CONVOY_STALE_EPOCH || status == CONVOY_TIMED_OUT);
        EXPECT_TEXT(member->error.text, "3");
    }
    EXPECT(member->group == NULL);
    plugin_member_destroy(member);
}

/* pytorch/pytorch issue 55967: a member that is one life behind is told so, with both numbers. */
static void test_lifecycle_member_one_life_behind_gets_stale_epoch(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run_one_behind, &port, 0);
    ranks_finish(ranks);
}

/* -- close -- */

enum order { ORDER_UP, ORDER_DOWN, ORDER_ALL, ORDERS };

struct close_case {
    const char *settings;
    uint16_t port;
    enum order order;
    uint32_t victim; /* waits to be killed or stopped; MEMBERS = none */
};

#define OVER_SHM "{\"net\":\"shm\"}"
#define OVER_UCX "{\"net\":\"ucx\"}"
#define MARK_READY 1
#define MARK_CLOSED 2

static void wait_for_turn(const struct rank *rank, const struct close_case *one)
{
    if (one->order == ORDER_UP && rank->index > 0) {
        rank_await_mark(rank, rank->index - 1, MARK_CLOSED);
    }
    if (one->order == ORDER_DOWN && rank->index < MEMBERS - 1) {
        rank_await_mark(rank, rank->index + 1, MARK_CLOSED);
    }
}

static void run_close(const struct rank *rank, void *argument)
{
    const struct close_case *one = argument;
    uint32_t *go = rank->shared;
    struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "close", one->port);
    member->config.settings = one->settings;
    member->config.settings_length = strlen(one->settings);
    plugin_member_open(member);
    do_rounds(member, 3);
    rank_mark(rank, MARK_READY);
    while (__atomic_load_n(go, __ATOMIC_ACQUIRE) == 0) { /* the parent sets it when the victim is gone or stopped */
        (void)ranks_futex_wait(go, 0, 1000);
    }
    wait_for_turn(rank, one);
    uint64_t started = now_ns();
    EXPECT_OK(member->plugin.core->group_close(member->group, CLOSE_NS, &member->error), &member->error);
    EXPECT(now_ns() - started < CLOSE_NS);
    rank_mark(rank, MARK_CLOSED);
    plugin_member_destroy(member);
}

static void close_all(const char *settings, enum order order, uint32_t victim, int signal_number)
{
    struct close_case one = {.settings = settings, .port = plugin_port(), .order = order, .victim = victim};
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(uint32_t));
    uint32_t *go = ranks_shared(ranks);
    ranks_start(ranks, run_close, &one, 0);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        ranks_await_mark(ranks, i, MARK_READY);
    }
    if (victim < MEMBERS) {
        ranks_signal(ranks, victim, signal_number);
    }
    if (signal_number == SIGSTOP) {
        ranks_await_stop(ranks, victim);
    }
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    ranks_futex_wake(go);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (i != victim) {
            ranks_await_mark(ranks, i, MARK_CLOSED);
        }
    }
    if (signal_number == SIGSTOP) {
        ranks_signal(ranks, victim, SIGCONT);
    }
    ranks_finish(ranks);
}

/* openucx/ucx PR 8802, PR 2587: closing one side blocks because the other must take part. Here nobody waits for peers,
 * whatever the order, all at once too, and with a peer that is dead or stopped; over UCX each member is a host. */
static void test_lifecycle_close_needs_no_peer_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        close_all(OVER_SHM, (enum order)order, MEMBERS, 0);
    }
}

static void test_lifecycle_close_over_ucx_needs_no_peer_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < ORDERS; order++) {
        close_all(OVER_UCX, (enum order)order, MEMBERS, 0);
    }
}

/* openucx/ucx PR 8802: as above; the victim is the member that listened, then another. */
static void test_lifecycle_close_with_one_member_killed(void **state)
{
    (void)state;
    close_all(OVER_SHM, ORDER_ALL, 0, SIGKILL);
    close_all(OVER_SHM, ORDER_ALL, 2, SIGKILL);
}

static void test_lifecycle_close_over_ucx_with_one_member_killed(void **state)
{
    (void)state;
    close_all(OVER_UCX, ORDER_ALL, 0, SIGKILL);
    close_all(OVER_UCX, ORDER_ALL, 2, SIGKILL);
}

static void test_lifecycle_close_with_one_member_stopped(void **state)
{
    (void)state;
    close_all(OVER_SHM, ORDER_ALL, 0, SIGSTOP);
    close_all(OVER_SHM, ORDER_ALL, 2, SIGSTOP);
}

static void test_lifecycle_close_over_ucx_with_one_member_stopped(void **state)
{
    (void)state;
    close_all(OVER_UCX, ORDER_ALL, 0, SIGSTOP);
    close_all(OVER_UCX, ORDER_ALL, 2, SIGSTOP);
}

/* -- ends of processes -- */

/* One of two members; its last round is open when the process ends. */
static void end_process(uint32_t index, uint16_t port, bool with_dlclose)
{
    struct plugin_member *member = plugin_member_create(index, 2, "ends", port);
    plugin_member_open(member);
    do_rounds(member, 3);
    uint8_t own = 1;
    const struct convoy_poll_list list = {.count = 1, .states = &own};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    convoy_operation operation = 0;
    EXPECT_OK(member->plugin.poll->reduce_start(member->group, &call, &operation, &member->error), &member->error);
    if (with_dlclose) {
        EXPECT_EQUAL(dlclose(member->plugin.library), 0);
    }
    exit(0); /* runs whatever anybody has registered for the end */
}

/* NVIDIA/cuopt PR 1883: the host forgets to close, or unloads first; the process still ends with status 0. */
static void test_lifecycle_exit_with_a_round_open_ends_well(void **state)
{
    (void)state;
    for (int i = 0; i < ENDINGS; i++) {
        uint16_t port = plugin_port();
        pid_t children[2];
        (void)fflush(NULL);
        for (uint32_t index = 0; index < 2; index++) {
            children[index] = fork();
            assert_true(children[index] >= 0);
            if (children[index] == 0) {
                (void)alarm(60);
                end_process(index, port, (i + (int)index) % 2 == 0);
            }
        }
        for (uint32_t index = 0; index < 2; index++) {
            int status = 0;
            assert_int_equal(waitpid(children[index], &status, 0), children[index]);
            if (status != 0) {
                fail_msg("member %u of try %d ended with wait status 0x%x", index, i, (unsigned)status);
            }
        }
    }
}

/* -- explicit lists -- */

static void run_two_groups(const struct rank *rank, void *port)
{
    struct plugin_member *member = plugin_member_create(0, 2, rank->index % 2 == 0 ? "even" : "odd",
                                                        *(const uint16_t *)port);
    struct convoy_group_info info = {.struct_size = sizeof info};
    member->ids[0] = (int32_t)(rank->index % 2);
    member->ids[1] = member->ids[0] + 2;
    member->options.own_index = rank->index / 2;
    member->options.own_id = (int32_t)rank->index;
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://127.0.0.1:%u",
                   ((const uint16_t *)port)[rank->index % 2]);
    member->options.rendezvous_length = strlen(member->rendezvous);
    plugin_member_open(member);
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT_EQUAL(info.own_index, rank->index / 2);
    EXPECT_EQUAL(info.member_count, 2);
    uint8_t state = (uint8_t)(1 + rank->index); /* 1 and 3, 2 and 4 */
    uint8_t reduced = 0;
    plugin_member_reduce(member, &state, 1, &reduced);
    EXPECT_EQUAL(reduced, 1 + rank->index % 2);
    plugin_member_destroy(member);
}

/* sgl-project/sglang issue 29725: groups {0,2} and {1,3} of four processes; each knows its place by the list alone. */
static void test_lifecycle_groups_of_every_second_rank_keep_apart(void **state)
{
    (void)state;
    uint16_t ports[2] = {plugin_port(), plugin_port()};
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run_two_groups, ports, 0);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lifecycle_two_hundred_lives_on_one_port_with_dlclose_after_each),
        cmocka_unit_test(test_lifecycle_member_one_life_behind_gets_stale_epoch),
        cmocka_unit_test(test_lifecycle_close_needs_no_peer_in_any_order),
        cmocka_unit_test(test_lifecycle_close_over_ucx_needs_no_peer_in_any_order),
        cmocka_unit_test(test_lifecycle_close_with_one_member_killed),
        cmocka_unit_test(test_lifecycle_close_over_ucx_with_one_member_killed),
        cmocka_unit_test(test_lifecycle_close_with_one_member_stopped),
        cmocka_unit_test(test_lifecycle_close_over_ucx_with_one_member_stopped),
        cmocka_unit_test(test_lifecycle_exit_with_a_round_open_ends_well),
        cmocka_unit_test(test_lifecycle_groups_of_every_second_rank_keep_apart),
    };
    return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
