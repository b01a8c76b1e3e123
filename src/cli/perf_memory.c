/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_memory.h"

#include "convoy/transfer.h"
#include "core/error.h"
#include "core/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_ALIGNMENT 4096u

/* The driver's functions, with the names under which it exports them; 0 is success. */
struct convoy_perf_cuda {
    int (*init)(unsigned int flags);
    int (*device_get)(int *device, int ordinal);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*allocate)(uint64_t *pointer, size_t bytes);
    int (*release)(uint64_t pointer);
    int (*to_device)(uint64_t target, const void *source, size_t bytes);
    int (*to_host)(void *target, uint64_t source, size_t bytes);
};

static const struct {
    const char *name;
    size_t offset; /* in struct convoy_perf_cuda */
} cuda_functions[] = {
    {"cuInit", offsetof(struct convoy_perf_cuda, init)},
    {"cuDeviceGet", offsetof(struct convoy_perf_cuda, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct convoy_perf_cuda, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct convoy_perf_cuda, context_release)},
    {"cuCtxSetCurrent", offsetof(struct convoy_perf_cuda, context_set)},
    {"cuMemAlloc_v2", offsetof(struct convoy_perf_cuda, allocate)},
    {"cuMemFree_v2", offsetof(struct convoy_perf_cuda, release)},
    {"cuMemcpyHtoD_v2", offsetof(struct convoy_perf_cuda, to_device)},
    {"cuMemcpyDtoH_v2", offsetof(struct convoy_perf_cuda, to_host)},
};

static int32_t cuda_bind(struct convoy_perf_memory *memory, struct convoy_error *error)
{
    const char *file = getenv("CONVOY_CUDA_LIBRARY"); /* as the library's setting cuda_library */
    file = file != NULL && file[0] != '\0' ? file : "libcuda.so.1";
    memory->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (memory->library == NULL) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "--mem is cuda, and there is no CUDA driver here: %.150s",
                                dlerror());
    }
    memory->cuda = convoy_memory_zalloc(sizeof *memory->cuda);
    if (memory->cuda == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the driver's functions");
    }
    for (size_t i = 0; i < sizeof cuda_functions / sizeof cuda_functions[0]; i++) {
        void *symbol = dlsym(memory->library, cuda_functions[i].name);
        if (symbol == NULL) {
            return convoy_error_set(error, CONVOY_UNSUPPORTED, "--mem is cuda, and %.150s has no %s", file,
                                    cuda_functions[i].name);
        }
        /* ISO C has no cast from an object to a function pointer */
        memcpy((char *)memory->cuda + cuda_functions[i].offset, &symbol, sizeof symbol);
    }
    return CONVOY_OK;
}

static int32_t cuda_check(int code, const char *what, struct convoy_error *error)
{
    return code == 0 ? CONVOY_OK
                     : convoy_error_set(error, CONVOY_UNSUPPORTED, "--mem is cuda, and %s answered %d", what, code);
}

static int32_t cuda_allocate(struct convoy_perf_memory *memory, uint64_t bytes, void **pointer_out,
                             struct convoy_error *error)
{
    uint64_t pointer = 0;
    int32_t status = cuda_check(memory->cuda->allocate(&pointer, bytes != 0 ? bytes : 1), "cuMemAlloc", error);
    *pointer_out = (void *)(uintptr_t)pointer;
    return status;
}

static int32_t cuda_open(struct convoy_perf_memory *memory, uint64_t pool_bytes, struct convoy_error *error)
{
    void *context = NULL;
    int32_t status = cuda_bind(memory, error);
    if (status == CONVOY_OK) {
        status = cuda_check(memory->cuda->init(0), "cuInit", error);
    }
    if (status == CONVOY_OK) {
        status = cuda_check(memory->cuda->device_get(&memory->device, 0), "cuDeviceGet", error);
    }
    if (status == CONVOY_OK) {
        status = cuda_check(memory->cuda->context_retain(&context, memory->device), "cuDevicePrimaryCtxRetain", error);
        memory->is_retained = status == CONVOY_OK;
    }
    if (status == CONVOY_OK) {
        status = cuda_check(memory->cuda->context_set(context), "cuCtxSetCurrent", error);
    }
    return status == CONVOY_OK ? cuda_allocate(memory, pool_bytes, &memory->pool, error) : status;
}

int32_t convoy_perf_memory_open(struct convoy_perf_memory *memory, uint32_t kind, uint64_t pool_bytes,
                                struct convoy_error *error)
{
    *memory = (struct convoy_perf_memory){.kind = kind};
    if (kind == CONVOY_MEMORY_DEVICE) {
        return cuda_open(memory, pool_bytes, error);
    }
    if (kind == CONVOY_MEMORY_HOST) {
        memory->pool = convoy_memory_aligned(MEMORY_ALIGNMENT, pool_bytes);
        if (memory->pool == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a pool of %llu bytes",
                                    (unsigned long long)pool_bytes);
        }
    }
    return CONVOY_OK;
}

void convoy_perf_memory_close(struct convoy_perf_memory *memory)
{
    if (memory->kind == CONVOY_MEMORY_HOST) {
        convoy_memory_free(memory->pool);
    }
    if (memory->pool != NULL && memory->kind == CONVOY_MEMORY_DEVICE) {
        (void)memory->cuda->release((uint64_t)(uintptr_t)memory->pool);
    }
    if (memory->source != NULL) {
        (void)memory->cuda->release((uint64_t)(uintptr_t)memory->source);
    }
    if (memory->is_retained) {
        (void)memory->cuda->context_set(NULL);
        (void)memory->cuda->context_release(memory->device);
    }
    convoy_memory_free(memory->cuda); /* the driver itself stays mapped: it does not unload well */
    *memory = (struct convoy_perf_memory){0};
}

int32_t convoy_perf_memory_source(struct convoy_perf_memory *memory, const uint8_t *bytes, uint64_t count,
                                  const uint8_t **source_out, struct convoy_error *error)
{
    if (memory->kind != CONVOY_MEMORY_DEVICE) {
        *source_out = bytes;
        return CONVOY_OK;
    }
    int32_t status = cuda_allocate(memory, count, &memory->source, error);
    if (status == CONVOY_OK && count != 0) {
        status = cuda_check(memory->cuda->to_device((uint64_t)(uintptr_t)memory->source, bytes, count), "cuMemcpyHtoD",
                            error);
    }
    *source_out = memory->source;
    return status;
}

bool convoy_perf_memory_equals(const struct convoy_perf_memory *memory, const void *data, const uint8_t *bytes,
                               uint64_t count)
{
    if (count == 0 || memory->kind != CONVOY_MEMORY_DEVICE) {
        return count == 0 || memcmp(data, bytes, count) == 0;
    }
    uint8_t *copy = convoy_memory_zalloc(count);
    bool is_equal = copy != NULL && memory->cuda->to_host(copy, (uint64_t)(uintptr_t)data, count) == 0 &&
                    memcmp(copy, bytes, count) == 0;
    convoy_memory_free(copy);
    return is_equal;
}
