/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight senders and a pool that holds what two of them have: whoever does not fit is told so, loudly and with figures, asks
 * again, and in the end every request has arrived once, whole, and nothing is taken any more.
 */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#define SENDERS 8u
#define PAYLOAD_BYTES (256u << 10)
#define ROOM 2u /* requests that fit at a time */
#define REQUEST_ROOM 32u

struct crowd {
    struct engine *receiver;
    uint32_t requests; /* of each sender */
    uint32_t mode;     /* CONVOY_LOAD_* */
    _Atomic uint32_t arrived[SENDERS];
    _Atomic uint32_t refused; /* seen by senders */
    _Atomic bool must_stop;
    _Atomic int32_t unexpected; /* expectations are for the test's own thread */
    _Atomic uint32_t wrong;     /* bytes of another request, a refusal without figures */
};

struct sender {
    struct crowd *crowd;
    struct engine *engine;
    convoy_peer peer;
    uint32_t number;
};

static uint32_t seed_of(uint32_t sender, uint32_t request)
{
    return sender * 1000 + request;
}

/* A receiver that waits for any offer may run out of time right when one comes: its sender is told that, too. */
static void note(struct crowd *crowd, int32_t status)
{
    if (status != CONVOY_OK && status != CONVOY_POOL_EXHAUSTED && status != CONVOY_TIMED_OUT) {
        atomic_store(&crowd->unexpected, status);
    }
}

/* One try: true once the receiver has it. */
static bool try_to_send(struct sender *sender, const struct convoy_stage *stage)
{
    const struct convoy_transfer_table *table = sender->engine->table;
    const struct convoy_send send = {.struct_size = sizeof send, .peer = sender->peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    struct convoy_error error = {.struct_size = sizeof error};
    convoy_transfer sent = 0;
    int32_t status = table->send(sender->engine->handle, stage, &send, &sent, &error);
    note(sender->crowd, status);
    if (status == CONVOY_POOL_EXHAUSTED) {
        atomic_fetch_add(&sender->crowd->refused, 1);
        atomic_fetch_add(&sender->crowd->wrong, error.text[0] == '\0');
    }
    if (sent != 0) {
        note(sender->crowd, table->release(sender->engine->handle, sent, &error));
    }
    return status == CONVOY_OK;
}

static void *send_all(void *argument)
{
    struct sender *sender = argument;
    static _Thread_local uint8_t memory[PAYLOAD_BYTES];
    const uint64_t bytes = PAYLOAD_BYTES;
    char request[REQUEST_ROOM];
    for (uint32_t i = 0; i < sender->crowd->requests; i++) {
        (void)snprintf(request, sizeof request, "%u-%u", sender->number, i);
        engine_fill(memory, PAYLOAD_BYTES, seed_of(sender->number, i));
        const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
        struct convoy_stage stage = engine_stage(request, &tensor, 1);
        stage.attempt = 0;
        do {
            stage.attempt++;
        } while (!try_to_send(sender, &stage) && atomic_load(&sender->crowd->unexpected) == 0 && sched_yield() == 0);
    }
    return NULL;
}

/* What it holds is what its name says. */
static void check_loaded(struct crowd *crowd, convoy_transfer loaded)
{
    const struct convoy_transfer_table *table = crowd->receiver->table;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_tensor_view view = {.rank = 0};
    struct convoy_payload payload = {
        .struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view, .tensor_capacity = 1};
    char request[REQUEST_ROOM] = {0};
    uint32_t sender = 0;
    uint32_t number = 0;
    int32_t status = table->payload(crowd->receiver->handle, loaded, &payload, &error);
    note(crowd, status);
    if (status != CONVOY_OK || payload.request_length >= sizeof request) {
        return;
    }
    memcpy(request, payload.request, payload.request_length);
    bool is_right = sscanf(request, "%u-%u", &sender, &number) == 2 && sender < SENDERS && view.bytes == PAYLOAD_BYTES &&
                    engine_is_filled(view.data, PAYLOAD_BYTES, seed_of(sender, number));
    atomic_fetch_add(&crowd->wrong, !is_right);
    if (is_right) {
        atomic_fetch_add(&crowd->arrived[sender], 1);
    }
}

static void *take_all(void *argument)
{
    struct crowd *crowd = argument;
    const struct convoy_transfer_table *table = crowd->receiver->table;
    while (!atomic_load(&crowd->must_stop)) {
        const struct convoy_load load = {.struct_size = sizeof load, .mode = crowd->mode, .timeout_ns = 20000000};
        struct convoy_error error = {.struct_size = sizeof error};
        convoy_transfer loaded = 0;
        int32_t status = table->accept(crowd->receiver->handle, &load, &loaded, &error);
        if (status == CONVOY_OK) {
            check_loaded(crowd, loaded);
        }
        note(crowd, status);
        if (loaded != 0) {
            note(crowd, table->release(crowd->receiver->handle, loaded, &error));
        }
    }
    return NULL;
}

/* engines: one of each sender, or the same one for all. */
static void run_crowd(struct crowd *crowd, struct engine *const engines[SENDERS])
{
    pthread_t senders[SENDERS];
    pthread_t takers[SENDERS];
    struct sender all[SENDERS];
    for (uint32_t i = 0; i < SENDERS; i++) {
        convoy_peer peer = engine_connect(engines[i], crowd->receiver->info.session);
        all[i] = (struct sender){.crowd = crowd, .engine = engines[i], .peer = peer, .number = i};
    }
    for (uint32_t i = 0; i < SENDERS; i++) {
        EXPECT_EQUAL(pthread_create(&takers[i], NULL, take_all, crowd), 0);
        EXPECT_EQUAL(pthread_create(&senders[i], NULL, send_all, &all[i]), 0);
    }
    for (uint32_t i = 0; i < SENDERS; i++) {
        EXPECT_EQUAL(pthread_join(senders[i], NULL), 0);
    }
    atomic_store(&crowd->must_stop, true);
    for (uint32_t i = 0; i < SENDERS; i++) {
        EXPECT_EQUAL(pthread_join(takers[i], NULL), 0);
    }
    EXPECT_EQUAL(crowd->unexpected, 0);
    EXPECT_EQUAL(crowd->wrong, 0);
    for (uint32_t i = 0; i < SENDERS; i++) {
        EXPECT_EQUAL(crowd->arrived[i], crowd->requests);
    }
}

/* Nobody else is there yet, so it is certain who fits. */
static void expect_third_refused(struct engine *engine)
{
    static uint8_t memory[PAYLOAD_BYTES];
    convoy_transfer staged[ROOM];
    const uint64_t bytes = PAYLOAD_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
    const struct convoy_stage stage = engine_stage("third", &tensor, 1);
    convoy_transfer third = 0;
    for (uint32_t i = 0; i < ROOM; i++) {
        staged[i] = stage_bytes(engine, i == 0 ? "first" : "second", memory, PAYLOAD_BYTES);
    }
    CALL_STATUS(engine, CONVOY_POOL_EXHAUSTED, stage_start, &stage, &third);
    EXPECT(strstr(engine->error.text, "262144") != NULL); /* what was asked for */
    EXPECT_EQUAL(third, 0);
    EXPECT_EQUAL(engine_figures(engine).exhausted_count, 1);
    EXPECT_EQUAL(engine_figures(engine).free, 0);
    for (uint32_t i = 0; i < ROOM; i++) {
        CALL_OK(engine, release, staged[i]);
    }
}

static void test_exhaustion_of_the_pool_that_eight_threads_send_from(void **state)
{
    (void)state;
    const struct convoy_transfer_options little = pool_of(ROOM * PAYLOAD_BYTES);
    struct crowd crowd = {.receiver = engine_create(NULL), .requests = test_scaled(20, 2000)};
    struct engine *sender = engine_create(&little);
    struct engine *const engines[SENDERS] = {sender, sender, sender, sender, sender, sender, sender, sender};
    expect_third_refused(sender);
    run_crowd(&crowd, engines);
    EXPECT_EQUAL(engine_figures(sender).exhausted_count, crowd.refused + 1); /* each one was told */
    engine_await_empty(sender);
    engine_await_empty(crowd.receiver);
    engine_destroy(sender);
    engine_destroy(crowd.receiver);
}

/* Copies into the receiver's own pool: the refusal comes from there, and both sides hear it. */
static void test_exhaustion_of_the_pool_that_eight_engines_send_into(void **state)
{
    (void)state;
    const struct convoy_transfer_options little = pool_of(ROOM * PAYLOAD_BYTES);
    struct crowd crowd = {
        .receiver = engine_create(&little), .requests = test_scaled(20, 2000), .mode = CONVOY_LOAD_COPY};
    struct engine *engines[SENDERS];
    for (uint32_t i = 0; i < SENDERS; i++) {
        engines[i] = engine_create(NULL);
    }
    run_crowd(&crowd, engines);
    EXPECT_EQUAL(engine_figures(crowd.receiver).exhausted_count, crowd.refused);
    for (uint32_t i = 0; i < SENDERS; i++) {
        engine_await_empty(engines[i]);
        engine_destroy(engines[i]);
    }
    engine_await_empty(crowd.receiver);
    engine_destroy(crowd.receiver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exhaustion_of_the_pool_that_eight_threads_send_from),
        cmocka_unit_test(test_exhaustion_of_the_pool_that_eight_engines_send_into),
    };
    engine_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
