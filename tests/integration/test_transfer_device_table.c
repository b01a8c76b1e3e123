/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers with a device of the host's: functions that are called on its own threads only, here those of the pretended
 * driver (tests/lib/sim_cuda.h) behind a table. And what engines refuse that have no device, or another one. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/await.h"
#include "tests/lib/mappings.h"
#include "tests/lib/sim_host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#define NOT_YET 600 /* the driver's number */

struct own_device {
    struct sim_host *host;
    pthread_t thread;        /* that may call */
    _Atomic uint32_t calls;
    _Atomic uint32_t strays; /* calls on another one */
    int32_t refused;         /* what copy answers, unless 0 */
};

static struct own_device own;

static struct cuda_host *entered(void *user)
{
    struct own_device *device = user;
    device->calls++;
    device->strays += pthread_equal(pthread_self(), device->thread) == 0 ? 1 : 0;
    return &device->host->cuda;
}

static int32_t own_query(void *user, const void *address, struct convoy_memory_info *info_out)
{
    unsigned type = 0;
    int attribute = CUDA_POINTER_MEMORY_TYPE;
    void *value = &type;
    int result = entered(user)->cuPointerGetAttributes(1, &attribute, &value, (cuda_address)(uintptr_t)address);
    info_out->kind = type == CUDA_MEMORY_DEVICE ? CONVOY_MEMORY_DEVICE : CONVOY_MEMORY_SHARED;
    info_out->device = 0;
    return -result;
}

static int32_t own_copy(void *user, void *to, const void *from, uint64_t bytes, uint32_t direction, void *stream)
{
    struct cuda_host *cuda = entered(user);
    (void)direction;
    return own.refused != 0 ? own.refused
                            : -cuda->cuMemcpyAsync((cuda_address)(uintptr_t)to, (cuda_address)(uintptr_t)from, bytes, stream);
}

static int32_t own_event_create(void *user, void **event_out)
{
    cuda_event event = NULL;
    int result = entered(user)->cuEventCreate(&event, CUDA_EVENT_NO_TIMING);
    *event_out = event;
    return -result;
}

static void own_event_destroy(void *user, void *event)
{
    (void)entered(user)->cuEventDestroy_v2(event);
}

static int32_t own_event_record(void *user, void *event, void *stream)
{
    return -entered(user)->cuEventRecord(event, stream);
}

static int32_t answer(int result)
{
    return result == NOT_YET ? 0 : result == 0 ? 1 : -result;
}

static int32_t own_event_query(void *user, void *event)
{
    return answer(entered(user)->cuEventQuery(event));
}

static int32_t own_stream_wait(void *user, void *stream, void *event)
{
    return -entered(user)->cuStreamWaitEvent(stream, event, 0);
}

static int32_t own_stream_query(void *user, void *stream)
{
    return answer(entered(user)->cuStreamQuery(stream));
}

static int32_t own_register(void *user, void *address, uint64_t bytes, uint32_t flags)
{
    (void)flags;
    return -entered(user)->cuMemHostRegister_v2(address, bytes, 0);
}

static int32_t own_unregister(void *user, void *address)
{
    return -entered(user)->cuMemHostUnregister(address);
}

static void own_error_text(void *user, int32_t number, char *text_out, size_t capacity)
{
    (void)entered(user);
    (void)snprintf(text_out, capacity, "my device says %d", number);
}

static const struct convoy_device_table table = {
    .struct_size = sizeof table,
    .name = "mine",
    .name_length = 4,
    .user = &own,
    .query = own_query,
    .copy = own_copy,
    .event_create = own_event_create,
    .event_destroy = own_event_destroy,
    .event_record = own_event_record,
    .event_query = own_event_query,
    .stream_wait = own_stream_wait,
    .stream_query = own_stream_query,
    .register_range = own_register,
    .unregister_range = own_unregister,
    .error_text = own_error_text,
};

static struct engine *own_engine(void *pool_memory)
{
    struct convoy_transfer_options options = pool_of(1u << 20);
    options.device = CONVOY_DEVICE_TABLE;
    options.device_table = &table;
    options.pool_kind = pool_memory != NULL ? CONVOY_MEMORY_DEVICE : CONVOY_MEMORY_SHARED;
    options.pool_memory = pool_memory;
    return engine_create(&options);
}

static void begin_own(void)
{
    own = (struct own_device){.host = sim_host_open(), .thread = pthread_self()};
}

static convoy_transfer stage_from(struct engine *engine, const uint8_t *source, const uint64_t *bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(source, bytes);
    struct convoy_stage stage = engine_stage("mine", &tensor, 1);
    convoy_transfer staged = 0;
    stage.stream = own.host->stream;
    stage.timeout_ns = ENGINE_TIMEOUT_NS;
    CALL_OK(engine, stage_start, &stage, &staged);
    return staged;
}

static convoy_transfer load_to(struct engine *engine, uint8_t *target, uint64_t bytes)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .destination = target,
                                     .destination_bytes = bytes,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(engine, accept_start, &load, &loaded);
    return loaded;
}

static void check_pair(bool has_pool, uint64_t bytes)
{
    uint8_t *pools[2] = {has_pool ? sim_host_alloc(1u << 20) : NULL, has_pool ? sim_host_alloc(1u << 20) : NULL};
    struct engine *sender = own_engine(pools[0]);
    struct engine *receiver = own_engine(pools[1]);
    convoy_peer peer = engine_connect(sender, receiver->info.session);
    uint8_t *source = sim_host_alloc(bytes);
    uint8_t *target = sim_host_alloc(bytes);
    sim_host_fill(source, bytes, 3);
    convoy_transfer staged = stage_from(sender, source, &bytes);
    engine_wait(sender, staged, CONVOY_OK, NULL);
    convoy_transfer sent = send_staged(sender, peer, staged);
    convoy_transfer loaded = load_to(receiver, has_pool ? NULL : target, bytes);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    engine_look(receiver, loaded);
    EXPECT(sim_host_is_filled(receiver->views[0].data, bytes, 3));
    engine_wait(sender, sent, CONVOY_OK, NULL);
    release(sender, sent);
    release(sender, staged);
    release(receiver, loaded);
    engine_await_empty(sender);
    engine_destroy(sender);
    engine_destroy(receiver);
    sim_host_free(source);
    sim_host_free(target);
    for (int i = 0; i < 2 && has_pool; i++) {
        sim_host_free(pools[i]);
    }
}

static void test_transfer_device_table_copies_for_both_sides_on_the_hosts_thread(void **state)
{
    (void)state;
    begin_own();
    check_pair(false, 70000);
    check_pair(false, 600000);
    check_pair(true, 70000);
    EXPECT(own.calls != 0);
    EXPECT_EQUAL(own.strays, 0);
}

/* The other side's word comes while the host is elsewhere: a thread of the engine takes it, and leaves the copy to the
 * host's next look. */
static void test_transfer_device_table_is_not_called_while_the_host_is_elsewhere(void **state)
{
    (void)state;
    uint64_t bytes = 70000;
    begin_own();
    struct engine *sender = engine_create(NULL);
    struct engine *receiver = own_engine(NULL);
    convoy_peer peer = engine_connect(sender, receiver->info.session);
    uint8_t *target = sim_host_alloc(bytes);
    uint8_t *data = malloc(bytes);
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    EXPECT(data != NULL);
    engine_fill(data, bytes, 4);
    convoy_transfer loaded = load_to(receiver, target, bytes);
    uint32_t calls = own.calls;
    uint64_t offers = engine_counter(receiver, "offers");
    convoy_transfer sent = send_bytes(sender, peer, "mine", 1, data, bytes);
    AWAIT(engine_counter(receiver, "offers") != offers); /* only looks at what a thread of the engine has done */
    EXPECT_EQUAL(own.calls, calls);
    CALL_STATUS(sender, CONVOY_IN_PROGRESS, transfer_test, sent, &result);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    EXPECT(sim_host_is_filled(target, bytes, 4));
    engine_wait(sender, sent, CONVOY_OK, NULL);
    EXPECT_EQUAL(own.strays, 0);
    release(sender, sent);
    release(receiver, loaded);
    engine_await_empty(sender);
    engine_destroy(sender);
    engine_destroy(receiver);
    sim_host_free(target);
    free(data);
}

/* Each resize ends a generation, which a thread of the engine may not unpin: the next thread of the host does. */
static void test_transfer_device_table_old_pools_are_returned_by_threads_of_the_host(void **state)
{
    (void)state;
    uint64_t bytes = 70000;
    begin_own();
    struct engine *engine = own_engine(NULL);
    struct engine *receiver = own_engine(NULL);
    convoy_peer peer = engine_connect(engine, receiver->info.session);
    uint8_t *source = sim_host_alloc(bytes);
    uint8_t *target = sim_host_alloc(bytes);
    sim_host_fill(source, bytes, 8);
    uint32_t mapped = mappings_count();
    for (uint32_t i = 0; i < 20; i++) {
        convoy_transfer staged = stage_from(engine, source, &bytes);
        engine_wait(engine, staged, CONVOY_OK, NULL);
        CALL_OK(engine, pool_resize, (1 + i % 2) << 20);
        convoy_transfer sent = send_staged(engine, peer, staged);
        convoy_transfer loaded = load_to(receiver, target, bytes);
        engine_wait(receiver, loaded, CONVOY_OK, NULL);
        EXPECT(sim_host_is_filled(target, bytes, 8));
        engine_wait(engine, sent, CONVOY_OK, NULL);
        release(engine, sent);
        release(engine, staged);
        release(receiver, loaded);
        engine_await_empty(engine);
    }
    AWAIT(engine_figures(engine).old_generations + engine_figures(receiver).old_generations == 0 &&
          mappings_count() == mapped); /* who looks returns them */
    EXPECT_EQUAL(own.strays, 0);
    EXPECT_EQUAL(own.host->sim->blocking(), 0);
    engine_destroy(engine);
    engine_destroy(receiver);
    sim_host_free(source);
    sim_host_free(target);
    EXPECT_EQUAL(own.strays, 0);
}

static void test_transfer_device_table_failures_are_told_in_the_hosts_words(void **state)
{
    (void)state;
    uint64_t bytes = 4096;
    begin_own();
    struct engine *engine = own_engine(NULL);
    uint8_t *source = sim_host_alloc(bytes);
    own.refused = -31;
    convoy_transfer staged = stage_from(engine, source, &bytes);
    engine_wait(engine, staged, CONVOY_SYSTEM, NULL);
    EXPECT_TEXT(engine->error.text, "device mine: copying");
    EXPECT_TEXT(engine->error.text, "my device says -31");
    release(engine, staged);
    engine_await_empty(engine);
    engine_destroy(engine);
    sim_host_free(source);
    EXPECT_EQUAL(own.strays, 0);
}

/* A table that lacks a function is refused by its name, and one of another size as any struct. */
static void test_transfer_device_table_that_lacks_something_is_refused(void **state)
{
    (void)state;
    begin_own();
    struct engine *engine = engine_create(NULL);
    struct convoy_device_table short_one = table;
    struct convoy_transfer_options options = pool_of(1u << 20);
    convoy_transfer_engine *handle = NULL;
    options.device = CONVOY_DEVICE_TABLE;
    options.device_table = &short_one;
    short_one.event_query = NULL;
    EXPECT_STATUS(engine->table->engine_open(engine->context, &options, &handle, &engine->error), CONVOY_INVALID_ARGUMENT,
                  &engine->error);
    EXPECT_TEXT(engine->error.text, "event_query");
    short_one.struct_size = 16;
    EXPECT_STATUS(engine->table->engine_open(engine->context, &options, &handle, &engine->error), CONVOY_TOO_OLD,
                  &engine->error);
    EXPECT_TEXT(engine->error.text, "device_table");
    engine_destroy(engine);
}

/* -- what is refused ----------------------------------------------------------------------------------------------- */

static int32_t try_open(struct engine *engine, struct convoy_transfer_options options)
{
    convoy_transfer_engine *handle = NULL;
    options.struct_size = sizeof options;
    return engine->table->engine_open(engine->context, &options, &handle, &engine->error);
}

static void test_transfer_device_refusals_say_what_is_missing(void **state)
{
    (void)state;
    struct sim_host *host = sim_host_open();
    const char *kept = engine_settings;
    struct engine *plain = engine_create(NULL);
    engine_settings = "{\"cuda_library\": \"/nowhere/libcuda.so.1\"}";
    struct engine *without = engine_create(NULL);
    engine_settings = kept;
    uint8_t *memory = sim_host_alloc(4096);
    uint64_t bytes = 4096;
    const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
    struct convoy_stage stage = engine_stage("r", &tensor, 1);
    struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_COPY, .stream = host->stream};
    convoy_transfer transfer = 0;
    struct convoy_transfer_options options = pool_of(4096);
    options.device = CONVOY_DEVICE_CUDA;
    stage.stream = host->stream;
    CALL_STATUS(plain, CONVOY_UNSUPPORTED, stage_start, &stage, &transfer);
    EXPECT_TEXT(plain->error.text, "option device");
    CALL_STATUS(plain, CONVOY_UNSUPPORTED, accept_start, &load, &transfer);
    EXPECT_STATUS(try_open(plain, (struct convoy_transfer_options){.pool_kind = CONVOY_MEMORY_DEVICE, .pool_memory = memory,
                                                                   .pool_bytes = 4096}),
                  CONVOY_UNSUPPORTED, &plain->error);
    EXPECT_TEXT(plain->error.text, "needs option device");
    EXPECT_STATUS(try_open(plain, (struct convoy_transfer_options){.device = 3}), CONVOY_INVALID_ARGUMENT, &plain->error);
    EXPECT_STATUS(try_open(plain, (struct convoy_transfer_options){.device = CONVOY_DEVICE_TABLE}), CONVOY_INVALID_ARGUMENT,
                  &plain->error);
    EXPECT_STATUS(try_open(plain, (struct convoy_transfer_options){.device_number = 1}), CONVOY_INVALID_ARGUMENT,
                  &plain->error);
    EXPECT_STATUS(try_open(plain, (struct convoy_transfer_options){.device = CONVOY_DEVICE_CUDA, .device_number = 9}),
                  CONVOY_INVALID_ARGUMENT, &plain->error);
    uint8_t *no_device = calloc(1, 4096);
    options.pool_kind = CONVOY_MEMORY_DEVICE;
    options.pool_memory = no_device;
    EXPECT_STATUS(try_open(plain, options), CONVOY_INVALID_ARGUMENT, &plain->error);
    EXPECT_TEXT(plain->error.text, "no memory of device cuda");
    free(no_device);
    EXPECT_STATUS(try_open(without, (struct convoy_transfer_options){.device = CONVOY_DEVICE_CUDA}), CONVOY_INIT_FAILED,
                  &without->error);
    EXPECT_TEXT(without->error.text, "/nowhere/libcuda.so.1");
    struct engine *engine = sim_host_engine(NULL);
    uint8_t here[16];
    CALL_STATUS(engine, CONVOY_UNSUPPORTED, memory_register, memory, 4096);
    load.destination = here;
    load.destination_bytes = sizeof here;
    CALL_STATUS(engine, CONVOY_INVALID_ARGUMENT, accept_start, &load, &transfer);
    EXPECT_TEXT(engine->error.text, "host memory");
    engine_destroy(engine);
    engine_destroy(plain);
    engine_destroy(without);
    sim_host_free(memory);
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
        cmocka_unit_test(test_transfer_device_table_copies_for_both_sides_on_the_hosts_thread),
        cmocka_unit_test(test_transfer_device_table_is_not_called_while_the_host_is_elsewhere),
        cmocka_unit_test(test_transfer_device_table_old_pools_are_returned_by_threads_of_the_host),
        cmocka_unit_test(test_transfer_device_table_failures_are_told_in_the_hosts_words),
        cmocka_unit_test(test_transfer_device_table_that_lacks_something_is_refused),
        cmocka_unit_test(test_transfer_device_refusals_say_what_is_missing),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer device table", tests, NULL, end_of_all);
}
