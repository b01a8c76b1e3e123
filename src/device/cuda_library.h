/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as a file: opened with dlopen when the first CUDA device is, never closed, its functions collected. No
 * header of CUDA is needed: the driver's binary interface is written down here, as far as it is used. Functions carry the
 * names under which the driver exports them; a suffix _v2 is part of the name.
 */
#ifndef CONVOY_DEVICE_CUDA_LIBRARY_H
#define CONVOY_DEVICE_CUDA_LIBRARY_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_CUDA_LIBRARY_NAME "libcuda.so.1"
#define CONVOY_CUDA_FILE_BYTES 256
#define CONVOY_CUDA_VERSION_MIN 11000 /* 11.0: 1000 x major + 10 x minor */

/* Results that are told apart; all others are errors. */
enum {
    CUDA_OK = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_READY = 600,
    CUDA_ALREADY_REGISTERED = 712,
    CUDA_NOT_SUPPORTED = 801,
};

enum {
    CUDA_POINTER_MEMORY_TYPE = 2, /* attributes of an address */
    CUDA_POINTER_IS_MANAGED = 8,
    CUDA_POINTER_DEVICE_ORDINAL = 9,

    CUDA_MEMORY_HOST = 1, /* values of MEMORY_TYPE; 0 = unknown to the driver */
    CUDA_MEMORY_DEVICE = 2,

    CUDA_REGISTER_PORTABLE = 1, /* valid in all contexts */
    CUDA_REGISTER_READ_ONLY = 8,

    CUDA_EVENT_NO_TIMING = 2,
};

typedef int cuda_result;
typedef int cuda_device;
typedef uint64_t cuda_address; /* of device memory */
typedef struct cuda_context_handle *cuda_context;
typedef struct cuda_stream_handle *cuda_stream;
typedef struct cuda_event_handle *cuda_event;

/* X(name, parameters) */
#define CONVOY_CUDA_FUNCTIONS(X)                                                                                       \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, (int *version))                                                                              \
    X(cuGetErrorName, (cuda_result result, const char **text))                                                         \
    X(cuGetErrorString, (cuda_result result, const char **text))                                                       \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (cuda_device *device, int ordinal))                                                                 \
    X(cuDeviceGetName, (char *name, int length, cuda_device device))                                                   \
    X(cuDevicePrimaryCtxGetState, (cuda_device device, unsigned *flags, int *active))                                  \
    X(cuDevicePrimaryCtxRetain, (cuda_context *context, cuda_device device))                                           \
    X(cuDevicePrimaryCtxRelease_v2, (cuda_device device))                                                              \
    X(cuCtxGetCurrent, (cuda_context *context))                                                                        \
    X(cuCtxGetDevice, (cuda_device *device))                                                                           \
    X(cuCtxPushCurrent_v2, (cuda_context context))                                                                     \
    X(cuCtxPopCurrent_v2, (cuda_context *context))                                                                     \
    X(cuPointerGetAttributes, (unsigned count, int *attributes, void **values, cuda_address address))                  \
    X(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))                                             \
    X(cuMemHostUnregister, (void *address))                                                                            \
    X(cuMemcpyAsync, (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream))                           \
    X(cuMemcpyHtoDAsync_v2, (cuda_address to, const void *from, size_t bytes, cuda_stream stream))                     \
    X(cuMemcpyDtoHAsync_v2, (void *to, cuda_address from, size_t bytes, cuda_stream stream))                           \
    X(cuMemcpyDtoDAsync_v2, (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream))                    \
    X(cuEventCreate, (cuda_event *event, unsigned flags))                                                              \
    X(cuEventRecord, (cuda_event event, cuda_stream stream))                                                           \
    X(cuEventQuery, (cuda_event event))                                                                                \
    X(cuEventDestroy_v2, (cuda_event event))                                                                           \
    X(cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned flags))                                       \
    X(cuStreamQuery, (cuda_stream stream))

#define CONVOY_CUDA_FUNCTION_FIELD(name, parameters) cuda_result(*name) parameters;

/* One pointer per function, named like it. */
struct convoy_cuda_functions {
    CONVOY_CUDA_FUNCTIONS(CONVOY_CUDA_FUNCTION_FIELD)
};

struct convoy_cuda_library {
    void *handle; /* never given to dlclose: the driver has threads of its own */
    struct convoy_cuda_functions functions;
    char file[CONVOY_CUDA_FILE_BYTES]; /* the file that is really bound */
    int version;                       /* 1000 x major + 10 x minor */
};

/* Opens `path` ("" = libcuda.so.1 wherever the loader finds it), initialises the driver and checks its version.
 * INIT_FAILED: no such file, with what is needed; a function is missing, by name; too old; or the driver's own reason. */
int32_t convoy_cuda_library_open(const char *path, struct convoy_cuda_library *library_out, struct convoy_error *error);

/* "CUDA_ERROR_INVALID_VALUE (1): invalid argument", or the number alone. */
void convoy_cuda_explain(const struct convoy_cuda_functions *functions, int32_t number, char *text_out, size_t bytes);

#endif
