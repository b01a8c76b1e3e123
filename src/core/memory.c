/* SPDX-License-Identifier: Apache-2.0 */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef CONVOY_FAULTS
#include <stdatomic.h>
#include <stdbool.h>

static _Atomic int64_t memory_countdown = -1;
static _Atomic uint64_t memory_count;

static _Atomic bool memory_has_read_environment;

static void memory_read_environment(void)
{
    const char *text = getenv("CONVOY_FAIL_ALLOCATION");
    long number = text != NULL ? strtol(text, NULL, 10) : 0;
    if (number > 0) {
        atomic_store(&memory_countdown, number - 1);
    }
}

static bool memory_must_fail(void)
{
    if (!atomic_exchange(&memory_has_read_environment, true)) {
        memory_read_environment();
    }
    atomic_fetch_add(&memory_count, 1);
    if (atomic_load(&memory_countdown) < 0) {
        return false;
    }
    return atomic_fetch_sub(&memory_countdown, 1) == 0;
}

uint64_t convoy_memory_fail_after(int64_t skip)
{
    atomic_store(&memory_countdown, skip);
    return atomic_exchange(&memory_count, 0);
}
#else
#define memory_must_fail() 0
#endif

void *convoy_memory_zalloc(size_t bytes)
{
    return memory_must_fail() ? NULL : calloc(1, bytes != 0 ? bytes : 1);
}

void *convoy_memory_array(size_t count, size_t bytes)
{
    return memory_must_fail() ? NULL : calloc(count != 0 ? count : 1, bytes != 0 ? bytes : 1);
}

void *convoy_memory_aligned(size_t alignment, size_t bytes)
{
    void *pointer = NULL;
    if (memory_must_fail() || posix_memalign(&pointer, alignment, bytes != 0 ? bytes : alignment) != 0) {
        return NULL;
    }
    return memset(pointer, 0, bytes);
}

char *convoy_memory_text(const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? convoy_memory_zalloc(length + 1) : NULL;
    if (copy != NULL && length != 0) {
        memcpy(copy, text, length);
    }
    return copy;
}

#if defined(__SANITIZE_ADDRESS__)
#define TABLE_MAPPED_BYTES SIZE_MAX /* the sanitizer knows where an allocation ends, of a mapping it does not */
#else
#define TABLE_MAPPED_BYTES ((size_t)64 << 10)
#endif

/* In front of a table. */
struct table_head {
    size_t mapped_bytes; /* 0 = it was allocated */
    uint8_t rest[CONVOY_LINE_BYTES - sizeof(size_t)];
};

void *convoy_memory_table(size_t count, size_t bytes)
{
    if (memory_must_fail() || (bytes != 0 && count > (SIZE_MAX - sizeof(struct table_head)) / bytes)) {
        return NULL;
    }
    size_t all = sizeof(struct table_head) + count * bytes;
    struct table_head *head = NULL;
    if (all < TABLE_MAPPED_BYTES) {
        head = calloc(1, all);
        return head != NULL ? head + 1 : NULL;
    }
    head = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (head == MAP_FAILED) {
        return NULL;
    }
    head->mapped_bytes = all;
    return head + 1;
}

void convoy_memory_table_free(void *table)
{
    struct table_head *head = table != NULL ? (struct table_head *)table - 1 : NULL;
    if (head != NULL && head->mapped_bytes != 0) {
        (void)munmap(head, head->mapped_bytes);
    } else {
        free(head);
    }
}

/* -- several in one ------------------------------------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GAP_BYTES CONVOY_LINE_BYTES
#define CLOSE_GAP(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#else
#define GAP_BYTES 0u
#define CLOSE_GAP(at, bytes) ((void)(at), (void)(bytes))
#endif

void *convoy_memory_place(struct convoy_memory_plan *plan, size_t count, size_t bytes)
{
    size_t at = plan->used;
    if (at == SIZE_MAX || (bytes != 0 && count > (SIZE_MAX / 2 - at) / bytes)) {
        plan->used = SIZE_MAX;
        return NULL;
    }
    size_t whole = (count * bytes + CONVOY_LINE_BYTES - 1) / CONVOY_LINE_BYTES * CONVOY_LINE_BYTES;
    plan->used = at + whole + GAP_BYTES;
    if (plan->base == NULL) {
        return NULL;
    }
    CLOSE_GAP(plan->base + at + count * bytes, whole + GAP_BYTES - count * bytes);
    return plan->base + at;
}

bool convoy_memory_plan_make(struct convoy_memory_plan *plan)
{
    plan->base = plan->used != SIZE_MAX ? convoy_memory_table(1, plan->used) : NULL;
    plan->used = 0;
    return plan->base != NULL;
}

void convoy_memory_free(void *pointer)
{
    free(pointer);
}
