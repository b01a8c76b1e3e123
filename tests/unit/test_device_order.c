/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order by construction, on a driver that runs streams in any order: nothing is read before its producer has written it,
 * nothing is used again before its reader has read it. By hand, so that a test sees every moment, and with many orders.
 */
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/device_case.h"
#include "tests/lib/scale.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 256u
#define OLD 0x01d01d01u
#define NEW 0x0e30e30eu
#define SEEDS 200u

static struct device_case *the;

/* A producer on its own stream, and convoy on another. */
struct scene {
    struct convoy_device *device;
    cuda_stream producer;
    cuda_stream stream;
    cuda_event written;
    cuda_event copied;
    void *source;
    uint32_t *target;
    struct convoy_copy_piece piece;
};

static struct scene scene_open(void)
{
    struct scene scene = {.device = device_case_open(8),
                          .producer = device_case_stream(),
                          .stream = device_case_stream(),
                          .written = device_case_event(),
                          .copied = device_case_event(),
                          .source = device_case_alloc(BYTES),
                          .target = calloc(1, BYTES)};
    assert_int_equal(convoy_device_register(scene.device, scene.target, BYTES, 0, NULL), CONVOY_OK);
    scene.piece = (struct convoy_copy_piece){scene.target, scene.source, BYTES};
    the->sim->by_hand(1);
    return scene;
}

static void scene_close(struct scene *scene)
{
    device_case_run_all();
    the->sim->by_hand(0);
    device_case_close(scene->device);
    (void)the->cuda.cuStreamDestroy_v2(scene->producer);
    (void)the->cuda.cuStreamDestroy_v2(scene->stream);
    (void)the->cuda.cuEventDestroy_v2(scene->written);
    (void)the->cuda.cuEventDestroy_v2(scene->copied);
    device_case_free(scene->source);
    free(scene->target);
}

/* Old bytes are there; the producer's kernel is put on its stream, and its event behind it. */
static void scene_produce(struct scene *scene, uint64_t seed)
{
    uint32_t old[BYTES / 4];
    for (size_t i = 0; i < BYTES / 4; i++) {
        old[i] = OLD;
    }
    the->sim->poke(scene->source, old, BYTES);
    the->sim->seed(seed);
    device_case_fill(scene->source, NEW, BYTES, scene->producer);
    assert_int_equal(convoy_device_event_record(scene->device, scene->written, scene->producer, NULL), CONVOY_OK);
}

static convoy_ticket scene_stage(struct scene *scene, struct convoy_readiness ready)
{
    const struct convoy_copy_order order = {.pieces = &scene->piece, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE,
                                            .stream = scene->stream, .ready = ready, .event = scene->copied};
    convoy_ticket ticket;
    assert_int_equal(convoy_device_start(scene->device, &order, &ticket, NULL), CONVOY_OK);
    return ticket;
}

/* Steps until the ticket has ended; the host's event never fires before, and not without it. */
static void scene_run(struct scene *scene, convoy_ticket ticket)
{
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) {
        int32_t fired = convoy_device_event_query(scene->device, scene->copied, NULL);
        if (fired == CONVOY_OK) {
            assert_int_not_equal(scene->target[0], OLD);
            assert_int_not_equal(scene->target[BYTES / 4 - 1], 0xa5a5a5a5u);
        }
        int has_run = the->sim->step();
        status = convoy_device_test(scene->device, ticket, NULL, NULL);
        assert_true(has_run != 0 || status != CONVOY_IN_PROGRESS);
    }
    assert_int_equal(status, CONVOY_OK);
    device_case_run_all();
    assert_int_equal(convoy_device_event_query(scene->device, scene->copied, NULL), CONVOY_OK);
}

/* sgl-project/sglang PRs 30254 and 26501: a copy that is started by another thread waits for the event behind the kernel. */
static void test_device_order_staging_waits_for_the_producers_event(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        scene_produce(&scene, seed);
        scene_run(&scene, scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_EVENT, .handle = scene.written}));
        device_case_expect_words(scene.target, NEW, BYTES);
    }
    scene_close(&scene);
}

static void test_device_order_staging_waits_for_the_producers_stream(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        scene_produce(&scene, seed);
        scene_run(&scene, scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_STREAM, .handle = scene.producer}));
        device_case_expect_words(scene.target, NEW, BYTES);
    }
    cuda_stream other = scene.stream;
    scene.stream = scene.producer; /* the same stream needs no event */
    uint64_t waits = the->sim->calls("cuStreamWaitEvent");
    scene_produce(&scene, 1);
    scene_run(&scene, scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_STREAM, .handle = scene.producer}));
    device_case_expect_words(scene.target, NEW, BYTES);
    assert_int_equal(the->sim->calls("cuStreamWaitEvent"), waits);
    scene.stream = other;
    scene_close(&scene);
}

/* The two tests above notice what they are for: without readiness some order gives old or half-written bytes. */
static void test_device_order_without_readiness_old_bytes_are_seen(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        scene_produce(&scene, seed);
        convoy_ticket ticket = scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_NOW});
        device_case_run_all();
        assert_int_equal(convoy_device_test(scene.device, ticket, NULL, NULL), CONVOY_OK);
        wrong += scene.target[0] != NEW || scene.target[BYTES / 4 - 1] != NEW ? 1 : 0;
    }
    assert_true(wrong > SEEDS / 20);
    scene_close(&scene);
}

static int32_t answer(void *user)
{
    return *(int32_t *)user;
}

static void test_device_order_staging_waits_for_the_producers_callback(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t ready = 0;
    bool is_quiet = false;
    const struct convoy_readiness callback = {.kind = CONVOY_READY_CALLBACK, .is_ready = answer, .user = &ready};
    uint64_t copies = the->sim->calls("cuMemcpyDtoHAsync_v2");
    convoy_ticket ticket = scene_stage(&scene, callback);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(convoy_device_test(scene.device, ticket, NULL, NULL), CONVOY_IN_PROGRESS);
    }
    assert_int_equal(the->sim->calls("cuMemcpyDtoHAsync_v2"), copies);
    assert_int_equal(the->sim->step(), 0);
    scene_produce(&scene, 1);
    device_case_run_all();
    ready = 1;
    assert_int_equal(convoy_device_test(scene.device, ticket, NULL, NULL), CONVOY_IN_PROGRESS); /* begins it */
    scene_run(&scene, ticket);
    device_case_expect_words(scene.target, NEW, BYTES);
    /* One that fails, in start and later, and one that is given up. */
    ready = 0;
    ticket = scene_stage(&scene, callback);
    ready = -7;
    device_case_expect_error(convoy_device_test(scene.device, ticket, &is_quiet, &error), CONVOY_SYSTEM, &error,
                             "readiness callback answered -7");
    assert_true(is_quiet);
    const struct convoy_copy_order order = {.pieces = &scene.piece, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE,
                                            .ready = callback};
    assert_int_equal(convoy_device_start(scene.device, &order, &ticket, &error), CONVOY_SYSTEM);
    ready = 0;
    ticket = scene_stage(&scene, callback);
    assert_int_equal(convoy_device_cancel(scene.device, ticket, NULL), CONVOY_OK);
    assert_int_equal(the->sim->calls("cuMemcpyDtoHAsync_v2"), copies + 1);
    scene_close(&scene);
}

/* What the host puts behind the event that convoy recorded sees the copied bytes. */
static void test_device_order_consumer_behind_the_hosts_event(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    void *consumed = device_case_alloc(BYTES);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        scene_produce(&scene, seed);
        convoy_ticket ticket =
            scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_EVENT, .handle = scene.written});
        assert_int_equal(convoy_device_event_wait(scene.device, scene.producer, scene.copied, NULL), CONVOY_OK);
        assert_int_equal(the->cuda.cuMemcpyHtoDAsync_v2((cuda_address)(uintptr_t)consumed, scene.target, BYTES, scene.producer),
                         0);
        scene_run(&scene, ticket);
        device_case_expect_device(consumed, NEW, BYTES);
    }
    device_case_free(consumed);
    scene_close(&scene);
}

/* A canceled copy that the device has is not quiet until it has run. */
static void test_device_order_canceled_copy_runs_to_its_end(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    scene_produce(&scene, 3);
    convoy_ticket ticket = scene_stage(&scene, (struct convoy_readiness){.kind = CONVOY_READY_EVENT, .handle = scene.written});
    assert_int_equal(convoy_device_cancel(scene.device, ticket, NULL), CONVOY_IN_PROGRESS);
    scene_run(&scene, ticket);
    scene_close(&scene);
}

/* -- slots used again and again under delayed copies --------------------------------------------------------------- */

#define SLOTS 8u

enum slot_state { SLOT_FREE, SLOT_STAGING, SLOT_LOADING };

struct slot {
    enum slot_state state;
    uint32_t value;
    uint32_t *memory; /* pinned */
    void *source;
    void *target;
    cuda_event written;
    convoy_ticket ticket;
    struct convoy_copy_piece piece;
};

struct traffic {
    struct convoy_device *device;
    cuda_stream streams[3];
    struct slot slots[SLOTS];
    uint32_t begun;
    uint32_t done;
};

static void slot_start(struct traffic *traffic, struct slot *slot, uint32_t direction, struct convoy_readiness ready)
{
    const struct convoy_copy_order order = {.pieces = &slot->piece, .count = 1, .direction = direction, .ready = ready,
                                            .stream = traffic->streams[direction == CONVOY_COPY_TO_DEVICE ? 1 : 2]};
    assert_int_equal(convoy_device_start(traffic->device, &order, &slot->ticket, NULL), CONVOY_OK);
}

/* Each payload is its request's number, so that another request's is noticed. */
static void slot_stage(struct traffic *traffic, struct slot *slot)
{
    cuda_stream producer = traffic->streams[0];
    slot->value = ++traffic->begun;
    device_case_fill(slot->source, slot->value, BYTES, producer);
    assert_int_equal(convoy_device_event_record(traffic->device, slot->written, producer, NULL), CONVOY_OK);
    slot->piece = (struct convoy_copy_piece){slot->memory, slot->source, BYTES};
    slot_start(traffic, slot, CONVOY_COPY_FROM_DEVICE,
               (struct convoy_readiness){.kind = CONVOY_READY_EVENT, .handle = slot->written});
    slot->state = SLOT_STAGING;
}

static bool slot_move(struct traffic *traffic, struct slot *slot, uint32_t wanted)
{
    if (slot->state == SLOT_FREE) {
        if (traffic->begun == wanted) {
            return false;
        }
        slot_stage(traffic, slot);
        return true;
    }
    int32_t status = convoy_device_test(traffic->device, slot->ticket, NULL, NULL);
    if (status == CONVOY_IN_PROGRESS) {
        return false;
    }
    assert_int_equal(status, CONVOY_OK);
    if (slot->state == SLOT_STAGING) {
        device_case_expect_words(slot->memory, slot->value, BYTES);
        slot->piece = (struct convoy_copy_piece){slot->target, slot->memory, BYTES};
        slot_start(traffic, slot, CONVOY_COPY_TO_DEVICE, (struct convoy_readiness){.kind = CONVOY_READY_NOW});
        slot->state = SLOT_LOADING;
        return true;
    }
    device_case_expect_device(slot->target, slot->value, BYTES);
    memset(slot->memory, 0xdb, BYTES); /* nobody reads it any more */
    slot->state = SLOT_FREE;
    traffic->done++;
    return true;
}

static void test_device_order_slots_used_again_under_delayed_copies(void **state)
{
    (void)state;
    struct traffic traffic = {.device = device_case_open(SLOTS)};
    uint32_t wanted = test_scaled(20000, 50000);
    uint8_t *pool = aligned_alloc(4096, 4096);
    uint64_t deadline_ns = DEVICE_CASE_DEADLINE + 600 * CONVOY_NS_PER_S;
    assert_int_equal(convoy_device_register(traffic.device, pool, 4096, 0, NULL), CONVOY_OK);
    for (uint32_t i = 0; i < 3; i++) {
        traffic.streams[i] = device_case_stream();
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        traffic.slots[i] = (struct slot){.memory = (uint32_t *)(void *)(pool + i * BYTES), .written = device_case_event(),
                                         .source = device_case_alloc(BYTES), .target = device_case_alloc(BYTES)};
    }
    while (traffic.done < wanted) {
        bool has_moved = false;
        for (uint32_t i = 0; i < SLOTS; i++) {
            has_moved = slot_move(&traffic, &traffic.slots[i], wanted) || has_moved;
        }
        if (!has_moved) {
            (void)sched_yield();
            assert_true(convoy_now_ns() < deadline_ns);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        device_case_free(traffic.slots[i].source);
        device_case_free(traffic.slots[i].target);
        (void)the->cuda.cuEventDestroy_v2(traffic.slots[i].written);
    }
    for (uint32_t i = 0; i < 3; i++) {
        (void)the->cuda.cuStreamDestroy_v2(traffic.streams[i]);
    }
    device_case_close(traffic.device);
    free(pool);
}

static int begin(void **state)
{
    (void)state;
    the = device_case();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_order_staging_waits_for_the_producers_event),
        cmocka_unit_test(test_device_order_staging_waits_for_the_producers_stream),
        cmocka_unit_test(test_device_order_without_readiness_old_bytes_are_seen),
        cmocka_unit_test(test_device_order_staging_waits_for_the_producers_callback),
        cmocka_unit_test(test_device_order_consumer_behind_the_hosts_event),
        cmocka_unit_test(test_device_order_canceled_copy_runs_to_its_end),
        cmocka_unit_test(test_device_order_slots_used_again_under_delayed_copies),
    };
    return cmocka_run_group_tests_name("device_order", tests, begin, device_case_end);
}
