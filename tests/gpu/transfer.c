/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers between two engines of this process on a real GPU, through the plugin: out of device memory and into it, bit for
 * bit, with shared pools and with pools of device memory. Usage: transfer LIBRARY. Built and run by tests/gpu/run.sh behind
 * check.c, which has found a GPU.
 */
#include "convoy/transfer.h"
#include "tests/lib/cuda_host.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POOL_BYTES ((size_t)256 << 20)
#define LARGEST ((size_t)64 << 20)
#define TIMEOUT_NS UINT64_C(20000000000)
#define REPEATS 11u

struct check {
    struct cuda_host cuda;
    const struct convoy_core_table *core;
    const struct convoy_transfer_table *table;
    cuda_context cuda_context;
    cuda_stream stream;
    cuda_event event;
    convoy_context *context;
    convoy_transfer_engine *engines[2];
    convoy_peer peer;
    uint8_t *source;
    uint8_t *target;
    uint8_t *pools[2];
    uint8_t *here; /* what is sent, and room for what came */
};

static struct check check;
static struct convoy_error error = {.struct_size = sizeof error};

static void failed(const char *what, int line, const char *detail)
{
    (void)printf("failed: %s (line %d)%s%s\n", what, line, detail[0] != '\0' ? ": " : "", detail);
    exit(1);
}

#define EXPECT(condition) ((condition) ? (void)0 : failed(#condition, __LINE__, ""))
#define OK(call) ((call) == CONVOY_OK ? (void)0 : failed(#call, __LINE__, error.text))

/* -- the host's side ----------------------------------------------------------------------------------------------- */

#define BIND(name_, parameters_) {offsetof(struct cuda_host, name_), #name_},

static void bind_driver(void)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_CUDA_FUNCTIONS(BIND) CUDA_HOST_FUNCTIONS(BIND)};
    const char *library = getenv("CONVOY_TEST_CUDA");
    void *handle = dlopen(library != NULL ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT(handle != NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(handle, rows[i].name);
        if (function == NULL) {
            failed("the driver lacks a function", __LINE__, rows[i].name);
        }
        memcpy((char *)&check.cuda + rows[i].offset, &function, sizeof function);
    }
}

static void bind_plugin(const char *path)
{
    const struct convoy_family_request families[2] = {{.name = "core", .name_length = 4, .major_min = 1, .major_max = 1},
                                                      {.name = "transfer", .name_length = 8, .major_min = 1, .major_max = 1}};
    struct convoy_family_answer answers[2] = {{0}, {0}};
    const struct convoy_host_info host = {
        .struct_size = sizeof host, .families = families, .family_stride = sizeof families[0], .family_count = 2};
    struct convoy_plugin_info info = {
        .struct_size = sizeof info, .answers = answers, .answer_stride = sizeof answers[0], .answer_capacity = 2};
    convoy_query_fn query;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        failed("dlopen", __LINE__, dlerror());
    }
    void *symbol = dlsym(library, CONVOY_QUERY_SYMBOL);
    EXPECT(symbol != NULL);
    memcpy(&query, &symbol, sizeof symbol);
    OK(query(&host, &info, &error));
    EXPECT(answers[0].table != NULL && answers[1].table != NULL);
    check.core = (const struct convoy_core_table *)(const void *)answers[0].table;
    check.table = (const struct convoy_transfer_table *)(const void *)answers[1].table;
}

static uint8_t *device_memory(size_t bytes)
{
    cuda_address address = 0;
    EXPECT(check.cuda.cuMemAlloc_v2(&address, bytes) == 0);
    return (uint8_t *)(uintptr_t)address;
}

static void device_free(uint8_t *memory)
{
    EXPECT(check.cuda.cuMemFree_v2((cuda_address)(uintptr_t)memory) == 0);
}

static void scene_open(const char *library)
{
    struct convoy_context_config config = {.struct_size = sizeof config, .secret = "s", .secret_bytes = 1};
    bind_driver();
    bind_plugin(library);
    EXPECT(check.cuda.cuInit(0) == 0);
    EXPECT(check.cuda.cuDevicePrimaryCtxRetain(&check.cuda_context, 0) == 0);
    EXPECT(check.cuda.cuCtxSetCurrent(check.cuda_context) == 0);
    EXPECT(check.cuda.cuStreamCreate(&check.stream, CUDA_STREAM_NON_BLOCKING) == 0);
    EXPECT(check.cuda.cuEventCreate(&check.event, CUDA_EVENT_NO_TIMING) == 0);
    check.source = device_memory(LARGEST);
    check.target = device_memory(LARGEST);
    check.pools[0] = device_memory(POOL_BYTES);
    check.pools[1] = device_memory(POOL_BYTES);
    check.here = malloc(2 * LARGEST);
    EXPECT(check.here != NULL);
    OK(check.core->context_open(&config, &check.context, &error));
}

static void scene_close(void)
{
    OK(check.core->context_close(check.context, TIMEOUT_NS, &error));
    device_free(check.source);
    device_free(check.target);
    device_free(check.pools[0]);
    device_free(check.pools[1]);
    EXPECT(check.cuda.cuStreamDestroy_v2(check.stream) == 0);
    EXPECT(check.cuda.cuEventDestroy_v2(check.event) == 0);
    EXPECT(check.cuda.cuCtxSetCurrent(NULL) == 0);
    EXPECT(check.cuda.cuDevicePrimaryCtxRelease_v2(0) == 0);
    free(check.here);
}

static void engines_open(bool has_pools)
{
    for (int i = 0; i < 2; i++) {
        const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                        .pool_kind = has_pools ? CONVOY_MEMORY_DEVICE : CONVOY_MEMORY_SHARED,
                                                        .pool_memory = has_pools ? check.pools[i] : NULL,
                                                        .pool_bytes = POOL_BYTES,
                                                        .device = CONVOY_DEVICE_CUDA};
        OK(check.table->engine_open(check.context, &options, &check.engines[i], &error));
    }
    struct convoy_engine_info info = {.struct_size = sizeof info};
    OK(check.table->engine_info(check.engines[1], &info, &error));
    OK(check.table->peer_connect(check.engines[0], info.session, strlen(info.session), TIMEOUT_NS, &check.peer, &error));
}

static void engines_close(void)
{
    OK(check.table->engine_close(check.engines[0], TIMEOUT_NS, &error));
    OK(check.table->engine_close(check.engines[1], TIMEOUT_NS, &error));
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One from end to end; returns how long it took. The bytes are written by the stream's own work, right before. */
static uint64_t move(uint64_t bytes, bool has_pools, uint32_t flags)
{
    const struct convoy_tensor_source tensor = {
        .name = "data", .name_length = 4, .dtype = "uint8", .dtype_length = 5, .data = check.source, .shape = &bytes, .rank = 1};
    const struct convoy_stage stage = {.struct_size = sizeof stage,
                                       .critical_flags = flags,
                                       .request = "gpu",
                                       .request_length = 3,
                                       .tensors = &tensor,
                                       .tensor_stride = sizeof tensor,
                                       .tensor_count = 1,
                                       .stream = check.stream,
                                       .event = check.event,
                                       .timeout_ns = TIMEOUT_NS};
    const struct convoy_send send = {.struct_size = sizeof send, .peer = check.peer, .timeout_ns = TIMEOUT_NS};
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .destination = has_pools ? NULL : check.target,
                                     .destination_bytes = LARGEST,
                                     .stream = check.stream,
                                     .timeout_ns = TIMEOUT_NS};
    struct convoy_tensor_view view;
    struct convoy_payload payload = {
        .struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view, .tensor_capacity = 1};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    uint64_t begun_ns = now_ns();
    OK(check.table->send_start(check.engines[0], &stage, &send, &sent, &error));
    OK(check.table->accept_start(check.engines[1], &load, &loaded, &error));
    OK(check.table->transfer_wait(check.engines[0], sent, TIMEOUT_NS, NULL, &error));
    OK(check.table->transfer_wait(check.engines[1], loaded, TIMEOUT_NS, NULL, &error));
    uint64_t took_ns = now_ns() - begun_ns;
    EXPECT(check.cuda.cuEventQuery(check.event) == 0);
    OK(check.table->payload(check.engines[1], loaded, &payload, &error));
    EXPECT(has_pools || view.data == check.target);
    EXPECT(check.cuda.cuMemcpyDtoH_v2(check.here + LARGEST, (cuda_address)(uintptr_t)view.data, bytes) == 0);
    OK(check.table->release(check.engines[0], sent, &error));
    OK(check.table->release(check.engines[1], loaded, &error));
    return took_ns;
}

static void check_bits(bool has_pools)
{
    static const uint64_t sizes[] = {1, 511, 4096, 65537, ((uint64_t)1 << 20) + 1, (uint64_t)16 << 20, (uint64_t)64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t flags = 0; flags <= CONVOY_STAGE_CHECKSUM; flags++) {
            for (uint64_t at = 0; at < sizes[i]; at++) {
                check.here[at] = (uint8_t)(at * 131 + at / 4096 + i + flags);
            }
            EXPECT(check.cuda.cuMemcpyHtoD_v2((cuda_address)(uintptr_t)check.source, check.here, sizes[i]) == 0);
            (void)move(sizes[i], has_pools, flags);
            EXPECT(memcmp(check.here, check.here + LARGEST, sizes[i]) == 0);
        }
    }
}

/* The stream is busy with filling when the stage is started; what arrives is the last that it has written. */
static void check_behind(bool has_pools)
{
    for (uint32_t round = 1; round <= 10; round++) {
        for (uint32_t i = 0; i < 64; i++) {
            EXPECT(check.cuda.cuMemsetD32Async((cuda_address)(uintptr_t)check.source, i == 63 ? round : ~round, LARGEST / 4,
                                               check.stream) == 0);
        }
        (void)move(LARGEST, has_pools, 0);
        const uint32_t *words = (const uint32_t *)(const void *)(check.here + LARGEST);
        for (size_t i = 0; i < LARGEST / 4; i++) {
            EXPECT(words[i] == round);
        }
    }
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void check_kind(bool has_pools)
{
    double rates[REPEATS];
    engines_open(has_pools);
    check_bits(has_pools);
    check_behind(has_pools);
    for (uint32_t i = 0; i < REPEATS; i++) {
        rates[i] = (double)LARGEST / (double)move(LARGEST, has_pools, 0);
    }
    qsort(rates, REPEATS, sizeof rates[0], compare);
    engines_close();
    (void)printf("transfers with %s: ok, %.1f GB/s from device to device (median of %u of %zu MiB)\n",
                 has_pools ? "pools of device memory" : "shared pools", rates[REPEATS / 2], REPEATS, LARGEST >> 20);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    scene_open(argv[1]);
    check_kind(false);
    check_kind(true);
    scene_close();
    (void)printf("all transfers ok\n");
    return 0;
}
