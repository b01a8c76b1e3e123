/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one side of `convoy perf transfer`: the pool it gives to its engine, if it gives one, and what the tensors are
 * read from. CUDA is opened at run time, in the process that uses it, and no header of it is needed to build.
 */
#ifndef CONVOY_CLI_PERF_MEMORY_H
#define CONVOY_CLI_PERF_MEMORY_H

#include "convoy/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct convoy_perf_memory {
    uint32_t kind; /* CONVOY_MEMORY_* */
    void *pool;    /* NULL: convoy makes it */
    void *source;  /* DEVICE: what the tensors are read from */
    void *library; /* DEVICE: libcuda.so.1 */
    struct convoy_perf_cuda *cuda;
    int device;
    bool is_retained; /* the device's primary context */
};

/* UNSUPPORTED: there is no CUDA here, text says what is missing. NO_MEMORY. On failure: close. */
int32_t convoy_perf_memory_open(struct convoy_perf_memory *memory, uint32_t kind, uint64_t pool_bytes,
                                struct convoy_error *error);

/* Accepts a zeroed or half-open one. */
void convoy_perf_memory_close(struct convoy_perf_memory *memory);

/* Puts bytes where a stage of this kind of pool reads them: a copy on the device, else the bytes themselves. */
int32_t convoy_perf_memory_source(struct convoy_perf_memory *memory, const uint8_t *bytes, uint64_t count,
                                  const uint8_t **source_out, struct convoy_error *error);

/* Whether what lies at `data`, in memory of this kind, equals these bytes. */
bool convoy_perf_memory_equals(const struct convoy_perf_memory *memory, const void *data, const uint8_t *bytes,
                               uint64_t count);

#endif
