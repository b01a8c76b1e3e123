/* SPDX-License-Identifier: Apache-2.0 */
/* A host with the pretended CUDA driver (tests/lib/sim_cuda.h), for unit tests of src/device. */
#ifndef TESTS_LIB_DEVICE_CASE_H
#define TESTS_LIB_DEVICE_CASE_H

#include "device/device.h"
#include "tests/lib/cuda_host.h"
#include "tests/lib/sim_cuda.h"

#define DEVICE_CASE_DEADLINE (convoy_now_ns() + 60 * CONVOY_NS_PER_S) /* far beyond what a test takes */

struct device_case {
    const struct sim_cuda_control *sim;
    struct cuda_host cuda;
    char library[600];    /* file of the pretended driver */
    char shortened[600];  /* of the one that lacks cuMemcpyDtoHAsync_v2 */
    cuda_context context; /* primary one of device 0, current on the thread that made the case */
};

/* Opens the driver, once in a process, and makes the context of a host that uses device 0. */
struct device_case *device_case(void);

/* Group teardown of cmocka: fails if anything of the driver's was not given back. */
int device_case_end(void **state);

/* convoy's device on device 0. */
struct convoy_device *device_case_open(uint32_t tickets);
void device_case_close(struct convoy_device *device);

void *device_case_alloc(size_t bytes); /* device memory */
void device_case_free(void *memory);
cuda_stream device_case_stream(void);
cuda_event device_case_event(void);

/* A kernel that writes `value` into every word. */
void device_case_fill(void *memory, uint32_t value, size_t bytes, cuda_stream stream);

/* By hand: steps until nothing can run. */
void device_case_run_all(void);

/* Fails unless every 32-bit word is `value`. */
void device_case_expect_words(const void *memory, uint32_t value, size_t bytes);
/* The same for device memory. */
void device_case_expect_device(const void *memory, uint32_t value, size_t bytes);

/* Fails unless both are equal and the text is in the error. */
void device_case_expect_error(int32_t status, int32_t wanted, const struct convoy_error *error, const char *text);

#endif
