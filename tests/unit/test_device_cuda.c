/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA memory on the pretended driver: kinds, copies in each direction, registration, contexts, refusals. */
#include "core/clock.h"
#include "core/error.h"
#include "device/cuda.h"
#include "tests/lib/device_case.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096u

static struct device_case *the;

static uint32_t kind_of(struct convoy_device *device, const void *address, int32_t *ordinal_out)
{
    struct convoy_memory_info info = {.kind = 99};
    assert_int_equal(convoy_device_query(device, address, &info, NULL), CONVOY_OK);
    *ordinal_out = info.device;
    return info.kind;
}

static void test_device_cuda_tells_kinds_of_memory(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    void *plain = malloc(BYTES);
    void *pinned = NULL;
    cuda_address managed = 0;
    void *memory = device_case_alloc(BYTES);
    int32_t ordinal;
    assert_int_equal(the->cuda.cuMemHostAlloc(&pinned, BYTES, 0), 0);
    assert_int_equal(the->cuda.cuMemAllocManaged(&managed, BYTES, CUDA_MANAGED_GLOBAL), 0);
    assert_int_equal(kind_of(device, plain, &ordinal), CONVOY_MEMORY_HOST);
    assert_int_equal(ordinal, -1);
    assert_int_equal(kind_of(device, pinned, &ordinal), CONVOY_MEMORY_PINNED);
    assert_int_equal(kind_of(device, (void *)(uintptr_t)managed, &ordinal), CONVOY_MEMORY_MANAGED);
    assert_int_equal(kind_of(device, (uint8_t *)memory + BYTES - 1, &ordinal), CONVOY_MEMORY_DEVICE);
    assert_int_equal(ordinal, 0);
    assert_int_equal(convoy_device_register(device, plain, BYTES, 0, NULL), CONVOY_OK);
    assert_int_equal(kind_of(device, plain, &ordinal), CONVOY_MEMORY_PINNED);
    assert_int_equal(convoy_device_unregister(device, plain, BYTES, NULL), CONVOY_OK);
    assert_int_equal(kind_of(device, plain, &ordinal), CONVOY_MEMORY_HOST);
    (void)the->cuda.cuMemFreeHost(pinned);
    (void)the->cuda.cuMemFree_v2(managed);
    device_case_free(memory);
    free(plain);
    device_case_close(device);
}

static int32_t copy(struct convoy_device *device, const struct convoy_copy_order *order, struct convoy_error *error)
{
    convoy_ticket ticket;
    bool is_quiet = false;
    int32_t status = convoy_device_start(device, order, &ticket, error);
    if (status == CONVOY_OK) {
        status = convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, error);
        assert_true(is_quiet);
    }
    return status;
}

/* Host to device to device to host, in pieces, with the direction said and found out. */
static void test_device_cuda_copies_in_each_direction(void **state)
{
    struct convoy_device *device = device_case_open(0);
    const bool is_said = *state != NULL;
    uint32_t host[BYTES / 2]; /* two halves: out and back */
    void *one = device_case_alloc(BYTES);
    void *two = device_case_alloc(BYTES);
    cuda_stream stream = device_case_stream();
    uint64_t mark = 0;
    for (uint32_t i = 0; i < BYTES / 4; i++) {
        host[i] = i * 7 + 1;
    }
    assert_int_equal(convoy_device_register(device, host, sizeof host, 0, NULL), CONVOY_OK);
    const struct convoy_copy_piece in[] = {{one, host, 1000}, {NULL, NULL, 0}, {(uint8_t *)one + 1000, &host[250], BYTES - 1000}};
    const struct convoy_copy_piece across = {two, one, BYTES};
    const struct convoy_copy_piece out = {&host[BYTES / 4], two, BYTES};
    struct convoy_copy_order order = {.pieces = in, .count = 3, .stream = stream, .mark = &mark,
                                      .direction = is_said ? CONVOY_COPY_TO_DEVICE : CONVOY_COPY_ANY};
    assert_int_equal(copy(device, &order, NULL), CONVOY_OK);
    assert_int_equal(mark, BYTES);
    order = (struct convoy_copy_order){.pieces = &across, .count = 1, .stream = stream,
                                       .direction = is_said ? CONVOY_COPY_ON_DEVICE : CONVOY_COPY_ANY};
    assert_int_equal(copy(device, &order, NULL), CONVOY_OK);
    order = (struct convoy_copy_order){.pieces = &out, .count = 1, .stream = stream,
                                       .direction = is_said ? CONVOY_COPY_FROM_DEVICE : CONVOY_COPY_ANY};
    assert_int_equal(copy(device, &order, NULL), CONVOY_OK);
    assert_memory_equal(host, &host[BYTES / 4], BYTES);
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.finished, 3);
    assert_int_equal(figures.bytes, 3 * BYTES);
    assert_int_equal(figures.open, 0);
    assert_int_equal(the->sim->blocking(), 0);
    assert_int_equal(convoy_device_unregister(device, host, sizeof host, NULL), CONVOY_OK);
    device_case_free(one);
    device_case_free(two);
    (void)the->cuda.cuStreamDestroy_v2(stream);
    device_case_close(device);
}

/* A copy that would wait for the stream is refused, unless the caller says that it may. */
static void test_device_cuda_refuses_memory_that_is_not_pinned(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    void *memory = device_case_alloc(BYTES);
    uint32_t *plain = calloc(2, BYTES);
    struct convoy_copy_piece piece = {plain, memory, BYTES};
    struct convoy_copy_order order = {.pieces = &piece, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE};
    device_case_expect_error(copy(device, &order, &error), CONVOY_UNSUPPORTED, &error, "not pinned");
    order.direction = CONVOY_COPY_ANY;
    device_case_expect_error(copy(device, &order, &error), CONVOY_UNSUPPORTED, &error, "4096 bytes");
    assert_int_equal(convoy_device_register(device, plain, BYTES, 0, NULL), CONVOY_OK);
    piece.to = plain + 1; /* the last word is outside */
    device_case_expect_error(copy(device, &order, &error), CONVOY_UNSUPPORTED, &error, "not pinned");
    assert_int_equal(the->sim->blocking(), 0);
    order.may_block = true;
    device_case_fill(memory, 77, BYTES, NULL);
    device_case_expect_error(copy(device, &order, &error), CONVOY_SYSTEM, &error, "copying: CUDA_ERROR_INVALID_VALUE (1)");
    assert_int_equal(convoy_device_unregister(device, plain, BYTES, NULL), CONVOY_OK);
    assert_int_equal(copy(device, &order, NULL), CONVOY_OK);
    device_case_expect_words(plain + 1, 77, BYTES);
    assert_int_equal(the->sim->blocking(), 1);
    free(plain);
    device_case_free(memory);
    device_case_close(device);
}

static void test_device_cuda_registration_is_counted_and_refused(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t *memory = aligned_alloc(4096, 4 * BYTES);
    assert_int_equal(convoy_device_register(device, memory, BYTES, CONVOY_REGISTER_READ_ONLY, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_register(device, memory, BYTES, 0, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_register(device, memory + 100, BYTES, 0, &error), CONVOY_INVALID_ARGUMENT, &error,
                             "overlaps");
    assert_int_equal(convoy_device_register(device, memory + BYTES, BYTES, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, memory, BYTES, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, memory, BYTES, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_unregister(device, memory, BYTES, &error), CONVOY_NOT_FOUND, &error, "registered");
    the->sim->fail_at(2, CUDA_NOT_SUPPORTED); /* behind the push of the context */
    device_case_expect_error(convoy_device_register(device, memory, BYTES, 0, &error), CONVOY_UNSUPPORTED, &error,
                             "CUDA_ERROR_NOT_SUPPORTED (801)");
    the->sim->fail_at(2, CUDA_OUT_OF_MEMORY);
    device_case_expect_error(convoy_device_register(device, memory, BYTES, 0, &error), CONVOY_NO_MEMORY, &error,
                             "CUDA_ERROR_OUT_OF_MEMORY");
    the->sim->fail_at(2, 1);
    device_case_expect_error(convoy_device_unregister(device, memory + BYTES, BYTES, &error), CONVOY_SYSTEM, &error,
                             "unregistering host memory: CUDA_ERROR_INVALID_VALUE (1): invalid argument");
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.ranges, 1); /* what the driver kept is still known, and let go of at the close */
    assert_int_equal(figures.registered_bytes, BYTES);
    device_case_close(device);
    free(memory);
}

/* What the host has pinned stays the host's. */
static void test_device_cuda_range_that_the_host_pinned(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t *memory = aligned_alloc(4096, 2 * BYTES);
    assert_int_equal(the->cuda.cuMemHostRegister_v2(memory, BYTES, 0), 0);
    device_case_expect_error(convoy_device_register(device, memory, 2 * BYTES, 0, &error), CONVOY_SYSTEM, &error,
                             "ALREADY_REGISTERED");
    assert_int_equal(convoy_device_register(device, memory, BYTES, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, memory, BYTES, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_register(device, memory, BYTES, 0, NULL), CONVOY_OK);
    device_case_close(device);
    assert_int_equal(the->cuda.cuMemHostUnregister(memory), 0);
    free(memory);
}

static void *without_context(void *argument)
{
    struct convoy_device *device = argument;
    cuda_context current = (cuda_context)&current;
    int32_t ordinal = 0;
    uint32_t kind = kind_of(device, &ordinal, &ordinal);
    (void)the->cuda.cuCtxGetCurrent(&current);
    return current == NULL && kind == CONVOY_MEMORY_HOST ? device : NULL;
}

/* Whatever context is current, none or another one, it is afterwards. */
static void test_device_cuda_puts_the_current_context_back(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, without_context, device), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, device);
    cuda_context other = NULL;
    cuda_context current = NULL;
    assert_int_equal(the->cuda.cuCtxCreate_v2(&other, 0, 1), 0);
    void *memory = malloc(BYTES);
    assert_int_equal(convoy_device_register(device, memory, BYTES, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_stream_query(device, NULL, NULL), CONVOY_OK);
    (void)the->cuda.cuCtxGetCurrent(&current);
    assert_ptr_equal(current, other);
    /* A device that is opened under a context of the host's uses that one. */
    const struct convoy_cuda_options options = {.library = the->library, .ordinal = CONVOY_CUDA_ANY};
    struct convoy_device *second = NULL;
    assert_int_equal(convoy_cuda_open(&options, &second, NULL), CONVOY_OK);
    cuda_stream stream = device_case_stream(); /* of `other` */
    assert_int_equal(convoy_device_stream_query(second, stream, NULL), CONVOY_OK);
    cuda_event event = device_case_event();
    assert_int_equal(convoy_device_event_record(second, event, stream, NULL), CONVOY_OK);
    struct convoy_error error = CONVOY_ERROR_INIT;
    device_case_expect_error(convoy_device_event_record(second, event, (void *)&error, &error), CONVOY_SYSTEM, &error,
                             "CUDA_ERROR_INVALID_HANDLE");
    device_case_close(second);
    (void)the->cuda.cuEventDestroy_v2(event);
    (void)the->cuda.cuStreamDestroy_v2(stream);
    (void)the->cuda.cuCtxDestroy_v2(other);
    device_case_close(device);
    free(memory);
}

static void open_refused(const char *library, int32_t ordinal, int32_t wanted, const char *text)
{
    const struct convoy_cuda_options options = {.library = library, .ordinal = ordinal};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    device_case_expect_error(convoy_cuda_open(&options, &device, &error), wanted, &error, text);
    assert_null(device);
}

static void test_device_cuda_without_a_driver_says_what_it_needs(void **state)
{
    (void)state;
    open_refused("/nowhere/libcuda.so.1", 0, CONVOY_INIT_FAILED, "CUDA memory needs the NVIDIA driver 450 or newer");
    open_refused("/nowhere/libcuda.so.1", 0, CONVOY_INIT_FAILED, "no CUDA driver (/nowhere/libcuda.so.1");
    struct convoy_device *device = NULL; /* by its usual name, where there is none or another one than ours */
    const struct convoy_cuda_options usual = {.ordinal = 0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_cuda_open(&usual, &device, &error) == CONVOY_OK) {
        device_case_close(device);
    } else {
        device_case_expect_error(error.status, CONVOY_INIT_FAILED, &error, "libcuda.so.1");
    }
    open_refused(the->shortened, 0, CONVOY_INIT_FAILED, "has no function cuMemcpyDtoHAsync_v2");
    open_refused(the->library, 2, CONVOY_INVALID_ARGUMENT, "ordinal 2, allowed are -1 to 1");
    open_refused(the->library, -2, CONVOY_INVALID_ARGUMENT, "ordinal -2");
}

static void test_device_cuda_driver_that_does_not_serve(void **state)
{
    (void)state;
    (void)setenv("SIM_CUDA_INIT", "100", 1);
    open_refused(the->library, 0, CONVOY_INIT_FAILED, "does not start: CUDA_ERROR_NO_DEVICE (100)");
    (void)setenv("SIM_CUDA_INIT", "12345", 1);
    open_refused(the->library, 0, CONVOY_INIT_FAILED, "CUDA error 12345, which the driver has no name for");
    (void)unsetenv("SIM_CUDA_INIT");
    (void)setenv("SIM_CUDA_VERSION", "10020", 1);
    open_refused(the->library, 0, CONVOY_INIT_FAILED, "is of version 10.2, allowed are 11.0 and newer");
    (void)unsetenv("SIM_CUDA_VERSION");
    const struct convoy_cuda_options options = {.library = the->library, .tickets = CONVOY_DEVICE_TICKETS_MAX + 1};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    device_case_expect_error(convoy_cuda_open(&options, &device, &error), CONVOY_INVALID_ARGUMENT, &error, "65537 tickets");
}

/* The pretended device memory is what it claims to be: only the driver can touch it. */
static void test_device_cuda_pretended_memory_is_poison_until_copied(void **state)
{
    (void)state;
    struct convoy_device *device = device_case_open(0);
    uint32_t *memory = device_case_alloc(BYTES);
    uint32_t *host = calloc(1, BYTES);
    struct convoy_copy_piece piece = {host, memory, BYTES};
    struct convoy_copy_order order = {.pieces = &piece, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE};
    convoy_ticket ticket;
    assert_int_equal(convoy_device_register(device, host, BYTES, 0, NULL), CONVOY_OK);
    the->sim->by_hand(1);
    device_case_fill(memory, 5, BYTES, NULL);
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_expect_words(host, 0xa5a5a5a5u, BYTES);
    bool is_quiet = true;
    assert_int_equal(convoy_device_test(device, ticket, &is_quiet, NULL), CONVOY_IN_PROGRESS);
    assert_false(is_quiet);
    for (int i = 0; i < 3; i++) { /* the fill, and half of the copy */
        assert_int_equal(the->sim->step(), 1);
    }
    assert_int_equal(host[0], 5);
    assert_int_equal(host[BYTES / 4 - 1], 0xa5a5a5a5u);
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_IN_PROGRESS);
    struct convoy_error error = CONVOY_ERROR_INIT;
    device_case_expect_error(convoy_device_wait(device, ticket, convoy_now_ns(), NULL, &error), CONVOY_TIMED_OUT, &error,
                             "is still running");
    device_case_expect_error(convoy_device_unregister(device, host, BYTES, &error), CONVOY_BUSY, &error, "is open");
    device_case_expect_error(convoy_device_close(device, convoy_now_ns(), &error), CONVOY_DRAIN_TIMEOUT, &error, "1 copies");
    device_case_run_all();
    the->sim->by_hand(0);
    device_case_expect_words(host, 5, BYTES);
    device_case_close(device); /* the second try; it unregisters too */
    device_case_free(memory);
    free(host);
}

static int begin(void **state)
{
    (void)state;
    the = device_case();
    return 0;
}

int main(void)
{
    static int said;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_cuda_tells_kinds_of_memory),
        cmocka_unit_test(test_device_cuda_copies_in_each_direction),
        {"test_device_cuda_copies_in_each_direction_said", test_device_cuda_copies_in_each_direction, NULL, NULL, &said},
        cmocka_unit_test(test_device_cuda_refuses_memory_that_is_not_pinned),
        cmocka_unit_test(test_device_cuda_registration_is_counted_and_refused),
        cmocka_unit_test(test_device_cuda_range_that_the_host_pinned),
        cmocka_unit_test(test_device_cuda_puts_the_current_context_back),
        cmocka_unit_test(test_device_cuda_without_a_driver_says_what_it_needs),
        cmocka_unit_test(test_device_cuda_driver_that_does_not_serve),
        cmocka_unit_test(test_device_cuda_pretended_memory_is_poison_until_copied),
    };
    return cmocka_run_group_tests_name("device_cuda", tests, begin, device_case_end);
}
