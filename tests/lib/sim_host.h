/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that has the pretended CUDA driver (tests/lib/sim_cuda.h) and engines that use it, for tests through the plugin. Once
 * in a process, and in ranks of their own only: the driver has a thread.
 */
#ifndef TESTS_LIB_SIM_HOST_H
#define TESTS_LIB_SIM_HOST_H

#include "tests/lib/cuda_host.h"
#include "tests/lib/engines.h"
#include "tests/lib/sim_cuda.h"

struct sim_host {
    const struct sim_cuda_control *sim;
    struct cuda_host cuda;
    char library[600];
    cuda_context context; /* the primary one of device 0, current on the thread that opened this */
    cuda_stream stream;
};

/* Opens the driver, and lets engines that are created from now on find it (engine_settings). The same one afterwards. */
struct sim_host *sim_host_open(void);
/* Expects that nothing of the driver's is left. */
void sim_host_close(void);

/* An engine with CUDA as its device. options: NULL = a small pool. */
struct engine *sim_host_engine(const struct convoy_transfer_options *options);

uint8_t *sim_host_alloc(size_t bytes);
void sim_host_free(void *memory);
cuda_event sim_host_event(void);
/* Writes the pattern of engine_fill there at once, and compares with it. */
void sim_host_fill(uint8_t *memory, size_t bytes, uint32_t seed);
bool sim_host_is_filled(const uint8_t *memory, size_t bytes, uint32_t seed);
/* By hand: until nothing can run. */
void sim_host_run_all(void);
/* By hand: until nothing of the engine's pool is taken, whatever its own thread gives to the device meanwhile. */
void sim_host_await_empty(struct engine *engine);

#endif
