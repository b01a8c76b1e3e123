/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is pushed to another host while it is still being staged. The second half of the source cannot be read before the test
 * says so: whoever stages stands still there, in a signal handler, so that what has arrived by then was pushed before.
 */
#include "tests/lib/await.h"
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define SOURCE_BYTES (16u << 20)
#define HALF_BYTES (SOURCE_BYTES / 2)
#define SURE_BYTES (5ull << 20) /* of the first half; the rest may wait for its chunk to be full */
#define SMALL_BYTES 100000u

/* -- a source that stops whoever reads it -- */

static struct {
    uint8_t *memory;
    uint32_t must_wait; /* futex */
    _Atomic uint32_t is_there; /* somebody stands there */
} gate;

static void gate_handler(int signal_number, siginfo_t *info, void *context)
{
    const uint8_t *at = info->si_addr;
    (void)context;
    if (at < gate.memory || at >= gate.memory + SOURCE_BYTES) {
        (void)signal(signal_number, SIG_DFL);
        return;
    }
    gate.is_there = 1;
    while (!ranks_futex_wait(&gate.must_wait, 1, RANKS_TIMEOUT_MS)) { /* the deadline of the ranks bounds it */
    }
    (void)mprotect(gate.memory + HALF_BYTES, HALF_BYTES, PROT_READ | PROT_WRITE);
}

static void gate_make(void)
{
    struct sigaction action = {.sa_sigaction = gate_handler, .sa_flags = SA_SIGINFO};
    gate.memory = mmap(NULL, SOURCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(gate.memory != MAP_FAILED);
    EXPECT_EQUAL(sigaction(SIGSEGV, &action, NULL), 0);
    engine_fill(gate.memory, SOURCE_BYTES, 11);
}

static void gate_open(void)
{
    __atomic_store_n(&gate.must_wait, 0, __ATOMIC_RELEASE);
    ranks_futex_wake(&gate.must_wait);
}

static void gate_close(void)
{
    gate.is_there = 0;
    __atomic_store_n(&gate.must_wait, 1, __ATOMIC_RELEASE);
    EXPECT_EQUAL(mprotect(gate.memory + HALF_BYTES, HALF_BYTES, PROT_NONE), 0);
}

/* -- the sender: its own thread stages, since it waits for the send -- */

static int32_t send_and_wait(struct engine *engine, convoy_peer peer, uint32_t flags)
{
    const uint64_t bytes = SOURCE_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(gate.memory, &bytes);
    struct convoy_stage stage = engine_stage("early", &tensor, 1);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    stage.critical_flags = flags;
    int32_t status = engine->table->send(engine->handle, &stage, &send, &sent, &engine->error);
    far_release(engine, sent);
    return status;
}

/* Opens the gate once the other rank has said how much it has. */
static void *open_gate(void *argument)
{
    const struct rank *rank = argument;
    rank_await_mark(rank, 1, 2);
    gate_open();
    return NULL;
}

static void await_landed(struct engine *engine, uint64_t before)
{
    AWAIT(far_number(engine, "landed_bytes") - before >= SURE_BYTES);
}

static void check_loaded(struct engine *engine, convoy_transfer loaded)
{
    engine_look(engine, loaded);
    EXPECT_EQUAL(engine->views[0].bytes, SOURCE_BYTES);
    EXPECT(engine_is_filled(engine->views[0].data, SOURCE_BYTES, 11));
}

/* -- what is there before the rest is staged -- */

static void run_overlap(const struct rank *rank, void *argument)
{
    uint32_t flags = *(const uint32_t *)argument;
    struct engine *engine = far_open(rank, 0, 0);
    if (rank->index == 0) {
        pthread_t opener;
        convoy_peer peer = far_connect(rank, engine);
        gate_make();
        gate_close();
        EXPECT_EQUAL(pthread_create(&opener, NULL, open_gate, (void *)(uintptr_t)rank), 0);
        int32_t status = send_and_wait(engine, peer, flags);
        EXPECT_OK(status, &engine->error);
        EXPECT_EQUAL(pthread_join(opener, NULL), 0);
        EXPECT_EQUAL(gate.is_there, 1);
    } else {
        convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
        await_landed(engine, 0);
        rank_mark(rank, 2);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        check_loaded(engine, loaded);
        far_release(engine, loaded);
    }
    far_finish(rank, engine);
}

static void test_far_early_first_half_arrives_before_the_second_one_is_staged(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= CONVOY_STAGE_CHECKSUM; flags += CONVOY_STAGE_CHECKSUM) {
        far_run(run_overlap, &flags);
    }
}

/* -- a small one passes each way -- */

static void pass_on(struct engine *engine, convoy_peer peer)
{
    static uint8_t data[SMALL_BYTES];
    const uint64_t bytes = sizeof data;
    engine_fill(data, sizeof data, 3);
    convoy_transfer sent = far_send(engine, peer, "after", data, &bytes, CONVOY_STAGE_CHECKSUM);
    convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
    engine_wait(engine, loaded, CONVOY_OK, NULL);
    engine_look(engine, loaded);
    EXPECT(engine->views[0].bytes == bytes && engine_is_filled(engine->views[0].data, bytes, 3));
    engine_wait(engine, sent, CONVOY_OK, NULL);
    far_release(engine, loaded);
    far_release(engine, sent);
}

/* -- given up in the middle, by either -- */

struct ender {
    const struct rank *rank;
    struct engine *engine;
    uint64_t is_sender;
};

/* The sender's host gives it up by its handle, which a query tells, since the call that made it is still inside. */
static void *end_early(void *argument)
{
    const struct ender *ender = argument;
    struct engine *engine = ender->engine;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    const struct convoy_transfer_query query = {.struct_size = sizeof query, .request = "early", .request_length = 5};
    rank_await_mark(ender->rank, 1, 2);
    if (ender->is_sender != 0) {
        EXPECT_OK(engine->table->query(engine->handle, &query, ENGINE_TIMEOUT_NS, &answer, &error), &error);
        EXPECT_OK(engine->table->abort(engine->handle, answer.transfer, "enough", 6, &error), &error);
    }
    rank_mark(ender->rank, 3);
    rank_await_mark(ender->rank, 1, 3); /* it has ended there, while whoever stages stands still here */
    gate_open();
    return NULL;
}

static void send_doomed(struct ender *ender, convoy_peer peer)
{
    pthread_t thread;
    struct engine *engine = ender->engine;
    gate_make();
    gate_close();
    EXPECT_EQUAL(pthread_create(&thread, NULL, end_early, ender), 0);
    int32_t status = send_and_wait(engine, peer, 0);
    EXPECT_EQUAL(status, CONVOY_CANCELED);
    EXPECT_TEXT(engine->error.text, ender->is_sender != 0 ? "enough" : "does not take it");
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
}

static void load_doomed(const struct ender *ender)
{
    struct engine *engine = ender->engine;
    convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
    await_landed(engine, 0);
    rank_mark(ender->rank, 2);
    rank_await_mark(ender->rank, 0, 3);
    if (ender->is_sender == 0) {
        EXPECT_OK(engine->table->abort(engine->handle, loaded, "no more", 7, &engine->error), &engine->error);
    }
    engine_wait(engine, loaded, ender->is_sender != 0 ? CONVOY_PEER_ERROR : CONVOY_CANCELED, NULL);
    EXPECT_TEXT(engine->error.text, ender->is_sender != 0 ? "has given it up" : "no more");
    far_release(engine, loaded);
    engine_await_empty(engine);
    rank_mark(ender->rank, 3);
}

static void run_ended(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    struct ender ender = {.rank = rank, .engine = engine, .is_sender = *(const uint64_t *)argument};
    rank_barrier(rank);
    if (rank->index == 0) {
        send_doomed(&ender, peer);
        engine_await_empty(engine);
        EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    } else {
        load_doomed(&ender);
    }
    rank_barrier(rank);
    pass_on(engine, peer);
    far_finish(rank, engine);
}

static void test_far_early_end_in_the_middle_reaches_the_other_side_with_its_reason(void **state)
{
    (void)state;
    for (uint64_t is_sender = 0; is_sender < 2; is_sender++) {
        far_run(run_ended, &is_sender);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_early_first_half_arrives_before_the_second_one_is_staged),
        cmocka_unit_test(test_far_early_end_in_the_middle_reaches_the_other_side_with_its_reason),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_far_early", tests, far_make_hosts, far_remove_hosts);
}
