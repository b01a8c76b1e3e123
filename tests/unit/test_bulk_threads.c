/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads on one bulk, as an engine has them: one that sleeps on the descriptor, callers that send, stop and poll.
 * Events and frames come one at a time and in order; an idle engine wakes up no more than its own bound says.
 */
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/bulknode.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SENDERS 4u
#define STREAMS 60u
#define BYTES 150000u
#define AWAIT_MS 20000u
#define NAP_NS (200 * CONVOY_NS_PER_MS)
#define IDLE_NAPS 6u /* a few may still be for the last answers */

struct crew {
    struct bulknode node;
    uint32_t is_over;
    uint32_t inside; /* callbacks running */
    uint64_t naps;
    uint32_t changes; /* futex: of any counter */
    uint8_t *data;
};

static uint64_t look(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void tell(struct crew *crew)
{
    (void)__atomic_fetch_add(&crew->changes, 1, __ATOMIC_RELEASE);
    ranks_futex_wake(&crew->changes);
}

static void await(struct crew *crew, const uint64_t *counter, uint64_t value)
{
    uint32_t seen = __atomic_load_n(&crew->changes, __ATOMIC_ACQUIRE);
    while (look(counter) < value) {
        EXPECT(ranks_futex_wait(&crew->changes, seen, AWAIT_MS));
        seen = __atomic_load_n(&crew->changes, __ATOMIC_ACQUIRE);
    }
}

/* One sleeper: progress, arm, poll, as convoy_bulk_sleep does it. */
static void *sleeper_main(void *argument)
{
    struct crew *crew = argument;
    uint64_t *self = &crew->node.shared->numbers[crew->node.rank->index];
    __atomic_store_n(self, (uint64_t)(uint32_t)gettid(), __ATOMIC_RELEASE);
    while (__atomic_load_n(&crew->is_over, __ATOMIC_ACQUIRE) == 0) {
        convoy_bulk_sleep(crew->node.bulk, convoy_now_ns() + NAP_NS);
        (void)__atomic_fetch_add(&crew->naps, 1, __ATOMIC_RELAXED);
        tell(crew);
    }
    return NULL;
}

static void *sender_main(void *argument)
{
    struct crew *crew = argument;
    uint32_t peer = 1 - crew->node.rank->index;
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint64_t stream;
        const struct convoy_bulk_piece piece = {crew->data, BYTES};
        const struct convoy_bulk_send send = {.peer = peer,
                                              .flags = i % 2,
                                              .transfer = 1,
                                              .generation = 1,
                                              .pieces = &piece,
                                              .piece_count = 1,
                                              .cookie = BULKNODE_COOKIES};
        int32_t status = convoy_bulk_send(crew->node.bulk, &send, &stream, NULL);
        if (status == CONVOY_OK && i % 5 == 0) {
            (void)convoy_bulk_abort(crew->node.bulk, stream, NULL);
        }
        i -= status != CONVOY_OK; /* LIMIT: others have all of them */
        (void)convoy_bulk_progress(crew->node.bulk);
    }
    return NULL;
}

/* -- callbacks, instead of the node's own ---------------------------------------------------------------------------- */

static void count_event(void *user, const struct convoy_bulk_event *event)
{
    struct crew *crew = user;
    uint32_t before = __atomic_fetch_add(&crew->inside, 1, __ATOMIC_ACQ_REL);
    EXPECT_EQUAL(before, 0);
    if (event->kind == CONVOY_BULK_ENDED) {
        EXPECT(event->status == CONVOY_OK || event->status == CONVOY_CANCELED);
        __atomic_store_n(&crew->node.ended, crew->node.ended + 1, __ATOMIC_RELAXED);
        tell(crew);
    } else if (event->kind == CONVOY_BULK_RELEASED) {
        crew->node.released++;
        (void)convoy_bulk_wake_ns(crew->node.bulk); /* callbacks may call */
    }
    (void)__atomic_fetch_sub(&crew->inside, 1, __ATOMIC_ACQ_REL);
}

static void count_frame(void *user, uint32_t peer, const void *data, size_t bytes)
{
    struct crew *crew = user;
    uint64_t number;
    (void)peer;
    EXPECT_EQUAL(bytes, sizeof number);
    memcpy(&number, data, sizeof number);
    EXPECT_EQUAL(number, crew->node.frames);
    __atomic_store_n(&crew->node.frames, crew->node.frames + 1, __ATOMIC_RELAXED);
    tell(crew);
}

static bool take_all(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void **to_out)
{
    static uint8_t sink[BYTES];
    (void)user;
    (void)peer;
    *to_out = sink + chunk->offset;
    return chunk->offset + chunk->bytes <= BYTES;
}

static void crew_open(struct crew *crew, const struct rank *rank)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_context_config config = {.struct_size = sizeof config};
    size_t bytes;
    memset(crew, 0, sizeof *crew);
    crew->node.rank = rank;
    crew->node.shared = rank->shared;
    crew->data = calloc(1, BYTES);
    EXPECT_OK(convoy_runtime_open(&config, &crew->node.runtime, &error), &error);
    const struct convoy_bulk_options options = {
        .runtime = crew->node.runtime,
        .peer_count = 2,
        .stream_count = 32,
        .ops = {.resolve = take_all, .frame = count_frame, .event = count_event},
        .user = crew};
    EXPECT_OK(convoy_bulk_open(&options, &crew->node.bulk, &error), &error);
    const void *address = convoy_bulk_address(crew->node.bulk, &bytes);
    memcpy(crew->node.shared->ports[rank->index].address, address, bytes);
    crew->node.shared->ports[rank->index].bytes = bytes;
    rank_barrier(rank);
    bulknode_connect(&crew->node, 1 - rank->index);
    rank_barrier(rank);
}

/* Whether a thread, of any process, sleeps: "tid (name) S ...". */
static bool is_asleep(uint64_t thread)
{
    char path[64];
    char line[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)thread);
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL && fgets(line, sizeof line, file) != NULL);
    (void)fclose(file);
    const char *behind = strrchr(line, ')');
    return behind != NULL && strncmp(behind, ") S", 3) == 0;
}

/* Each frame goes when the peer's sleeper has fallen asleep: it is woken for each. */
static void frames_with_gaps(struct crew *crew)
{
    uint32_t other = 1 - crew->node.rank->index;
    uint64_t deadline_ns = convoy_now_ns() + AWAIT_MS * CONVOY_NS_PER_MS;
    for (uint64_t i = 0; i < 50; i++) {
        while (!is_asleep(crew->node.shared->numbers[other])) {
            EXPECT(convoy_now_ns() < deadline_ns);
            (void)sched_yield();
        }
        EXPECT_OK(convoy_bulk_frame(crew->node.bulk, other, &i, sizeof i, NULL), NULL);
    }
    await(crew, &crew->node.frames, 50);
}

static void crew_run(const struct rank *rank, void *argument)
{
    struct crew crew;
    pthread_t threads[SENDERS + 1];
    (void)argument;
    crew_open(&crew, rank);
    EXPECT(pthread_create(&threads[SENDERS], NULL, sleeper_main, &crew) == 0);
    await(&crew, &crew.node.shared->numbers[rank->index], 1);
    rank_barrier(rank);
    frames_with_gaps(&crew);
    rank_barrier(rank);
    for (uint32_t i = 0; i < SENDERS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, sender_main, &crew) == 0);
    }
    for (uint32_t i = 0; i < SENDERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    await(&crew, &crew.node.ended, SENDERS * STREAMS);
    rank_barrier(rank); /* nobody needs answers any more */
    uint64_t began_ns = convoy_now_ns();
    await(&crew, &crew.naps, look(&crew.naps) + IDLE_NAPS);
    EXPECT(convoy_now_ns() - began_ns >= NAP_NS); /* idle is idle: one nap at least was as long as it may be */
    __atomic_store_n(&crew.is_over, 1, __ATOMIC_RELEASE);
    (void)pthread_join(threads[SENDERS], NULL);
    EXPECT_EQUAL(crew.node.released, SENDERS * STREAMS);
    (void)bulknode_close(&crew.node, CONVOY_NS_PER_S);
    free(crew.data);
}

/* openucx/ucx 1492, 934, 7864, 10039: one lock, no lost wake-up, no spinning when idle. */
static void test_bulk_threads_send_stop_poll_and_sleep_at_once(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, sizeof(struct bulknode_shared));
    ranks_start(ranks, crew_run, NULL, 60000);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_threads_send_stop_poll_and_sleep_at_once),
    };
    return cmocka_run_group_tests_name("bulk_threads", tests, NULL, NULL);
}
