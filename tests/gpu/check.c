/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy's device layer on a real GPU: what an address is, copies behind events and streams, registration, bandwidth. Exit
 * status 0, 1, or 77 with the reason where there is no driver or no device. Built and run by tests/gpu/run.sh.
 */
#include "core/clock.h"
#include "core/error.h"
#include "device/cuda.h"
#include "tests/lib/cuda_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((size_t)16 << 20)
#define FILLS 64u /* keep a stream busy for a while */
#define ROUNDS 20u
#define REPEATS 11u

struct check {
    const char *library;
    struct cuda_host cuda;
    struct convoy_device *device;
    cuda_context context;
    cuda_stream producer;
    cuda_stream stream;
    cuda_event event;
    uint8_t *memory; /* the device's */
    uint8_t *second;
    uint32_t *pinned;
};

static struct check check;

static void failed(const char *what, int line, const char *detail)
{
    (void)printf("failed: %s (line %d)%s%s\n", what, line, detail[0] != '\0' ? ": " : "", detail);
    exit(1);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failed(#condition, __LINE__, "");                                                                          \
        }                                                                                                              \
    } while (0)

/* A status of convoy's, with its text. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct convoy_error error = CONVOY_ERROR_INIT;                                                                 \
        if ((call) != CONVOY_OK) {                                                                                     \
            failed(#call, __LINE__, error.text);                                                                       \
        }                                                                                                              \
    } while (0)

static void skip(const char *reason)
{
    (void)printf("skipped: %s\n", reason);
    exit(77);
}

static uint64_t deadline(void)
{
    return convoy_now_ns() + 20 * CONVOY_NS_PER_S;
}

/* -- the host's side ----------------------------------------------------------------------------------------------- */

#define BIND(name_, parameters_) {offsetof(struct cuda_host, name_), #name_},

static void host_bind(void)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_CUDA_FUNCTIONS(BIND) CUDA_HOST_FUNCTIONS(BIND)};
    void *handle = dlopen(check.library, RTLD_NOW | RTLD_LOCAL);
    EXPECT(handle != NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(handle, rows[i].name);
        if (function == NULL) {
            failed("the driver lacks a function", __LINE__, rows[i].name);
        }
        memcpy((char *)&check.cuda + rows[i].offset, &function, sizeof function);
    }
}

static uint8_t *device_memory(size_t bytes)
{
    cuda_address address = 0;
    EXPECT(check.cuda.cuMemAlloc_v2(&address, bytes) == 0);
    return (uint8_t *)(uintptr_t)address;
}

static void fill(void *memory, uint32_t value, size_t bytes, cuda_stream stream)
{
    EXPECT(check.cuda.cuMemsetD32Async((cuda_address)(uintptr_t)memory, value, bytes / 4, stream) == 0);
}

static void scene_open(void)
{
    char name[128] = "";
    int version = 0;
    host_bind();
    EXPECT(check.cuda.cuDevicePrimaryCtxRetain(&check.context, 0) == 0);
    EXPECT(check.cuda.cuCtxSetCurrent(check.context) == 0);
    EXPECT(check.cuda.cuDeviceGetName(name, sizeof name, 0) == 0);
    EXPECT(check.cuda.cuDriverGetVersion(&version) == 0);
    EXPECT(check.cuda.cuStreamCreate(&check.producer, CUDA_STREAM_NON_BLOCKING) == 0);
    EXPECT(check.cuda.cuStreamCreate(&check.stream, CUDA_STREAM_NON_BLOCKING) == 0);
    EXPECT(check.cuda.cuEventCreate(&check.event, CUDA_EVENT_NO_TIMING) == 0);
    check.memory = device_memory(BYTES);
    check.second = device_memory(BYTES);
    check.pinned = aligned_alloc(4096, BYTES);
    EXPECT(check.pinned != NULL);
    memset(check.pinned, 0, BYTES);
    (void)printf("device: %s, driver %d.%d\n", name, version / 1000, version % 1000 / 10);
}

static void scene_close(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    OK(convoy_device_close(check.device, deadline(), &error));
    EXPECT(check.cuda.cuMemFree_v2((cuda_address)(uintptr_t)check.memory) == 0);
    EXPECT(check.cuda.cuMemFree_v2((cuda_address)(uintptr_t)check.second) == 0);
    EXPECT(check.cuda.cuStreamDestroy_v2(check.producer) == 0);
    EXPECT(check.cuda.cuStreamDestroy_v2(check.stream) == 0);
    EXPECT(check.cuda.cuEventDestroy_v2(check.event) == 0);
    EXPECT(check.cuda.cuCtxSetCurrent(NULL) == 0);
    EXPECT(check.cuda.cuDevicePrimaryCtxRelease_v2(0) == 0);
    free(check.pinned);
}

/* -- checks -------------------------------------------------------------------------------------------------------- */

static uint32_t kind_of(const void *address)
{
    struct convoy_memory_info info = {.kind = 99};
    OK(convoy_device_query(check.device, address, &info, &error));
    return info.kind;
}

static void check_kinds(void)
{
    cuda_address managed = 0;
    EXPECT(kind_of(check.pinned) == CONVOY_MEMORY_HOST);
    EXPECT(kind_of(&managed) == CONVOY_MEMORY_HOST);
    OK(convoy_device_register(check.device, check.pinned, BYTES, 0, &error));
    EXPECT(kind_of(check.pinned) == CONVOY_MEMORY_PINNED);
    EXPECT(kind_of((uint8_t *)check.pinned + BYTES - 1) == CONVOY_MEMORY_PINNED);
    EXPECT(kind_of(check.memory + BYTES - 1) == CONVOY_MEMORY_DEVICE);
    if (check.cuda.cuMemAllocManaged(&managed, 4096, CUDA_MANAGED_GLOBAL) == 0) {
        EXPECT(kind_of((void *)(uintptr_t)managed) == CONVOY_MEMORY_MANAGED);
        EXPECT(check.cuda.cuMemFree_v2(managed) == 0);
    }
    (void)printf("kinds of memory: ok\n");
}

/* Read-only mappings are how a lent pool is seen by its reader. */
static void check_read_only(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int file = memfd_create("check", MFD_CLOEXEC);
    EXPECT(file >= 0 && ftruncate(file, (off_t)BYTES) == 0);
    void *view = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
    EXPECT(view != MAP_FAILED);
    int32_t status = convoy_device_register(check.device, view, BYTES, CONVOY_REGISTER_READ_ONLY, &error);
    (void)printf("registering a read-only mapping: %s\n", status == CONVOY_OK ? "ok" : error.text);
    if (status == CONVOY_OK) {
        OK(convoy_device_unregister(check.device, view, BYTES, &error));
    }
    (void)munmap(view, BYTES);
    (void)close(file);
}

static convoy_ticket started(const struct convoy_copy_order *order)
{
    convoy_ticket ticket = CONVOY_TICKET_NONE;
    OK(convoy_device_start(check.device, order, &ticket, &error));
    return ticket;
}

static void ended(convoy_ticket ticket)
{
    bool is_quiet = false;
    OK(convoy_device_wait(check.device, ticket, deadline(), &is_quiet, &error));
    EXPECT(is_quiet);
}

/* The producer's stream is busy when the copy is started; the bytes that arrive are the last ones it wrote. */
static void check_order(uint32_t kind)
{
    const struct convoy_copy_piece pieces[] = {{check.pinned, check.memory, BYTES / 2},
                                               {(uint8_t *)check.pinned + BYTES / 2, check.memory + BYTES / 2, BYTES / 2}};
    uint32_t late = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t mark = 0;
        for (uint32_t i = 0; i < FILLS; i++) {
            fill(check.memory, i + 1 == FILLS ? round : ~round, BYTES, check.producer);
        }
        OK(convoy_device_event_record(check.device, check.event, check.producer, &error));
        struct convoy_copy_order order = {.pieces = pieces, .count = 2, .stream = check.stream, .mark = &mark,
                                          .direction = kind == CONVOY_READY_EVENT ? CONVOY_COPY_FROM_DEVICE : CONVOY_COPY_ANY};
        order.ready.kind = kind;
        order.ready.handle = kind == CONVOY_READY_EVENT ? (void *)check.event : (void *)check.producer;
        convoy_ticket ticket = started(&order);
        int32_t status = convoy_device_wait(check.device, ticket, convoy_now_ns(), NULL, NULL);
        if (status == CONVOY_TIMED_OUT) {
            late++;
            EXPECT(convoy_device_unregister(check.device, check.pinned, BYTES, NULL) == CONVOY_BUSY);
            ended(ticket);
        } else {
            EXPECT(status == CONVOY_OK);
        }
        EXPECT(mark == BYTES);
        for (size_t i = 0; i < BYTES / 4; i++) {
            EXPECT(check.pinned[i] == round);
        }
    }
    (void)printf("staging behind %s: ok, %u of %u were still running when start returned\n",
                 kind == CONVOY_READY_EVENT ? "an event" : "a stream", late, ROUNDS);
}

/* Out and back, on the device in between, with the host's event behind each. */
static void check_round_trip(void)
{
    const struct convoy_copy_piece in = {check.memory, check.pinned, BYTES / 2};
    const struct convoy_copy_piece across = {check.second, check.memory, BYTES / 2};
    const struct convoy_copy_piece out = {(uint8_t *)check.pinned + BYTES / 2, check.second, BYTES / 2};
    for (size_t i = 0; i < BYTES / 8; i++) {
        check.pinned[i] = (uint32_t)(i * 2654435761u);
    }
    struct convoy_copy_order order = {.pieces = &in, .count = 1, .direction = CONVOY_COPY_TO_DEVICE, .stream = check.producer,
                                      .event = check.event};
    convoy_ticket first = started(&order);
    order = (struct convoy_copy_order){.pieces = &across, .count = 1, .direction = CONVOY_COPY_ON_DEVICE,
                                       .stream = check.stream,
                                       .ready = {.kind = CONVOY_READY_EVENT, .handle = check.event}};
    convoy_ticket second = started(&order);
    order = (struct convoy_copy_order){.pieces = &out, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE,
                                       .stream = check.stream};
    convoy_ticket third = started(&order);
    ended(third);
    ended(second);
    ended(first);
    OK(convoy_device_event_query(check.device, check.event, &error));
    EXPECT(memcmp(check.pinned, (uint8_t *)check.pinned + BYTES / 2, BYTES / 2) == 0);
    (void)printf("to the device, on it, and from it: ok\n");
}

static void check_refusals(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    cuda_context current = NULL;
    uint32_t word = 0;
    convoy_ticket ticket;
    const struct convoy_copy_piece piece = {&word, check.memory, sizeof word};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .direction = CONVOY_COPY_FROM_DEVICE};
    EXPECT(convoy_device_start(check.device, &order, &ticket, &error) == CONVOY_UNSUPPORTED);
    EXPECT(check.cuda.cuCtxGetCurrent(&current) == 0 && current == check.context);
    EXPECT(convoy_device_register(check.device, (uint8_t *)check.pinned + 4096, BYTES, 0, &error) == CONVOY_INVALID_ARGUMENT);
    (void)printf("refusals, and the current context: ok\n");
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void check_bandwidth(bool is_in)
{
    const struct convoy_copy_piece piece = {is_in ? (void *)check.memory : (void *)check.pinned,
                                            is_in ? (void *)check.pinned : (void *)check.memory, BYTES};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .stream = check.stream,
                                            .direction = is_in ? CONVOY_COPY_TO_DEVICE : CONVOY_COPY_FROM_DEVICE};
    double rates[REPEATS];
    for (uint32_t i = 0; i < REPEATS; i++) {
        uint64_t begun_ns = convoy_now_ns();
        ended(started(&order));
        rates[i] = (double)BYTES / (double)(convoy_now_ns() - begun_ns);
    }
    qsort(rates, REPEATS, sizeof rates[0], compare);
    (void)printf("%s the device: %.1f GB/s (median of %u copies of %zu MiB, start to end)\n", is_in ? "to" : "from",
                 rates[REPEATS / 2], REPEATS, BYTES >> 20);
}

int main(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const char *library = getenv("CONVOY_TEST_CUDA");
    check.library = library != NULL ? library : CONVOY_CUDA_LIBRARY_NAME;
    const struct convoy_cuda_options options = {.library = check.library, .ordinal = 0};
    int32_t status = convoy_cuda_open(&options, &check.device, &error);
    if (status == CONVOY_INIT_FAILED || status == CONVOY_INVALID_ARGUMENT) {
        skip(error.text);
    }
    if (status != CONVOY_OK) {
        failed("opening the device", __LINE__, error.text);
    }
    scene_open();
    check_kinds();
    check_read_only();
    check_order(CONVOY_READY_EVENT);
    check_order(CONVOY_READY_STREAM);
    check_round_trip();
    check_refusals();
    check_bandwidth(true);
    check_bandwidth(false);
    scene_close();
    (void)printf("all ok\n");
    return 0;
}
