/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that die or stop in the middle of a stream, over TCP loopback and between network namespaces: the survivor
 * survives, hears of it or reaches its own deadline, knows exactly what was applied, and goes on with others.
 */
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/bulknode.h"
#include "tests/lib/hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define LONG_BYTES (64u * MIB)
#define NOTICE_MS 5000u

/* What a case is run with. */
struct scene {
    bool in_hosts;
    uint32_t victim_at; /* chunks after which the victim kills itself */
};

static bool has_hosts;

static void enter(const struct scene *scene, const struct rank *rank)
{
    if (scene->in_hosts) {
        hosts_enter(rank->index);
    }
}

static void need_hosts(const struct scene *scene)
{
    if (scene->in_hosts && !has_hosts) {
        print_message("skipped: network namespaces cannot be made here (root, iproute2, bridge, veth)\n");
        skip();
    }
}

static void connect_others(struct bulknode *node)
{
    for (uint32_t i = 0; i < node->rank->count; i++) {
        if (i != node->rank->index) {
            bulknode_connect(node, i);
        }
    }
    rank_barrier(node->rank);
}

/* What the survivor still can: a stream to rank 2 goes through. */
static void talk_to_third(struct bulknode *node, uint8_t *data)
{
    uint64_t ended = node->ended;
    bulknode_fill(data, 7, 0, 3 * MIB);
    (void)bulknode_send(node, 2, 7, data, 3 * MIB, 0);
    EXPECT(bulknode_await(node, &node->ended, ended + 1, NOTICE_MS));
    EXPECT_EQUAL(node->statuses[7], CONVOY_OK);
}

static void third_run(struct bulknode *node)
{
    EXPECT(bulknode_await(node, &node->landed[7], 3 * MIB, 4 * NOTICE_MS));
    EXPECT(bulknode_is_right(node, 7, 3 * MIB));
    bulknode_work(node, 50); /* for the last answer */
    rank_mark(node->rank, 50);
    EXPECT(bulknode_close(node, CONVOY_NS_PER_S) < 2500);
}

/* -- killed -------------------------------------------------------------------------------------------------------- */

static void die_at(struct bulknode *node, const uint64_t *counter, uint64_t value)
{
    uint64_t deadline_ns = convoy_now_ns() + 10 * CONVOY_NS_PER_S;
    while (*counter < value) {
        EXPECT(convoy_now_ns() < deadline_ns);
        (void)convoy_bulk_progress(node->bulk);
    }
    node->shared->numbers[1] = node->landed[1];
    (void)raise(SIGKILL);
}

static void receiver_killed(const struct rank *rank, void *argument)
{
    const struct scene *scene = argument;
    struct bulknode node;
    enter(scene, rank);
    bulknode_open(&node, rank, rank->index == 1 ? LONG_BYTES : 4 * MIB, NULL);
    connect_others(&node);
    if (rank->index == 1) {
        die_at(&node, &node.landed_chunks, scene->victim_at);
    } else if (rank->index == 2) {
        third_run(&node);
        return;
    }
    uint8_t *data = calloc(1, LONG_BYTES);
    (void)bulknode_send(&node, 1, 1, data, LONG_BYTES, 0);
    EXPECT(bulknode_await(&node, &node.downs, 1, NOTICE_MS));
    EXPECT(node.ended == 1 && node.released == 1);
    EXPECT_EQUAL(node.statuses[1], CONVOY_PEER_LOST);
    uint64_t applied = LONG_BYTES - node.lost[1];
    EXPECT(applied <= node.shared->numbers[1] && applied == bulknode_count(&node, 1, "bytes_applied"));
    EXPECT_EQUAL(bulknode_frame(&node, 1, 0, 8), CONVOY_PEER_LOST);
    talk_to_third(&node, data);
    EXPECT(bulknode_close(&node, CONVOY_NS_PER_S) < 2500);
    free(data);
}

static void sender_killed(const struct rank *rank, void *argument)
{
    const struct scene *scene = argument;
    struct bulknode node;
    enter(scene, rank);
    bulknode_open(&node, rank, rank->index == 0 ? LONG_BYTES : 4 * MIB, NULL);
    connect_others(&node);
    if (rank->index == 2) {
        third_run(&node);
        return;
    }
    uint8_t *data = calloc(1, LONG_BYTES);
    if (rank->index == 1) {
        const uint64_t never = 0;
        (void)bulknode_send(&node, 0, 1, data, LONG_BYTES, 0);
        (void)bulknode_await(&node, &never, 1, 20 + scene->victim_at);
        (void)raise(SIGKILL);
    }
    if (scene->victim_at != 0) {
        uint32_t *is_dead = (uint32_t *)(void *)&node.shared->numbers[0];
        EXPECT(ranks_futex_wait(is_dead, 0, NOTICE_MS)); /* late: what the dead one has sent waits in the socket */
    }
    EXPECT(bulknode_await(&node, &node.downs, 1, NOTICE_MS));
    EXPECT_EQUAL(node.landed[1] % CONVOY_BULK_CHUNK_BYTES == 0 || node.landed[1] == LONG_BYTES, 1);
    talk_to_third(&node, data);
    EXPECT(bulknode_close(&node, CONVOY_NS_PER_S) < 2500);
    free(data);
}

static void run_killed(rank_fn run, const struct scene *scene)
{
    struct scene copy = *scene;
    need_hosts(scene);
    struct ranks *ranks = ranks_create(3, sizeof(struct bulknode_shared));
    uint32_t *is_dead = (uint32_t *)(void *)&((struct bulknode_shared *)ranks_shared(ranks))->numbers[0];
    ranks_start(ranks, run, &copy, 0);
    ranks_expect_signal(ranks, 1, SIGKILL);
    ranks_await_exit(ranks, 1);
    __atomic_store_n(is_dead, 1, __ATOMIC_RELEASE);
    ranks_futex_wake(is_dead);
    ranks_finish(ranks);
}

/* openucx/ucx 2893, 5027, PR 11629: the peer is killed while chunks are under way to it. */
static void test_bulk_survives_a_killed_receiver(void **state)
{
    (void)state;
    run_killed(receiver_killed, &(struct scene){false, 1});
    run_killed(receiver_killed, &(struct scene){false, 40});
    run_killed(receiver_killed, &(struct scene){false, 400});
}

static void test_bulk_survives_a_killed_receiver_on_another_host(void **state)
{
    (void)state;
    run_killed(receiver_killed, &(struct scene){true, 1});
    run_killed(receiver_killed, &(struct scene){true, 100});
}

/* The sender is killed while the receiver is late: a put would abort the receiver, messages do not. */
static void test_bulk_survives_a_killed_sender(void **state)
{
    (void)state;
    run_killed(sender_killed, &(struct scene){false, 0});
    run_killed(sender_killed, &(struct scene){false, 5});
    run_killed(sender_killed, &(struct scene){false, 40});
}

static void test_bulk_survives_a_killed_sender_on_another_host(void **state)
{
    (void)state;
    run_killed(sender_killed, &(struct scene){true, 0});
    run_killed(sender_killed, &(struct scene){true, 40});
}

/* -- stopped ------------------------------------------------------------------------------------------------------- */

/* Rank 1 stops. Rank 0 reaches its deadlines, then closes within that of close. */
static void receiver_stopped(const struct rank *rank, void *argument)
{
    struct bulknode node;
    uint64_t stream;
    enter(argument, rank);
    bulknode_open(&node, rank, rank->index == 1 ? LONG_BYTES : 4 * MIB, NULL);
    connect_others(&node);
    if (rank->index == 1) {
        EXPECT(bulknode_await(&node, &node.landed_chunks, 20, NOTICE_MS));
        rank_mark(rank, 1);
        bulknode_work(&node, 30000);
        return;
    }
    if (rank->index == 2) {
        third_run(&node);
        return;
    }
    uint8_t *data = calloc(1, LONG_BYTES);
    const struct convoy_bulk_piece piece = {data, LONG_BYTES};
    struct convoy_bulk_send send = {
        .peer = 1, .transfer = 1, .generation = 1, .pieces = &piece, .piece_count = 1, .cookie = 1};
    EXPECT_OK(convoy_bulk_send(node.bulk, &send, &stream, NULL), NULL);
    while (*(volatile uint64_t *)&node.shared->numbers[0] == 0) { /* until the parent has stopped it */
        (void)convoy_bulk_progress(node.bulk);
    }
    send.cookie = 3;
    send.deadline_ns = convoy_now_ns() + 200 * CONVOY_NS_PER_MS;
    EXPECT_OK(convoy_bulk_send(node.bulk, &send, &stream, NULL), NULL);
    uint64_t released = node.released;
    EXPECT(bulknode_await(&node, &node.released, released + 1, 1000));
    talk_to_third(&node, data);
    EXPECT(node.is_released[3]);
    uint64_t took_ms = bulknode_close(&node, 300 * CONVOY_NS_PER_MS);
    EXPECT(took_ms < 2500);
    EXPECT(node.statuses[3] == CONVOY_TIMED_OUT && node.lost[3] > 0);
    free(data);
}

/* Rank 1 stops in the middle of sending. Rank 0 has landed whole chunks only, talks to others and closes in time. */
static void sender_stopped(const struct rank *rank, void *argument)
{
    struct bulknode node;
    enter(argument, rank);
    bulknode_open(&node, rank, rank->index == 0 ? LONG_BYTES : 4 * MIB, NULL);
    connect_others(&node);
    if (rank->index == 2) {
        third_run(&node);
        return;
    }
    uint8_t *data = calloc(1, LONG_BYTES);
    if (rank->index == 1) {
        (void)bulknode_send(&node, 0, 1, data, LONG_BYTES, 0);
        rank_mark(rank, 1);
        bulknode_work(&node, 30000);
        return;
    }
    while (*(volatile uint64_t *)&node.shared->numbers[0] == 0) {
        (void)convoy_bulk_progress(node.bulk);
    }
    bulknode_work(&node, 100);
    talk_to_third(&node, data);
    (void)bulknode_send(&node, 1, 9, data, LONG_BYTES, 0);
    EXPECT(bulknode_close(&node, 300 * CONVOY_NS_PER_MS) < 2500);
    EXPECT_EQUAL(node.statuses[9], CONVOY_CANCELED);
    free(data);
}

static void run_stopped(rank_fn run, struct scene scene)
{
    need_hosts(&scene);
    struct ranks *ranks = ranks_create(3, sizeof(struct bulknode_shared));
    ranks_start(ranks, run, &scene, 0);
    ranks_await_mark(ranks, 1, 1);
    ranks_signal(ranks, 1, SIGSTOP);
    ranks_await_stop(ranks, 1);
    *(volatile uint64_t *)&((struct bulknode_shared *)ranks_shared(ranks))->numbers[0] = 1;
    ranks_await_exit(ranks, 0);
    ranks_await_exit(ranks, 2);
    ranks_signal(ranks, 1, SIGKILL);
    ranks_finish(ranks);
}

/* openucx/ucx PR 8802: a stopped peer holds up neither streams to others, nor deadlines, nor close. */
static void test_bulk_stopped_receiver_holds_up_nobody(void **state)
{
    (void)state;
    run_stopped(receiver_stopped, (struct scene){.in_hosts = false});
}

static void test_bulk_stopped_receiver_on_another_host_holds_up_nobody(void **state)
{
    (void)state;
    run_stopped(receiver_stopped, (struct scene){.in_hosts = true});
}

static void test_bulk_stopped_sender_holds_up_nobody(void **state)
{
    (void)state;
    run_stopped(sender_stopped, (struct scene){.in_hosts = false});
}

static void test_bulk_stopped_sender_on_another_host_holds_up_nobody(void **state)
{
    (void)state;
    run_stopped(sender_stopped, (struct scene){.in_hosts = true});
}

/* -- born again ---------------------------------------------------------------------------------------------------- */

/* Rank 2 takes the number of the dead rank 1: another incarnation, and nothing of the first one counts any more. */
static void reborn(const struct rank *rank, void *argument)
{
    const struct scene *scene = argument;
    struct bulknode node;
    struct convoy_error error = CONVOY_ERROR_INIT;
    enter(scene, rank);
    bulknode_open(&node, rank, rank->index == 1 ? LONG_BYTES : 4 * MIB, NULL);
    if (rank->index == 2) {
        bulknode_connect(&node, 0);
        rank_barrier(rank);
        third_run(&node);
        return;
    }
    bulknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    if (rank->index == 1) {
        die_at(&node, &node.landed_chunks, 10);
    }
    uint8_t *data = calloc(1, LONG_BYTES);
    (void)bulknode_send(&node, 1, 1, data, LONG_BYTES, 0);
    EXPECT(bulknode_await(&node, &node.downs, 1, NOTICE_MS));
    EXPECT_OK(convoy_bulk_connect(node.bulk, 1, node.shared->ports[2].address, (size_t)node.shared->ports[2].bytes,
                                  &error),
              &error);
    bulknode_fill(data, 7, 0, 3 * MIB);
    (void)bulknode_send(&node, 1, 7, data, 3 * MIB, CONVOY_BULK_CHECKSUM);
    EXPECT(bulknode_await(&node, &node.ended, 2, NOTICE_MS));
    EXPECT_EQUAL(node.statuses[7], CONVOY_OK);
    EXPECT(bulknode_close(&node, CONVOY_NS_PER_S) < 2500);
    free(data);
}

static void test_bulk_new_incarnation_takes_the_number_at_once(void **state)
{
    (void)state;
    run_killed(reborn, &(struct scene){.in_hosts = false});
}

/* -- between hosts ------------------------------------------------------------------------------------------------- */

static void exact(const struct rank *rank, void *argument)
{
    struct bulknode node;
    uint8_t *data = malloc(LONG_BYTES);
    enter(argument, rank);
    bulknode_open(&node, rank, LONG_BYTES, NULL);
    bulknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    uint32_t flags = rank->index == 0 ? CONVOY_BULK_CHECKSUM : 0;
    char transports[64];
    convoy_bulk_transports(node.bulk, 1 - rank->index, transports, sizeof transports);
    EXPECT_TEXT(transports, "tcp/");
    bulknode_fill(data, 2, 0, LONG_BYTES);
    (void)bulknode_send(&node, 1 - rank->index, 2, data, LONG_BYTES, flags);
    EXPECT(bulknode_await(&node, &node.landed[2], LONG_BYTES, 20000));
    EXPECT(bulknode_await(&node, &node.ended, 1, 20000));
    EXPECT_EQUAL(node.statuses[2], CONVOY_OK);
    EXPECT(bulknode_is_right(&node, 2, LONG_BYTES));
    bulknode_work(&node, 100);
    EXPECT(bulknode_close(&node, CONVOY_NS_PER_S) < 3000);
    free(data);
}

/* 64 MiB each way at once, exact. */
static void test_bulk_64_mib_each_way_between_hosts_arrive_exact(void **state)
{
    struct scene scene = {.in_hosts = true};
    (void)state;
    need_hosts(&scene);
    struct ranks *ranks = ranks_create(2, sizeof(struct bulknode_shared));
    ranks_start(ranks, exact, &scene, 60000);
    ranks_finish(ranks);
}

static int make_hosts(void **state)
{
    (void)state;
    has_hosts = hosts_create(3);
    return 0;
}

static int remove_hosts(void **state)
{
    (void)state;
    if (has_hosts) {
        hosts_destroy();
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_survives_a_killed_receiver),
        cmocka_unit_test(test_bulk_survives_a_killed_receiver_on_another_host),
        cmocka_unit_test(test_bulk_survives_a_killed_sender),
        cmocka_unit_test(test_bulk_survives_a_killed_sender_on_another_host),
        cmocka_unit_test(test_bulk_stopped_receiver_holds_up_nobody),
        cmocka_unit_test(test_bulk_stopped_receiver_on_another_host_holds_up_nobody),
        cmocka_unit_test(test_bulk_stopped_sender_holds_up_nobody),
        cmocka_unit_test(test_bulk_stopped_sender_on_another_host_holds_up_nobody),
        cmocka_unit_test(test_bulk_new_incarnation_takes_the_number_at_once),
        cmocka_unit_test(test_bulk_64_mib_each_way_between_hosts_arrive_exact),
    };
    return cmocka_run_group_tests_name("bulk_death", tests, make_hosts, remove_hosts);
}
