/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections on their way in, on the progress thread, which never waits for one of them:
 *
 *   HELLO -> INTRODUCE -> LOCAL -> (a peer)               on this host
 *                      -> OPENING -> BULK  -> (a peer)    without shared memory; OPENING: until UCX is open
 *
 * every step within hello_timeout_ms, OPENING within the engine's timeout; strangers are counted and dropped
 */
#include "xfer/door.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/message.h"
#include "xfer/far.h"
#include "xfer/resize.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ARRIVALS 32u
#define BACKLOG 64

enum arrival_step { ARRIVAL_FREE = 0, ARRIVAL_HELLO, ARRIVAL_INTRODUCE, ARRIVAL_LOCAL, ARRIVAL_OPENING, ARRIVAL_BULK };

struct arrival {
    enum arrival_step step;
    uint64_t deadline_ns;
    struct convoy_handshake *handshake; /* HELLO */
    struct convoy_frame_stream stream;  /* from then on */
    struct convoy_introduction theirs;
    struct convoy_local_socket_target target;
    uint8_t nonce[CONVOY_INTRODUCE_NONCE_BYTES];
};

/* A connection at the local socket, until its message is there. */
struct caller {
    int fd; /* -1 = free */
    uint64_t deadline_ns;
};

struct convoy_xfer_pending {
    struct arrival arrivals[ARRIVALS];
    struct caller callers[ARRIVALS];
    struct convoy_fd_message message;
};

static uint64_t step_deadline(const struct convoy_xfer *engine)
{
    return convoy_deadline_after(convoy_now_ns(), engine->runtime->settings.hello_timeout_ms * CONVOY_NS_PER_MS);
}

static void drop(struct arrival *arrival)
{
    if (arrival->handshake != NULL) {
        if (arrival->handshake->fd >= 0) {
            (void)close(arrival->handshake->fd);
        }
        convoy_memory_free(arrival->handshake);
    }
    if (arrival->step > ARRIVAL_HELLO) {
        convoy_frame_close(&arrival->stream);
    }
    *arrival = (struct arrival){.stream = {.fd = -1}};
}

/* -- the port ------------------------------------------------------------------------------------------------------ */

static int32_t listen_at(struct convoy_xfer *engine, const union convoy_address *address, struct convoy_error *error)
{
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    int on = 1;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    if (fd < 0 || bind(fd, &address->any, convoy_address_bytes(address)) != 0 || listen(fd, BACKLOG) != 0) {
        int failed = errno;
        convoy_address_text(address, text);
        if (fd >= 0) {
            (void)close(fd);
        }
        return convoy_error_set_errno(error, CONVOY_SYSTEM, failed, "option address: listen at %s", text);
    }
    engine->tcp_fd = fd;
    return CONVOY_OK;
}

static void set_port(union convoy_address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET6) {
        address->v6.sin6_port = htons(port);
    } else {
        address->v4.sin_port = htons(port);
    }
}

/* Which one the kernel has picked. */
static void note_port(struct convoy_xfer *engine)
{
    union convoy_address own;
    socklen_t bytes = sizeof own;
    if (getsockname(engine->tcp_fd, &own.any, &bytes) == 0) {
        engine->options.port = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
    }
}

int32_t convoy_xfer_door_room(struct convoy_xfer *engine, struct convoy_error *error)
{
    engine->pending = convoy_memory_zalloc(sizeof *engine->pending);
    engine->polls = convoy_memory_array(convoy_xfer_polls_max(engine->options.peer_max), sizeof *engine->polls);
    for (uint32_t i = 0; engine->pending != NULL && i < ARRIVALS; i++) {
        engine->pending->arrivals[i].stream.fd = -1;
        engine->pending->callers[i].fd = -1;
    }
    if (engine->pending == NULL || engine->polls == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for connections");
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_door_open(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_rendezvous where = {.port = engine->options.port != 0 ? engine->options.port : 1};
    struct convoy_address_list list;
    memcpy(where.host, engine->options.host, sizeof where.host);
    int32_t status = convoy_xfer_door_room(engine, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_rendezvous_candidates(&where, &list);
    status = CONVOY_SYSTEM;
    for (uint32_t i = 0; i < list.count && status != CONVOY_OK; i++) {
        set_port(&list.addresses[i], engine->options.port);
        status = listen_at(engine, &list.addresses[i], error);
    }
    if (status == CONVOY_OK) {
        note_port(engine);
    }
    return status;
}

void convoy_xfer_door_drop(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; engine->pending != NULL && i < ARRIVALS; i++) {
        drop(&engine->pending->arrivals[i]);
        if (engine->pending->callers[i].fd >= 0) {
            (void)close(engine->pending->callers[i].fd);
            engine->pending->callers[i].fd = -1;
        }
    }
}

void convoy_xfer_door_close(struct convoy_xfer *engine)
{
    if (engine->tcp_fd >= 0) {
        (void)close(engine->tcp_fd);
        engine->tcp_fd = -1;
    }
    convoy_xfer_door_drop(engine);
    convoy_memory_free(engine->pending);
    convoy_memory_free(engine->polls);
    engine->pending = NULL;
    engine->polls = NULL;
}

uint32_t convoy_xfer_door_polls(struct convoy_xfer *engine, struct pollfd *polls, uint32_t room)
{
    const int listening[] = {engine->tcp_fd, engine->local.abstract_fd, engine->local.path_fd};
    uint32_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        polls[count++] = (struct pollfd){.fd = listening[i], .events = POLLIN};
    }
    for (uint32_t i = 0; i < ARRIVALS && count + 2 <= room; i++) {
        const struct arrival *arrival = &engine->pending->arrivals[i];
        int fd = arrival->step == ARRIVAL_HELLO ? arrival->handshake->fd : arrival->stream.fd;
        bool is_watched = arrival->step != ARRIVAL_FREE && arrival->step != ARRIVAL_OPENING; /* that one's turn is ours */
        polls[count++] = (struct pollfd){.fd = is_watched ? fd : -1, .events = POLLIN};
        polls[count++] = (struct pollfd){.fd = engine->pending->callers[i].fd, .events = POLLIN};
    }
    return count;
}

/* -- steps --------------------------------------------------------------------------------------------------------- */

static void take_connections(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < ARRIVALS; i++) {
        struct arrival *arrival = &engine->pending->arrivals[i];
        if (arrival->step != ARRIVAL_FREE) {
            continue;
        }
        int fd = accept4(engine->tcp_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        arrival->handshake = convoy_memory_zalloc(sizeof *arrival->handshake);
        if (arrival->handshake == NULL) {
            (void)close(fd);
            return;
        }
        arrival->handshake->fd = fd;
        arrival->step = ARRIVAL_HELLO;
        arrival->deadline_ns = step_deadline(engine);
    }
}

static void take_callers(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < ARRIVALS; i++) {
        struct caller *caller = &engine->pending->callers[i];
        if (caller->fd < 0) {
            caller->fd = convoy_local_socket_accept(&engine->local);
            caller->deadline_ns = step_deadline(engine);
        }
        if (caller->fd < 0) {
            return;
        }
    }
}

static void refuse(struct arrival *arrival, const struct convoy_error *error, uint32_t flags)
{
    struct convoy_notice notice;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX];
    convoy_notice_from_error(&notice, error, flags);
    uint32_t count = (uint32_t)convoy_notice_encode(&notice, bytes);
    if (convoy_frame_queue(&arrival->stream, CONVOY_INTRODUCE_REFUSED, bytes, count) == CONVOY_OK) {
        (void)convoy_frame_flush(&arrival->stream); /* so little fits the socket */
    }
}

/* Two engines that connect to each other at once make one connection: that of the smaller incarnation. */
static bool is_crossing(struct convoy_xfer *engine, const struct convoy_introduction *theirs)
{
    bool is_known = convoy_xfer_peer_by_incarnation(engine, theirs->incarnation) != NULL;
    for (uint32_t i = 0; i < CONVOY_XFER_DIALS; i++) {
        is_known = is_known || (engine->dials[i] == theirs->incarnation && engine->incarnation < theirs->incarnation);
    }
    return is_known;
}

static int32_t judge(struct convoy_xfer *engine, struct arrival *arrival, uint32_t *flags_out, bool *is_far_out,
                     struct convoy_error *error)
{
    const struct convoy_introduction *theirs = &arrival->theirs;
    *flags_out = 0;
    if (theirs->asked != 0 && theirs->asked != engine->incarnation && !CONVOY_MUTATED(incarnation_ignored)) {
        return convoy_error_set(error, CONVOY_STALE_EPOCH,
                                "incarnation %016llx is asked for, here is %016llx by now: another life of that engine",
                                (unsigned long long)theirs->asked, (unsigned long long)engine->incarnation);
    }
    convoy_xfer_lock(engine);
    bool is_open = engine->state == CONVOY_ENGINE_OPEN;
    bool is_twice = is_crossing(engine, theirs);
    convoy_xfer_unlock(engine);
    if (!is_open) {
        return convoy_error_set(error, CONVOY_CLOSED, "engine %s is closing", engine->session);
    }
    if (is_twice) {
        *flags_out = CONVOY_NOTICE_RETRY;
        return convoy_error_set(error, CONVOY_BUSY, "connected already, or about to be");
    }
    return convoy_door_match(engine, theirs, &arrival->target, is_far_out, error);
}

/* Both meet at the local socket, or exchange the addresses of their bulks. */
static bool answer(struct convoy_xfer *engine, struct arrival *arrival, bool is_far)
{
    struct convoy_introduction ours = convoy_xfer_introduction(engine);
    uint8_t bytes[CONVOY_INTRODUCE_BYTES];
    memcpy(ours.nonce, arrival->nonce, sizeof ours.nonce);
    ours.flags |= is_far ? CONVOY_INTRODUCE_REMOTE : 0;
    convoy_introduction_encode(&ours, bytes);
    arrival->step = is_far ? ARRIVAL_BULK : ARRIVAL_LOCAL;
    arrival->stream.limit = is_far ? CONVOY_FAR_ADDRESS_BYTES : arrival->stream.limit;
    arrival->deadline_ns = step_deadline(engine);
    bool is_out = convoy_frame_queue(&arrival->stream, CONVOY_INTRODUCE_ANSWER, bytes, sizeof bytes) == CONVOY_OK &&
                  convoy_frame_flush(&arrival->stream) == CONVOY_OK;
    CONVOY_POINT(door_introduced);
    return is_out;
}

/* Nobody waits for UCX here. false: it is over. */
static bool step_opening(struct convoy_xfer *engine, struct arrival *arrival)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_far_open_elsewhere(engine, &error);
    if (status == CONVOY_IN_PROGRESS && convoy_now_ns() < arrival->deadline_ns) {
        return true;
    }
    if (status == CONVOY_OK) {
        return answer(engine, arrival, true);
    }
    if (status == CONVOY_IN_PROGRESS) {
        (void)convoy_error_set(&error, CONVOY_TIMED_OUT, "UCX was not open there within %llu ms",
                               (unsigned long long)(engine->options.timeout_ns / CONVOY_NS_PER_MS));
    }
    refuse(arrival, &error, 0);
    return false;
}

static bool step_introduce(struct convoy_xfer *engine, struct arrival *arrival)
{
    struct convoy_frame frame;
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint32_t flags = 0;
    bool is_far = false;
    int32_t status = convoy_frame_recv(&arrival->stream, &frame);
    if (status != CONVOY_OK) {
        return status == CONVOY_IN_PROGRESS;
    }
    status = frame.type == CONVOY_INTRODUCE_ASK
                 ? convoy_introduction_decode(frame.body, frame.bytes, &arrival->theirs, &error)
                 : convoy_error_set(&error, CONVOY_UNKNOWN_MESSAGE, "frame of type %u", frame.type);
    convoy_memory_free(frame.body);
    if (status == CONVOY_OK) {
        status = judge(engine, arrival, &flags, &is_far, &error);
    }
    if (status == CONVOY_OK) {
        status = convoy_runtime_random(arrival->nonce, sizeof arrival->nonce, &error);
    }
    if (status != CONVOY_OK) {
        refuse(arrival, &error, flags);
        return false;
    }
    if (!is_far) {
        return answer(engine, arrival, false);
    }
    arrival->step = ARRIVAL_OPENING;
    arrival->deadline_ns = convoy_deadline_after(convoy_now_ns(), engine->options.timeout_ns);
    return step_opening(engine, arrival);
}

/* false: it is over, or has become a peer. */
static bool step_bulk(struct convoy_xfer *engine, struct arrival *arrival)
{
    struct convoy_frame frame;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_frame_recv(&arrival->stream, &frame);
    if (status != CONVOY_OK) {
        return status == CONVOY_IN_PROGRESS;
    }
    convoy_xfer_lock(engine);
    bool is_twice = is_crossing(engine, &arrival->theirs);
    convoy_xfer_unlock(engine);
    if (frame.type != CONVOY_INTRODUCE_BULK) {
        status = convoy_error_set(&error, CONVOY_UNKNOWN_MESSAGE, "frame of type %u", frame.type);
    } else if (is_twice) {
        status = convoy_error_set(&error, CONVOY_BUSY, "connected already");
    } else {
        status = convoy_far_admit(engine, &arrival->stream, &arrival->theirs, &frame, &error);
    }
    convoy_memory_free(frame.body);
    if (status != CONVOY_OK) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "engine %s: %s was turned away: %s", engine->session,
                        arrival->theirs.session, error.text);
        refuse(arrival, &error, 0);
    }
    return false;
}

/* false: it is over. */
static bool step_arrival(struct convoy_xfer *engine, struct arrival *arrival)
{
    if (arrival->step == ARRIVAL_HELLO) {
        int32_t status = convoy_handshake_step(arrival->handshake, engine->runtime);
        if (status != CONVOY_OK) {
            if (status != CONVOY_IN_PROGRESS) {
                engine->runtime->stranger_count++;
            }
            return status == CONVOY_IN_PROGRESS;
        }
        arrival->stream = (struct convoy_frame_stream){.fd = arrival->handshake->fd, .limit = CONVOY_INTRODUCE_BYTES};
        convoy_memory_free(arrival->handshake);
        arrival->handshake = NULL;
        arrival->step = ARRIVAL_INTRODUCE;
    }
    if (arrival->step == ARRIVAL_BULK) {
        return step_bulk(engine, arrival);
    }
    if (arrival->step == ARRIVAL_OPENING) {
        return step_opening(engine, arrival);
    }
    return arrival->step != ARRIVAL_INTRODUCE || step_introduce(engine, arrival);
}

/* The message names an arrival: map what it brings, hand over the own files, and the two are peers. */
static void admit(struct convoy_xfer *engine, struct arrival *arrival, int channel, struct convoy_fd_message *message)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_xfer_joined joined;
    struct convoy_xfer_peer *peer;
    int32_t status = convoy_door_take(message, &arrival->theirs, -1, channel, convoy_door_may_be_far(engine), &joined, &error);
    convoy_fd_message_fini(message);
    CONVOY_POINT(door_files);
    bool is_taken = status == CONVOY_OK;
    if (is_taken) { /* before it is a peer: from then on it is told of every other generation */
        status = convoy_door_files(engine, arrival->nonce, -1, message, &joined.shared, &error);
    }
    if (status == CONVOY_OK) {
        joined.introduction = &arrival->theirs;
        joined.lane = &convoy_lane_near;
        joined.nonce = arrival->nonce;
        joined.target = arrival->target;
        joined.side = 1;
        joined.tcp_fd = arrival->stream.fd;
        convoy_xfer_lock(engine);
        status = is_crossing(engine, &arrival->theirs) ? convoy_error_set(&error, CONVOY_BUSY, "connected already")
                                                       : convoy_xfer_peer_add(engine, &joined, &peer, &error);
        convoy_xfer_unlock(engine);
        if (status == CONVOY_OK) {
            arrival->stream.fd = -1; /* the peer's now */
            CONVOY_POINT(door_joined);
            (void)convoy_fd_channel_send(channel, message, step_deadline(engine), NULL); /* else it is cut off soon */
        }
        convoy_door_files_fini(message, &joined.shared);
    }
    if (is_taken && status != CONVOY_OK) {
        convoy_door_drop(&joined);
    }
    if (status != CONVOY_OK) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "engine %s: %s was turned away: %s", engine->session,
                        arrival->theirs.session, error.text);
        refuse(arrival, &error, status == CONVOY_BUSY ? CONVOY_NOTICE_RETRY : 0);
    }
    drop(arrival);
}

static void step_caller(struct convoy_xfer *engine, struct caller *caller)
{
    struct convoy_fd_message *message = &engine->pending->message;
    int32_t status = convoy_fd_channel_recv(caller->fd, message, convoy_now_ns(), NULL);
    if (status == CONVOY_TIMED_OUT && convoy_now_ns() < caller->deadline_ns) {
        return;
    }
    bool is_door = status == CONVOY_OK && !convoy_xfer_shares_take(engine, caller->fd, message);
    const uint8_t *nonce = is_door ? convoy_door_nonce(message) : NULL;
    for (uint32_t i = 0; nonce != NULL && i < ARRIVALS; i++) {
        struct arrival *arrival = &engine->pending->arrivals[i];
        if (arrival->step == ARRIVAL_LOCAL && memcmp(arrival->nonce, nonce, sizeof arrival->nonce) == 0) {
            admit(engine, arrival, caller->fd, message);
            nonce = NULL;
        }
    }
    if (status == CONVOY_OK) {
        convoy_fd_message_fini(message);
    }
    (void)close(caller->fd);
    caller->fd = -1;
}

void convoy_xfer_door_step(struct convoy_xfer *engine)
{
    uint64_t now = convoy_now_ns();
    take_connections(engine);
    take_callers(engine);
    for (uint32_t i = 0; i < ARRIVALS; i++) {
        struct arrival *arrival = &engine->pending->arrivals[i];
        if (arrival->step != ARRIVAL_FREE && (!step_arrival(engine, arrival) || now >= arrival->deadline_ns)) {
            drop(arrival);
        }
    }
    for (uint32_t i = 0; i < ARRIVALS; i++) {
        if (engine->pending->callers[i].fd >= 0) {
            step_caller(engine, &engine->pending->callers[i]);
        }
    }
}
