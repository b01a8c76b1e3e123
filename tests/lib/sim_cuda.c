/* SPDX-License-Identifier: Apache-2.0 */
/* The pretended driver: starting it, contexts, injected results, and what tests can do with it. */
#include "tests/lib/sim_cuda.h"

#include "tests/lib/sim_cuda_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 16

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .random = 88172645463325252u};

static __thread cuda_context stack[DEPTH];
static __thread uint32_t depth;

/* -- calls and injected results ------------------------------------------------------------------------------------ */

static void call_count(const char *name)
{
    for (size_t i = 0; i < SIM_NAMES; i++) {
        if (sim.calls[i].name == NULL || strcmp(sim.calls[i].name, name) == 0) {
            sim.calls[i].name = name;
            sim.calls[i].count++;
            return;
        }
    }
}

cuda_result sim_call_begin(const char *name)
{
    (void)pthread_mutex_lock(&sim.lock);
    call_count(name);
    if (sim.fail_in != 0 && --sim.fail_in == 0) {
        return sim.fail_result;
    }
    return sim.is_initialised ? CUDA_OK : NOT_INITIALIZED;
}

cuda_result sim_call_begin_inside(const char *name)
{
    cuda_result result = sim_call_begin(name);
    if (result == CUDA_OK && sim_current() == NULL) {
        return INVALID_CONTEXT;
    }
    return result == CUDA_OK ? sim.broken : result;
}

cuda_result sim_call_end(cuda_result result)
{
    (void)pthread_mutex_unlock(&sim.lock);
    return result;
}

uint64_t sim_random(void)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return sim.random;
}

/* -- starting ------------------------------------------------------------------------------------------------------ */

static long environment(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? otherwise : strtol(text, NULL, 10);
}

static void sim_start(void)
{
    const char *fail = getenv("SIM_CUDA_FAIL");
    sim.devices = (int)environment("SIM_CUDA_DEVICES", 2);
    sim.version = (int)environment("SIM_CUDA_VERSION", 12020);
    sim.random = (uint64_t)environment("SIM_CUDA_SEED", (long)sim.random) | 1;
    if (fail != NULL && !sim.is_initialised) {
        const char *colon = strchr(fail, ':');
        sim.fail_in = strtoull(fail, NULL, 10);
        sim.fail_result = colon != NULL ? atoi(colon + 1) : ILLEGAL_ADDRESS;
    }
    for (int i = 0; i < SIM_DEVICES && !sim.is_initialised; i++) {
        struct cuda_context_handle *context = &sim.primary[i];
        context->ordinal = i;
        context->stream = (struct cuda_stream_handle){.next = sim.streams, .context = context, .is_default = true};
        sim.streams = &context->stream;
    }
    sim.is_initialised = true;
    if (!sim.has_thread) {
        sim.has_thread = pthread_create(&sim.thread, NULL, sim_runner, NULL) == 0;
    }
}

cuda_result cuInit(unsigned flags)
{
    cuda_result result = BEGIN();
    (void)flags;
    result = result == NOT_INITIALIZED ? CUDA_OK : result;
    result = result == CUDA_OK ? (int)environment("SIM_CUDA_INIT", CUDA_OK) : result;
    if (result == CUDA_OK) {
        sim_start();
    }
    return sim_call_end(result);
}

cuda_result cuDriverGetVersion(int *version)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK) {
        *version = (int)environment("SIM_CUDA_VERSION", 12020);
    }
    return sim_call_end(result);
}

static const struct {
    cuda_result result;
    const char *name;
    const char *text;
} results[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the range is mapped already"},
    {CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static cuda_result result_text(cuda_result result, bool wants_name, const char **text)
{
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (results[i].result == result) {
            *text = wants_name ? results[i].name : results[i].text;
            return CUDA_OK;
        }
    }
    return INVALID_VALUE;
}

cuda_result cuGetErrorName(cuda_result result, const char **text)
{
    return result_text(result, true, text);
}

cuda_result cuGetErrorString(cuda_result result, const char **text)
{
    return result_text(result, false, text);
}

/* -- devices and contexts ------------------------------------------------------------------------------------------ */

cuda_context sim_current(void)
{
    return depth == 0 ? NULL : stack[depth - 1];
}

cuda_result cuDeviceGetCount(int *count)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK) {
        *count = sim.devices;
    }
    return sim_call_end(result);
}

cuda_result cuDeviceGet(cuda_device *device, int ordinal)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK) {
        *device = ordinal;
        result = ordinal < 0 || ordinal >= sim.devices ? INVALID_DEVICE : CUDA_OK;
    }
    return sim_call_end(result);
}

cuda_result cuDeviceGetName(char *name, int length, cuda_device device)
{
    cuda_result result = BEGIN();
    (void)snprintf(name, (size_t)length, "pretended device %d", device);
    return sim_call_end(result);
}

cuda_result cuDevicePrimaryCtxGetState(cuda_device device, unsigned *flags, int *active)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK) {
        *flags = 0;
        *active = sim.primary[device].retained != 0;
    }
    return sim_call_end(result);
}

cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK) {
        sim.primary[device].retained++;
        *context = &sim.primary[device];
    }
    return sim_call_end(result);
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
    cuda_result result = BEGIN();
    if (sim.primary[device].retained == 0) {
        return sim_call_end(INVALID_CONTEXT);
    }
    sim.primary[device].retained--;
    return sim_call_end(result);
}

cuda_result cuCtxCreate_v2(cuda_context *context_out, unsigned flags, cuda_device device)
{
    cuda_result result = BEGIN();
    (void)flags;
    if (result == CUDA_OK) {
        cuda_context context = calloc(1, sizeof *context);
        context->ordinal = device;
        context->stream = (struct cuda_stream_handle){.next = sim.streams, .context = context, .is_default = true};
        sim.streams = &context->stream;
        sim.contexts++;
        stack[depth++] = context;
        *context_out = context;
    }
    return sim_call_end(result);
}

cuda_result cuCtxDestroy_v2(cuda_context context)
{
    cuda_result result = BEGIN();
    cuda_stream *at = &sim.streams;
    while (*at != &context->stream) {
        at = &(*at)->next;
    }
    *at = context->stream.next;
    if (depth != 0 && stack[depth - 1] == context) {
        depth--;
    }
    sim.contexts--;
    free(context);
    return sim_call_end(result);
}

cuda_result cuCtxGetCurrent(cuda_context *context)
{
    cuda_result result = BEGIN();
    *context = sim_current();
    return sim_call_end(result);
}

cuda_result cuCtxSetCurrent(cuda_context context)
{
    cuda_result result = BEGIN();
    if (depth == 0) {
        depth = context != NULL ? 1 : 0;
        stack[0] = context;
    } else if (context == NULL) {
        depth--;
    } else {
        stack[depth - 1] = context;
    }
    return sim_call_end(result);
}

cuda_result cuCtxGetDevice(cuda_device *device)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        *device = sim_current()->ordinal;
    }
    return sim_call_end(result);
}

cuda_result cuCtxPushCurrent_v2(cuda_context context)
{
    cuda_result result = BEGIN();
    if (result == CUDA_OK && depth < DEPTH) {
        stack[depth++] = context;
    }
    return sim_call_end(result);
}

/* Also when it is to fail: no test can do anything about a stack that is left as it is. */
cuda_result cuCtxPopCurrent_v2(cuda_context *context)
{
    cuda_result result = BEGIN();
    *context = sim_current();
    depth -= depth != 0 ? 1 : 0;
    return sim_call_end(result);
}

/* -- control ------------------------------------------------------------------------------------------------------- */

static void control_by_hand(int is_by_hand)
{
    (void)pthread_mutex_lock(&sim.lock);
    sim.is_by_hand = is_by_hand != 0;
    (void)pthread_cond_signal(&sim.changed);
    (void)pthread_mutex_unlock(&sim.lock);
}

static int control_step(void)
{
    (void)pthread_mutex_lock(&sim.lock);
    bool has_run = sim_step();
    (void)pthread_mutex_unlock(&sim.lock);
    return has_run;
}

static void control_seed(uint64_t seed)
{
    (void)pthread_mutex_lock(&sim.lock);
    sim.random = seed * 2654435761u | 1;
    (void)pthread_mutex_unlock(&sim.lock);
}

static void control_fail_at(uint64_t n, int result)
{
    (void)pthread_mutex_lock(&sim.lock);
    sim.fail_in = n;
    sim.fail_result = result;
    (void)pthread_mutex_unlock(&sim.lock);
}

static void control_break_next(int result)
{
    (void)pthread_mutex_lock(&sim.lock);
    sim.break_next = result;
    (void)pthread_mutex_unlock(&sim.lock);
}

static void control_mend(void)
{
    (void)pthread_mutex_lock(&sim.lock);
    sim.break_next = CUDA_OK;
    sim.broken = CUDA_OK;
    (void)pthread_mutex_unlock(&sim.lock);
}

static uint64_t control_calls(const char *name)
{
    uint64_t count = 0;
    (void)pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < SIM_NAMES && sim.calls[i].name != NULL; i++) {
        count += name == NULL || strcmp(sim.calls[i].name, name) == 0 ? sim.calls[i].count : 0;
    }
    (void)pthread_mutex_unlock(&sim.lock);
    return count;
}

static uint64_t figure(const uint64_t *at)
{
    (void)pthread_mutex_lock(&sim.lock);
    uint64_t value = *at;
    (void)pthread_mutex_unlock(&sim.lock);
    return value;
}

static uint64_t control_violations(void)
{
    return figure(&sim.violations);
}

static uint64_t control_blocking(void)
{
    return figure(&sim.blocking);
}

static void control_peek(const void *address, void *to, size_t bytes)
{
    (void)pthread_mutex_lock(&sim.lock);
    memcpy(to, sim_seen_at(address), bytes);
    (void)pthread_mutex_unlock(&sim.lock);
}

static void control_poke(void *address, const void *from, size_t bytes)
{
    (void)pthread_mutex_lock(&sim.lock);
    memcpy(sim_seen_at(address), from, bytes);
    (void)pthread_mutex_unlock(&sim.lock);
}

static int control_leaks(char *text, size_t bytes)
{
    static const char *const names[] = {"", "device allocations", "managed allocations", "pinned allocations",
                                        "registrations"};
    unsigned counts[5] = {0};
    unsigned events = 0;
    unsigned streams = 0;
    unsigned retained = 0;
    (void)pthread_mutex_lock(&sim.lock);
    for (const struct memory *memory = sim.memories; memory != NULL; memory = memory->next) {
        counts[memory->kind]++;
    }
    for (cuda_event event = sim.events; event != NULL; event = event->next) {
        events++;
    }
    for (cuda_stream stream = sim.streams; stream != NULL; stream = stream->next) {
        streams += stream->is_default ? 0 : 1;
    }
    for (size_t i = 0; i < SIM_DEVICES; i++) {
        retained += sim.primary[i].retained;
    }
    (void)snprintf(text, bytes, "%u events, %u streams, %u contexts, %u %s, %u %s, %u %s, %u %s, %llu violations", events,
                   streams, retained + sim.contexts, counts[1], names[1], counts[2], names[2], counts[3], names[3], counts[4],
                   names[4], (unsigned long long)sim.violations);
    int is_leaking = events + streams + retained + sim.contexts + counts[1] + counts[2] + counts[3] + counts[4] != 0 ||
                     sim.violations != 0;
    (void)pthread_mutex_unlock(&sim.lock);
    if (!is_leaking) {
        text[0] = '\0';
    }
    return is_leaking;
}

const struct sim_cuda_control *sim_cuda_control(void);
const struct sim_cuda_control *sim_cuda_control(void)
{
    static const struct sim_cuda_control control = {
        .by_hand = control_by_hand,
        .step = control_step,
        .seed = control_seed,
        .fail_at = control_fail_at,
        .break_next = control_break_next,
        .mend = control_mend,
        .calls = control_calls,
        .violations = control_violations,
        .blocking = control_blocking,
        .peek = control_peek,
        .poke = control_poke,
        .leaks = control_leaks,
    };
    return &control;
}

__attribute__((destructor)) static void sim_end(void)
{
    char text[256];
    struct timespec deadline;
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 5;
    if (pthread_mutex_timedlock(&sim.lock, &deadline) != 0) { /* the runner has crashed, and ends the process from there */
        return;
    }
    sim.is_leaving = true;
    (void)pthread_cond_signal(&sim.changed);
    (void)pthread_mutex_unlock(&sim.lock);
    if (sim.has_thread) {
        (void)pthread_join(sim.thread, NULL);
    }
    if (control_leaks(text, sizeof text)) {
        (void)fprintf(stderr, "sim_cuda: not given back: %s\n", text);
        _exit(99);
    }
}
