/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every heap allocation of the library goes through here, so that tests can count them and make the n-th one fail.
 * The hook is compiled in only with CONVOY_FAULTS (test builds); the release build calls the C library straight.
 */
#ifndef CONVOY_CORE_MEMORY_H
#define CONVOY_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_LINE_BYTES 64u /* of the processors' caches */

/* Zeroed memory, or NULL. bytes 0 gives a unique pointer. */
void *convoy_memory_zalloc(size_t bytes);

/* Zeroed array; NULL also when count * bytes overflows. */
void *convoy_memory_array(size_t count, size_t bytes);

/* Zeroed memory aligned to `alignment`, a power of two. */
void *convoy_memory_aligned(size_t alignment, size_t bytes);

/* Copy of length bytes plus a zero, or NULL. */
char *convoy_memory_text(const char *text, size_t length);

void convoy_memory_free(void *pointer);

/*
 * Zeroed table of which much may never be used: pages that nobody touches cost neither time nor memory, however often such
 * tables come and go. NULL also when count * bytes overflows. Freed by convoy_memory_table_free only; by the same build.
 */
void *convoy_memory_table(size_t count, size_t bytes);
void convoy_memory_table_free(void *table);

/*
 * Several tables in one, for those that come and go together: one mapping costs less than many. Each is placed twice, by the
 * same function: without memory (all pointers NULL), which adds up, and with it. The first one placed is what is freed.
 *
 *     struct convoy_memory_plan plan = {0};
 *     place(things, &plan);
 *     if (convoy_memory_plan_make(&plan)) { place(things, &plan); }
 */
struct convoy_memory_plan {
    uint8_t *base;
    size_t used; /* SIZE_MAX: more than there can be */
};
void *convoy_memory_place(struct convoy_memory_plan *plan, size_t count, size_t bytes);
/* false: there is no memory, and all pointers stay NULL. */
bool convoy_memory_plan_make(struct convoy_memory_plan *plan);

#ifdef CONVOY_FAULTS
/* Makes the allocation after `skip` more fail, once; negative = never. Returns allocations made since the last call.
 * CONVOY_FAIL_ALLOCATION=<n> in the environment does it for the n-th of the process (1 = the first): for tests that only
 * load the library. */
uint64_t convoy_memory_fail_after(int64_t skip);
#endif

#endif
