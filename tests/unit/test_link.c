/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/link_parts.h"
#include "tests/lib/linknode.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

static void long_messages(const struct rank *rank, void *argument)
{
    struct linknode node;
    const char *segment = argument;
    if (segment != NULL) {
        EXPECT_EQUAL(setenv("UCX_TCP_TX_SEG_SIZE", segment, 1), 0);
    }
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    for (uint64_t i = 0; i < 100; i++) { /* the first ones before the connection stands; both sides at once */
        size_t bytes = i % 3 == 0 ? LINKNODE_LONG_BYTES : i * 7919u % LINKNODE_LONG_BYTES;
        EXPECT_STATUS(linknode_send(&node, 1 - rank->index, i, bytes), CONVOY_OK, NULL);
        EXPECT(linknode_await(&node, &node.received, i > 10 ? i - 10 : 0, true, WAIT_MS));
    }
    EXPECT(linknode_await(&node, &node.received, 100, true, WAIT_MS));
    EXPECT_EQUAL(node.received, 100);
    EXPECT_EQUAL(node.last, 99);
    EXPECT_EQUAL(node.wrong, 0);
    rank_barrier(rank);
    (void)linknode_close(&node, CLOSE_NS);
}

/* Longer than a segment of UCX's, so in pieces: they arrive whole and in order between the short ones. */
static void test_link_message_longer_than_a_segment_arrives_whole(void **state)
{
    (void)state;
    run_ranks(2, long_messages, NULL);
}

static void test_link_host_that_chose_short_segments_is_adapted_to(void **state)
{
    char segment[] = "2k";
    (void)state;
    run_ranks(2, long_messages, segment);
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
    char transports[CONVOY_LINK_TRANSPORTS_BYTES];
    convoy_link_peer_transports(node.link, peer, transports);
    EXPECT_TEXT(transports, "tcp/");
    convoy_link_peer_transports(node.link, rank->index, transports);
    EXPECT_EQUAL(transports[0], '\0');
    (void)linknode_close(&node, CLOSE_NS);
}

/* A message of header and 4 KiB goes out without a copy of ours once the connection stands. */
static void test_link_connected_message_goes_out_inline(void **state)
{
    (void)state;
    run_ranks(2, inline_share, NULL);
}

#define TEXT_READS 20000

struct looker {
    struct convoy_link link;
    struct link_endpoint endpoint;
    uint32_t is_over;
    uint32_t torn;
};

static void *look_on(void *argument)
{
    struct looker *looker = argument;
    for (int i = 0; i < TEXT_READS; i++) {
        char text[CONVOY_LINK_TRANSPORTS_BYTES];
        convoy_link_peer_transports(&looker->link, 0, text);
        looker->torn += text[0] != '\0' && memchr(text, text[0] == 'a' ? 'b' : 'a', sizeof text) != NULL;
    }
    __atomic_store_n(&looker->is_over, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Who looks on while the owner connects again sees one text or the other. */
static void test_link_transports_are_read_whole_by_another_thread(void **state)
{
    (void)state;
    struct looker looker = {.link.options.peer_count = 1};
    char texts[2][CONVOY_LINK_TRANSPORTS_BYTES];
    pthread_t thread;
    looker.link.endpoints = &looker.endpoint;
    memset(texts[0], 'a', sizeof texts[0]);
    memset(texts[1], 'b', sizeof texts[1]);
    assert_int_equal(pthread_create(&thread, NULL, look_on, &looker), 0);
    for (int i = 0; __atomic_load_n(&looker.is_over, __ATOMIC_ACQUIRE) == 0; i = 1 - i) {
        convoy_link_text_write(&looker.endpoint.transports, texts[i]);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(looker.torn, 0);
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

static void poll_descriptor(const struct rank *rank, void *argument)
{
    struct linknode node;
    (void)argument;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 1 - rank->index);
    for (uint64_t i = 0; i < 2000; i++) {
        if (rank->index == 0) {
            EXPECT_STATUS(linknode_send(&node, 1, i, 8), CONVOY_OK, NULL);
        }
        while (node.received <= i) { /* a caller that sleeps on its own, such as the progress thread of a group */
            struct pollfd look = {.fd = convoy_link_fd(node.link), .events = POLLIN};
            EXPECT(!convoy_link_arm(node.link) || poll(&look, 1, (int)WAIT_MS) == 1);
            (void)convoy_link_progress(node.link);
        }
        if (rank->index == 1) {
            EXPECT_STATUS(linknode_send(&node, 0, i, 8), CONVOY_OK, NULL);
        }
    }
    (void)linknode_close(&node, CLOSE_NS);
}

/* Once armed, the descriptor becomes readable with the next message, whatever came between the two. */
static void test_link_armed_descriptor_becomes_readable_with_a_message(void **state)
{
    (void)state;
    run_ranks(2, poll_descriptor, NULL);
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

static void run_threads(uint32_t count, rank_fn run, void *argument)
{
    struct ranks *ranks = ranks_create(count, sizeof(struct linknode_shared));
    ranks_start_threads(ranks, run, argument, 0);
    ranks_finish(ranks);
}

/* openucx/ucx 10039, open-mpi/ompi 8927: members as threads of one process, each with a context and a worker of its
 * own, that open UCX at the same time. The last test here: from now on this process has UCX, and what it forks
 * cannot use it. */
static void test_link_members_as_threads_of_one_process(void **state)
{
    uint32_t rounds = 500;
    (void)state;
    run_threads(2, ping_pong, &rounds);
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

/* -- hygiene ------------------------------------------------------------------------------------------------------- */

/* The signals that a thread of this process blocks, from /proc. */
static uint64_t blocked_signals(const char *thread_id)
{
    char path[300];
    char line[256];
    uint64_t blocked = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%.200s/status", thread_id);
    FILE *file = fopen(path, "re");
    EXPECT(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "SigBlk:", 7) == 0) {
            blocked = strtoull(line + 7, NULL, 16);
        }
    }
    (void)fclose(file);
    return blocked;
}

static void thread_masks(const struct rank *rank, void *argument)
{
    struct linknode node;
    char own[16];
    uint32_t threads = 0;
    (void)argument;
    linknode_open(&node, rank, NULL);
    linknode_connect(&node, 0);
    (void)snprintf(own, sizeof own, "%d", (int)gettid());
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0) {
            threads++;
            EXPECT((blocked_signals(entry->d_name) & (1u << (SIGTERM - 1))) != 0);
            EXPECT((blocked_signals(entry->d_name) & (1u << (SIGUSR1 - 1))) != 0);
        }
    }
    (void)closedir(folder);
    EXPECT(threads != 0); /* UCX has one for TCP; with none this test would show nothing */
    EXPECT_EQUAL(blocked_signals(own) & (1u << (SIGTERM - 1)), 0);
    (void)linknode_close(&node, CLOSE_NS);
}

/* A signal of the host must not land on a thread that UCX made. */
static void test_link_threads_of_ucx_block_all_signals(void **state)
{
    (void)state;
    run_ranks(1, thread_masks, NULL);
}

#ifdef CONVOY_FAULTS
static void ignore_message(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes)
{
    (void)user;
    (void)header;
    (void)header_bytes;
    (void)data;
    (void)bytes;
}

static void every_allocation(const struct rank *rank, void *argument)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_link *link = NULL;
    int32_t status = CONVOY_NO_MEMORY;
    (void)rank;
    (void)argument;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        struct convoy_runtime *runtime;
        const struct convoy_context_config config = {.struct_size = sizeof config};
        EXPECT_OK(convoy_runtime_open(&config, &runtime, &error), &error);
        const struct convoy_link_options options = {
            .runtime = runtime, .peer_count = 2, .message_bytes_max = 100, .recv = ignore_message};
        EXPECT(skip < 100);
        (void)convoy_memory_fail_after(skip);
        status = convoy_link_open(&options, &link, &error);
        (void)convoy_memory_fail_after(-1);
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
        convoy_link_close(status == CONVOY_OK ? link : NULL, 0);
        convoy_runtime_destroy(runtime);
    }
}

static void test_link_open_failing_at_each_allocation_leaves_nothing(void **state)
{
    (void)state;
    run_ranks(1, every_allocation, NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_ping_pong_carries_every_message_whole),
        cmocka_unit_test(test_link_flood_then_close_loses_nothing),
        cmocka_unit_test(test_link_message_longer_than_a_segment_arrives_whole),
        cmocka_unit_test(test_link_host_that_chose_short_segments_is_adapted_to),
        cmocka_unit_test(test_link_connected_message_goes_out_inline),
        cmocka_unit_test(test_link_transports_are_read_whole_by_another_thread),
        cmocka_unit_test(test_link_sleeping_receiver_misses_no_wakeup),
        cmocka_unit_test(test_link_armed_descriptor_becomes_readable_with_a_message),
        cmocka_unit_test(test_link_idle_sleep_uses_no_cpu),
        cmocka_unit_test(test_link_malformed_address_is_refused_by_member),
        cmocka_unit_test(test_link_threads_of_ucx_block_all_signals),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_link_open_failing_at_each_allocation_leaves_nothing),
#endif
        cmocka_unit_test(test_link_members_as_threads_of_one_process),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
