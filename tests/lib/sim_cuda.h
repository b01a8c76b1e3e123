/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver that is none: tests/lib/sim_cuda.c, built to tests/lib/libcuda.so.1 beside the test programs and opened by
 * file. Its device memory cannot be touched by the processor (reading it ends the process), its copies run late, in halves, and
 * in any order among streams but never inside one, and what a copy has not written yet is poison.
 *
 * Two ways to run: by a thread of its own, or by hand, where nothing happens until step is called: a test then chooses the
 * moment, and never sleeps.
 *
 * At the end of the process it looks for what was not given back (events, streams, registrations, allocations, contexts) and
 * for memory that was given back under a running copy; if there is any it says so and the exit status is 99.
 */
#ifndef TESTS_LIB_SIM_CUDA_H
#define TESTS_LIB_SIM_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define SIM_CUDA_POISON 0xa5u
#define SIM_CUDA_CONTROL "sim_cuda_control" /* returns a struct sim_cuda_control */

/*
 * Environment, read by cuInit: SIM_CUDA_DEVICES (2), SIM_CUDA_VERSION (12020), SIM_CUDA_INIT (result of cuInit),
 * SIM_CUDA_FAIL=n[:result], SIM_CUDA_SEED.
 */
struct sim_cuda_control {
    void (*by_hand)(int is_by_hand); /* 0: by the thread, as at first */
    int (*step)(void);               /* half an operation of some stream; 0: none can run */
    void (*seed)(uint64_t seed);     /* of the choice among streams */

    /* The n-th call from now on gives this result and does nothing, but what ends an object ends it; 0: none any more. */
    void (*fail_at)(uint64_t n, int result);
    /* The next operation that is put on a stream fails when it runs, and from then on everything gives this result. */
    void (*break_next)(int result);
    void (*mend)(void); /* no more of that */

    uint64_t (*calls)(const char *name); /* NULL: of all */
    uint64_t (*violations)(void);        /* memory ended under a running operation */
    uint64_t (*blocking)(void);          /* copies of host memory that was not pinned */

    /* What is there now, past all streams. */
    void (*peek)(const void *address, void *to, size_t bytes);
    void (*poke)(void *address, const void *from, size_t bytes);

    /* What was not given back; "" and 0: nothing. */
    int (*leaks)(char *text, size_t bytes);
};

typedef const struct sim_cuda_control *(*sim_cuda_control_fn)(void);

#endif
