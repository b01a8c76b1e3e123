/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dial.h"

#include "core/error.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection attempt to a free port of this host can meet itself: both ends are the same socket. */
static bool socket_is_own_peer(int fd)
{
    union convoy_address own = {.v6 = {.sin6_family = AF_INET6}};
    union convoy_address peer = own;
    socklen_t own_bytes = sizeof own;
    socklen_t peer_bytes = sizeof peer;
    return getsockname(fd, &own.any, &own_bytes) == 0 && getpeername(fd, &peer.any, &peer_bytes) == 0 &&
           convoy_address_is_equal(&own, &peer);
}

/* Returns 0 or an errno. */
static int socket_finish_connect(int fd, const struct convoy_wait *wait, int32_t *status_out)
{
    int failed = 0;
    socklen_t bytes = sizeof failed;
    *status_out = convoy_wait_one(wait, fd, POLLOUT);
    if (*status_out != CONVOY_OK) {
        return ETIMEDOUT;
    }
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
    return failed;
}

static int32_t dial_one(const union convoy_address *address, const struct convoy_wait *wait, int *fd_out,
                        struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    int on = 1;
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = fd < 0 ? errno : 0;
    if (failed == 0 && connect(fd, &address->any, convoy_address_bytes(address)) != 0) {
        failed = errno == EINPROGRESS || errno == EINTR ? socket_finish_connect(fd, wait, &status) : errno;
    }
    if (failed == 0 && socket_is_own_peer(fd)) {
        failed = ECONNREFUSED;
    }
    if (failed == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        *fd_out = fd;
        return CONVOY_OK;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    convoy_address_text(address, text);
    return status == CONVOY_CANCELED
               ? status
               : convoy_error_set_errno(error, CONVOY_UNREACHABLE, failed, "connect to %s", text);
}

int32_t convoy_dial(const struct convoy_rendezvous *where, const struct convoy_wait *wait, int *fd_out,
                    struct convoy_error *error)
{
    struct convoy_address_list list;
    int32_t status = convoy_rendezvous_resolve(where, &list, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = CONVOY_UNREACHABLE;
    for (uint32_t i = 0; i < list.count && status == CONVOY_UNREACHABLE; i++) {
        status = dial_one(&list.addresses[i], wait, fd_out, error);
    }
    return status;
}
