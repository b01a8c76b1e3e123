/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener_port.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/frame.h"
#include "net/message.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024
#define ACCEPT_PAUSE_NS (20 * CONVOY_NS_PER_MS)

struct convoy_seat *convoy_listener_find_seat(const struct convoy_listener *listener, const char *name,
                                              uint32_t length)
{
    struct convoy_seat *seat = listener->seats;
    while (seat != NULL && (seat->group->name_length != length || memcmp(seat->group->name, name, length) != 0)) {
        seat = seat->next;
    }
    return seat;
}

/* -- one connection ---------------------------------------------------------------------------------------------- */

static void handshake_destroy(struct convoy_handshake *handshake)
{
    if (handshake->fd >= 0) {
        (void)close(handshake->fd);
    }
    convoy_memory_free(handshake);
}

/* Whom a stranger wanted to join nobody knows, so all groups that open here hear of it. */
static void stranger_drop(struct convoy_listener *listener, const struct convoy_handshake *handshake, const char *why)
{
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    char reason[CONVOY_SEAT_REASON_BYTES];
    convoy_address_text(&handshake->from, text);
    convoy_log_line(&listener->runtime->log, CONVOY_LOG_INFO, "rendezvous refuses %s: %s", text, why);
    listener->runtime->stranger_count++;
    (void)snprintf(reason, sizeof reason, "%s from %s", why, text);
    (void)pthread_mutex_lock(&listener->lock);
    for (struct convoy_seat *seat = listener->seats; seat != NULL; seat = seat->next) {
        convoy_seat_refuse(seat, reason);
    }
    (void)pthread_mutex_unlock(&listener->lock);
}

/* Sends why, as far as the empty buffer of the socket takes it. */
static void connection_refuse(int fd, const struct convoy_error *error, uint32_t flags)
{
    struct convoy_notice notice;
    uint8_t frame[CONVOY_FRAME_HEAD_BYTES + CONVOY_NOTICE_BYTES_MAX];
    convoy_notice_from_error(&notice, error, flags);
    uint32_t bytes = (uint32_t)convoy_notice_encode(&notice, frame + CONVOY_FRAME_HEAD_BYTES);
    convoy_frame_head_encode(frame, CONVOY_MESSAGE_REFUSED, bytes);
    (void)send(fd, frame, CONVOY_FRAME_HEAD_BYTES + bytes, MSG_NOSIGNAL);
}

static struct convoy_arrival *arrival_create(struct convoy_handshake *handshake, struct convoy_error *error)
{
    struct convoy_arrival *arrival = convoy_memory_zalloc(sizeof *arrival);
    uint8_t *bytes = convoy_memory_zalloc(handshake->theirs_bytes);
    if (arrival == NULL || bytes == NULL) {
        convoy_memory_free(arrival);
        convoy_memory_free(bytes);
        (void)convoy_error_set(error, CONVOY_NO_MEMORY, "the listener has no memory for a hello");
        return NULL;
    }
    memcpy(bytes, handshake->theirs, handshake->theirs_bytes);
    arrival->bytes = bytes;
    arrival->fd = -1;
    convoy_address_text(&handshake->from, arrival->from);
    if (convoy_hello_decode(bytes, handshake->theirs_bytes, &arrival->hello, error) != CONVOY_OK) {
        convoy_arrival_destroy(arrival);
        return NULL;
    }
    return arrival;
}

/* Puts the arrival into the queue of its group. NOT_FOUND: no such group here (yet). */
static int32_t arrival_deliver(struct convoy_listener *listener, struct convoy_arrival *arrival,
                               struct convoy_error *error)
{
    const struct convoy_hello_group *group = &arrival->hello.group;
    (void)pthread_mutex_lock(&listener->lock);
    struct convoy_seat *seat = NULL;
    if (arrival->hello.has_group) {
        seat = convoy_listener_find_seat(listener, group->name, group->name_length);
    }
    if (seat != NULL) {
        if (seat->last != NULL) {
            seat->last->next = arrival;
        } else {
            seat->first = arrival;
        }
        seat->last = arrival;
        (void)!eventfd_write(seat->event_fd, 1);
    } else {
        convoy_listener_note_asked(listener, arrival, error);
    }
    (void)pthread_mutex_unlock(&listener->lock);
    return seat != NULL ? CONVOY_OK : CONVOY_NOT_FOUND;
}

/* The other side has the secret: now its hello is read and its group looked for. */
static void handshake_finish(struct convoy_listener *listener, struct convoy_handshake *handshake)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_arrival *arrival = arrival_create(handshake, &error);
    if (arrival == NULL) {
        connection_refuse(handshake->fd, &error, error.status == CONVOY_NO_MEMORY ? CONVOY_NOTICE_RETRY : 0);
        return;
    }
    arrival->fd = handshake->fd;
    int fd = handshake->fd;
    handshake->fd = -1;
    if (arrival_deliver(listener, arrival, &error) != CONVOY_OK) {
        connection_refuse(fd, &error, CONVOY_NOTICE_RETRY);
        convoy_arrival_destroy(arrival);
    }
}

/* true: the connection is over or handed on. */
static bool handshake_advance(struct convoy_listener *listener, struct convoy_handshake *handshake)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_handshake_step(handshake, listener->runtime);
    if (status == CONVOY_IN_PROGRESS) {
        return false;
    }
    if (status == CONVOY_OK) {
        handshake_finish(listener, handshake);
    } else if (status == CONVOY_UNAUTHENTICATED) {
        (void)convoy_error_set(&error, status, "the connector does not hold the same secret");
        connection_refuse(handshake->fd, &error, 0);
        stranger_drop(listener, handshake, "wrong secret");
    } else {
        stranger_drop(listener, handshake, status == CONVOY_MALFORMED ? "no hello" : "a hello broken off");
    }
    return true;
}

/* -- the thread -------------------------------------------------------------------------------------------------- */

static void listener_accept_one(struct convoy_listener *listener)
{
    union convoy_address from = {.v6 = {.sin6_family = AF_INET6}};
    socklen_t bytes = sizeof from;
    int fd = accept4(listener->fd, &from.any, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        bool is_gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
        listener->resume_ns = is_gone ? 0 : convoy_now_ns() + ACCEPT_PAUSE_NS; /* no spinning while descriptors lack */
        return;
    }
    struct convoy_handshake *handshake = convoy_memory_zalloc(sizeof *handshake);
    if (handshake == NULL) {
        (void)close(fd);
        return;
    }
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    handshake->fd = fd;
    handshake->from = from;
    uint64_t patience_ns = listener->runtime->settings.hello_timeout_ms * CONVOY_NS_PER_MS;
    handshake->deadline_ns = convoy_deadline_after(convoy_now_ns(), patience_ns);
    listener->pending[listener->pending_count++] = handshake;
}

/* polls: stop, port, then one per pending connection. Returns how many. */
static nfds_t listener_fill_polls(const struct convoy_listener *listener, struct pollfd *polls, uint64_t *deadline_out)
{
    bool has_room = listener->pending_count < CONVOY_LISTENER_PENDING_MAX && listener->resume_ns == 0;
    polls[0] = (struct pollfd){.fd = listener->stop_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = has_room ? listener->fd : -1, .events = POLLIN};
    *deadline_out = listener->resume_ns != 0 ? listener->resume_ns : CONVOY_DEADLINE_NEVER;
    for (uint32_t i = 0; i < listener->pending_count; i++) {
        polls[2 + i] = (struct pollfd){.fd = listener->pending[i]->fd, .events = POLLIN};
        if (listener->pending[i]->deadline_ns < *deadline_out) {
            *deadline_out = listener->pending[i]->deadline_ns;
        }
    }
    return 2 + listener->pending_count;
}

/* Advances and times out pending connections; keeps the rest, in order. */
static void listener_serve_pending(struct convoy_listener *listener, const struct pollfd *polls)
{
    uint64_t now_ns = convoy_now_ns();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < listener->pending_count; i++) {
        struct convoy_handshake *handshake = listener->pending[i];
        bool is_over = polls[2 + i].revents != 0 && handshake_advance(listener, handshake);
        if (!is_over && now_ns >= handshake->deadline_ns) {
            stranger_drop(listener, handshake, "silence or half a hello");
            is_over = true;
        }
        if (is_over) {
            handshake_destroy(handshake);
        } else {
            listener->pending[kept++] = handshake;
        }
    }
    listener->pending_count = kept;
}

static void *listener_main(void *argument)
{
    struct convoy_listener *listener = argument;
    struct pollfd polls[2 + CONVOY_LISTENER_PENDING_MAX];
    for (;;) {
        uint64_t deadline_ns;
        nfds_t count = listener_fill_polls(listener, polls, &deadline_ns);
        int timeout_ms = convoy_deadline_poll_ms(convoy_now_ns(), deadline_ns);
        timeout_ms = deadline_ns == CONVOY_DEADLINE_NEVER ? -1 : timeout_ms;
        if (poll(polls, count, timeout_ms) < 0) {
            continue; /* signals are blocked here; out of memory for a moment */
        }
        if (polls[0].revents != 0) {
            return NULL;
        }
        listener_serve_pending(listener, polls);
        listener->resume_ns = convoy_now_ns() < listener->resume_ns ? listener->resume_ns : 0;
        if (polls[1].revents != 0) {
            listener_accept_one(listener);
        }
    }
}

/* -- the port ---------------------------------------------------------------------------------------------------- */

static int32_t port_bind(int fd, const union convoy_address *address, struct convoy_error *error)
{
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    int on = 1;
    int off = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* opening again right after close works */
    if (address->any.sa_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, &address->any, convoy_address_bytes(address)) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        int failed = errno;
        convoy_address_text(address, text);
        return convoy_error_set_errno(error, CONVOY_SYSTEM, failed, "cannot listen at %s", text);
    }
    return CONVOY_OK;
}

static int32_t listener_start(struct convoy_listener *listener, struct convoy_error *error)
{
    listener->fd = socket(listener->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    listener->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (listener->fd < 0 || listener->stop_fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "cannot make a socket to listen");
    }
    int32_t status = port_bind(listener->fd, &listener->address, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_runtime_thread_start(listener->runtime, "listen", listener_main, listener, &listener->thread);
    if (status != CONVOY_OK) {
        return convoy_error_set_errno(error, status, errno, "cannot start a thread to listen");
    }
    return CONVOY_OK;
}

static void listener_free(struct convoy_listener *listener)
{
    for (uint32_t i = 0; i < listener->pending_count; i++) {
        handshake_destroy(listener->pending[i]);
    }
    if (listener->fd >= 0) {
        (void)close(listener->fd);
    }
    if (listener->stop_fd >= 0) {
        (void)close(listener->stop_fd);
    }
    (void)pthread_mutex_destroy(&listener->lock);
    convoy_memory_free(listener);
}

int32_t convoy_listener_open(struct convoy_runtime *runtime, const union convoy_address *address,
                             struct convoy_listener **listener_out, struct convoy_error *error)
{
    struct convoy_listener *listener = convoy_memory_zalloc(sizeof *listener);
    if (listener == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a listener of %zu bytes", sizeof *listener);
    }
    listener->runtime = runtime;
    listener->address = *address;
    (void)pthread_mutex_init(&listener->lock, NULL);
    int32_t status = listener_start(listener, error);
    if (status != CONVOY_OK) {
        listener_free(listener);
        return status;
    }
    *listener_out = listener;
    return CONVOY_OK;
}

void convoy_listener_destroy(struct convoy_listener *listener)
{
    (void)!eventfd_write(listener->stop_fd, 1);
    convoy_runtime_thread_join(listener->runtime, listener->thread);
    listener_free(listener);
}
