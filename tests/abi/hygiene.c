/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/hygiene.h"

#include "tests/lib/expect.h"
#include "tests/lib/tasks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What UCX patches when its memory hooks are on (see openucx/ucx issue 4190, open-mpi/ompi PR 10758). */
static const char *const hooked[HYGIENE_HOOKED] = {"mmap", "munmap", "mremap", "brk",
                                                     "sbrk", "shmat",  "shmdt",  "madvise"};

static size_t hash_environment(void)
{
    size_t hash = 5381;
    for (char **entry = environ; *entry != NULL; entry++) {
        for (const char *c = *entry; *c != '\0'; c++) {
            hash = hash * 33 + (unsigned char)*c;
        }
        hash = hash * 33 + 1;
    }
    return hash;
}

static unsigned list_fds(int *numbers_out, unsigned room)
{
    DIR *list = opendir("/proc/self/fd");
    EXPECT(list != NULL);
    unsigned count = 0;
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number == dirfd(list)) {
            continue;
        }
        if (count < room) {
            numbers_out[count] = number;
        }
        count++;
    }
    (void)closedir(list);
    return count;
}

/* Named mappings and anonymous ones alike; the heap and the stack may grow inside their one line each. */
static unsigned count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps != NULL);
    char line[512];
    unsigned count = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, ".so") != NULL || strstr(line, "memfd:") != NULL;
    }
    (void)fclose(maps);
    return count;
}

void hygiene_take(struct hygiene *picture)
{
    memset(picture, 0, sizeof *picture);
    for (int signal = 1; signal < HYGIENE_SIGNALS; signal++) {
        (void)sigaction(signal, NULL, &picture->actions[signal]); /* two numbers are the C library's own and refuse */
    }
    (void)pthread_sigmask(SIG_BLOCK, NULL, &picture->mask);
    picture->environment = environ;
    picture->environment_hash = hash_environment();
    for (size_t i = 0; i < HYGIENE_HOOKED; i++) {
        const void *code = dlsym(RTLD_DEFAULT, hooked[i]);
        EXPECT(code != NULL);
        memcpy(picture->code[i], code, HYGIENE_CODE_BYTES);
    }
    picture->threads = tasks_count();
    picture->fd_count = list_fds(picture->fds, HYGIENE_FDS_MAX);
    picture->mappings = count_mappings();
}

/* Field by field: the C library leaves a part of the mask unwritten. */
static int is_same_action(const struct sigaction *a, const struct sigaction *b)
{
    for (int signal = 1; signal < HYGIENE_SIGNALS; signal++) {
        if (sigismember(&a->sa_mask, signal) != sigismember(&b->sa_mask, signal)) {
            return 0;
        }
    }
    return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags;
}

static int is_same_mask(const sigset_t *a, const sigset_t *b)
{
    const struct sigaction left = {.sa_mask = *a};
    const struct sigaction right = {.sa_mask = *b};
    return is_same_action(&left, &right);
}

void hygiene_compare(const struct hygiene *before, const struct hygiene *after, int with_mappings)
{
    for (int signal = 1; signal < HYGIENE_SIGNALS; signal++) {
        if (!is_same_action(&before->actions[signal], &after->actions[signal])) {
            expect_fail(EXPECT_SITE("signal dispositions"), "signal %d is handled differently", signal);
        }
    }
    EXPECT(is_same_mask(&before->mask, &after->mask));
    EXPECT(before->environment == after->environment);
    EXPECT(before->environment_hash == after->environment_hash);
    for (size_t i = 0; i < HYGIENE_HOOKED; i++) {
        if (memcmp(before->code[i], after->code[i], HYGIENE_CODE_BYTES) != 0) {
            expect_fail(EXPECT_SITE("libc code"), "%s was patched", hooked[i]);
        }
    }
    EXPECT_EQUAL(after->threads, before->threads);
    EXPECT_EQUAL(after->fd_count, before->fd_count);
    EXPECT(memcmp(before->fds, after->fds, sizeof before->fds) == 0);
    if (with_mappings) {
        EXPECT_EQUAL(after->mappings, before->mappings);
    }
}
