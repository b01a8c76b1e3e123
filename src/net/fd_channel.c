/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fd_channel.h"

#include "core/clock.h"
#include "core/error.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_FLIGHT_RETRY_MS 1 /* nothing can be polled for "the receiver took some descriptors" */

union control_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(CONVOY_FD_MESSAGE_FDS_MAX * sizeof(int))];
};

/* Waits for `events` until the deadline; false when it has passed. A signal resumes the wait. */
static bool wait_for(int socket_fd, short events, uint64_t deadline_ns)
{
    struct pollfd entry = {.fd = socket_fd, .events = events};
    for (;;) {
        int ready = poll(&entry, 1, convoy_deadline_poll_ms(convoy_now_ns(), deadline_ns));
        if (ready > 0 || (ready < 0 && errno != EINTR)) {
            return true; /* a failed poll shows up in the call that follows */
        }
        if (ready == 0 && convoy_now_ns() >= deadline_ns) {
            return false;
        }
    }
}

static bool is_gone(int sys_errno)
{
    return sys_errno == EPIPE || sys_errno == ECONNRESET || sys_errno == ENOTCONN;
}

static void put_descriptors(struct msghdr *header, union control_room *room, const struct convoy_fd_message *message)
{
    if (message->fd_count == 0) {
        return;
    }
    size_t bytes = message->fd_count * sizeof(int);
    memset(room, 0, sizeof *room);
    header->msg_control = room->bytes;
    header->msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(control), message->fds, bytes);
}

int32_t convoy_fd_channel_send(int socket_fd, const struct convoy_fd_message *message, uint64_t deadline_ns,
                               struct convoy_error *error)
{
    union control_room room;
    struct iovec piece = {.iov_base = (void *)(uintptr_t)message->data, .iov_len = message->bytes};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    put_descriptors(&header, &room, message);
    for (;;) {
        if (sendmsg(socket_fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
            return CONVOY_OK;
        }
        int sys_errno = errno;
        if (is_gone(sys_errno)) {
            return convoy_error_set_errno(error, CONVOY_TRUNCATED, sys_errno, "the other end of the socket is gone");
        }
        if (sys_errno != EAGAIN && sys_errno != EINTR && sys_errno != ETOOMANYREFS) {
            return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "send on a Unix socket");
        }
        if (convoy_now_ns() >= deadline_ns || (sys_errno == EAGAIN && !wait_for(socket_fd, POLLOUT, deadline_ns))) {
            return convoy_error_set(error, CONVOY_TIMED_OUT, "the other end of the socket takes no messages");
        }
        if (sys_errno == ETOOMANYREFS) {
            (void)poll(NULL, 0, IN_FLIGHT_RETRY_MS);
        }
    }
}

static void get_descriptors(struct msghdr *header, struct convoy_fd_message *message)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control != NULL; control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        size_t room = CONVOY_FD_MESSAGE_FDS_MAX - message->fd_count; /* never less than count: the room was as large */
        memcpy(message->fds + message->fd_count, CMSG_DATA(control), (count < room ? count : room) * sizeof(int));
        message->fd_count += (uint32_t)(count < room ? count : room);
    }
}

/* What recvmsg gave, checked. */
static int32_t check_message(struct convoy_fd_message *message, int flags, struct convoy_error *error)
{
    if (message->bytes == 0) {
        return convoy_error_set(error, CONVOY_TRUNCATED, "the other end of the socket is gone");
    }
    if ((flags & MSG_TRUNC) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a message on a Unix socket is longer than %u bytes",
                                CONVOY_FD_MESSAGE_BYTES_MAX);
    }
    if ((flags & MSG_CTRUNC) != 0) {
        return convoy_error_set(error, CONVOY_LIMIT,
                                "descriptors of a message were lost (%u arrived): limit of open files reached, or more "
                                "than %u sent",
                                message->fd_count, CONVOY_FD_MESSAGE_FDS_MAX);
    }
    return CONVOY_OK;
}

int32_t convoy_fd_channel_recv(int socket_fd, struct convoy_fd_message *message_out, uint64_t deadline_ns,
                               struct convoy_error *error)
{
    union control_room room;
    struct iovec piece = {.iov_base = message_out->data, .iov_len = sizeof message_out->data};
    struct msghdr header;
    ssize_t bytes = -1;
    message_out->bytes = 0;
    message_out->fd_count = 0;
    do {
        if (!wait_for(socket_fd, POLLIN, deadline_ns)) {
            return convoy_error_set(error, CONVOY_TIMED_OUT, "nothing arrived on the socket");
        }
        header = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes};
        header.msg_controllen = sizeof room.bytes;
        bytes = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && (errno == EAGAIN || errno == EINTR));
    if (bytes < 0) {
        int32_t status = is_gone(errno) ? CONVOY_TRUNCATED : CONVOY_SYSTEM;
        return convoy_error_set_errno(error, status, errno, "receive on a Unix socket");
    }
    message_out->bytes = (uint32_t)bytes;
    get_descriptors(&header, message_out);
    int32_t status = check_message(message_out, header.msg_flags, error);
    if (status != CONVOY_OK) {
        convoy_fd_message_fini(message_out);
    }
    return status;
}

int32_t convoy_fd_channel_credentials(int socket_fd, struct convoy_fd_credentials *credentials_out)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || bytes != sizeof peer) {
        return CONVOY_SYSTEM;
    }
    *credentials_out = (struct convoy_fd_credentials){.pid = peer.pid, .uid = peer.uid};
    return CONVOY_OK;
}

void convoy_fd_message_fini(struct convoy_fd_message *message)
{
    for (uint32_t i = 0; i < message->fd_count; i++) {
        if (message->fds[i] >= 0) {
            (void)close(message->fds[i]);
        }
    }
    message->fd_count = 0;
    message->bytes = 0;
}

int convoy_fd_message_take(struct convoy_fd_message *message, uint32_t index)
{
    if (index >= message->fd_count) {
        return -1;
    }
    int taken = message->fds[index];
    message->fds[index] = -1;
    return taken;
}
