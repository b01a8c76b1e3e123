/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a socket with a deadline, unless canceled. */
#ifndef CONVOY_NET_WAIT_H
#define CONVOY_NET_WAIT_H

#include "core/clock.h"
#include "convoy/base.h"

#include <errno.h>
#include <poll.h>

/* How long, and what may interrupt it: the descriptor stays readable from the first cancel on. */
struct convoy_wait {
    int cancel_fd;
    uint64_t deadline_ns;
};

/* polls[0] must be free for the cancel descriptor. OK: something else is ready; TIMED_OUT; CANCELED. */
static inline int32_t convoy_wait_many(const struct convoy_wait *wait, struct pollfd *polls, nfds_t count)
{
    polls[0] = (struct pollfd){.fd = wait->cancel_fd, .events = POLLIN};
    for (;;) {
        int ready = poll(polls, count, convoy_deadline_poll_ms(convoy_now_ns(), wait->deadline_ns));
        if (ready > 0) {
            return polls[0].revents != 0 ? CONVOY_CANCELED : CONVOY_OK;
        }
        if ((ready == 0 || errno != EINTR) && convoy_now_ns() >= wait->deadline_ns) {
            return CONVOY_TIMED_OUT;
        }
    }
}

/* As above for one descriptor; fd -1 = only the time. */
static inline int32_t convoy_wait_one(const struct convoy_wait *wait, int fd, short events)
{
    struct pollfd polls[2] = {[1] = {.fd = fd, .events = events}};
    return convoy_wait_many(wait, polls, 2);
}

#endif
