/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody sleeps on while what it waits for is there: waits that begin just when the engine's own thread is woken. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"
#include "tests/lib/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ROUNDS 300u
#define TENSORS 16u
#define ITEMS (256u << 10)
#define LONGEST_NS 700000000ull /* who is not woken looks again after a second; this takes some ten milliseconds */
#define TEST_MS 60000u

static void wait_shortly(struct engine *engine, convoy_transfer transfer)
{
    uint64_t start_ns = convoy_now_ns();
    engine_wait(engine, transfer, CONVOY_OK, NULL);
    EXPECT(convoy_now_ns() - start_ns < LONGEST_NS);
    CALL_OK(engine, release, transfer);
}

/* Every second byte of the memory: a copy that takes its time, on the thread that waits, so that the engine's own thread
 * takes the messages meanwhile. The receiver follows it and is done some microseconds after it, which is when the sender
 * begins to sleep and the engine's thread hears that it need not. */
static void send_rounds(const struct rank *rank, struct engine *engine)
{
    static uint8_t memory[2 * ITEMS];
    static struct convoy_tensor_source tensors[TENSORS];
    static char names[TENSORS][16];
    static const uint64_t shape = ITEMS;
    static const int64_t stride = 2;
    for (uint32_t i = 0; i < TENSORS; i++) {
        (void)snprintf(names[i], sizeof names[i], "part_%u", i);
        tensors[i] = engine_tensor(memory, &shape);
        tensors[i].name = names[i];
        tensors[i].name_length = strlen(names[i]);
        tensors[i].strides = &stride;
    }
    const struct convoy_stage stage = engine_stage("slow", tensors, TENSORS);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = scene_connect(rank, engine, 1), .timeout_ns = ENGINE_TIMEOUT_NS};
    for (uint32_t round = 0; round < test_scaled(ROUNDS, 5 * ROUNDS); round++) {
        convoy_transfer sent = 0;
        CALL_OK(engine, send_start, &stage, &send, &sent);
        wait_shortly(engine, sent);
    }
    rank_barrier(rank);
}

static void receive_rounds(const struct rank *rank, struct engine *engine)
{
    for (uint32_t round = 0; round < test_scaled(ROUNDS, 5 * ROUNDS); round++) {
        convoy_transfer loaded = accept_by(engine, "slow", 0, CONVOY_LOAD_COPY, ENGINE_TIMEOUT_NS);
        wait_shortly(engine, loaded);
    }
    rank_barrier(rank);
}

static void test_transfer_wait_that_begins_while_the_engine_is_woken_ends_at_once(void **state)
{
    (void)state;
    const struct scene_plan plan = {.parts = {send_rounds, receive_rounds},
                                    .timeout_ms = test_scaled(TEST_MS, 5 * TEST_MS)};
    scene_play(&plan, sizeof(struct scene_sessions));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_wait_that_begins_while_the_engine_is_woken_ends_at_once),
    };
    return cmocka_run_group_tests_name("transfer_waits", tests, NULL, NULL);
}
