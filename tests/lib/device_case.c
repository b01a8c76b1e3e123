/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/device_case.h"

#include "core/clock.h"
#include "core/error.h"
#include "device/cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct device_case the_case;

static void case_file(const char *name, char *path, size_t bytes)
{
    char own[512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(path, bytes, "%s/../lib/%s", own, name);
}

#define CASE_BIND(name_, parameters_) {offsetof(struct cuda_host, name_), #name_},

static void case_bind(void *handle)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_CUDA_FUNCTIONS(CASE_BIND) CUDA_HOST_FUNCTIONS(CASE_BIND)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(handle, rows[i].name);
        assert_non_null(function);
        memcpy((char *)&the_case.cuda + rows[i].offset, &function, sizeof function);
    }
}

struct device_case *device_case(void)
{
    if (the_case.sim != NULL) {
        return &the_case;
    }
    case_file("libcuda.so.1", the_case.library, sizeof the_case.library);
    case_file("libcuda_short.so.1", the_case.shortened, sizeof the_case.shortened);
    void *handle = dlopen(the_case.library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fail_msg("%s", dlerror());
    }
    case_bind(handle);
    void *function = dlsym(handle, SIM_CUDA_CONTROL);
    sim_cuda_control_fn control;
    assert_non_null(function);
    memcpy(&control, &function, sizeof control);
    the_case.sim = control();
    assert_int_equal(the_case.cuda.cuInit(0), 0);
    assert_int_equal(the_case.cuda.cuDevicePrimaryCtxRetain(&the_case.context, 0), 0);
    assert_int_equal(the_case.cuda.cuCtxSetCurrent(the_case.context), 0);
    return &the_case;
}

int device_case_end(void **state)
{
    char text[256] = "";
    (void)state;
    if (the_case.sim == NULL) {
        return 0;
    }
    (void)the_case.cuda.cuCtxSetCurrent(NULL);
    (void)the_case.cuda.cuDevicePrimaryCtxRelease_v2(0);
    if (the_case.sim->leaks(text, sizeof text) != 0) {
        print_error("not given back: %s\n", text);
        return -1;
    }
    return 0;
}

struct convoy_device *device_case_open(uint32_t tickets)
{
    const struct convoy_cuda_options options = {.library = device_case()->library, .ordinal = 0, .tickets = tickets};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    if (convoy_cuda_open(&options, &device, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return device;
}

void device_case_close(struct convoy_device *device)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_device_close(device, DEVICE_CASE_DEADLINE, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
}

void *device_case_alloc(size_t bytes)
{
    cuda_address address = 0;
    assert_int_equal(device_case()->cuda.cuMemAlloc_v2(&address, bytes), 0);
    return (void *)(uintptr_t)address;
}

/* The host's own fills may still be under way. */
void device_case_free(void *memory)
{
    device_case_run_all();
    assert_int_equal(the_case.cuda.cuMemFree_v2((cuda_address)(uintptr_t)memory), 0);
}

cuda_stream device_case_stream(void)
{
    cuda_stream stream = NULL;
    assert_int_equal(device_case()->cuda.cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING), 0);
    return stream;
}

cuda_event device_case_event(void)
{
    cuda_event event = NULL;
    assert_int_equal(device_case()->cuda.cuEventCreate(&event, CUDA_EVENT_NO_TIMING), 0);
    return event;
}

void device_case_fill(void *memory, uint32_t value, size_t bytes, cuda_stream stream)
{
    assert_int_equal(the_case.cuda.cuMemsetD32Async((cuda_address)(uintptr_t)memory, value, bytes / 4, stream), 0);
}

void device_case_run_all(void)
{
    while (the_case.sim->step() != 0) {
    }
}

void device_case_expect_words(const void *memory, uint32_t value, size_t bytes)
{
    const uint32_t *words = memory;
    for (size_t i = 0; i < bytes / 4; i++) {
        if (words[i] != value) {
            fail_msg("word %zu is 0x%x, expected was 0x%x", i, words[i], value);
        }
    }
}

void device_case_expect_device(const void *memory, uint32_t value, size_t bytes)
{
    uint32_t *words = malloc(bytes);
    the_case.sim->peek(memory, words, bytes);
    device_case_expect_words(words, value, bytes);
    free(words);
}

void device_case_expect_error(int32_t status, int32_t wanted, const struct convoy_error *error, const char *text)
{
    if (status != wanted || error->status != wanted || strstr(error->text, text) == NULL) {
        fail_msg("status %d (error %d), expected %d with \"%s\": %s", status, error->status, wanted, text, error->text);
    }
}
