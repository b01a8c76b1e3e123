/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which members' processes have ended, by pidfd: it works across pid, network and mount namespaces, an unreaped
 * zombie counts as ended, a forked child that still holds sockets or mappings does not keep its parent alive, and a
 * reused process number is never taken for the old process.
 */
#ifndef CONVOY_NET_LIVENESS_H
#define CONVOY_NET_LIVENESS_H

#include "convoy/base.h"

#include <poll.h>
#include <stdbool.h>

struct convoy_liveness {
    struct pollfd *entries; /* [count]; fd -1 once ended. Borrows the descriptors. */
    uint32_t *members;      /* [count]: member index of each entry */
    uint32_t count;
    uint32_t invalid;       /* descriptors that somebody else closed: nothing is known of those members any more */
};

/* A close-on-exec pidfd of this process. SYSTEM: the kernel is older than 5.3, or a sandbox forbids it. gives */
int32_t convoy_liveness_self(int *pidfd_out, struct convoy_error *error);

/* The descriptor is a pidfd, of whatever process. */
bool convoy_liveness_is_pidfd(int fd);

/* Watches the members whose pidfd is not -1. pidfds: borrowed until fini. NO_MEMORY. */
int32_t convoy_liveness_init(struct convoy_liveness *liveness, const int *pidfds, uint32_t member_count);

/* One poll that does not wait. Sets ended[member] to 1 for each member whose process has ended, and returns how many
 * were found now (each is found once). Several members may share a process. Never allocates. ended: [member_count] */
uint32_t convoy_liveness_check(struct convoy_liveness *liveness, uint8_t *ended);

/* Safe on zeroed storage. Closes no descriptor. */
void convoy_liveness_fini(struct convoy_liveness *liveness);

#endif
