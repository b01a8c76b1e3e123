/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "tests/lib/linknode.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define WAIT_MS 5000u
#define CLOSE_NS (2 * CONVOY_NS_PER_S)

static void run_ranks(uint32_t count, rank_fn run, void *argument)
{
    struct ranks *ranks = ranks_create(count, sizeof(struct linknode_shared));
    ranks_start(ranks, run, argument, 0);
    ranks_finish(ranks);
}

/* -- death --------------------------------------------------------------------------------------------------------- */

struct death_plan {
    bool mid_stream;
};

static void stream_until_down(struct linknode *node, uint32_t peer)
{
    int32_t status = CONVOY_OK;
    uint64_t deadline = convoy_now_ns() + WAIT_MS * CONVOY_NS_PER_MS;
    for (uint64_t i = 0; node->downs == 0 && convoy_now_ns() < deadline; i++) {
        const uint64_t header[8] = {i};
        static const uint8_t data[LINKNODE_BYTES];
        status = convoy_link_send(node->link, peer, header, sizeof header, data, sizeof data);
        if (status != CONVOY_OK) {
            convoy_link_sleep(node->link, -1, convoy_now_ns() + 10 * CONVOY_NS_PER_MS);
        }
        (void)convoy_link_progress(node->link);
        if (i == 50) {
            rank_mark(node->rank, 1);
        }
    }
}

static void survive(const struct rank *rank, void *argument)
{
    struct linknode node;
    const struct death_plan *plan = argument;
    linknode_open(&node, rank, NULL);
    for (uint32_t peer = 0; peer < rank->count; peer++) {
        if (peer != rank->index) {
            linknode_connect(&node, peer);
            EXPECT_STATUS(linknode_send(&node, peer, 1, 100), CONVOY_OK, NULL);
        }
    }
    EXPECT(linknode_await(&node, &node.received, 2, true, WAIT_MS));
    rank_barrier(rank);
    if (rank->index == 2) { /* the one to be killed */
        rank_mark(rank, 1);
        EXPECT(linknode_await(&node, &node.received, UINT64_MAX, true, 30000));
    }
    if (plan->mid_stream && rank->index == 0) {
        stream_until_down(&node, 2);
    } else {
        rank_mark(rank, 1);
    }
    EXPECT(linknode_await_down(&node, 1, WAIT_MS));
    EXPECT_EQUAL(node.last_down, 2);
    EXPECT_EQUAL(convoy_link_peer_state(node.link, 2), CONVOY_LINK_FAILED);
    EXPECT_EQUAL(linknode_send(&node, 2, 2, 10), CONVOY_PEER_LOST);
    uint64_t before = node.received;
    rank_barrier_of(rank, 1, 2);
    EXPECT_STATUS(linknode_send(&node, 1 - rank->index, 3, 1000), CONVOY_OK, NULL);
    EXPECT(linknode_await(&node, &node.received, before + 1, true, WAIT_MS));
    rank_barrier_of(rank, 2, 2);
    EXPECT_EQUAL(node.downs, 1);
    EXPECT(linknode_close(&node, CLOSE_NS) < 5000);
}

static void kill_one(struct death_plan plan)
{
    struct ranks *ranks = ranks_create(3, sizeof(struct linknode_shared));
    ranks_start(ranks, survive, &plan, 0);
    for (uint32_t i = 0; i < 3; i++) {
        ranks_await_mark(ranks, i, 1);
    }
    ranks_signal(ranks, 2, SIGKILL);
    ranks_finish(ranks);
}

/* openucx/ucx 2893, 5027: a dead peer is an error on its own link, nothing else; the survivors go on. */
static void test_link_killed_idle_peer_is_reported_and_others_go_on(void **state)
{
    (void)state;
    kill_one((struct death_plan){.mid_stream = false});
}

static void test_link_killed_peer_in_mid_stream_is_reported_and_others_go_on(void **state)
{
    (void)state;
    kill_one((struct death_plan){.mid_stream = true});
}

static void reconnect(const struct rank *rank, void *argument)
{
    struct linknode node;
    (void)argument;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    EXPECT_STATUS(linknode_send(&node, 1 - rank->index, 1, 10), CONVOY_OK, NULL);
    EXPECT(linknode_await(&node, &node.received, 1, true, WAIT_MS));
    rank_barrier(rank);
    if (rank->index == 1) { /* goes and comes back with another worker, as a peer does that opens again */
        (void)linknode_close(&node, CLOSE_NS);
    } else {
        EXPECT(linknode_await_down(&node, 1, WAIT_MS));
    }
    rank_barrier(rank);
    if (rank->index == 1) {
        linknode_open(&node, rank, NULL);
    } else {
        rank_barrier(rank);
    }
    uint64_t before = node.received;
    linknode_connect(&node, 1 - rank->index);
    EXPECT_EQUAL(convoy_link_peer_state(node.link, 1 - rank->index), CONVOY_LINK_UP);
    EXPECT_STATUS(linknode_send(&node, 1 - rank->index, 2, 10), CONVOY_OK, NULL);
    EXPECT(linknode_await(&node, &node.received, before + 1, true, WAIT_MS));
    EXPECT_EQUAL(node.last, 2);
    rank_barrier(rank);
    (void)linknode_close(&node, CLOSE_NS);
}

static void test_link_connecting_again_after_failure_replaces_the_endpoint(void **state)
{
    (void)state;
    run_ranks(2, reconnect, NULL);
}

/* -- close --------------------------------------------------------------------------------------------------------- */

struct close_plan {
    uint32_t order[LINKNODE_RANKS]; /* turn of each rank; all 0 = at once */
    bool with_dead; /* rank 2 is killed, rank 3 stopped, before the others close */
};

static void mesh_close(const struct rank *rank, void *argument)
{
    struct linknode node;
    const struct close_plan *plan = argument;
    linknode_open(&node, rank, NULL);
    for (uint32_t peer = 0; peer < rank->count; peer++) {
        if (peer != rank->index) {
            linknode_connect(&node, peer);
            EXPECT_STATUS(linknode_send(&node, peer, 1, 4000), CONVOY_OK, NULL);
        }
    }
    EXPECT(linknode_await(&node, &node.received, 3, true, WAIT_MS));
    rank_mark(rank, 1);
    if (plan->with_dead) {
        rank_await_mark(rank, rank->index, rank->index >= 2 ? 99 : 1);
        EXPECT_EQUAL(linknode_send(&node, 3, 2, 4000), CONVOY_OK); /* to one that will not read it */
    }
    for (uint32_t turn = 1; turn < plan->order[rank->index]; turn++) {
        for (uint32_t other = 0; other < rank->count; other++) {
            if (plan->order[other] == turn) {
                rank_await_mark(rank, other, 2);
            }
        }
    }
    EXPECT(linknode_close(&node, CLOSE_NS) < 5000); /* in time: 2 s, and a second for what UCX holds */
    rank_mark(rank, 2);
}

static void close_in_order(struct close_plan plan)
{
    struct ranks *ranks = ranks_create(LINKNODE_RANKS, sizeof(struct linknode_shared));
    ranks_start(ranks, mesh_close, &plan, 0);
    if (plan.with_dead) {
        for (uint32_t i = 0; i < LINKNODE_RANKS; i++) {
            ranks_await_mark(ranks, i, 1);
        }
        ranks_signal(ranks, 3, SIGSTOP);
        ranks_await_stop(ranks, 3);
        ranks_signal(ranks, 2, SIGKILL);
        ranks_await_mark(ranks, 0, 2);
        ranks_await_mark(ranks, 1, 2);
        ranks_signal(ranks, 3, SIGKILL);
    }
    ranks_finish(ranks);
}

/* openucx/ucx 8802, 2587: closing must not need the peers, in whatever order they go. */
static void test_link_close_in_any_order_ends_within_its_deadline(void **state)
{
    (void)state;
    close_in_order((struct close_plan){.order = {1, 2, 3, 4}});
    close_in_order((struct close_plan){.order = {4, 3, 2, 1}});
    close_in_order((struct close_plan){.order = {0, 0, 0, 0}});
}

static void test_link_close_with_one_killed_and_one_stopped_ends_within_its_deadline(void **state)
{
    (void)state;
    close_in_order((struct close_plan){.with_dead = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_killed_idle_peer_is_reported_and_others_go_on),
        cmocka_unit_test(test_link_killed_peer_in_mid_stream_is_reported_and_others_go_on),
        cmocka_unit_test(test_link_connecting_again_after_failure_replaces_the_endpoint),
        cmocka_unit_test(test_link_close_in_any_order_ends_within_its_deadline),
        cmocka_unit_test(test_link_close_with_one_killed_and_one_stopped_ends_within_its_deadline),
    };
    return cmocka_run_group_tests_name("link_peers", tests, NULL, NULL);
}
