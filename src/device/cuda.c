/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda.h"

#include "core/error.h"
#include "core/memory.h"
#include "device/cuda_library.h"
#include "device/streamed.h"

#include <signal.h>

struct cuda {
    struct convoy_cuda_library library;
    cuda_context context;
    cuda_device device;
    bool is_retained; /* context is the primary one, and counted */
};

/* -- the driver ---------------------------------------------------------------------------------------------------- */

static const struct convoy_cuda_functions *functions_of(const void *self)
{
    return &((const struct cuda *)self)->library.functions;
}

static int32_t cuda_enter(void *self)
{
    return functions_of(self)->cuCtxPushCurrent_v2(((struct cuda *)self)->context);
}

static void cuda_leave(void *self)
{
    cuda_context popped;
    (void)functions_of(self)->cuCtxPopCurrent_v2(&popped);
}

/* An address that the driver has never heard of is no error: its type is 0. */
static int32_t cuda_query(void *self, const void *address, struct convoy_memory_info *info_out)
{
    unsigned type = 0;
    unsigned is_managed = 0;
    int ordinal = -1;
    int attributes[] = {CUDA_POINTER_MEMORY_TYPE, CUDA_POINTER_IS_MANAGED, CUDA_POINTER_DEVICE_ORDINAL};
    void *values[] = {&type, &is_managed, &ordinal};
    cuda_result result = functions_of(self)->cuPointerGetAttributes(3, attributes, values, (cuda_address)(uintptr_t)address);
    if (result != CUDA_OK) {
        return result;
    }
    uint32_t kind = CONVOY_MEMORY_HOST;
    if (is_managed != 0) {
        kind = CONVOY_MEMORY_MANAGED;
    } else if (type == CUDA_MEMORY_DEVICE) {
        kind = CONVOY_MEMORY_DEVICE;
    } else if (type == CUDA_MEMORY_HOST) {
        kind = CONVOY_MEMORY_PINNED;
    }
    info_out->kind = kind;
    info_out->device = kind == CONVOY_MEMORY_HOST ? -1 : ordinal;
    return CUDA_OK;
}

static int32_t cuda_copy(void *self, const struct convoy_copy_piece *piece, uint32_t direction, void *stream)
{
    const struct convoy_cuda_functions *functions = functions_of(self);
    cuda_address to = (cuda_address)(uintptr_t)piece->to;
    cuda_address from = (cuda_address)(uintptr_t)piece->from;
    size_t bytes = (size_t)piece->bytes;
    switch (direction) {
    case CONVOY_COPY_TO_DEVICE:
        return functions->cuMemcpyHtoDAsync_v2(to, piece->from, bytes, stream);
    case CONVOY_COPY_FROM_DEVICE:
        return functions->cuMemcpyDtoHAsync_v2(piece->to, from, bytes, stream);
    case CONVOY_COPY_ON_DEVICE:
        return functions->cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
    default:
        return functions->cuMemcpyAsync(to, from, bytes, stream);
    }
}

static int32_t cuda_event_create(void *self, void **event_out)
{
    cuda_event event = NULL;
    cuda_result result = functions_of(self)->cuEventCreate(&event, CUDA_EVENT_NO_TIMING);
    *event_out = event;
    return result;
}

static void cuda_event_destroy(void *self, void *event)
{
    (void)functions_of(self)->cuEventDestroy_v2(event);
}

static int32_t cuda_event_record(void *self, void *event, void *stream)
{
    return functions_of(self)->cuEventRecord(event, stream);
}

static int32_t cuda_answer(cuda_result result)
{
    return result == CUDA_NOT_READY ? CONVOY_DRIVER_NOT_YET : result;
}

static int32_t cuda_event_query(void *self, void *event)
{
    return cuda_answer(functions_of(self)->cuEventQuery(event));
}

static int32_t cuda_stream_wait(void *self, void *stream, void *event)
{
    return functions_of(self)->cuStreamWaitEvent(stream, event, 0);
}

static int32_t cuda_stream_query(void *self, void *stream)
{
    return cuda_answer(functions_of(self)->cuStreamQuery(stream));
}

/* The host may have pinned the range itself, whole; a part of it is not enough. */
static int32_t cuda_pin(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out)
{
    unsigned cuda_flags = CUDA_REGISTER_PORTABLE | ((flags & CONVOY_REGISTER_READ_ONLY) != 0 ? CUDA_REGISTER_READ_ONLY : 0u);
    cuda_result result = functions_of(self)->cuMemHostRegister_v2(address, (size_t)bytes, cuda_flags);
    if (result != CUDA_ALREADY_REGISTERED) {
        return result;
    }
    struct convoy_memory_info first = {.kind = CONVOY_MEMORY_HOST};
    struct convoy_memory_info last = {.kind = CONVOY_MEMORY_HOST};
    (void)cuda_query(self, address, &first);
    (void)cuda_query(self, (const uint8_t *)address + (bytes - 1), &last);
    *foreign_out = first.kind == CONVOY_MEMORY_PINNED && last.kind == CONVOY_MEMORY_PINNED;
    return *foreign_out ? CUDA_OK : result;
}

static int32_t cuda_unpin(void *self, void *address)
{
    return functions_of(self)->cuMemHostUnregister(address);
}

static bool cuda_is_unsupported(int32_t number)
{
    return number == CUDA_NOT_SUPPORTED;
}

static bool cuda_is_out_of_memory(int32_t number)
{
    return number == CUDA_OUT_OF_MEMORY;
}

static void cuda_explain(void *self, int32_t number, char text_out[CONVOY_DRIVER_TEXT_BYTES])
{
    convoy_cuda_explain(functions_of(self), number, text_out, CONVOY_DRIVER_TEXT_BYTES);
}

static void cuda_destroy(void *self)
{
    struct cuda *cuda = self;
    if (cuda->is_retained) {
        (void)functions_of(cuda)->cuDevicePrimaryCtxRelease_v2(cuda->device);
    }
    convoy_memory_free(cuda);
}

static const struct convoy_driver cuda_driver = {
    .enter = cuda_enter,
    .leave = cuda_leave,
    .query = cuda_query,
    .copy = cuda_copy,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .stream_wait = cuda_stream_wait,
    .stream_query = cuda_stream_query,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .is_unsupported = cuda_is_unsupported,
    .is_out_of_memory = cuda_is_out_of_memory,
    .explain = cuda_explain,
    .destroy = cuda_destroy,
};

/* -- the context --------------------------------------------------------------------------------------------------- */

static int32_t cuda_failed(const struct cuda *cuda, const char *what, cuda_result result, struct convoy_error *error)
{
    char text[CONVOY_DRIVER_TEXT_BYTES];
    convoy_cuda_explain(functions_of(cuda), result, text, sizeof text);
    return convoy_error_set(error, result == CUDA_OUT_OF_MEMORY ? CONVOY_NO_MEMORY : CONVOY_SYSTEM, "device cuda: %s: %s",
                            what, text);
}

/* The device that a context belongs to: only the current one can be asked. */
static int32_t cuda_find_device(struct cuda *cuda, int32_t ordinal, cuda_context *current_out, struct convoy_error *error)
{
    int count = 0;
    *current_out = NULL;
    cuda_result result = ordinal == CONVOY_CUDA_ANY ? functions_of(cuda)->cuCtxGetCurrent(current_out) : CUDA_OK;
    if (result == CUDA_OK && *current_out != NULL) {
        result = functions_of(cuda)->cuCtxGetDevice(&cuda->device);
        return result == CUDA_OK ? CONVOY_OK : cuda_failed(cuda, "asking for the current device", result, error);
    }
    if (result == CUDA_OK) {
        result = functions_of(cuda)->cuDeviceGetCount(&count);
    }
    int wanted = ordinal == CONVOY_CUDA_ANY ? 0 : ordinal;
    if (result == CUDA_OK && (wanted < 0 || wanted >= count)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device cuda: ordinal %d, allowed are -1 to %d", ordinal,
                                count - 1);
    }
    if (result == CUDA_OK) {
        result = functions_of(cuda)->cuDeviceGet(&cuda->device, wanted);
    }
    return result == CUDA_OK ? CONVOY_OK : cuda_failed(cuda, "looking for the device", result, error);
}

/* Threads of the driver that come with a context take no signal of the host's. */
static cuda_result primary_retain(struct cuda *cuda, cuda_context *primary_out)
{
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    cuda_result result = functions_of(cuda)->cuDevicePrimaryCtxRetain(primary_out, cuda->device);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return result;
}

/* A primary context that is not there yet is not the current one, and is not made only to find that out. */
static cuda_result primary_compare(struct cuda *cuda, cuda_context current, bool *is_primary_out)
{
    unsigned flags = 0;
    int is_active = 0;
    cuda_context primary = NULL;
    cuda_result result = functions_of(cuda)->cuDevicePrimaryCtxGetState(cuda->device, &flags, &is_active);
    *is_primary_out = false;
    if (result != CUDA_OK || is_active == 0) {
        return result;
    }
    result = primary_retain(cuda, &primary);
    if (result == CUDA_OK && primary != current) {
        result = functions_of(cuda)->cuDevicePrimaryCtxRelease_v2(cuda->device);
    } else if (result == CUDA_OK) {
        *is_primary_out = true; /* and stays retained */
    }
    return result;
}

static int32_t cuda_find_context(struct cuda *cuda, int32_t ordinal, struct convoy_error *error)
{
    cuda_context current = NULL;
    int32_t status = cuda_find_device(cuda, ordinal, &current, error);
    if (status != CONVOY_OK) {
        return status;
    }
    cuda_result result;
    cuda->context = current;
    if (current != NULL) {
        result = primary_compare(cuda, current, &cuda->is_retained);
    } else {
        result = primary_retain(cuda, &cuda->context);
        cuda->is_retained = result == CUDA_OK;
    }
    return result == CUDA_OK ? CONVOY_OK : cuda_failed(cuda, "retaining the primary context", result, error);
}

int32_t convoy_cuda_open(const struct convoy_cuda_options *options, struct convoy_device **device_out,
                         struct convoy_error *error)
{
    struct cuda *cuda = convoy_memory_zalloc(sizeof *cuda);
    if (cuda == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "device cuda: no memory for %zu bytes", sizeof *cuda);
    }
    int32_t status = convoy_cuda_library_open(options->library != NULL ? options->library : "", &cuda->library, error);
    if (status == CONVOY_OK) {
        status = cuda_find_context(cuda, options->ordinal, error);
    }
    if (status != CONVOY_OK) {
        convoy_memory_free(cuda);
        return status;
    }
    const struct convoy_streamed_options streamed = {.driver = &cuda_driver, .self = cuda, .name = "cuda",
                                                     .tickets = options->tickets, .needs_pinned = true, .can_pin = true};
    status = convoy_streamed_make(&streamed, device_out, error);
    if (status != CONVOY_OK) {
        cuda_destroy(cuda);
    }
    return status;
}
