/* SPDX-License-Identifier: Apache-2.0 */
/* The pretended driver: memory. */
#include "tests/lib/sim_cuda_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct memory *sim_memory_of(const void *address)
{
    struct memory *memory = sim.memories;
    while (memory != NULL && ((const uint8_t *)address < memory->address ||
                              (const uint8_t *)address >= memory->address + memory->bytes)) {
        memory = memory->next;
    }
    return memory;
}

static bool overlaps(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Where the driver sees it. */
uint8_t *sim_seen_at(const void *address)
{
    const struct memory *memory = sim_memory_of(address);
    return memory == NULL ? (uint8_t *)(uintptr_t)address : memory->seen + ((const uint8_t *)address - memory->address);
}

static bool op_touches(const struct op *op, const uint8_t *address, size_t bytes)
{
    return (op->to != NULL && overlaps(op->to, op->bytes, address, bytes)) ||
           (op->from != NULL && overlaps(op->from, op->bytes, address, bytes));
}

bool sim_is_touched(const uint8_t *address, size_t bytes)
{
    for (cuda_stream stream = sim.streams; stream != NULL; stream = stream->next) {
        for (const struct op *op = stream->first; op != NULL; op = op->next) {
            if (op_touches(op, address, bytes)) {
                return true;
            }
        }
    }
    return false;
}

static void memory_enter(void *address, uint8_t *seen, size_t bytes, enum kind kind)
{
    struct memory *memory = calloc(1, sizeof *memory);
    *memory = (struct memory){.next = sim.memories, .address = address, .seen = seen, .bytes = bytes, .kind = kind};
    memory->ordinal = sim_current() != NULL ? sim_current()->ordinal : 0;
    sim.memories = memory;
}

/* false: no such range of this kind. */
static bool memory_leave(const void *address, enum kind kind, struct memory *memory_out)
{
    struct memory **at = &sim.memories;
    while (*at != NULL && ((*at)->address != address || (*at)->kind != kind)) {
        at = &(*at)->next;
    }
    struct memory *memory = *at;
    if (memory == NULL) {
        return false;
    }
    sim.violations += sim_is_touched(memory->address, memory->bytes) ? 1 : 0;
    *at = memory->next;
    *memory_out = *memory;
    free(memory);
    return true;
}

static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

cuda_result cuMemAlloc_v2(cuda_address *address_out, size_t bytes)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        int file = memfd_create("sim_cuda", MFD_CLOEXEC);
        uint8_t *seen = ftruncate(file, (off_t)pages(bytes)) == 0
                            ? mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                            : MAP_FAILED;
        uint8_t *address = mmap(NULL, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        (void)close(file);
        result = seen == MAP_FAILED || address == MAP_FAILED ? CUDA_OUT_OF_MEMORY : CUDA_OK;
        if (result == CUDA_OK) {
            memset(seen, SIM_CUDA_POISON, pages(bytes));
            memory_enter(address, seen, bytes, KIND_DEVICE);
            *address_out = (cuda_address)(uintptr_t)address;
        }
    }
    return sim_call_end(result);
}

cuda_result cuMemFree_v2(cuda_address address)
{
    struct memory memory;
    cuda_result result = BEGIN();
    if (memory_leave((void *)(uintptr_t)address, KIND_DEVICE, &memory)) {
        (void)munmap(memory.address, pages(memory.bytes));
        (void)munmap(memory.seen, pages(memory.bytes));
    } else if (memory_leave((void *)(uintptr_t)address, KIND_MANAGED, &memory)) {
        free(memory.address);
    } else {
        result = INVALID_VALUE;
    }
    return sim_call_end(result);
}

cuda_result cuMemAllocManaged(cuda_address *address_out, size_t bytes, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    (void)flags;
    if (result == CUDA_OK) {
        uint8_t *address = malloc(bytes);
        memory_enter(address, address, bytes, KIND_MANAGED);
        *address_out = (cuda_address)(uintptr_t)address;
    }
    return sim_call_end(result);
}

cuda_result cuMemHostAlloc(void **address_out, size_t bytes, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    (void)flags;
    if (result == CUDA_OK) {
        uint8_t *address = malloc(bytes);
        memory_enter(address, address, bytes, KIND_PINNED);
        *address_out = address;
    }
    return sim_call_end(result);
}

cuda_result cuMemFreeHost(void *address)
{
    struct memory memory;
    cuda_result result = BEGIN();
    if (memory_leave(address, KIND_PINNED, &memory)) {
        free(memory.address);
    } else {
        result = INVALID_VALUE;
    }
    return sim_call_end(result);
}

cuda_result cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    for (struct memory *at = sim.memories; at != NULL && result == CUDA_OK; at = at->next) {
        result = overlaps(at->address, at->bytes, address, bytes) ? CUDA_ALREADY_REGISTERED : CUDA_OK;
    }
    if (result == CUDA_OK) {
        memory_enter(address, address, bytes, KIND_REGISTERED);
        sim.memories->is_read_only = (flags & CUDA_REGISTER_READ_ONLY) != 0;
    }
    return sim_call_end(result);
}

cuda_result cuMemHostUnregister(void *address)
{
    struct memory memory;
    cuda_result result = BEGIN();
    if (result == CUDA_OK && !memory_leave(address, KIND_REGISTERED, &memory)) {
        result = INVALID_VALUE;
    }
    return sim_call_end(result);
}

cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **values, cuda_address address)
{
    cuda_result result = BEGIN_INSIDE();
    const struct memory *memory = sim_memory_of((void *)(uintptr_t)address);
    for (unsigned i = 0; i < count && result == CUDA_OK; i++) {
        if (attributes[i] == CUDA_POINTER_MEMORY_TYPE) {
            unsigned known = memory != NULL && memory->kind <= KIND_MANAGED ? CUDA_MEMORY_DEVICE : CUDA_MEMORY_HOST;
            *(unsigned *)values[i] = memory == NULL ? 0 : known;
        } else if (attributes[i] == CUDA_POINTER_IS_MANAGED) {
            *(unsigned *)values[i] = memory != NULL && memory->kind == KIND_MANAGED;
        } else if (attributes[i] == CUDA_POINTER_DEVICE_ORDINAL) {
            *(int *)values[i] = memory == NULL ? -2 : memory->ordinal;
        } else {
            result = INVALID_VALUE;
        }
    }
    return sim_call_end(result);
}
