/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's part in the exchange between hosts, on its way to another build. Its worker cannot be handed over: UCX calls
 * back into the build that made it. So the importer opens one of its own and tells the others (remote_rewire.c).
 *
 *   stage      freeze   save   thaw                       restore   retire            discard
 *   (none)     -        -      -                          restored  -                 -
 *   running    frozen   -      -                          -         -                 freed
 *   frozen     frozen   ok     running; announces itself  -         hands on, freed   -
 *                              if it was ever saved
 *   restored   -        -      running; announces itself  -         -                 freed
 *
 * The exporter's worker stays until the importer has been heard by everybody, for REMOTE_LEAVE_NS at most: whatever still
 * comes to it goes to the importer through a pair of sockets, as it is. So two members that move at the same time find each
 * other, though each knows only where the other was. What does not fit into the sockets is dropped, like what is on its way
 * when a worker ends, and asked for again.
 */
#include "round/remote_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define REMOTE_SENDS_NS (50 * CONVOY_NS_PER_MS) /* what a freeze gives to sends under way; the worker goes on with them later */
#define REMOTE_LEAVE_NS (2 * CONVOY_NS_PER_S)   /* ten of the longest gaps between two announcements */
#define REMOTE_LEAVE_LOOK_NS (10 * CONVOY_NS_PER_MS)

static void move_close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* -- freeze and thaw ----------------------------------------------------------------------------------------------- */

int32_t convoy_remote_freeze(struct convoy_engine *engine, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    (void)error;
    if (remote->stage != CONVOY_REMOTE_RUNNING) {
        return CONVOY_OK;
    }
    convoy_remote_stop(remote);
    (void)pthread_mutex_lock(&remote->lock);
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), REMOTE_SENDS_NS);
    (void)convoy_link_progress(remote->link);
    while (convoy_link_pending(remote->link) != 0 && convoy_now_ns() < deadline) {
        (void)convoy_link_progress(remote->link);
    }
    if (remote->unanswered == 0) { /* else it is down since an earlier move */
        remote->frozen_ns = convoy_now_ns();
    }
    remote->stage = CONVOY_REMOTE_FROZEN;
    (void)pthread_mutex_unlock(&remote->lock);
    return CONVOY_OK;
}

static int32_t move_check_address(const struct convoy_link *link, struct convoy_error *error)
{
    size_t bytes = 0;
    size_t room = CONVOY_REWIRE_BYTES_MAX - sizeof(struct convoy_rewire_body);
    (void)convoy_link_address(link, &bytes);
    return bytes <= room ? CONVOY_OK
                         : convoy_error_set(error, CONVOY_INIT_FAILED,
                                            "the network address of this member has %zu bytes, at most %zu fit into a message",
                                            bytes, room);
}

int32_t convoy_remote_link_up(struct convoy_remote *remote, struct convoy_error *error)
{
    if (remote->stage == CONVOY_REMOTE_RESTORED) {
        struct convoy_link *link = NULL;
        int32_t status = convoy_remote_link_open(remote, &link, error);
        if (status == CONVOY_OK) {
            status = move_check_address(link, error);
        }
        if (status != CONVOY_OK) {
            convoy_link_close(link, convoy_now_ns());
            return status;
        }
        __atomic_store_n(&remote->link, link, __ATOMIC_RELEASE);
    }
    remote->stage = CONVOY_REMOTE_RUNNING;
    return CONVOY_OK;
}

void convoy_remote_link_down(struct convoy_remote *remote, enum convoy_remote_stage stage)
{
    remote->stage = stage;
    if (stage == CONVOY_REMOTE_RESTORED) {
        struct convoy_link *link = remote->link;
        __atomic_store_n(&remote->link, NULL, __ATOMIC_RELEASE);
        convoy_link_close(link, convoy_now_ns());
    }
}

int32_t convoy_remote_thaw(struct convoy_engine *engine, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    (void)pthread_mutex_lock(&remote->lock);
    enum convoy_remote_stage stage = remote->stage;
    if (stage == CONVOY_REMOTE_RUNNING) {
        (void)pthread_mutex_unlock(&remote->lock);
        return CONVOY_OK;
    }
    int32_t status = convoy_remote_link_up(remote, error);
    if (status == CONVOY_OK) {
        status = convoy_remote_start(engine, error);
        if (status != CONVOY_OK) {
            convoy_remote_link_down(remote, stage);
        }
    }
    bool is_told = stage == CONVOY_REMOTE_RESTORED || remote->to_fd >= 0; /* an importer may have announced itself */
    if (status == CONVOY_OK && is_told) {
        convoy_remote_announce(remote, convoy_now_ns());
    }
    if (status == CONVOY_OK) {
        move_close_fd(&remote->to_fd);
        move_close_fd(&remote->heir_fd);
    }
    (void)pthread_mutex_unlock(&remote->lock);
    return status;
}

/* -- handing on ---------------------------------------------------------------------------------------------------- */

void convoy_remote_hand_on(struct convoy_remote *remote, const void *header, size_t header_bytes, const void *data,
                           size_t bytes)
{
    if (remote->to_fd < 0 || header_bytes != sizeof(struct convoy_message) || bytes > CONVOY_REMOTE_HAND_ON_BYTES) {
        return;
    }
    struct iovec parts[2] = {{.iov_base = (void *)(uintptr_t)header, .iov_len = header_bytes},
                             {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    (void)!sendmsg(remote->to_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The exporter, if it still waits, sees its end hang up. */
void convoy_remote_end_take_over(struct convoy_remote *remote)
{
    move_close_fd(&remote->from_fd);
}

void convoy_remote_take_over(struct convoy_remote *remote)
{
    const size_t header_bytes = sizeof(struct convoy_message);
    while (remote->from_fd >= 0) {
        ssize_t got = recv(remote->from_fd, remote->forwarded, header_bytes + CONVOY_REMOTE_HAND_ON_BYTES, MSG_DONTWAIT);
        if (got < (ssize_t)header_bytes) {
            bool is_later = got < 0 && (errno == EAGAIN || errno == EINTR);
            if (!is_later) { /* the exporter's worker is gone */
                move_close_fd(&remote->from_fd);
            }
            return;
        }
        convoy_remote_recv(remote, remote->forwarded, header_bytes, remote->forwarded + header_bytes,
                           (size_t)got - header_bytes);
    }
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* false: the importer has not been heard by everybody, and there is time left. */
bool convoy_remote_is_left(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    if (remote == NULL || remote->to_fd < 0) {
        return true;
    }
    uint64_t now = convoy_now_ns();
    if (remote->leave_ns == 0) {
        remote->leave_ns = convoy_deadline_after(now, REMOTE_LEAVE_NS);
        move_close_fd(&remote->heir_fd); /* from here on the other end is the importer's alone */
    }
    (void)pthread_mutex_lock(&remote->lock);
    (void)convoy_link_progress(remote->link);
    convoy_remote_take_over(remote);
    (void)pthread_mutex_unlock(&remote->lock);
    struct pollfd look = {.fd = remote->to_fd, .events = POLLOUT};
    bool is_hung_up = poll(&look, 1, 0) == 1 && (look.revents & (POLLHUP | POLLERR)) != 0;
    return is_hung_up || now >= remote->leave_ns;
}

void convoy_remote_retire(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    while (!convoy_remote_is_left(engine)) {
        convoy_link_sleep(remote->link, remote->to_fd, convoy_deadline_after(convoy_now_ns(), REMOTE_LEAVE_LOOK_NS));
    }
    convoy_remote_discard(engine);
}

/* Also one that runs already, when something else of its context could not be thawed. */
void convoy_remote_discard(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    if (remote == NULL) {
        return;
    }
    convoy_remote_stop(remote);
    convoy_link_close(remote->link, convoy_now_ns());
    engine->remote = NULL;
    convoy_remote_free(remote);
}
