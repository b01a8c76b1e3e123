/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers out of and into device memory, through the plugin's table, on the pretended driver (tests/lib/sim_cuda.h). */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/sim_host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct scene {
    struct sim_host *host;
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer;
    uint8_t *source;
    uint8_t *target;
    uint64_t bytes;
};

static struct scene scene_with(uint64_t bytes, const struct convoy_transfer_options *options)
{
    struct scene scene = {.host = sim_host_open(), .bytes = bytes};
    scene.sender = sim_host_engine(options);
    scene.receiver = sim_host_engine(options);
    scene.peer = engine_connect(scene.sender, scene.receiver->info.session);
    scene.source = sim_host_alloc(bytes);
    scene.target = sim_host_alloc(bytes);
    sim_host_fill(scene.source, bytes, 1);
    return scene;
}

static struct scene scene_of(uint64_t bytes)
{
    return scene_with(bytes, NULL);
}

static void scene_close(struct scene *scene)
{
    engine_await_empty(scene->sender);
    engine_await_empty(scene->receiver);
    engine_destroy(scene->sender);
    engine_destroy(scene->receiver);
    sim_host_free(scene->source);
    sim_host_free(scene->target);
    EXPECT_EQUAL(scene->host->sim->violations(), 0);
    EXPECT_EQUAL(scene->host->sim->blocking(), 0);
}

static struct convoy_stage stage_of(const struct scene *scene, const struct convoy_tensor_source *tensor)
{
    struct convoy_stage stage = engine_stage("r1", tensor, 1);
    stage.stream = scene->host->stream;
    stage.timeout_ns = ENGINE_TIMEOUT_NS;
    return stage;
}

static convoy_transfer stage_start(struct scene *scene, cuda_event event, uint32_t flags)
{
    const struct convoy_tensor_source tensor = engine_tensor(scene->source, &scene->bytes);
    struct convoy_stage stage = stage_of(scene, &tensor);
    convoy_transfer staged = 0;
    stage.event = event;
    stage.critical_flags = flags;
    CALL_OK(scene->sender, stage_start, &stage, &staged);
    return staged;
}

static convoy_transfer load_to(struct scene *scene, void *destination, cuda_event event)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .destination = destination, .destination_bytes = scene->bytes,
                                     .stream = scene->host->stream,
                                     .event = event,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(scene->receiver, accept_start, &load, &loaded);
    return loaded;
}

static uint32_t state_of(struct engine *engine, convoy_transfer transfer, struct convoy_transfer_result *result_out)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    (void)CALL(engine, transfer_test, transfer, &result);
    if (result_out != NULL) {
        *result_out = result;
    }
    return result.state;
}

static bool has_fired(const struct scene *scene, cuda_event event)
{
    return scene->host->cuda.cuEventQuery(event) == 0;
}

/* -- from end to end ----------------------------------------------------------------------------------------------- */

static void check_size(uint64_t bytes, uint32_t flags)
{
    struct scene scene = scene_of(bytes);
    struct convoy_transfer_result result;
    convoy_transfer staged = stage_start(&scene, NULL, flags);
    engine_wait(scene.sender, staged, CONVOY_OK, &result);
    EXPECT_EQUAL(result.is_source_free, 1);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    convoy_transfer loaded = load_to(&scene, scene.target, NULL);
    engine_wait(scene.receiver, loaded, CONVOY_OK, &result);
    EXPECT_EQUAL(result.path, bytes != 0 ? CONVOY_PATH_PULL : result.path);
    EXPECT(sim_host_is_filled(scene.target, bytes, 1));
    engine_look(scene.receiver, loaded);
    EXPECT(bytes == 0 || scene.receiver->views[0].data == scene.target);
    engine_wait(scene.sender, sent, CONVOY_OK, NULL);
    release(scene.sender, sent);
    release(scene.sender, staged);
    release(scene.receiver, loaded);
    scene_close(&scene);
}

static void test_transfer_device_tensors_arrive_bit_for_bit(void **state)
{
    static const uint64_t sizes[] = {0, 1, 511, 4096, 65537, (1u << 20) + 1, 16u << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_size(sizes[i], 0);
        check_size(sizes[i], CONVOY_STAGE_CHECKSUM);
    }
}

/* A host that only looks now and then: a thread of the engine brings it to its end all the same. */
static void test_transfer_device_load_ends_without_a_host_thread(void **state)
{
    (void)state;
    struct scene scene = scene_of(1u << 20);
    convoy_transfer loaded = load_to(&scene, scene.target, NULL);
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    engine_wait(scene.sender, sent, CONVOY_OK, NULL); /* nobody waits at the receiver */
    EXPECT(sim_host_is_filled(scene.target, scene.bytes, 1));
    release(scene.sender, sent);
    release(scene.sender, staged);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    release(scene.receiver, loaded);
    scene_close(&scene);
}

static void test_transfer_device_views_of_a_shared_pool_are_host_memory(void **state)
{
    (void)state;
    struct scene scene = scene_of(70000);
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    convoy_transfer loaded = accept_by(scene.receiver, NULL, 0, CONVOY_LOAD_VIEW, ENGINE_TIMEOUT_NS);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    engine_look(scene.receiver, loaded);
    EXPECT(engine_is_filled(scene.receiver->views[0].data, scene.bytes, 1));
    release(scene.sender, sent);
    release(scene.sender, staged);
    release(scene.receiver, loaded);
    scene_close(&scene);
}

/* By a broker: what a descriptor names, into device memory. */
static void test_transfer_device_load_by_descriptor(void **state)
{
    (void)state;
    struct scene scene = scene_of(70000);
    static char bytes[TEXT_BYTES];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = sizeof bytes};
    convoy_transfer staged = stage_start(&scene, NULL, CONVOY_STAGE_CHECKSUM);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    CALL_OK(scene.sender, descriptor, staged, CONVOY_DESCRIPTOR_JSON, &text);
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .descriptor = bytes,
                                     .descriptor_length = text.length,
                                     .destination = scene.target, .destination_bytes = scene.bytes,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(scene.receiver, load_start, &load, &loaded);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    EXPECT(sim_host_is_filled(scene.target, scene.bytes, 1));
    release(scene.sender, staged);
    release(scene.receiver, loaded);
    scene_close(&scene);
}

/* A pool of the host's that cannot be mapped: it is read out of the process into the own pool, and copied from there. */
static void test_transfer_device_load_from_a_pool_that_cannot_be_mapped(void **state)
{
    (void)state;
    uint64_t bytes = 300000;
    struct scene scene = {.host = sim_host_open(), .bytes = bytes};
    struct convoy_transfer_options options = pool_of(1u << 20);
    uint8_t *data = malloc(bytes);
    options.pool_kind = CONVOY_MEMORY_HOST;
    options.pool_memory = aligned_alloc(4096, 1u << 20);
    EXPECT(data != NULL && options.pool_memory != NULL);
    engine_fill(data, bytes, 6);
    scene.sender = engine_create(&options);
    scene.receiver = sim_host_engine(NULL);
    scene.peer = engine_connect(scene.sender, scene.receiver->info.session);
    scene.source = sim_host_alloc(bytes);
    scene.target = sim_host_alloc(bytes);
    convoy_transfer sent = send_bytes(scene.sender, scene.peer, "unmapped", 1, data, bytes);
    convoy_transfer loaded = load_to(&scene, scene.target, NULL);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    EXPECT(sim_host_is_filled(scene.target, bytes, 6));
    EXPECT_EQUAL(engine_figures(scene.receiver).taken, 0); /* what it came through is free again */
    engine_wait(scene.sender, sent, CONVOY_OK, NULL);
    release(scene.sender, sent);
    release(scene.receiver, loaded);
    scene_close(&scene);
    free(options.pool_memory);
    free(data);
}

/* Offered before it is staged: the device copies none of it before all of it is there. */
static void test_transfer_device_load_of_what_is_still_being_staged(void **state)
{
    (void)state;
    uint64_t bytes = 8u << 20;
    struct scene scene = {.host = sim_host_open(), .bytes = bytes};
    const struct convoy_transfer_options options = pool_of(16u << 20);
    uint8_t *data = malloc(bytes);
    EXPECT(data != NULL);
    scene.sender = engine_create(&options); /* one with a device stages first */
    scene.receiver = sim_host_engine(NULL);
    scene.peer = engine_connect(scene.sender, scene.receiver->info.session);
    scene.source = sim_host_alloc(bytes);
    scene.target = sim_host_alloc(bytes);
    for (uint32_t round = 0; round < 10; round++) {
        engine_fill(data, bytes, round);
        convoy_transfer loaded = load_to(&scene, scene.target, NULL);
        convoy_transfer sent = send_bytes(scene.sender, scene.peer, "early", round + 1, data, bytes);
        engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
        EXPECT(sim_host_is_filled(scene.target, bytes, round));
        engine_wait(scene.sender, sent, CONVOY_OK, NULL);
        release(scene.sender, sent);
        release(scene.receiver, loaded);
    }
    free(data);
    scene_close(&scene);
}

/* What a peer has written into a slot by address, on into device memory. */
static void test_transfer_device_load_from_a_slot_that_a_peer_has_filled(void **state)
{
    (void)state;
    struct scene scene = scene_of(70000);
    static char bytes[TEXT_BYTES];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = sizeof bytes};
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    CALL_OK(scene.sender, descriptor, staged, CONVOY_DESCRIPTOR_BINARY, &text);
    struct convoy_reserved_slot slot = reserve_slot(scene.receiver, "r1", scene.bytes, 0, NULL);
    EXPECT_OK(push_piece(scene.sender, scene.peer, staged_address(scene.sender, staged), slot.address, scene.bytes),
              &scene.sender->error);
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .descriptor = bytes,
                                     .descriptor_length = text.length,
                                     .slot = slot.transfer,
                                     .destination = scene.target, .destination_bytes = scene.bytes,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(scene.receiver, load_start, &load, &loaded);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    EXPECT(sim_host_is_filled(scene.target, scene.bytes, 1));
    release(scene.receiver, loaded);
    release(scene.receiver, slot.transfer);
    release(scene.sender, staged);
    scene_close(&scene);
}

/* Refused before anything is copied, and the sender has its memory back. */
static void test_transfer_device_destination_that_is_too_small_is_refused(void **state)
{
    (void)state;
    struct scene scene = scene_of(70000);
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    scene.bytes = 69999;
    convoy_transfer loaded = load_to(&scene, scene.target, NULL);
    engine_wait(scene.receiver, loaded, CONVOY_BUFFER_TOO_SMALL, NULL);
    EXPECT_TEXT(scene.receiver->error.text, "69999");
    engine_wait(scene.sender, sent, CONVOY_BUFFER_TOO_SMALL, NULL);
    release(scene.receiver, loaded);
    release(scene.sender, sent);
    release(scene.sender, staged);
    scene_close(&scene);
}

/* Tensors of both kinds in one request, one of them a part of a larger one that is not dense. */
static void test_transfer_device_stage_of_mixed_and_strided_tensors(void **state)
{
    (void)state;
    struct scene scene = scene_of(96 * 64);
    uint8_t here[5000];
    const uint64_t here_bytes = sizeof here;
    const uint64_t shape[3] = {4, 8, 16};
    const int64_t strides[3] = {1536, 128, 1}; /* of 4 x 12 x 128: a corner of each */
    engine_fill(here, sizeof here, 9);
    struct convoy_tensor_source tensors[3] = {engine_tensor(here, &here_bytes), engine_tensor(scene.source, &scene.bytes),
                                              engine_tensor(scene.source + 7, shape)};
    tensors[0].name = "here";
    tensors[2].name = "part";
    tensors[2].strides = strides;
    tensors[2].rank = 3;
    struct convoy_stage stage = stage_of(&scene, tensors);
    stage.tensor_count = 3;
    convoy_transfer staged = 0;
    CALL_OK(scene.sender, stage_start, &stage, &staged);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    engine_look(scene.sender, staged);
    EXPECT(engine_is_filled(scene.sender->views[0].data, sizeof here, 9));
    EXPECT(engine_is_filled(scene.sender->views[1].data, scene.bytes, 1));
    const uint8_t *part = scene.sender->views[2].data;
    const uint8_t *whole = scene.sender->views[1].data;
    for (uint64_t i = 0; i < 4 * 8 * 16; i++) {
        EXPECT_EQUAL(part[i], whole[7 + i / 128 * 1536 + i / 16 % 8 * 128 + i % 16]);
    }
    release(scene.sender, staged);
    scene_close(&scene);
}

/* -- order --------------------------------------------------------------------------------------------------------- */

/* sgl-project/sglang PRs 30254 and 26501, rapidsai/rapidsmpf PR 215, dask/distributed PR 3598: STAGED comes when the copy has
 * run, behind what the host has put on the stream; its event tells the same. */
static void test_transfer_device_stage_runs_behind_the_hosts_work_and_event(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    struct convoy_transfer_result result;
    cuda_event event = sim_host_event();
    scene.host->sim->by_hand(1);
    EXPECT_EQUAL(scene.host->cuda.cuMemsetD32Async((cuda_address)(uintptr_t)scene.source, 0x5b5b5b5b, 65536 / 4,
                                                   scene.host->stream),
                 0);
    convoy_transfer staged = stage_start(&scene, event, 0);
    int steps = 0;
    while (state_of(scene.sender, staged, &result) == CONVOY_TRANSFER_STAGING) {
        EXPECT_EQUAL(result.is_source_free, 0);
        EXPECT(!has_fired(&scene, event) || steps >= 5); /* two halves of each, and the event's own */
        steps += scene.host->sim->step();
        EXPECT(steps < 100);
    }
    EXPECT(steps >= 6);
    EXPECT(has_fired(&scene, event));
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_STAGED);
    EXPECT_EQUAL(result.is_source_free, 1);
    engine_look(scene.sender, staged);
    const uint8_t *data = scene.sender->views[0].data;
    EXPECT(data[0] == 0x5b && memcmp(data, data + 1, 65535) == 0);
    scene.host->sim->by_hand(0);
    release(scene.sender, staged);
    EXPECT_EQUAL(scene.host->cuda.cuEventDestroy_v2(event), 0);
    scene_close(&scene);
}

static int32_t asked_ready(void *user)
{
    return *(int32_t *)user;
}

/* The same, of a producer that says itself when it is ready. */
static void test_transfer_device_stage_begins_when_its_producer_is_ready(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    const struct convoy_tensor_source tensor = engine_tensor(scene.source, &scene.bytes);
    struct convoy_stage stage = stage_of(&scene, &tensor);
    int32_t is_ready = 0;
    uint64_t before = scene.host->sim->calls("cuMemcpyAsync");
    convoy_transfer staged = 0;
    stage.ready = asked_ready;
    stage.user = &is_ready;
    CALL_OK(scene.sender, stage_start, &stage, &staged);
    for (int i = 0; i < 100; i++) {
        EXPECT_EQUAL(state_of(scene.sender, staged, NULL), CONVOY_TRANSFER_STAGING);
    }
    EXPECT_EQUAL(scene.host->sim->calls("cuMemcpyAsync"), before);
    sim_host_fill(scene.source, scene.bytes, 2);
    is_ready = 1;
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    engine_look(scene.sender, staged);
    EXPECT(engine_is_filled(scene.sender->views[0].data, scene.bytes, 2));
    release(scene.sender, staged);
    is_ready = -7;
    CALL_OK(scene.sender, stage_start, &stage, &staged);
    engine_wait(scene.sender, staged, CONVOY_PEER_ERROR, NULL);
    EXPECT_TEXT(scene.sender->error.text, "-7");
    release(scene.sender, staged);
    scene_close(&scene);
}

/* The sender has its memory back when the device has read it, and not when the receiver has been told to. */
static void test_transfer_device_load_holds_the_senders_memory_until_it_is_read(void **state)
{
    (void)state;
    struct scene scene = scene_of(1u << 20);
    cuda_event event = sim_host_event();
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    scene.host->sim->by_hand(1);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    convoy_transfer loaded = load_to(&scene, scene.target, event);
    uint64_t before = scene.host->sim->calls("cuEventQuery");
    while (scene.host->sim->calls("cuEventQuery") < before + 10) { /* it has begun, and is asked for again and again */
        EXPECT(state_of(scene.receiver, loaded, NULL) != CONVOY_TRANSFER_LOADED);
        EXPECT_EQUAL(state_of(scene.sender, sent, NULL), CONVOY_TRANSFER_OFFERED);
    }
    release(scene.sender, sent);
    release(scene.sender, staged);
    EXPECT(engine_figures(scene.sender).quarantined >= scene.bytes);
    EXPECT_EQUAL(engine_figures(scene.sender).reader_count, 1);
    EXPECT(!has_fired(&scene, event));
    sim_host_run_all();
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    EXPECT(has_fired(&scene, event));
    EXPECT(sim_host_is_filled(scene.target, scene.bytes, 1));
    scene.host->sim->by_hand(0);
    release(scene.receiver, loaded);
    EXPECT_EQUAL(scene.host->cuda.cuEventDestroy_v2(event), 0);
    scene_close(&scene);
}

/* -- ends before the copy's ---------------------------------------------------------------------------------------- */

static void test_transfer_device_aborted_and_released_slots_wait_for_their_copies(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(65536); /* one slot and no room for a second */
    struct scene scene = scene_with(65536, &options);
    struct convoy_transfer_result result;
    scene.host->sim->by_hand(1);
    for (int i = 0; i < 2; i++) {
        convoy_transfer other = 0;
        const struct convoy_tensor_source tensor = engine_tensor(scene.source, &scene.bytes);
        const struct convoy_stage stage = stage_of(&scene, &tensor);
        convoy_transfer staged = stage_start(&scene, NULL, 0);
        if (i == 0) {
            CALL_OK(scene.sender, abort, staged, "no more", 7);
            EXPECT_EQUAL(state_of(scene.sender, staged, &result), CONVOY_TRANSFER_ABORTED);
            EXPECT_EQUAL(result.is_source_free, 0); /* the device still reads it */
        }
        release(scene.sender, staged);
        CALL_STATUS(scene.sender, CONVOY_POOL_EXHAUSTED, stage_start, &stage, &other);
        EXPECT_EQUAL(engine_figures(scene.sender).taken, 65536);
        sim_host_await_empty(scene.sender);
    }
    scene.host->sim->by_hand(0);
    scene_close(&scene);
}

static void test_transfer_device_load_that_is_given_up_holds_both_sides_until_its_copy_has_run(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    struct convoy_transfer_result result;
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    scene.host->sim->by_hand(1);
    uint64_t before = scene.host->sim->calls("cuMemcpyAsync");
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    convoy_transfer loaded = load_to(&scene, scene.target, NULL);
    while (scene.host->sim->calls("cuMemcpyAsync") == before) {
        (void)state_of(scene.receiver, loaded, NULL);
    }
    CALL_OK(scene.receiver, abort, loaded, "no more", 7);
    EXPECT_EQUAL(state_of(scene.receiver, loaded, &result), CONVOY_TRANSFER_ABORTED);
    EXPECT_EQUAL(result.is_source_free, 0);
    release(scene.receiver, loaded);
    engine_wait(scene.sender, sent, CONVOY_CANCELED, NULL);
    release(scene.sender, sent);
    release(scene.sender, staged);
    EXPECT_EQUAL(engine_figures(scene.sender).reader_count, 1);
    struct convoy_engine_info info = {.struct_size = sizeof info};
    CALL_OK(scene.receiver, engine_info, &info);
    EXPECT_EQUAL(info.transfer_count, 1);
    sim_host_await_empty(scene.sender);
    scene.host->sim->by_hand(0);
    scene_close(&scene);
}

static void test_transfer_device_engine_closes_when_its_copies_have_run(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    scene.host->sim->by_hand(1);
    (void)stage_start(&scene, NULL, 0);
    CALL_STATUS(scene.sender, CONVOY_DRAIN_TIMEOUT, engine_close, SHORT_NS);
    EXPECT_TEXT(scene.sender->error.text, "1 copies run");
    EXPECT_EQUAL(scene.host->sim->violations(), 0);
    sim_host_run_all();
    scene.host->sim->by_hand(0);
    engine_destroy(scene.sender);
    engine_destroy(scene.receiver);
    sim_host_free(scene.source);
    sim_host_free(scene.target);
    EXPECT_EQUAL(scene.host->sim->violations(), 0);
}

/* -- failures ------------------------------------------------------------------------------------------------------ */

/* vllm-project/vllm-omni PR 5096: what the device says is told as that, and not as a deadline. Refused at once: nothing has
 * touched the memory, and it is given back. */
static void test_transfer_device_copy_that_the_driver_refuses_fails_with_its_text(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    const struct convoy_tensor_source tensor = engine_tensor(scene.source, &scene.bytes);
    const struct convoy_stage stage = stage_of(&scene, &tensor);
    bool is_seen = false;
    for (uint64_t n = 1; n < 40; n++) {
        convoy_transfer staged = 0;
        scene.host->sim->fail_at(n, 700);
        CALL_OK(scene.sender, stage_start, &stage, &staged);
        int32_t status = CALL(scene.sender, transfer_wait, staged, ENGINE_TIMEOUT_NS, NULL);
        scene.host->sim->fail_at(0, 0);
        EXPECT(status == CONVOY_OK || status == CONVOY_SYSTEM);
        if (status != CONVOY_OK) {
            is_seen = true;
            EXPECT_TEXT(scene.sender->error.text, "CUDA_ERROR_ILLEGAL_ADDRESS");
        }
        release(scene.sender, staged);
    }
    EXPECT(is_seen);
    scene_close(&scene);
}

/* Memory that a lost copy may still touch: it is mapped and pinned after all that knew it is gone. */
static void expect_left(const struct scene *scene, uint8_t *pool)
{
    EXPECT_EQUAL(scene->host->sim->violations(), 0);
    EXPECT(*(volatile uint8_t *)pool <= 0xff);
    EXPECT_EQUAL(scene->host->cuda.cuMemHostUnregister(pool), 0);
}

/* A context that is gone: nobody knows whether the copy has stopped. What it may touch is never given to anyone. */
static void test_transfer_device_memory_of_a_lost_copy_is_never_given_away(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    struct convoy_transfer_result result;
    scene.host->sim->break_next(719);
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_SYSTEM, &result);
    EXPECT_TEXT(scene.sender->error.text, "719");
    EXPECT_TEXT(scene.sender->error.text, "not used again");
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_FAILED);
    EXPECT_EQUAL(result.is_source_free, 0);
    release(scene.sender, staged);
    EXPECT_EQUAL(engine_figures(scene.sender).taken, 65536);
    scene.host->sim->mend();
    staged = stage_start(&scene, NULL, 0); /* in other memory */
    engine_wait(scene.sender, staged, CONVOY_OK, NULL);
    engine_look(scene.sender, staged);
    EXPECT(engine_is_filled(scene.sender->views[0].data, scene.bytes, 1));
    release(scene.sender, staged);
    EXPECT_EQUAL(engine_figures(scene.sender).taken, 65536);
    uint8_t *pool = (uint8_t *)(uintptr_t)scene.sender->info.pool_memory;
    engine_destroy(scene.sender); /* closes, and leaves that memory where it is */
    expect_left(&scene, pool);
    engine_destroy(scene.receiver);
    sim_host_free(scene.source);
    sim_host_free(scene.target);
}

static void test_transfer_device_load_that_is_lost_never_gives_the_sender_its_memory(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    struct convoy_transfer_result result;
    convoy_transfer staged = stage_start(&scene, NULL, 0);
    engine_wait(scene.sender, staged, CONVOY_OK, &result);
    convoy_transfer sent = send_staged(scene.sender, scene.peer, staged);
    convoy_transfer loaded = accept_by(scene.receiver, NULL, 0, CONVOY_LOAD_VIEW, ENGINE_TIMEOUT_NS);
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    engine_look(scene.receiver, loaded);
    uint8_t *view = (uint8_t *)(uintptr_t)scene.receiver->views[0].data - result.slot_offset;
    release(scene.receiver, loaded);
    release(scene.sender, sent);
    scene.host->sim->break_next(719);
    sent = send_staged(scene.sender, scene.peer, staged);
    loaded = load_to(&scene, scene.target, NULL);
    engine_wait(scene.receiver, loaded, CONVOY_SYSTEM, NULL);
    EXPECT_TEXT(scene.receiver->error.text, "719");
    engine_wait(scene.sender, sent, CONVOY_SYSTEM, NULL);
    scene.host->sim->mend();
    release(scene.receiver, loaded);
    release(scene.sender, sent);
    release(scene.sender, staged);
    EXPECT(engine_figures(scene.sender).quarantined >= scene.bytes);
    engine_destroy(scene.receiver);
    expect_left(&scene, view);
    EXPECT(engine_figures(scene.sender).quarantined >= scene.bytes);
    engine_destroy(scene.sender);
    sim_host_free(scene.source);
    sim_host_free(scene.target);
}

/* -- pools of device memory ---------------------------------------------------------------------------------------- */

static void test_transfer_device_pools_on_both_sides(void **state)
{
    (void)state;
    struct sim_host *host = sim_host_open();
    uint8_t *pools[2] = {sim_host_alloc(1u << 20), sim_host_alloc(1u << 20)};
    struct engine *ends[2];
    struct convoy_transfer_result result;
    uint64_t bytes = 100001;
    for (int i = 0; i < 2; i++) {
        struct convoy_transfer_options options = pool_of(1u << 20);
        options.pool_kind = CONVOY_MEMORY_DEVICE;
        options.pool_memory = pools[i];
        ends[i] = sim_host_engine(&options);
        EXPECT(ends[i]->info.pool_memory == pools[i]);
        EXPECT_EQUAL(ends[i]->info.pool_bytes, 1u << 20);
    }
    struct scene scene = {.host = host, .sender = ends[0], .receiver = ends[1], .bytes = bytes};
    scene.peer = engine_connect(ends[0], ends[1]->info.session);
    scene.source = sim_host_alloc(bytes);
    scene.target = sim_host_alloc(bytes);
    for (uint32_t round = 0; round < 20; round++) {
        sim_host_fill(scene.source, bytes, round);
        convoy_transfer staged = stage_start(&scene, NULL, round % 2 == 0 ? 0 : CONVOY_STAGE_CHECKSUM);
        engine_wait(ends[0], staged, CONVOY_OK, &result);
        EXPECT((uint8_t *)result.address == pools[0] + result.slot_offset);
        engine_look(ends[0], staged);
        EXPECT(sim_host_is_filled(ends[0]->views[0].data, bytes, round));
        convoy_transfer sent = send_staged(ends[0], scene.peer, staged);
        convoy_transfer loaded = load_to(&scene, NULL, NULL); /* into a slot of the receiver's pool */
        engine_wait(ends[1], loaded, CONVOY_OK, &result);
        EXPECT((uint8_t *)result.address == pools[1] + result.slot_offset);
        engine_look(ends[1], loaded);
        EXPECT(ends[1]->views[0].data == result.address);
        EXPECT(sim_host_is_filled(result.address, bytes, round));
        EXPECT_EQUAL(engine_figures(ends[1]).taken, 131072);
        engine_wait(ends[0], sent, CONVOY_OK, NULL);
        release(ends[0], sent);
        release(ends[0], staged);
        release(ends[1], loaded);
    }
    scene_close(&scene);
    sim_host_free(pools[0]);
    sim_host_free(pools[1]);
}

static int end_of_all(void **state)
{
    (void)state;
    sim_host_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_device_tensors_arrive_bit_for_bit),
        cmocka_unit_test(test_transfer_device_load_ends_without_a_host_thread),
        cmocka_unit_test(test_transfer_device_views_of_a_shared_pool_are_host_memory),
        cmocka_unit_test(test_transfer_device_load_by_descriptor),
        cmocka_unit_test(test_transfer_device_load_from_a_pool_that_cannot_be_mapped),
        cmocka_unit_test(test_transfer_device_load_of_what_is_still_being_staged),
        cmocka_unit_test(test_transfer_device_load_from_a_slot_that_a_peer_has_filled),
        cmocka_unit_test(test_transfer_device_destination_that_is_too_small_is_refused),
        cmocka_unit_test(test_transfer_device_stage_of_mixed_and_strided_tensors),
        cmocka_unit_test(test_transfer_device_stage_runs_behind_the_hosts_work_and_event),
        cmocka_unit_test(test_transfer_device_stage_begins_when_its_producer_is_ready),
        cmocka_unit_test(test_transfer_device_load_holds_the_senders_memory_until_it_is_read),
        cmocka_unit_test(test_transfer_device_aborted_and_released_slots_wait_for_their_copies),
        cmocka_unit_test(test_transfer_device_load_that_is_given_up_holds_both_sides_until_its_copy_has_run),
        cmocka_unit_test(test_transfer_device_engine_closes_when_its_copies_have_run),
        cmocka_unit_test(test_transfer_device_copy_that_the_driver_refuses_fails_with_its_text),
        cmocka_unit_test(test_transfer_device_memory_of_a_lost_copy_is_never_given_away),
        cmocka_unit_test(test_transfer_device_load_that_is_lost_never_gives_the_sender_its_memory),
        cmocka_unit_test(test_transfer_device_pools_on_both_sides),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer device", tests, NULL, end_of_all);
}
