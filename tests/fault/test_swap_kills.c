/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank dies, or stands still for a while, at each step of a swap of its own. Others, which have a round open that needs it
 * and a request on its way to it, are told who is gone within a second, reopen, swap themselves and go on, and hold nothing
 * of it afterwards. Who stood still goes on where it was, and nothing has happened.
 */
#include "tests/lib/swap_host.h"

#include "core/clock.h"
#include "tests/abi/hygiene.h"
#include "tests/lib/await.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/mappings.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMBERS 3u
#define VICTIM 2u
#define BYTES 20000u
#define TOLD_NS UINT64_C(1000000000)
#define ROUNDS 20u

enum mark { MARK_OPEN = 1, MARK_TOLD, MARK_DONE };

static const char *const points[] = {"move_halted",   "move_still",   "move_frozen", "move_exported",
                                     "move_imported", "move_resumed", "move_retired"};

struct shared {
    char sessions[MEMBERS][256];
    uint64_t told_ns[MEMBERS]; /* when the round and the request had ended */
};

struct plan {
    const char *point;
    const char *settings;
    bool is_stopped; /* not killed */
    uint16_t port;
};

static void fill(uint8_t data[BYTES], uint32_t rank)
{
    engine_fill(data, BYTES, 1000 + rank);
}

static void open_all(const struct rank *rank, const struct plan *plan, struct swap_host *host)
{
    struct shared *shared = rank->shared;
    swap_host_open(host, 0, plan->settings);
    swap_host_join(host, "mortal", plan->port, rank->index, rank->count);
    swap_host_engine(host);
    memcpy(shared->sessions[rank->index], host->session, sizeof host->session);
    rank_barrier(rank);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        EXPECT_OK(swap_host_round(host, 0), &host->error);
    }
}

static void run_victim(const struct rank *rank, const struct plan *plan)
{
    struct swap_host host;
    uint8_t data[BYTES];
    open_all(rank, plan, &host);
    rank_barrier(rank); /* the others' rounds and requests are under way */
    EXPECT_EQUAL(setenv(plan->is_stopped ? "CONVOY_STOP_POINT" : "CONVOY_KILL_POINT", plan->point, 1), 0);
    swap_host_must_swap(&host, 1);
    EXPECT(plan->is_stopped);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    for (uint32_t i = 0; i < VICTIM; i++) {
        fill(data, 9);
        swap_host_take(&host, data, BYTES);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        EXPECT_OK(swap_host_round(&host, 0), &host.error);
    }
    rank_barrier(rank);
    swap_host_close(&host);
}

/* Without the one that is gone, on the other build, and among themselves. */
static void go_on(const struct rank *rank, struct swap_host *host)
{
    uint8_t data[BYTES];
    const struct shared *shared = rank->shared;
    swap_host_must_swap(host, 1);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        EXPECT_OK(swap_host_round(host, 0), &host->error);
    }
    fill(data, 1 - rank->index);
    convoy_peer other = swap_host_connect(host, shared->sessions[1 - rank->index]);
    uint8_t own[BYTES];
    fill(own, rank->index);
    convoy_transfer sent = swap_host_send(host, other, "after", own, BYTES);
    swap_host_take(host, data, BYTES);
    EXPECT_OK(swap_host_end(host, sent, SWAP_HOST_NS), &host->error);
}

static void outlive(const struct rank *rank, struct swap_host *host, convoy_operation operation, convoy_transfer sent)
{
    struct shared *shared = rank->shared;
    EXPECT_STATUS(swap_host_wait(host, operation, SWAP_HOST_NS), CONVOY_PEER_LOST, &host->error);
    EXPECT_EQUAL(host->error.rank, VICTIM);
    EXPECT_STATUS(swap_host_end(host, sent, SWAP_HOST_NS), CONVOY_PEER_LOST, &host->error);
    shared->told_ns[rank->index] = convoy_now_ns();
    rank_mark(rank, MARK_TOLD); /* a reopen makes the failed round anew: the other one has to have seen it fail */
    rank_await_mark(rank, 1 - rank->index, MARK_TOLD);
    swap_host_reopen(host, 1u << VICTIM);
    go_on(rank, host);
}

/* What it has in its pool, a peer's references included. */
static uint64_t taken(struct swap_host *host)
{
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    EXPECT_OK(convoy_host_pool_figures(host->engine, &figures, &host->error), &host->error);
    return figures.taken + figures.quarantined + figures.reader_count;
}

static void run_survivor(const struct rank *rank, const struct plan *plan)
{
    struct hygiene before;
    struct hygiene after;
    struct swap_host host;
    uint8_t data[BYTES];
    const struct shared *shared = rank->shared;
    convoy_operation operation = 0;
    hygiene_take(&before);
    open_all(rank, plan, &host);
    fill(data, 9);
    convoy_peer victim = swap_host_connect(&host, shared->sessions[VICTIM]);
    convoy_transfer sent = swap_host_send(&host, victim, rank->index == 0 ? "from 0" : "from 1", data, BYTES);
    EXPECT_OK(swap_host_start(&host, &operation), &host.error);
    rank_barrier(rank);
    if (plan->is_stopped) {
        EXPECT_OK(swap_host_wait(&host, operation, SWAP_HOST_NS), &host.error);
        EXPECT_OK(swap_host_end(&host, sent, SWAP_HOST_NS), &host.error);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            EXPECT_OK(swap_host_round(&host, 0), &host.error);
        }
        rank_barrier(rank);
    } else {
        outlive(rank, &host, operation, sent);
        rank_mark(rank, MARK_DONE);
        rank_await_mark(rank, 1 - rank->index, MARK_DONE);
    }
    AWAIT(taken(&host) == 0);
    swap_host_close(&host);
    hygiene_take(&after);
    EXPECT_EQUAL(after.threads, before.threads);
    EXPECT_EQUAL(mappings_count(), 0);
    EXPECT_EQUAL(mappings_files(), 0);
}

static void run(const struct rank *rank, void *argument)
{
    if (rank->index == VICTIM) {
        run_victim(rank, argument);
    } else {
        run_survivor(rank, argument);
    }
}

static void kill_at(const char *point, const char *settings)
{
    struct plan plan = {.point = point, .settings = settings, .port = plugin_port()};
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct shared));
    ranks_expect_signal(ranks, VICTIM, SIGKILL);
    ranks_start(ranks, run, &plan, 0);
    ranks_await_exit(ranks, VICTIM);
    uint64_t dead_ns = convoy_now_ns();
    for (uint32_t i = 0; i < VICTIM; i++) {
        ranks_await_exit(ranks, i);
    }
    const struct shared shared = *(const struct shared *)ranks_shared(ranks);
    ranks_finish(ranks);
    for (uint32_t i = 0; i < VICTIM; i++) {
        if (shared.told_ns[i] > dead_ns + TOLD_NS) {
            fail_msg("rank %u was told of the death at %s after %.3f s", i, point,
                     (double)(shared.told_ns[i] - dead_ns) / 1e9);
        }
    }
}

static void stop_at(const char *point, const char *settings)
{
    struct plan plan = {.point = point, .settings = settings, .is_stopped = true, .port = plugin_port()};
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct shared));
    ranks_start(ranks, run, &plan, 0);
    ranks_await_stop(ranks, VICTIM);
    ranks_signal(ranks, VICTIM, SIGCONT);
    ranks_finish(ranks);
}

static void at_all_points(void (*attack)(const char *, const char *), const char *settings)
{
    const char *only = getenv("CONVOY_TEST_ONLY");
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (only == NULL || strstr(points[i], only) != NULL) {
            attack(points[i], settings);
        }
    }
}

static void test_swap_kills_at_each_step_others_are_told_and_go_on(void **state)
{
    (void)state;
    at_all_points(kill_at, NULL);
}

static void test_swap_kills_at_each_step_over_ucx_others_are_told_and_go_on(void **state)
{
    (void)state;
    at_all_points(kill_at, "{\"net\":\"ucx\"}");
}

static void test_swap_kills_stop_at_each_step_is_nothing_but_late(void **state)
{
    (void)state;
    at_all_points(stop_at, NULL);
}

static void test_swap_kills_stop_at_each_step_over_ucx_is_nothing_but_late(void **state)
{
    (void)state;
    at_all_points(stop_at, "{\"net\":\"ucx\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_kills_at_each_step_others_are_told_and_go_on),
        cmocka_unit_test(test_swap_kills_at_each_step_over_ucx_others_are_told_and_go_on),
        cmocka_unit_test(test_swap_kills_stop_at_each_step_is_nothing_but_late),
        cmocka_unit_test(test_swap_kills_stop_at_each_step_over_ucx_is_nothing_but_late),
    };
    return cmocka_run_group_tests_name("swap_kills", tests, NULL, NULL);
}
