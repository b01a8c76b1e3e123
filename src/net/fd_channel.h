/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with file descriptors over a Unix SOCK_SEQPACKET socket: bounded, whole or not at all, every wait with a
 * deadline, every descriptor close-on-exec. Knows nothing of what the messages mean.
 */
#ifndef CONVOY_NET_FD_CHANNEL_H
#define CONVOY_NET_FD_CHANNEL_H

#include "convoy/base.h"

#include <sys/types.h>

#define CONVOY_FD_MESSAGE_BYTES_MAX 512u
#define CONVOY_FD_MESSAGE_FDS_MAX 64u

/* One message. Whoever received it owns the descriptors in it that are not -1. */
struct convoy_fd_message {
    uint32_t bytes;
    uint32_t fd_count;
    int fds[CONVOY_FD_MESSAGE_FDS_MAX];
    _Alignas(8) uint8_t data[CONVOY_FD_MESSAGE_BYTES_MAX];
};

/* Who opened the other end, as this process's namespaces show it (pid 0: not visible from here). */
struct convoy_fd_credentials {
    pid_t pid;
    uid_t uid;
};

/* Sends a message of 1 to BYTES_MAX bytes; borrows the descriptors. TIMED_OUT, TRUNCATED: the other end is gone.
 * SYSTEM. Retries while too many descriptors are in flight. */
int32_t convoy_fd_channel_send(int socket_fd, const struct convoy_fd_message *message, uint64_t deadline_ns,
                               struct convoy_error *error);

/*
 * Receives one message. On failure nothing is held and the message is empty. TIMED_OUT; TRUNCATED: the other end is
 * gone; MALFORMED: longer than BYTES_MAX; LIMIT: descriptors were lost (more than FDS_MAX, or this process's limit of
 * open files); SYSTEM. A deadline that has passed still takes a message that is there.
 */
int32_t convoy_fd_channel_recv(int socket_fd, struct convoy_fd_message *message_out, uint64_t deadline_ns,
                               struct convoy_error *error);

/* SYSTEM when the kernel does not say. */
int32_t convoy_fd_channel_credentials(int socket_fd, struct convoy_fd_credentials *credentials_out);

/* Closes the descriptors that are left in it. */
void convoy_fd_message_fini(struct convoy_fd_message *message);

/* Takes the descriptor at `index` out of the message, or -1. gives */
int convoy_fd_message_take(struct convoy_fd_message *message, uint32_t index);

#endif
