/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/linknode.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define WAIT_MS 5000u
#define CLOSE_NS (2 * CONVOY_NS_PER_S)

static void run_ranks(uint32_t count, rank_fn run, void *argument)
{
    struct ranks *ranks = ranks_create(count, sizeof(struct linknode_shared));
    ranks_start(ranks, run, argument, 0);
    ranks_finish(ranks);
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

static void ping_pong(const struct rank *rank, void *argument)
{
    struct linknode node;
    uint32_t rounds = *(uint32_t *)argument;
    linknode_open(&node, rank, NULL);
    uint32_t peer = 1 - rank->index;
    linknode_connect(&node, peer);
    for (uint32_t i = 0; i < rounds; i++) {
        size_t bytes = i % 3 == 0 ? 0 : i * 7919u % (LINKNODE_BYTES + 1);
        if (rank->index == 0) {
            EXPECT_STATUS(linknode_send(&node, peer, i, bytes), CONVOY_OK, NULL);
        }
        EXPECT(linknode_await(&node, &node.received, i + 1, true, WAIT_MS));
        EXPECT_EQUAL(node.last, i);
        EXPECT_EQUAL(node.last_bytes, bytes);
        if (rank->index == 1) {
            EXPECT_STATUS(linknode_send(&node, peer, i, bytes), CONVOY_OK, NULL);
        }
    }
    EXPECT_EQUAL(node.wrong, 0);
    (void)linknode_close(&node, CLOSE_NS);
}

/* Two processes pass 10,000 messages of 0 to 16 KiB to and fro. */
static void test_link_ping_pong_carries_every_message_whole(void **state)
{
    uint32_t rounds = 5000;
    (void)state;
    run_ranks(2, ping_pong, &rounds);
}

static void flood(const struct rank *rank, void *argument)
{
    struct linknode node;
    (void)argument;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    for (uint64_t i = 0; i < 1000 && rank->index == 0; i++) { /* the first ones before the connection stands */
        EXPECT_STATUS(linknode_send(&node, 1, i, i % 64 == 0 ? LINKNODE_BYTES : 100), CONVOY_OK, NULL);
    }
    if (rank->index == 1) {
        EXPECT(linknode_await(&node, &node.received, 1000, true, WAIT_MS));
        EXPECT_EQUAL(node.last, 999);
        EXPECT_EQUAL(node.wrong, 0);
    }
    (void)linknode_close(&node, CLOSE_NS);
}

/* More messages than there are buffers, and a sender that closes at once: all arrive, in order. */
static void test_link_flood_then_close_loses_nothing(void **state)
{
    (void)state;
    run_ranks(2, flood, NULL);
}

static void inline_share(const struct rank *rank, void *argument)
{
    struct linknode node;
    (void)argument;
    linknode_open(&node, rank, NULL);
    uint32_t peer = 1 - rank->index;
    linknode_connect(&node, peer);
    for (uint64_t i = 0; i < 200; i++) {
        if (rank->index == 0) {
            EXPECT_STATUS(linknode_send(&node, peer, i, 4096), CONVOY_OK, NULL);
        }
        EXPECT(linknode_await(&node, &node.received, i + 1, true, WAIT_MS));
        EXPECT_EQUAL(node.received, i + 1);
        if (rank->index == 1) {
            EXPECT_STATUS(linknode_send(&node, peer, i, 4096), CONVOY_OK, NULL);
        }
    }
    json_t *all = convoy_link_describe(node.link);
    const json_t *endpoint = json_array_get(json_object_get(all, "endpoints"), 0);
    EXPECT(json_integer_value(json_object_get(endpoint, "messages_inline")) >= 190);
    EXPECT_EQUAL(json_integer_value(json_object_get(endpoint, "messages_sent")), 200);
    EXPECT_TEXT(json_string_value(json_object_get(endpoint, "transports")), "tcp/");
    EXPECT_TEXT(json_string_value(json_object_get(endpoint, "state")), "up");
    json_decref(all);
    (void)linknode_close(&node, CLOSE_NS);
}

/* A message of header and 4 KiB goes out without a copy of ours once the connection stands. */
static void test_link_connected_message_goes_out_inline(void **state)
{
    (void)state;
    run_ranks(2, inline_share, NULL);
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

/* -- waking -------------------------------------------------------------------------------------------------------- */

static void gaps(const struct rank *rank, void *argument)
{
    struct linknode node;
    uint32_t count = *(uint32_t *)argument;
    uint32_t random = 12345;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    for (uint32_t i = 0; i < count; i++) {
        if (rank->index == 0) {
            random = random * 1664525u + 1013904223u;
            uint64_t until = convoy_now_ns() + (random >> 16) % 60000; /* up to 60 us; of sleeping there is none */
            while (convoy_now_ns() < until) {
                (void)convoy_link_progress(node.link);
            }
            EXPECT_STATUS(linknode_send(&node, 1, convoy_now_ns(), 1), CONVOY_OK, NULL);
        } else {
            EXPECT(linknode_await(&node, &node.received, i + 1, true, WAIT_MS));
        }
    }
    EXPECT(linknode_await(&node, &node.received, 0, true, WAIT_MS));
    rank_barrier(rank);
    (void)linknode_close(&node, CLOSE_NS);
}

/* openucx/ucx 1492, 934, 7864: a receiver that sleeps until it is woken hears every one of 20,000 messages; one lost
 * wake-up costs it a second, and 5 end the test. */
static void test_link_sleeping_receiver_misses_no_wakeup(void **state)
{
    uint32_t count = 20000;
    (void)state;
    run_ranks(2, gaps, &count);
}

static uint64_t cpu_us(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void idle(const struct rank *rank, void *argument)
{
    struct linknode node;
    (void)argument;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    EXPECT_STATUS(linknode_send(&node, 1 - rank->index, 1, 10), CONVOY_OK, NULL);
    EXPECT(linknode_await(&node, &node.received, 1, true, WAIT_MS));
    rank_barrier(rank);
    uint64_t before_us = cpu_us();
    uint64_t wakeups = 0;
    uint64_t until = convoy_now_ns() + 700 * CONVOY_NS_PER_MS;
    while (convoy_now_ns() < until) {
        convoy_link_sleep(node.link, -1, until);
        wakeups++;
    }
    EXPECT(wakeups < 20);
    EXPECT(cpu_us() - before_us < 35000); /* 5 % of the time */
    rank_barrier(rank);
    (void)linknode_close(&node, CLOSE_NS);
}

/* openucx/ucx 8914, ai-dynamo/nixl 297: a link with nothing to do sleeps. */
static void test_link_idle_sleep_uses_no_cpu(void **state)
{
    (void)state;
    run_ranks(2, idle, NULL);
}

/* -- bad input ----------------------------------------------------------------------------------------------------- */

static void refuse(const struct rank *rank, void *argument)
{
    struct linknode node;
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)argument;
    linknode_open(&node, rank, NULL);
    const uint8_t *address = node.shared->ports[0].address;
    size_t bytes = (size_t)node.shared->ports[0].bytes;
    for (size_t cut = 0; cut < bytes; cut++) {
        EXPECT_EQUAL(convoy_link_connect(node.link, 1, address, cut, &error), CONVOY_MALFORMED);
    }
    EXPECT_TEXT(error.text, "member 1");
    EXPECT_EQUAL(linknode_send(&node, 1, 1, 10), CONVOY_BAD_STATE);
    EXPECT_EQUAL(convoy_link_peer_state(node.link, 1), CONVOY_LINK_NONE);
    (void)linknode_close(&node, CLOSE_NS);
}

static void test_link_malformed_address_is_refused_by_member(void **state)
{
    (void)state;
    run_ranks(1, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_ping_pong_carries_every_message_whole),
        cmocka_unit_test(test_link_flood_then_close_loses_nothing),
        cmocka_unit_test(test_link_connected_message_goes_out_inline),
        cmocka_unit_test(test_link_killed_idle_peer_is_reported_and_others_go_on),
        cmocka_unit_test(test_link_killed_peer_in_mid_stream_is_reported_and_others_go_on),
        cmocka_unit_test(test_link_connecting_again_after_failure_replaces_the_endpoint),
        cmocka_unit_test(test_link_close_in_any_order_ends_within_its_deadline),
        cmocka_unit_test(test_link_close_with_one_killed_and_one_stopped_ends_within_its_deadline),
        cmocka_unit_test(test_link_sleeping_receiver_misses_no_wakeup),
        cmocka_unit_test(test_link_idle_sleep_uses_no_cpu),
        cmocka_unit_test(test_link_malformed_address_is_refused_by_member),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
