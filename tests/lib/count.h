/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts allocations and system calls of the calling thread between count_start and count_stop. Allocations are seen
 * because the test program's own malloc family comes before libc's, for libraries too; system calls because the kernel
 * hands them to a signal handler instead of running them (syscall user dispatch, Linux 5.11), so the first one ends
 * the counting of system calls and is remembered. Not with sanitizers, which need the malloc family themselves.
 */
#ifndef TESTS_LIB_COUNT_H
#define TESTS_LIB_COUNT_H

#include <stdint.h>

struct count {
    uint64_t allocations;  /* malloc, calloc, realloc, aligned ones; free counts too */
    uint64_t system_calls; /* 0 or 1 */
    int system_call;       /* its number */
};

/* NULL, or why this program cannot count on this machine. To be called on each thread that counts, before it does. */
const char *count_prepare(void);

void count_start(void);
/* Allocations alone, where system calls are needed to go on. */
void count_start_allocations(void);
void count_stop(struct count *count_out);

#endif
