/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory through pinned chunks: both directions, order of chunks, readiness, the one warning, aborting, refusals. */
#include "core/clock.h"
#include "core/error.h"
#include "device/bounce.h"
#include "device/host.h"
#include "tests/lib/device_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK 4096u
#define BYTES (5u * CHUNK + 100u)

static struct device_case *the;

struct scene {
    struct convoy_device *device;
    struct convoy_bounce *bounce;
    cuda_stream stream;
    uint8_t *memory; /* the device's */
    uint8_t *wire;
};

static struct scene scene_open(void)
{
    struct scene scene = {.device = device_case_open(0), .stream = device_case_stream(), .memory = device_case_alloc(BYTES),
                          .wire = calloc(1, BYTES)};
    const struct convoy_bounce_options options = {.chunk_bytes = CHUNK, .lanes = 2};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_bounce_open(scene.device, &options, &scene.bounce, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    the->sim->by_hand(1);
    return scene;
}

static void scene_close(struct scene *scene)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    the->sim->by_hand(0);
    if (convoy_bounce_close(scene->bounce, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    device_case_free(scene->memory);
    device_case_close(scene->device);
    (void)the->cuda.cuStreamDestroy_v2(scene->stream);
    free(scene->wire);
}

static struct convoy_bounce_lane *begun(struct scene *scene, bool is_in, struct convoy_readiness ready, void *event)
{
    const struct convoy_bounce_order order = {.is_in = is_in, .memory = scene->memory, .bytes = BYTES, .ready = ready,
                                              .stream = scene->stream, .event = event};
    struct convoy_bounce_lane *lane = NULL;
    assert_int_equal(convoy_bounce_begin(scene->bounce, &order, &lane, NULL), CONVOY_OK);
    return lane;
}

/* The next chunk, with steps of the device until there is one. */
static struct convoy_bounce_chunk awaited(struct convoy_bounce_lane *lane)
{
    struct convoy_bounce_chunk chunk = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status;
    while ((status = convoy_bounce_next(lane, &chunk, &error)) == CONVOY_IN_PROGRESS) {
        assert_int_equal(the->sim->step(), 1);
    }
    if (status != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return chunk;
}

static void test_device_bounce_out_in_order_behind_the_producer(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    cuda_stream producer = device_case_stream();
    cuda_event event = device_case_event();
    device_case_fill(scene.memory, 0x600d600d, BYTES, producer);
    struct convoy_bounce_lane *lane =
        begun(&scene, false, (struct convoy_readiness){.kind = CONVOY_READY_STREAM, .handle = producer}, event);
    struct convoy_bounce_chunk before = {0};
    uint64_t next = 0;
    for (;;) {
        struct convoy_bounce_chunk chunk = awaited(lane); /* while the one before is with the transport */
        if (before.bytes != 0) {
            memcpy(scene.wire + before.offset, before.address, before.bytes);
            assert_int_equal(convoy_bounce_give(lane, before.index, NULL), CONVOY_OK);
            assert_int_equal(convoy_bounce_give(lane, before.index, NULL), CONVOY_BAD_STATE);
        }
        assert_int_equal(chunk.offset, next);
        assert_int_equal(chunk.bytes, chunk.offset == 5 * CHUNK ? 100 : CHUNK);
        next += chunk.bytes;
        before = chunk;
        if (next == BYTES) {
            break;
        }
    }
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_IN_PROGRESS); /* the last is not given back */
    memcpy(scene.wire + before.offset, before.address, before.bytes);
    assert_int_equal(convoy_bounce_give(lane, before.index, NULL), CONVOY_OK);
    assert_int_equal(awaited(lane).bytes, 0);
    device_case_expect_words(scene.wire, 0x600d600d, BYTES);
    assert_int_equal(convoy_device_event_query(scene.device, event, NULL), CONVOY_OK);
    bool is_quiet = false;
    assert_int_equal(convoy_bounce_end(lane, &is_quiet), CONVOY_OK);
    assert_true(is_quiet);
    (void)the->cuda.cuStreamDestroy_v2(producer);
    (void)the->cuda.cuEventDestroy_v2(event);
    scene_close(&scene);
}

static int32_t answer(void *user)
{
    return *(int32_t *)user;
}

/* Both chunks are filled before the room is there; nothing is copied before, and the event comes last. */
static void test_device_bounce_in_waits_for_the_room(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    cuda_event event = device_case_event();
    int32_t ready = 0;
    const struct convoy_readiness callback = {.kind = CONVOY_READY_CALLBACK, .is_ready = answer, .user = &ready};
    struct convoy_bounce_lane *lane = begun(&scene, true, callback, event);
    struct convoy_bounce_chunk chunk;
    uint64_t copies = the->sim->calls("cuMemcpyHtoDAsync_v2");
    for (uint64_t next = 0; next < BYTES; next += chunk.bytes) {
        if (next == 2 * CHUNK) {
            assert_int_equal(convoy_bounce_next(lane, &chunk, NULL), CONVOY_IN_PROGRESS);
            assert_int_equal(the->sim->calls("cuMemcpyHtoDAsync_v2"), copies);
            ready = 1;
        }
        chunk = awaited(lane);
        assert_int_equal(chunk.offset, next);
        memset(chunk.address, 0x42, chunk.bytes);
        assert_int_equal(convoy_bounce_give(lane, chunk.index, NULL), CONVOY_OK);
    }
    assert_int_equal(awaited(lane).bytes, 0);
    assert_int_equal(convoy_device_event_query(scene.device, event, NULL), CONVOY_OK);
    device_case_expect_device(scene.memory, 0x42424242, BYTES);
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_OK);
    (void)the->cuda.cuEventDestroy_v2(event);
    scene_close(&scene);
}

static void test_device_bounce_aborted_lane_ends_when_all_is_quiet(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bounce_lane *lane = begun(&scene, false, (struct convoy_readiness){.kind = CONVOY_READY_NOW}, NULL);
    struct convoy_bounce_chunk chunk = awaited(lane);
    assert_int_equal(convoy_bounce_next(lane, &chunk, NULL), CONVOY_IN_PROGRESS); /* the other one is being copied */
    convoy_bounce_abort(lane);
    device_case_expect_error(convoy_bounce_next(lane, &chunk, &error), CONVOY_CANCELED, &error, "was aborted");
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_IN_PROGRESS);
    device_case_run_all();
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_IN_PROGRESS); /* the caller has a chunk */
    device_case_expect_error(convoy_bounce_close(scene.bounce, &error), CONVOY_BUSY, &error, "1 lanes are open");
    assert_int_equal(convoy_bounce_give(lane, chunk.index, NULL), CONVOY_OK);
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_OK);
    /* One that waits for its producer is over at once. */
    int32_t ready = 0;
    lane = begun(&scene, false, (struct convoy_readiness){.kind = CONVOY_READY_CALLBACK, .is_ready = answer, .user = &ready},
                 NULL);
    assert_int_equal(convoy_bounce_next(lane, &chunk, NULL), CONVOY_IN_PROGRESS);
    assert_int_equal(convoy_bounce_end(lane, NULL), CONVOY_OK);
    scene_close(&scene);
}

static uint32_t warnings;

static void log_line(void *user, uint32_t level, const char *text, size_t length)
{
    (void)user;
    (void)length;
    warnings += level == CONVOY_LOG_WARN && strstr(text, "4 pinned chunks of 4096 bytes: no GPU in this UCX") != NULL ? 1 : 0;
}

static void test_device_bounce_warns_once_and_refuses(void **state)
{
    (void)state;
    struct convoy_log log;
    struct scene scene = scene_open();
    struct convoy_bounce *bounce = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_log_init(&log, log_line, NULL, CONVOY_LOG_WARN);
    struct convoy_bounce_options options = {.chunk_bytes = CHUNK, .lanes = 2, .log = &log, .reason = "no GPU in this UCX"};
    assert_int_equal(convoy_bounce_open(scene.device, &options, &bounce, NULL), CONVOY_OK);
    convoy_log_flush(&log);
    assert_int_equal(warnings, 1);
    struct convoy_bounce_lane *lanes[3] = {NULL};
    const struct convoy_bounce_order order = {.memory = scene.memory, .bytes = BYTES};
    assert_int_equal(convoy_bounce_begin(bounce, &order, &lanes[0], NULL), CONVOY_OK);
    assert_int_equal(convoy_bounce_begin(bounce, &order, &lanes[1], NULL), CONVOY_OK);
    device_case_expect_error(convoy_bounce_begin(bounce, &order, &lanes[2], &error), CONVOY_BUSY, &error, "all 2 lanes");
    assert_int_equal(convoy_bounce_end(lanes[0], NULL), CONVOY_OK);
    assert_int_equal(convoy_bounce_end(lanes[1], NULL), CONVOY_OK);
    const struct convoy_bounce_order none = {.memory = scene.memory};
    device_case_expect_error(convoy_bounce_begin(bounce, &none, &lanes[2], &error), CONVOY_INVALID_ARGUMENT, &error, "0 bytes");
    assert_int_equal(convoy_bounce_close(bounce, NULL), CONVOY_OK);
    options.chunk_bytes = 5000;
    device_case_expect_error(convoy_bounce_open(scene.device, &options, &bounce, &error), CONVOY_INVALID_ARGUMENT, &error,
                             "chunk_bytes 5000, allowed are multiples of 4096");
    options = (struct convoy_bounce_options){.lanes = CONVOY_BOUNCE_LANES_MAX + 1};
    device_case_expect_error(convoy_bounce_open(scene.device, &options, &bounce, &error), CONVOY_INVALID_ARGUMENT, &error,
                             "1025 lanes");
    struct convoy_device *host = NULL;
    assert_int_equal(convoy_host_open(&(struct convoy_host_options){0}, &host, NULL), CONVOY_OK);
    device_case_expect_error(convoy_bounce_open(host, &options, &bounce, &error), CONVOY_UNSUPPORTED, &error, "no streams");
    device_case_close(host);
    assert_int_equal(convoy_bounce_close(NULL, NULL), CONVOY_OK);
    convoy_log_fini(&log);
    scene_close(&scene);
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
        cmocka_unit_test(test_device_bounce_out_in_order_behind_the_producer),
        cmocka_unit_test(test_device_bounce_in_waits_for_the_room),
        cmocka_unit_test(test_device_bounce_aborted_lane_ends_when_all_is_quiet),
        cmocka_unit_test(test_device_bounce_warns_once_and_refuses),
    };
    return cmocka_run_group_tests_name("device_bounce", tests, begin, device_case_end);
}
