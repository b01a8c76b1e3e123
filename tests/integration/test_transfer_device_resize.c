/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of engines with a device that are resized while transfers live, on the pretended driver (tests/lib/sim_cuda.h): what
 * goes on is pinned before it is used, and what has ended is unpinned before it is unmapped. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/await.h"
#include "tests/lib/sim_host.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

struct scene {
    struct sim_host *host;
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer;
    uint8_t *source;
    uint8_t *target;
    uint64_t bytes;
};

static struct scene scene_with(uint64_t bytes, struct engine *sender, struct engine *receiver)
{
    struct scene scene = {.host = sim_host_open(), .sender = sender, .receiver = receiver, .bytes = bytes};
    scene.peer = engine_connect(sender, receiver->info.session);
    scene.source = sim_host_alloc(bytes);
    scene.target = sim_host_alloc(bytes);
    return scene;
}

static struct scene scene_of(uint64_t bytes)
{
    (void)sim_host_open();
    const struct convoy_transfer_options options = pool_of(MIB);
    struct engine *sender = sim_host_engine(&options);
    return scene_with(bytes, sender, sim_host_engine(&options));
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
}

static int32_t resize_status(struct engine *engine, uint64_t bytes)
{
    return engine->table->pool_resize(engine->handle, bytes, &engine->error);
}

static void resize(struct engine *engine, uint64_t bytes)
{
    EXPECT_OK(resize_status(engine, bytes), &engine->error);
}

static convoy_transfer stage_start(struct scene *scene, uint32_t seed)
{
    const struct convoy_tensor_source tensor = engine_tensor(scene->source, &scene->bytes);
    struct convoy_stage stage = engine_stage("r1", &tensor, 1);
    convoy_transfer staged = 0;
    stage.stream = scene->host->stream;
    stage.timeout_ns = ENGINE_TIMEOUT_NS;
    sim_host_fill(scene->source, scene->bytes, seed);
    CALL_OK(scene->sender, stage_start, &stage, &staged);
    return staged;
}

static convoy_transfer stage(struct scene *scene, uint32_t seed)
{
    convoy_transfer staged = stage_start(scene, seed);
    engine_wait(scene->sender, staged, CONVOY_OK, NULL);
    return staged;
}

static convoy_transfer load_on_device(struct scene *scene, void *destination)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .destination = destination, .destination_bytes = scene->bytes,
                                     .stream = scene->host->stream,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(scene->receiver, accept_start, &load, &loaded);
    return loaded;
}

/* Sends it, and loads it into device memory of the host's. */
static void pass_on(struct scene *scene, convoy_transfer staged, uint32_t seed)
{
    convoy_transfer sent = send_staged(scene->sender, scene->peer, staged);
    convoy_transfer loaded = load_on_device(scene, scene->target);
    engine_wait(scene->receiver, loaded, CONVOY_OK, NULL);
    EXPECT(sim_host_is_filled(scene->target, scene->bytes, seed));
    engine_wait(scene->sender, sent, CONVOY_OK, NULL);
    release(scene->sender, sent);
    release(scene->receiver, loaded);
}

/* Old memory is returned by a thread of the engine: soon. */
static void await_one_generation(struct engine *engine)
{
    AWAIT(engine_figures(engine).old_generations == 0);
}

/* -- shared pools -------------------------------------------------------------------------------------------------- */

/* More often than there can be generations, or ranges that a device knows, so that each must have been let go of. */
static void test_transfer_device_resize_pins_what_goes_on_and_lets_go_of_what_ended(void **state)
{
    (void)state;
    struct scene scene = scene_of(300000);
    uint64_t blocking = scene.host->sim->blocking();
    for (uint32_t i = 0; i < 80; i++) {
        convoy_transfer old = stage(&scene, i);
        resize(scene.sender, (1 + i % 3) * MIB);
        resize(scene.receiver, (1 + i % 2) * MIB);
        pass_on(&scene, old, i); /* from where it was staged */
        release(scene.sender, old);
        convoy_transfer new = stage(&scene, i + 100);
        pass_on(&scene, new, i + 100);
        release(scene.sender, new);
        engine_await_empty(scene.sender);
        await_one_generation(scene.sender);
        await_one_generation(scene.receiver);
    }
    EXPECT_EQUAL(scene.host->sim->blocking(), blocking); /* all of it was pinned */
    EXPECT_OK(scene.sender->table->engine_info(scene.sender->handle, &scene.sender->info, &scene.sender->error),
              &scene.sender->error);
    EXPECT_EQUAL(scene.sender->info.pool_generation, 81);
    scene_close(&scene);
}

/* What the device still writes keeps its memory, and the pin of it, though nobody wants it any more. */
static void test_transfer_device_resize_leaves_memory_that_is_copied_where_it_is(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    scene.host->sim->by_hand(1);
    uint64_t let_go = scene.host->sim->calls("cuMemHostUnregister");
    convoy_transfer staged = stage_start(&scene, 1);
    resize(scene.sender, 2 * MIB);
    release(scene.sender, staged);
    for (int i = 0; i < 20; i++) {
        EXPECT_EQUAL(engine_figures(scene.sender).old_generations, 1);
        (void)poll(NULL, 0, 1); /* time in which it might be let go of by mistake; it orders nothing */
    }
    EXPECT_EQUAL(scene.host->sim->calls("cuMemHostUnregister"), let_go);
    sim_host_run_all();
    engine_await_empty(scene.sender);
    await_one_generation(scene.sender);
    scene.host->sim->by_hand(0);
    scene_close(&scene);
}

/* A driver that refuses to pin, or to let go: the resize is done all the same, copies may wait, and memory that is not let go
 * of stays mapped. */
static void test_transfer_device_resize_goes_on_whatever_the_driver_says(void **state)
{
    (void)state;
    struct scene scene = scene_of(65536);
    for (uint64_t n = 1; n <= 8; n++) {
        scene.host->sim->fail_at(n, 700);
        resize(scene.sender, (1 + n % 2) * MIB);
        scene.host->sim->fail_at(0, 0);
        convoy_transfer staged = stage(&scene, (uint32_t)n);
        pass_on(&scene, staged, (uint32_t)n);
        release(scene.sender, staged);
        engine_await_empty(scene.sender);
        await_one_generation(scene.sender);
    }
    scene_close(&scene);
}

static void test_transfer_device_resize_of_the_hosts_memory_is_refused_by_its_kind(void **state)
{
    (void)state;
    (void)sim_host_open();
    struct convoy_transfer_options options = pool_of(MIB);
    options.pool_kind = CONVOY_MEMORY_HOST;
    options.pool_memory = aligned_alloc(4096, MIB);
    EXPECT(options.pool_memory != NULL);
    struct engine *engine = sim_host_engine(&options);
    EXPECT_EQUAL(resize_status(engine, 2 * MIB), CONVOY_UNSUPPORTED);
    EXPECT_TEXT(engine->error.text, "pool_kind is HOST");
    engine_destroy(engine);
    free(options.pool_memory);
}

/* -- pools of device memory ---------------------------------------------------------------------------------------- */

static struct engine *engine_of(uint8_t *memory, uint64_t bytes, uint64_t bounce_bytes)
{
    struct convoy_transfer_options options = pool_of(bytes);
    options.pool_kind = CONVOY_MEMORY_DEVICE;
    options.pool_memory = memory;
    options.bounce_bytes = bounce_bytes;
    return sim_host_engine(&options);
}

/* A payload that the pinned pool does not hold is refused with what helps, which then does; the device memory stays. */
static void test_transfer_device_resize_makes_the_pinned_pool_hold_a_larger_payload(void **state)
{
    (void)state;
    (void)sim_host_open();
    uint8_t *pools[2] = {sim_host_alloc(4 * MIB), sim_host_alloc(4 * MIB)};
    struct engine *sender = engine_of(pools[0], 4 * MIB, MIB / 4);
    struct scene scene = scene_with(MIB, sender, engine_of(pools[1], 4 * MIB, MIB / 4));
    const struct convoy_tensor_source tensor = engine_tensor(scene.source, &scene.bytes);
    struct convoy_stage large = engine_stage("large", &tensor, 1);
    convoy_transfer staged = 0;
    CALL_STATUS(sender, CONVOY_LIMIT, stage_start, &large, &staged);
    EXPECT_TEXT(sender->error.text, "pool_resize");
    scene.bytes = 100000;
    convoy_transfer before = stage(&scene, 3);
    resize(sender, 2 * MIB);
    EXPECT_EQUAL(engine_figures(sender).old_generations, 1);
    EXPECT_EQUAL(engine_figures(sender).capacity, 4 * MIB);
    pass_on(&scene, before, 3);
    release(sender, before);
    await_one_generation(sender);
    scene.bytes = MIB;
    staged = stage(&scene, 5);
    convoy_transfer sent = send_staged(sender, scene.peer, staged);
    convoy_transfer loaded = load_on_device(&scene, NULL); /* into a slot of the receiver's pool, out of the sender's memory */
    engine_wait(scene.receiver, loaded, CONVOY_OK, NULL);
    engine_look(scene.receiver, loaded);
    EXPECT(sim_host_is_filled(scene.receiver->views[0].data, MIB, 5));
    engine_wait(sender, sent, CONVOY_OK, NULL);
    release(sender, sent);
    release(sender, staged);
    release(scene.receiver, loaded);
    EXPECT_OK(sender->table->engine_info(sender->handle, &sender->info, &sender->error), &sender->error);
    EXPECT_EQUAL(sender->info.pool_bytes, 4 * MIB);
    EXPECT(sender->info.pool_memory == pools[0]);
    EXPECT_EQUAL(sender->info.pool_generation, 2);
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
        cmocka_unit_test(test_transfer_device_resize_pins_what_goes_on_and_lets_go_of_what_ended),
        cmocka_unit_test(test_transfer_device_resize_leaves_memory_that_is_copied_where_it_is),
        cmocka_unit_test(test_transfer_device_resize_goes_on_whatever_the_driver_says),
        cmocka_unit_test(test_transfer_device_resize_of_the_hosts_memory_is_refused_by_its_kind),
        cmocka_unit_test(test_transfer_device_resize_makes_the_pinned_pool_hold_a_larger_payload),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer device resize", tests, NULL, end_of_all);
}
