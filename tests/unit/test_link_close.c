/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links that are closed while they are still connecting. UCX 1.13 aborts the process when an endpoint is closed, or
 * fails, while one of its own handshake messages waits (ucp_request.c, "got REQ message"; openucx/ucx 7648, 8175), so
 * each turn stops at another point of connecting, sending and closing.
 */
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/linknode.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VICTIMS 10u
#define WAIT_MS 5000u
#define CLOSE_MS 5u

/* In the ranks' memory. */
struct address {
    size_t bytes;
    uint8_t data[2048];
};

struct member {
    struct convoy_runtime *runtime;
    struct convoy_link *link;
    const struct rank *rank;
    uint32_t random;
};

static void member_recv(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes)
{
    (void)user;
    (void)header;
    (void)header_bytes;
    (void)data;
    (void)bytes;
}

static void member_down(void *user, uint32_t peer, int32_t ucx_status)
{
    (void)user;
    (void)peer;
    (void)ucx_status;
}

static void member_start(struct member *member, const struct rank *rank)
{
    const struct convoy_context_config config = {.struct_size = sizeof config};
    struct convoy_error error = CONVOY_ERROR_INIT;
    *member = (struct member){.rank = rank, .random = 977u * rank->index + 1};
    EXPECT_OK(convoy_runtime_open(&config, &member->runtime, &error), &error);
}

static void member_open(struct member *member)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_link_options options = {.runtime = member->runtime,
                                                .peer_count = member->rank->count,
                                                .message_bytes_max = 4096,
                                                .recv = member_recv,
                                                .down = member_down,
                                                .user = member};
    EXPECT_OK(convoy_link_open(&options, &member->link, &error), &error);
    struct address *mine = (struct address *)member->rank->shared + member->rank->index;
    const void *address = convoy_link_address(member->link, &mine->bytes);
    EXPECT(mine->bytes <= sizeof mine->data);
    memcpy(mine->data, address, mine->bytes);
}

static void member_close(struct member *member)
{
    uint64_t start = convoy_now_ns();
    convoy_link_close(member->link, start + CLOSE_MS * CONVOY_NS_PER_MS);
    EXPECT(convoy_now_ns() - start < 3 * CONVOY_NS_PER_S); /* the deadline, and a second for what UCX holds */
}

static uint32_t member_random(struct member *member, uint32_t below)
{
    member->random = member->random * 1664525u + 1013904223u;
    return (member->random >> 16) % below;
}

static void member_progress(struct member *member)
{
    for (uint32_t steps = member_random(member, 12); steps > 0; steps--) {
        (void)convoy_link_progress(member->link);
    }
}

/* Perhaps connects, perhaps sends, and comes more or less far with either. */
static void member_meet(struct member *member, uint32_t peer)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct address *address = (struct address *)member->rank->shared + peer;
    const uint64_t header[5] = {0};
    static const uint8_t data[4096];
    if (member_random(member, 4) == 0) {
        return; /* only the other one does */
    }
    EXPECT_OK(convoy_link_connect(member->link, peer, address->data, address->bytes, &error), &error);
    member_progress(member);
    for (uint32_t sends = member_random(member, 3); sends > 0; sends--) {
        int32_t status = convoy_link_send(member->link, peer, header, sizeof header, data, sizeof data);
        EXPECT(status == CONVOY_OK || status == CONVOY_PEER_LOST);
        member_progress(member);
    }
}

static void close_at_once(const struct rank *rank, void *argument)
{
    struct member member;
    uint32_t turns = *(uint32_t *)argument;
    member_start(&member, rank);
    for (uint32_t turn = 0; turn < turns; turn++) {
        member_open(&member);
        rank_barrier(rank);
        for (uint32_t peer = 0; peer < rank->count; peer++) {
            if (peer != rank->index) {
                member_meet(&member, peer);
            }
        }
        member_close(&member);
        rank_barrier(rank);
    }
    convoy_runtime_destroy(member.runtime);
}

static void run_close_at_once(uint32_t count, uint32_t turns)
{
    struct ranks *ranks = ranks_create(count, RANKS_MAX * sizeof(struct address));
    ranks_start(ranks, close_at_once, &turns, 60000);
    ranks_finish(ranks);
}

static void test_link_two_that_close_while_connecting_both_end(void **state)
{
    (void)state;
    run_close_at_once(2, 200);
}

static void test_link_three_that_close_while_connecting_all_end(void **state)
{
    (void)state;
    run_close_at_once(3, 60);
}

/* -- peers that end or stop in the middle -------------------------------------------------------------------------- */

/* Rank 0 closes on every other rank in turn, each of which has just got this signal. */
static void close_on_victims(const struct rank *rank, void *argument)
{
    struct member member;
    int signal_number = *(int *)argument;
    member_start(&member, rank);
    for (uint32_t victim = 1; victim < rank->count; victim++) {
        if (rank->index != 0 && rank->index != victim) {
            continue;
        }
        member_open(&member);
        rank_mark(rank, rank->index == 0 ? victim * 2 - 1 : 1);
        rank_await_mark(rank, victim - rank->index, rank->index == 0 ? 1 : victim * 2 - 1);
        member.random += victim * 7919u;
        if (rank->index == 0 || victim % 2 == 0) { /* the others are gone before they answer */
            member_meet(&member, victim - rank->index);
        }
        if (rank->index == victim) {
            EXPECT_EQUAL(raise(signal_number), 0);
        }
        member_meet(&member, victim);
        member_close(&member);
        rank_mark(rank, victim * 2);
    }
    convoy_runtime_destroy(member.runtime);
}

static void run_close_on_victims(int signal_number)
{
    struct ranks *ranks = ranks_create(1 + VICTIMS, RANKS_MAX * sizeof(struct address));
    ranks_start(ranks, close_on_victims, &signal_number, 60000);
    for (uint32_t victim = 1; victim <= VICTIMS; victim++) {
        ranks_await_mark(ranks, 0, victim * 2);
        ranks_signal(ranks, victim, SIGKILL);
    }
    ranks_finish(ranks);
}

static void test_link_closes_on_a_peer_killed_while_connecting(void **state)
{
    (void)state;
    run_close_on_victims(SIGKILL);
}

static void test_link_closes_on_a_peer_stopped_while_connecting(void **state)
{
    (void)state;
    run_close_on_victims(SIGSTOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_two_that_close_while_connecting_both_end),
        cmocka_unit_test(test_link_three_that_close_while_connecting_all_end),
        cmocka_unit_test(test_link_closes_on_a_peer_killed_while_connecting),
        cmocka_unit_test(test_link_closes_on_a_peer_stopped_while_connecting),
    };
    return cmocka_run_group_tests_name("link_close", tests, NULL, NULL);
}
