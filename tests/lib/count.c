/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/count.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer)
#define CAN_COUNT 0
#else
#define CAN_COUNT 1
#endif

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
#define SELECTOR_ALLOW 0
#define SELECTOR_BLOCK 1

/* The kernel reads `selector` at each system call; a counting thread must not share it. */
static _Thread_local volatile char selector;
static _Thread_local volatile int is_counting;
static _Thread_local struct count current;

#if CAN_COUNT

/* glibc's own names of what the functions below stand in front of. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

extern void *malloc(size_t bytes) __attribute__((visibility("default")));
extern void *calloc(size_t count, size_t bytes) __attribute__((visibility("default")));
extern void *realloc(void *block, size_t bytes) __attribute__((visibility("default")));
extern void *aligned_alloc(size_t alignment, size_t bytes) __attribute__((visibility("default")));
extern int posix_memalign(void **block_out, size_t alignment, size_t bytes) __attribute__((visibility("default")));
extern void free(void *block) __attribute__((visibility("default")));

static void note(void)
{
    if (is_counting) {
        current.allocations++;
    }
}

void *malloc(size_t bytes)
{
    note();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    note();
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    note();
    return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    note();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block_out, size_t alignment, size_t bytes)
{
    note();
    void *block = __libc_memalign(alignment, bytes);
    if (block == NULL) {
        return ENOMEM;
    }
    *block_out = block;
    return 0;
}

void free(void *block)
{
    note();
    __libc_free(block);
}

#endif

/* The selector must be open again before this returns: returning from a handler is a system call. */
static void on_system_call(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    selector = SELECTOR_ALLOW;
    current.system_calls = 1;
    current.system_call = info->si_syscall;
}

static int clock_makes_a_system_call(void)
{
    struct count count;
    struct timespec now;
    count_start();
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    count_stop(&count);
    return count.system_calls != 0;
}

const char *count_prepare(void)
{
    if (!CAN_COUNT) {
        return "sanitizers stand in front of malloc themselves";
    }
    struct sigaction action = {.sa_sigaction = on_system_call, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL) != 0) {
        return "no handler for SIGSYS";
    }
    selector = SELECTOR_ALLOW;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &selector) != 0) {
        return "the kernel has no syscall user dispatch (Linux 5.11, x86-64)";
    }
    return clock_makes_a_system_call() ? "reading the clock is a system call on this machine" : NULL;
}

void count_start_allocations(void)
{
    current = (struct count){0};
    is_counting = 1;
}

void count_start(void)
{
    count_start_allocations();
    selector = SELECTOR_BLOCK;
}

void count_stop(struct count *count_out)
{
    selector = SELECTOR_ALLOW;
    is_counting = 0;
    *count_out = current;
}
