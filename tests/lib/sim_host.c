/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sim_host.h"

#include "tests/lib/await.h"
#include "tests/lib/expect.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_host the_host;
static char settings[700];

#define HOST_BIND(name_, parameters_) {offsetof(struct cuda_host, name_), #name_},

static void host_bind(void *handle)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_CUDA_FUNCTIONS(HOST_BIND) CUDA_HOST_FUNCTIONS(HOST_BIND)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(handle, rows[i].name);
        EXPECT(function != NULL);
        memcpy((char *)&the_host.cuda + rows[i].offset, &function, sizeof function);
    }
}

struct sim_host *sim_host_open(void)
{
    char own[512];
    sim_cuda_control_fn control;
    if (the_host.sim != NULL) {
        return &the_host;
    }
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    EXPECT(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(the_host.library, sizeof the_host.library, "%s/../lib/libcuda.so.1", own);
    void *handle = dlopen(the_host.library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        expect_fail(EXPECT_SITE("dlopen"), "%s", dlerror());
    }
    host_bind(handle);
    void *function = dlsym(handle, SIM_CUDA_CONTROL);
    EXPECT(function != NULL);
    memcpy(&control, &function, sizeof control);
    the_host.sim = control();
    EXPECT_EQUAL(the_host.cuda.cuInit(0), 0);
    EXPECT_EQUAL(the_host.cuda.cuDevicePrimaryCtxRetain(&the_host.context, 0), 0);
    EXPECT_EQUAL(the_host.cuda.cuCtxSetCurrent(the_host.context), 0);
    EXPECT_EQUAL(the_host.cuda.cuStreamCreate(&the_host.stream, CUDA_STREAM_NON_BLOCKING), 0);
    (void)snprintf(settings, sizeof settings, "{\"cuda_library\": \"%s\"%s}", the_host.library,
                   engine_settings != NULL ? ", \"net\": \"ucx\"" : "");
    engine_settings = settings;
    return &the_host;
}

void sim_host_close(void)
{
    char text[256] = "";
    sim_host_run_all();
    EXPECT_EQUAL(the_host.cuda.cuStreamDestroy_v2(the_host.stream), 0);
    EXPECT_EQUAL(the_host.cuda.cuCtxSetCurrent(NULL), 0);
    EXPECT_EQUAL(the_host.cuda.cuDevicePrimaryCtxRelease_v2(0), 0);
    if (the_host.sim->leaks(text, sizeof text) != 0) {
        expect_fail(EXPECT_SITE("leaks"), "%s", text);
    }
    the_host.sim = NULL;
}

struct engine *sim_host_engine(const struct convoy_transfer_options *options)
{
    struct convoy_transfer_options own = {
        .struct_size = sizeof own, .pool_bytes = 64u << 20, .pool_block_bytes = 4096};
    own = options != NULL ? *options : own;
    own.device = CONVOY_DEVICE_CUDA;
    return engine_create(&own);
}

uint8_t *sim_host_alloc(size_t bytes)
{
    cuda_address address = 0;
    EXPECT_EQUAL(the_host.cuda.cuMemAlloc_v2(&address, bytes != 0 ? bytes : 1), 0);
    return (uint8_t *)(uintptr_t)address;
}

void sim_host_free(void *memory)
{
    EXPECT_EQUAL(the_host.cuda.cuMemFree_v2((cuda_address)(uintptr_t)memory), 0);
}

cuda_event sim_host_event(void)
{
    cuda_event event = NULL;
    EXPECT_EQUAL(the_host.cuda.cuEventCreate(&event, CUDA_EVENT_NO_TIMING), 0);
    return event;
}

void sim_host_fill(uint8_t *memory, size_t bytes, uint32_t seed)
{
    if (bytes == 0) {
        return;
    }
    uint8_t *copy = malloc(bytes);
    EXPECT(copy != NULL);
    engine_fill(copy, bytes, seed);
    the_host.sim->poke(memory, copy, bytes);
    free(copy);
}

bool sim_host_is_filled(const uint8_t *memory, size_t bytes, uint32_t seed)
{
    if (bytes == 0) {
        return true;
    }
    uint8_t *copy = malloc(bytes);
    EXPECT(copy != NULL);
    the_host.sim->peek(memory, copy, bytes);
    bool is_filled = engine_is_filled(copy, bytes, seed);
    free(copy);
    return is_filled;
}

void sim_host_run_all(void)
{
    while (the_host.sim->step() != 0) {
    }
}

void sim_host_await_empty(struct engine *engine)
{
    AWAIT((sim_host_run_all(), engine_figures(engine).taken == 0));
}
