/* SPDX-License-Identifier: Apache-2.0 */
/* Time, pinning, shared memory, forked ranks and their barrier. */
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    (void)fflush(NULL);
    _exit(1);
}

uint64_t bench_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t bench_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    return (uint32_t)CPU_COUNT(&set);
}

void bench_pin(uint32_t rank)
{
    cpu_set_t allowed;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        bench_die("sched_getaffinity: %s", strerror(errno));
    }
    int skip = (int)(rank % (uint32_t)CPU_COUNT(&allowed));
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, &allowed) && skip-- == 0) {
            CPU_SET((size_t)core, &wanted);
        }
    }
    if (sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
        bench_die("sched_setaffinity: %s", strerror(errno));
    }
}

void *bench_share(size_t bytes, const char *path)
{
    int fd = -1;
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    if (path != NULL) {
        flags = MAP_SHARED;
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
            bench_die("%s: %s", path, strerror(errno));
        }
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) {
        bench_die("mmap: %s", strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return memory;
}

void bench_unshare(void *memory, size_t bytes)
{
    (void)munmap(memory, bytes);
}

void bench_fork(uint32_t first, uint32_t local, void (*run)(uint32_t rank, void *context), void *context)
{
    (void)fflush(NULL);
    for (uint32_t rank = first; rank < first + local; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            bench_pin(first / local + rank - first); /* the first ranks of two hosts must not share a core */
            run(rank, context);
            (void)fflush(NULL);
            _exit(0);
        }
        if (pid < 0) {
            bench_die("fork: %s", strerror(errno));
        }
    }
    for (uint32_t i = 0; i < local; i++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0) {
            bench_die("a rank failed (wait status %d)", status);
        }
    }
}

void bench_barrier(uint64_t *word, uint32_t parties)
{
    uint64_t ticket = __atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
    uint64_t full = (ticket + parties - 1) / parties * parties;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < full) {
        (void)sched_yield();
    }
}
