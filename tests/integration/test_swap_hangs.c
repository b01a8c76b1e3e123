/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A swap while a peer hangs: an open round keeps it from falling silent, so it gives up inside its deadline, says which rank
 * it waited for, and the old build goes on as if nothing had been. A request under way to that peer keeps it from nothing,
 * and that peer finds who has moved meanwhile.
 */
#include "tests/lib/swap_host.h"

#include "core/clock.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 3u
#define HANGING 2u
#define BYTES 300000u
#define LATE_NS UINT64_C(1000000000)
#define MOMENT_NS UINT64_C(1000000)

enum mark { MARK_READY = 1, MARK_TRIED };

struct shared {
    char sessions[MEMBERS][256];
};

struct plan {
    const char *settings;
    uint16_t port;
};

static void open_all(const struct rank *rank, const struct plan *plan, struct swap_host *host)
{
    struct shared *shared = rank->shared;
    swap_host_open(host, 0, plan->settings);
    swap_host_join(host, "hanging", plan->port, rank->index, rank->count);
    swap_host_engine(host);
    memcpy(shared->sessions[rank->index], host->session, sizeof host->session);
    rank_barrier(rank);
    EXPECT_OK(swap_host_round(host, 0), &host->error);
}

static void go_on(const struct rank *rank, struct swap_host *host)
{
    for (uint32_t i = 0; i < 20; i++) {
        EXPECT_OK(swap_host_round(host, 0), &host->error);
    }
    swap_host_must_swap(host, 1);
    for (uint32_t i = 0; i < 20; i++) {
        EXPECT_OK(swap_host_round(host, 0), &host->error);
    }
    rank_barrier(rank);
    swap_host_close(host);
}

static void run_hanging(const struct rank *rank, const struct plan *plan)
{
    struct swap_host host;
    static uint8_t data[BYTES];
    open_all(rank, plan, &host);
    rank_barrier(rank);
    rank_mark(rank, MARK_READY); /* and is stopped somewhere behind this */
    rank_await_parent(rank, 1);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    engine_fill(data, BYTES, 5);
    for (uint32_t i = 0; i < HANGING; i++) {
        swap_host_take(&host, data, BYTES);
    }
    go_on(rank, &host);
}

/* Each with another deadline. */
static void try_to_swap(struct swap_host *host, uint64_t timeout_ns)
{
    uint64_t begun_ns = convoy_now_ns();
    EXPECT_STATUS(swap_host_swap(host, 1, timeout_ns), CONVOY_DRAIN_TIMEOUT, &host->error);
    uint64_t took_ns = convoy_now_ns() - begun_ns;
    EXPECT(took_ns >= timeout_ns);
    EXPECT(took_ns < timeout_ns + LATE_NS);
    EXPECT_TEXT(host->error.text, "quiescing: group hanging");
    EXPECT_TEXT(host->error.text, "2");
    EXPECT_EQUAL(host->result.phase, CONVOY_SWAP_QUIESCING);
    EXPECT_EQUAL(host->result.context_count, 0);
}

static void run_other(const struct rank *rank, const struct plan *plan)
{
    struct swap_host host;
    const struct shared *shared = rank->shared;
    static uint8_t data[BYTES];
    convoy_operation operation = 0;
    open_all(rank, plan, &host);
    convoy_peer peer = swap_host_connect(&host, shared->sessions[HANGING]);
    rank_barrier(rank);
    rank_await_parent(rank, 1); /* it hangs */
    engine_fill(data, BYTES, 5);
    convoy_transfer sent = swap_host_send(&host, peer, rank->index == 0 ? "0" : "1", data, BYTES);
    if (plan->settings == NULL || rank->index == 0) { /* only a request is under way; over UCX each takes two seconds */
        swap_host_must_swap(&host, 1);
        swap_host_must_swap(&host, 0);
    }
    EXPECT_OK(swap_host_start(&host, &operation), &host.error);
    try_to_swap(&host, 20 * MOMENT_NS);
    try_to_swap(&host, 300 * MOMENT_NS);
    EXPECT_STATUS(swap_host_wait(&host, operation, 10 * MOMENT_NS), CONVOY_TIMED_OUT, &host.error);
    EXPECT_TEXT(host.error.text, "2");
    try_to_swap(&host, 100 * MOMENT_NS);
    rank_mark(rank, MARK_TRIED);
    EXPECT_OK(swap_host_wait(&host, operation, SWAP_HOST_NS), &host.error);
    EXPECT_OK(swap_host_end(&host, sent, SWAP_HOST_NS), &host.error);
    go_on(rank, &host);
}

static void run(const struct rank *rank, void *argument)
{
    if (rank->index == HANGING) {
        run_hanging(rank, argument);
    } else {
        run_other(rank, argument);
    }
}

static void hang(const char *settings)
{
    struct plan plan = {.settings = settings, .port = plugin_port()};
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct shared));
    ranks_start(ranks, run, &plan, 60000);
    ranks_await_mark(ranks, HANGING, MARK_READY);
    ranks_stop(ranks, HANGING);
    ranks_mark(ranks, 1);
    for (uint32_t i = 0; i < HANGING; i++) {
        ranks_await_mark(ranks, i, MARK_TRIED);
    }
    ranks_signal(ranks, HANGING, SIGCONT);
    ranks_finish(ranks);
}

static void test_swap_hangs_of_a_peer_end_inside_the_deadline_and_name_it(void **state)
{
    (void)state;
    hang(NULL);
}

static void test_swap_hangs_of_a_peer_over_ucx_end_inside_the_deadline_and_name_it(void **state)
{
    (void)state;
    hang("{\"net\":\"ucx\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_hangs_of_a_peer_end_inside_the_deadline_and_name_it),
        cmocka_unit_test(test_swap_hangs_of_a_peer_over_ucx_end_inside_the_deadline_and_name_it),
    };
    return cmocka_run_group_tests_name("swap_hangs", tests, NULL, NULL);
}
