/* SPDX-License-Identifier: Apache-2.0 */
/* The driver fails at each call in turn, and once for all: every failure is told by name, nothing is left behind, and memory
 * is called quiet only when it is. */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "device/cuda.h"
#include "tests/lib/device_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 512u
#define ILLEGAL_ADDRESS 700

static struct device_case *the;

/* What the host has, made before and ended after the calls that fail. */
struct world {
    void *memory;
    void *target;
    uint32_t *pinned;
    cuda_stream producer;
    cuda_stream stream;
    cuda_event written;
    cuda_event copied;
};

static struct world world_open(void)
{
    struct world world = {.memory = device_case_alloc(BYTES),
                          .target = device_case_alloc(BYTES),
                          .pinned = aligned_alloc(4096, 4096),
                          .producer = device_case_stream(),
                          .stream = device_case_stream(),
                          .written = device_case_event(),
                          .copied = device_case_event()};
    return world;
}

static void world_close(struct world *world)
{
    device_case_free(world->memory);
    device_case_free(world->target);
    (void)the->cuda.cuStreamDestroy_v2(world->producer);
    (void)the->cuda.cuStreamDestroy_v2(world->stream);
    (void)the->cuda.cuEventDestroy_v2(world->written);
    (void)the->cuda.cuEventDestroy_v2(world->copied);
    free(world->pinned);
}

/* A failure is told with a text, and a copy that has ended is quiet. */
static int32_t told(int32_t status, const struct convoy_error *error)
{
    if (status < 0) {
        assert_int_equal(error->status, status);
        assert_true(error->text[0] != '\0');
    }
    return status;
}

static int32_t copied(struct convoy_device *device, const struct convoy_copy_order *order, struct convoy_error *error)
{
    convoy_ticket ticket;
    bool is_quiet = false;
    int32_t status = told(convoy_device_start(device, order, &ticket, error), error);
    if (status == CONVOY_OK) {
        status = told(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, error), error);
        assert_true(is_quiet);
    }
    return status;
}

/* Registers, copies out behind an event and back behind a stream, asks, unregisters. The first failure ends it. */
static int32_t traffic(struct convoy_device *device, struct world *world)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_memory_info info;
    const struct convoy_copy_piece out[] = {{world->pinned, world->memory, BYTES / 2},
                                            {world->pinned + BYTES / 8, (uint8_t *)world->memory + BYTES / 2, BYTES / 2}};
    const struct convoy_copy_piece in = {world->target, world->pinned, BYTES};
    const struct convoy_copy_order stage = {.pieces = out, .count = 2, .stream = world->stream, .event = world->copied,
                                            .ready = {.kind = CONVOY_READY_EVENT, .handle = world->written},
                                            .direction = CONVOY_COPY_FROM_DEVICE};
    const struct convoy_copy_order load = {.pieces = &in, .count = 1, .stream = world->producer,
                                           .ready = {.kind = CONVOY_READY_STREAM, .handle = world->stream}};
    int32_t status = told(convoy_device_register(device, world->pinned, 4096, 0, &error), &error);
    if (status == CONVOY_OK) {
        status = told(convoy_device_query(device, world->memory, &info, &error), &error);
    }
    if (status == CONVOY_OK) {
        status = told(convoy_device_event_record(device, world->written, world->producer, &error), &error);
    }
    if (status == CONVOY_OK) {
        status = copied(device, &stage, &error);
    }
    if (status == CONVOY_OK) {
        status = copied(device, &load, &error);
    }
    if (status == CONVOY_OK) {
        status = told(convoy_device_unregister(device, world->pinned, 4096, &error), &error);
    }
    return status;
}

static int32_t life(struct world *world)
{
    const struct convoy_cuda_options options = {.library = the->library, .ordinal = 0, .tickets = 4};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    int32_t status = told(convoy_cuda_open(&options, &device, &error), &error);
    if (status != CONVOY_OK) {
        assert_null(device);
        return status;
    }
    status = traffic(device, world);
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.open, 0);
    assert_int_equal(figures.lost, 0);
    device_case_close(device);
    return status;
}

/* One call of all that the driver is asked in a life fails. */
static void test_device_sweep_each_call_fails_once(void **state)
{
    (void)state;
    struct world world = world_open();
    int32_t status = life(&world);
    assert_int_equal(status, CONVOY_OK);
    uint64_t before = the->sim->calls(NULL);
    assert_int_equal(life(&world), CONVOY_OK);
    uint64_t calls = the->sim->calls(NULL) - before;
    uint32_t failed = 0;
    calls = calls < 400 ? calls : 400; /* of those that ask again and again while a copy runs, some */
    assert_true(calls > 40);
    for (uint64_t n = 1; n <= calls; n++) {
        device_case_fill(world.memory, (uint32_t)n, BYTES, world.producer);
        the->sim->fail_at(n, ILLEGAL_ADDRESS);
        status = life(&world);
        the->sim->fail_at(0, 0);
        failed += status != CONVOY_OK ? 1 : 0;
        if (status == CONVOY_OK) {
            device_case_expect_device(world.target, (uint32_t)n, BYTES);
        }
    }
    assert_true(failed > 20); /* the others are what is undone anyhow: pops, destroys, releases */
    world_close(&world);
}

/* A copy of several pieces whose second is refused: it has failed, but not before the first has run. */
static void test_device_sweep_failed_piece_waits_for_those_before_it(void **state)
{
    (void)state;
    struct world world = world_open();
    struct convoy_device *device = device_case_open(0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_ticket ticket;
    bool is_quiet = true;
    uint64_t mark = 0;
    assert_int_equal(convoy_device_register(device, world.pinned, 4096, 0, NULL), CONVOY_OK);
    const struct convoy_copy_piece pieces[] = {{world.pinned, world.memory, BYTES}, {world.pinned, world.target, BYTES}};
    const struct convoy_copy_order order = {.pieces = pieces, .count = 2, .stream = world.stream, .event = world.copied,
                                            .direction = CONVOY_COPY_FROM_DEVICE, .mark = &mark};
    the->sim->by_hand(1);
    the->sim->fail_at(4, ILLEGAL_ADDRESS); /* push, event, copy, copy */
    assert_int_equal(convoy_device_start(device, &order, &ticket, &error), CONVOY_OK);
    assert_int_equal(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_IN_PROGRESS);
    assert_false(is_quiet);
    assert_int_equal(convoy_device_cancel(device, ticket, NULL), CONVOY_IN_PROGRESS);
    device_case_run_all();
    device_case_expect_error(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_SYSTEM, &error,
                             "copying: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    assert_true(is_quiet);
    assert_int_equal(mark, 0);
    the->sim->by_hand(0);
    device_case_close(device);
    world_close(&world);
}

/* The context breaks under a copy: nobody knows what the device still does, and that is what is said. */
static void test_device_sweep_broken_context_is_lost_not_quiet(void **state)
{
    (void)state;
    struct world world = world_open();
    struct convoy_device *device = device_case_open(0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_ticket ticket;
    bool is_quiet = true;
    assert_int_equal(convoy_device_register(device, world.pinned, 4096, 0, NULL), CONVOY_OK);
    const struct convoy_copy_piece piece = {world.pinned, world.memory, BYTES};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .stream = world.stream,
                                            .direction = CONVOY_COPY_FROM_DEVICE};
    the->sim->by_hand(1);
    the->sim->break_next(ILLEGAL_ADDRESS);
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_run_all();
    the->sim->by_hand(0);
    device_case_expect_error(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, &error), CONVOY_SYSTEM, &error,
                             "asking for the event behind the copy: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory");
    assert_false(is_quiet);
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.lost, 1);
    assert_int_equal(figures.failed, 1);
    /* A further one fails too, and it is not known either what of it the device has. */
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_SYSTEM);
    assert_false(is_quiet);
    device_case_expect_error(convoy_device_unregister(device, world.pinned, 4096, &error), CONVOY_BUSY, &error, "was lost");
    the->sim->mend();
    device_case_close(device); /* what was lost stays pinned */
    assert_int_equal(the->cuda.cuMemHostUnregister(world.pinned), 0);
    world_close(&world);
}

/* The context cannot be made current: that is tried once more, and where it works the stream is asked. */
static void test_device_sweep_context_that_cannot_be_entered(void **state)
{
    (void)state;
    struct world world = world_open();
    struct convoy_device *device = device_case_open(0);
    const struct convoy_copy_piece piece = {world.target, world.memory, BYTES};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .stream = world.stream,
                                            .direction = CONVOY_COPY_ON_DEVICE};
    for (uint32_t times = 1; times <= 2; times++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        convoy_ticket ticket;
        bool is_quiet = true;
        assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
        the->sim->fail_at(1, ILLEGAL_ADDRESS);
        assert_int_equal(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_IN_PROGRESS);
        assert_false(is_quiet);
        the->sim->fail_at(times - 1, ILLEGAL_ADDRESS); /* 0: no more */
        device_case_expect_error(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, &error), CONVOY_SYSTEM,
                                 &error, "making its context current: CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_int_equal(is_quiet, times == 1);
    }
    device_case_close(device);
    world_close(&world);
}

#ifdef CONVOY_FAULTS
static void test_device_sweep_each_allocation_fails_once(void **state)
{
    (void)state;
    struct world world = world_open();
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t n = 0; status != CONVOY_OK; n++) {
        (void)convoy_memory_fail_after(n);
        status = life(&world);
        (void)convoy_memory_fail_after(-1);
        assert_true(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
        assert_true(n < 100);
    }
    world_close(&world);
}
#endif

static int begin(void **state)
{
    (void)state;
    the = device_case();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_sweep_each_call_fails_once),
        cmocka_unit_test(test_device_sweep_failed_piece_waits_for_those_before_it),
        cmocka_unit_test(test_device_sweep_broken_context_is_lost_not_quiet),
        cmocka_unit_test(test_device_sweep_context_that_cannot_be_entered),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_device_sweep_each_allocation_fails_once),
#endif
    };
    return cmocka_run_group_tests_name("device_sweep", tests, begin, device_case_end);
}
