/* SPDX-License-Identifier: Apache-2.0 */
/* What a host does with CUDA beside convoy: memory, streams, kernels (a fill stands for one), contexts of its own. Both the
 * driver and the pretended one (tests/lib/sim_cuda.h) have these functions. */
#ifndef TESTS_LIB_CUDA_HOST_H
#define TESTS_LIB_CUDA_HOST_H

#include "device/cuda_library.h"

#define CUDA_HOST_FUNCTIONS(X)                                                                                         \
    X(cuCtxCreate_v2, (cuda_context *context, unsigned flags, cuda_device device))                                     \
    X(cuCtxDestroy_v2, (cuda_context context))                                                                         \
    X(cuCtxSetCurrent, (cuda_context context))                                                                         \
    X(cuMemAlloc_v2, (cuda_address *address, size_t bytes))                                                            \
    X(cuMemFree_v2, (cuda_address address))                                                                            \
    X(cuMemAllocManaged, (cuda_address *address, size_t bytes, unsigned flags))                                        \
    X(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                                                  \
    X(cuMemFreeHost, (void *address))                                                                                  \
    X(cuMemcpyHtoD_v2, (cuda_address to, const void *from, size_t bytes))                                              \
    X(cuMemcpyDtoH_v2, (void *to, cuda_address from, size_t bytes))                                                    \
    X(cuMemsetD32Async, (cuda_address to, unsigned value, size_t count, cuda_stream stream))                           \
    X(cuStreamCreate, (cuda_stream *stream, unsigned flags))                                                           \
    X(cuStreamDestroy_v2, (cuda_stream stream))

#define CUDA_STREAM_NON_BLOCKING 1u
#define CUDA_MANAGED_GLOBAL 1u

/* One pointer per function, those that convoy uses among them. */
struct cuda_host {
    CONVOY_CUDA_FUNCTIONS(CONVOY_CUDA_FUNCTION_FIELD)
    CUDA_HOST_FUNCTIONS(CONVOY_CUDA_FUNCTION_FIELD)
};

#endif
