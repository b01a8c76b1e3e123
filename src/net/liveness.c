/* SPDX-License-Identifier: Apache-2.0 */
#include "net/liveness.h"

#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define WAIT_BY_PIDFD ((idtype_t)3) /* P_PIDFD; glibc names it since 2.36 only */

/* The raw call: glibc wraps it since 2.36, and our floor is lower. */
int32_t convoy_liveness_self(int *pidfd_out, struct convoy_error *error)
{
    long pidfd = syscall(SYS_pidfd_open, getpid(), 0);
    if (pidfd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "pidfd_open");
    }
    *pidfd_out = (int)pidfd;
    return CONVOY_OK;
}

bool convoy_liveness_is_pidfd(int fd)
{
    siginfo_t info;
    /* Looks only, reaps nothing. ECHILD: a pidfd, but not of a child. */
    return waitid(WAIT_BY_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno == ECHILD;
}

int32_t convoy_liveness_init(struct convoy_liveness *liveness, const int *pidfds, uint32_t member_count)
{
    struct pollfd *entries = convoy_memory_array(member_count, sizeof *entries);
    uint32_t *members = convoy_memory_array(member_count, sizeof *members);
    if (entries == NULL || members == NULL) {
        convoy_memory_free(entries);
        convoy_memory_free(members);
        return CONVOY_NO_MEMORY;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < member_count; i++) {
        if (pidfds[i] >= 0) {
            entries[count] = (struct pollfd){.fd = pidfds[i], .events = POLLIN};
            members[count++] = i;
        }
    }
    *liveness = (struct convoy_liveness){.entries = entries, .members = members, .count = count};
    return CONVOY_OK;
}

uint32_t convoy_liveness_check(struct convoy_liveness *liveness, uint8_t *ended)
{
    if (liveness->count == 0 || poll(liveness->entries, liveness->count, 0) <= 0) {
        return 0; /* a signal or lack of kernel memory: the next check will tell */
    }
    uint32_t found = 0;
    for (uint32_t i = 0; i < liveness->count; i++) {
        struct pollfd *entry = &liveness->entries[i];
        if (entry->fd < 0 || entry->revents == 0) {
            continue;
        }
        if ((entry->revents & POLLNVAL) != 0) { /* closed behind our back is no proof of death */
            liveness->invalid++;
        } else {
            ended[liveness->members[i]] = 1;
            found++;
        }
        entry->fd = -1;
        entry->revents = 0;
    }
    return found;
}

void convoy_liveness_fini(struct convoy_liveness *liveness)
{
    convoy_memory_free(liveness->entries);
    convoy_memory_free(liveness->members);
    *liveness = (struct convoy_liveness){0};
}
