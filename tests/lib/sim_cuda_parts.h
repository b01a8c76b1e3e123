/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pretended driver share: its state, under one lock, and how a call begins and ends. */
#ifndef TESTS_LIB_SIM_CUDA_PARTS_H
#define TESTS_LIB_SIM_CUDA_PARTS_H

#include "tests/lib/cuda_host.h"
#include "tests/lib/sim_cuda.h"

#include <pthread.h>
#include <stdbool.h>

#define SIM_NAMES 64
#define SIM_DEVICES 4

enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_ADDRESS = 700,
};

enum kind { KIND_DEVICE = 1, KIND_MANAGED, KIND_PINNED, KIND_REGISTERED };

/* A range that the driver knows. seen: where the driver itself reads and writes it. */
struct memory {
    struct memory *next;
    uint8_t *address;
    uint8_t *seen;
    size_t bytes;
    enum kind kind;
    int ordinal;
    bool is_read_only;
};

enum op_kind { OP_COPY, OP_FILL, OP_RECORD, OP_WAIT };

struct op {
    struct op *next;
    enum op_kind kind;
    int half;
    int broken; /* result that it ends with */
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    uint32_t value;
    cuda_event event;
    uint64_t number; /* of the record that it makes or waits for */
};

struct cuda_event_handle {
    cuda_event next;
    cuda_context context;
    uint64_t recorded;
    uint64_t fired;
    uint32_t users; /* operations that name it */
    bool is_destroyed;
};

struct cuda_stream_handle {
    cuda_stream next;
    cuda_context context;
    struct op *first;
    struct op *last;
    bool is_destroyed;
    bool is_default;
};

struct cuda_context_handle {
    int ordinal;
    uint32_t retained;
    struct cuda_stream_handle stream; /* the default one */
};

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_leaving, is_by_hand, is_initialised;
    int devices, version, broken, break_next, fail_result;
    uint64_t random, fail_in, violations, blocking, records;
    struct memory *memories;
    cuda_event events;
    cuda_stream streams;
    uint32_t contexts; /* that are not primary */
    struct cuda_context_handle primary[SIM_DEVICES];
    struct {
        const char *name;
        uint64_t count;
    } calls[SIM_NAMES];
};

extern struct sim sim;

/* Locks; a result that the call has to give, 0 if it is to do its work. The second also for what needs a context. */
cuda_result sim_call_begin(const char *name);
cuda_result sim_call_begin_inside(const char *name);
cuda_result sim_call_end(cuda_result result); /* unlocks */

#define BEGIN() sim_call_begin(__func__)
#define BEGIN_INSIDE() sim_call_begin_inside(__func__)

/* NULL: none is current on this thread. */
cuda_context sim_current(void);

uint64_t sim_random(void);
struct memory *sim_memory_of(const void *address);
uint8_t *sim_seen_at(const void *address); /* where the driver sees it */
bool sim_is_touched(const uint8_t *address, size_t bytes); /* by an operation that has not ended */

/* Runs half an operation of one of the streams whose head can run. false: none. */
bool sim_step(void);
void *sim_runner(void *unused);

#define SIM_CUDA_DECLARE(name, parameters) cuda_result name parameters;
CONVOY_CUDA_FUNCTIONS(SIM_CUDA_DECLARE)
CUDA_HOST_FUNCTIONS(SIM_CUDA_DECLARE)

#endif
