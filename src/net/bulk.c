/* SPDX-License-Identifier: Apache-2.0 */
/* Lock order: bulk->lock, then what the callbacks resolve and landed take. Frames and events are called with none. */
#include "net/bulk_parts.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BULK_STREAMS_DEFAULT 1024u
#define BULK_WINDOW_MIN 4u
#define BULK_SLEEP_NS_MAX CONVOY_NS_PER_S /* no wait is unbounded, whatever got lost */

/* -- open ---------------------------------------------------------------------------------------------------------- */

static int32_t open_check(const struct convoy_bulk_options *options, struct convoy_error *error)
{
    if (options->peer_count == 0 || options->peer_count > CONVOY_BULK_PEERS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "peer_count is %u, allowed are 1 to %u",
                                options->peer_count, CONVOY_BULK_PEERS_MAX);
    }
    if (options->stream_count > CONVOY_BULK_STREAMS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "stream_count is %u, allowed are 0 to %u",
                                options->stream_count, CONVOY_BULK_STREAMS_MAX);
    }
    if (options->window != 0 && (options->window < BULK_WINDOW_MIN || options->window > CONVOY_BULK_WINDOW_MAX)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "window is %u, allowed are 0 and %u to %u",
                                options->window, BULK_WINDOW_MIN, CONVOY_BULK_WINDOW_MAX);
    }
    return CONVOY_OK;
}

static int32_t open_memory(struct convoy_bulk *bulk, struct convoy_error *error)
{
    uint32_t streams = bulk->options.stream_count;
    bulk->peers = convoy_memory_array(bulk->options.peer_count, sizeof *bulk->peers);
    bulk->busy = convoy_memory_array(bulk->options.peer_count, sizeof *bulk->busy);
    bulk->streams = convoy_memory_array(streams, sizeof *bulk->streams);
    bulk->free_streams = convoy_memory_array(streams, sizeof *bulk->free_streams);
    bulk->gather = convoy_memory_zalloc(CONVOY_BULK_CHUNK_BYTES);
    if (bulk->peers == NULL || bulk->busy == NULL || bulk->streams == NULL || bulk->free_streams == NULL ||
        bulk->gather == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for bulk with %u peers and %u streams",
                                bulk->options.peer_count, streams);
    }
    for (uint32_t i = 0; i < streams; i++) {
        convoy_bulk_stream_free(bulk, &bulk->streams[streams - 1 - i]);
    }
    return CONVOY_OK;
}

static int32_t open_link(struct convoy_bulk *bulk, struct convoy_error *error)
{
    const struct convoy_link_options options = {.runtime = bulk->options.runtime,
                                                .peer_count = bulk->options.peer_count,
                                                .message_bytes_max = CONVOY_BULK_CHUNK_BYTES,
                                                .with_rma = bulk->options.with_rma,
                                                .without_peer_errors = bulk->options.without_peer_errors,
                                                .recv = convoy_bulk_receive,
                                                .down = convoy_bulk_down,
                                                .user = bulk};
    return convoy_link_open(&options, &bulk->link, error);
}

static int32_t open_descriptors(struct convoy_bulk *bulk, struct convoy_error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    bulk->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bulk->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bulk->event_fd < 0 || bulk->wait_fd < 0 ||
        epoll_ctl(bulk->wait_fd, EPOLL_CTL_ADD, bulk->event_fd, &event) != 0 ||
        epoll_ctl(bulk->wait_fd, EPOLL_CTL_ADD, convoy_link_fd(bulk->link), &event) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "descriptors of bulk");
    }
    return CONVOY_OK;
}

static int32_t open_address(struct convoy_bulk *bulk, struct convoy_error *error)
{
    size_t link_bytes;
    const void *link = convoy_link_address(bulk->link, &link_bytes);
    bulk->address_bytes = BULK_ADDRESS_HEAD_BYTES + link_bytes;
    bulk->address = convoy_memory_zalloc(bulk->address_bytes);
    if (bulk->address == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a bulk address of %zu bytes",
                                bulk->address_bytes);
    }
    convoy_bulk_address_encode(bulk->incarnation, link, link_bytes, bulk->address);
    return CONVOY_OK;
}

/* The link is closed. */
static void bulk_free(struct convoy_bulk *bulk)
{
    convoy_bulk_notice_drop_all(bulk);
    if (bulk->event_fd >= 0) {
        (void)close(bulk->event_fd);
    }
    if (bulk->wait_fd >= 0) {
        (void)close(bulk->wait_fd);
    }
    (void)pthread_mutex_destroy(&bulk->lock);
    convoy_memory_free(bulk->address);
    convoy_memory_free(bulk->gather);
    convoy_memory_free(bulk->free_streams);
    convoy_memory_free(bulk->streams);
    convoy_memory_free(bulk->busy);
    convoy_memory_free(bulk->peers);
    convoy_memory_free(bulk);
}

static int32_t open_parts(struct convoy_bulk *bulk, struct convoy_error *error)
{
    int32_t status = open_memory(bulk, error);
    while (status == CONVOY_OK && bulk->incarnation == 0) {
        status = convoy_runtime_random(&bulk->incarnation, sizeof bulk->incarnation, error);
    }
    if (status == CONVOY_OK) {
        status = open_link(bulk, error);
    }
    if (status == CONVOY_OK) {
        status = open_descriptors(bulk, error);
    }
    if (status == CONVOY_OK) {
        status = open_address(bulk, error);
    }
    return status;
}

int32_t convoy_bulk_open(const struct convoy_bulk_options *options, struct convoy_bulk **bulk_out,
                         struct convoy_error *error)
{
    int32_t status = open_check(options, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_bulk *bulk = convoy_memory_zalloc(sizeof *bulk);
    if (bulk == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for bulk of %zu bytes", sizeof *bulk);
    }
    bulk->options = *options;
    bulk->options.stream_count = options->stream_count != 0 ? options->stream_count : BULK_STREAMS_DEFAULT;
    bulk->options.window = options->window != 0 ? options->window : BULK_WINDOW_DEFAULT;
    bulk->event_fd = -1;
    bulk->wait_fd = -1;
    bulk->deadline_ns = CONVOY_DEADLINE_NEVER;
    (void)pthread_mutex_init(&bulk->lock, NULL);
    status = open_parts(bulk, error);
    if (status != CONVOY_OK) {
        convoy_link_close(bulk->link, 0);
        bulk_free(bulk);
        return status;
    }
    *bulk_out = bulk;
    return CONVOY_OK;
}

const void *convoy_bulk_address(const struct convoy_bulk *bulk, size_t *bytes_out)
{
    *bytes_out = bulk->address_bytes;
    return bulk->address;
}

uint64_t convoy_bulk_incarnation(const struct convoy_bulk *bulk)
{
    return bulk->incarnation;
}

/* -- progress ------------------------------------------------------------------------------------------------------ */

static uint32_t progress_locked(struct convoy_bulk *bulk)
{
    uint32_t events = convoy_link_progress(bulk->link);
    if (bulk->deadline_ns != CONVOY_DEADLINE_NEVER) {
        uint64_t now_ns = convoy_now_ns();
        events += now_ns >= bulk->deadline_ns ? convoy_bulk_stream_expire(bulk, now_ns) : 0;
    }
    return events + (bulk->busy_count != 0 ? convoy_bulk_pump(bulk, events == 0) : 0);
}

/* Whoever slept may be another thread than the one that reads, and sleep on: it is to be rung for again. */
static void bulk_hush(struct convoy_bulk *bulk)
{
    uint64_t ignored;
    if (bulk->is_rung) {
        bulk->is_rung = false;
        bulk->is_armed = true;
        (void)!read(bulk->event_fd, &ignored, sizeof ignored);
    }
}

uint32_t convoy_bulk_progress(struct convoy_bulk *bulk)
{
    if (pthread_mutex_trylock(&bulk->lock) != 0) {
        return 0;
    }
    bulk_hush(bulk);
    uint32_t events = progress_locked(bulk);
    bool has_notices = bulk->first_notice != NULL && !bulk->is_delivering;
    (void)pthread_mutex_unlock(&bulk->lock);
    return events + (has_notices ? convoy_bulk_notice_deliver(bulk) : 0);
}

bool convoy_bulk_arm(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bulk_hush(bulk);
    bool has_notices = bulk->first_notice != NULL && !bulk->is_delivering;
    bool is_armed = !has_notices && progress_locked(bulk) == 0 && convoy_link_arm(bulk->link);
    has_notices = bulk->first_notice != NULL && !bulk->is_delivering;
    is_armed = is_armed && !has_notices;
    bulk->is_armed = bulk->is_armed || is_armed;
    (void)pthread_mutex_unlock(&bulk->lock);
    return is_armed;
}

int convoy_bulk_fd(const struct convoy_bulk *bulk)
{
    return bulk->wait_fd;
}

uint64_t convoy_bulk_wake_ns(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    uint64_t deadline_ns = bulk->deadline_ns;
    (void)pthread_mutex_unlock(&bulk->lock);
    return deadline_ns;
}

void convoy_bulk_sleep(struct convoy_bulk *bulk, uint64_t deadline_ns)
{
    if (convoy_bulk_progress(bulk) != 0 || !convoy_bulk_arm(bulk)) {
        return;
    }
    uint64_t wake_ns = convoy_bulk_wake_ns(bulk);
    uint64_t left = convoy_deadline_left(convoy_now_ns(), wake_ns < deadline_ns ? wake_ns : deadline_ns);
    left = left > BULK_SLEEP_NS_MAX ? BULK_SLEEP_NS_MAX : left;
    const struct timespec wait = {.tv_sec = (time_t)(left / CONVOY_NS_PER_S),
                                  .tv_nsec = (long)(left % CONVOY_NS_PER_S)};
    struct pollfd fd = {.fd = bulk->wait_fd, .events = POLLIN};
    (void)ppoll(&fd, 1, &wait, NULL);
}

void convoy_bulk_barrier(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    (void)pthread_mutex_unlock(&bulk->lock);
}

void convoy_bulk_transports(const struct convoy_bulk *bulk, uint32_t peer, char *text_out, size_t bytes)
{
    char text[CONVOY_LINK_TRANSPORTS_BYTES] = "";
    if (peer < bulk->options.peer_count) {
        convoy_link_peer_transports(bulk->link, peer, text);
    }
    size_t length = bytes != 0 ? strnlen(text, bytes - 1) : 0;
    if (bytes != 0) {
        memcpy(text_out, text, length);
        text_out[length] = '\0';
    }
}

/* -- close --------------------------------------------------------------------------------------------------------- */

static bool bulk_is_quiet(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bool is_quiet = bulk->free_count == bulk->options.stream_count && convoy_link_pending(bulk->link) == 0;
    for (uint32_t i = 0; i < bulk->options.peer_count && is_quiet; i++) {
        is_quiet = bulk->peers[i].first_frame == NULL;
    }
    (void)pthread_mutex_unlock(&bulk->lock);
    return is_quiet;
}

static void close_end_all(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bulk->is_deaf = true;
    for (uint32_t i = 0; i < bulk->options.stream_count; i++) {
        struct bulk_stream *stream = &bulk->streams[i];
        if (stream->state != BULK_FREE && stream->state != BULK_ENDED) {
            convoy_bulk_stream_end(bulk, stream, stream->state == BULK_STOPPING ? stream->status : CONVOY_CANCELED);
        }
    }
    for (uint32_t i = 0; i < bulk->options.peer_count; i++) {
        convoy_bulk_peer_drop_frames(&bulk->peers[i]);
        bulk->peers[i].is_up = false;
    }
    (void)pthread_mutex_unlock(&bulk->lock);
}

void convoy_bulk_close(struct convoy_bulk *bulk, uint64_t deadline_ns)
{
    if (bulk == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&bulk->lock);
    bulk->is_closing = true;
    (void)pthread_mutex_unlock(&bulk->lock);
    while (!bulk_is_quiet(bulk) && convoy_now_ns() < deadline_ns) {
        convoy_bulk_sleep(bulk, deadline_ns);
    }
    close_end_all(bulk);
    (void)convoy_bulk_notice_deliver(bulk);
    convoy_link_close(bulk->link, deadline_ns);
    bulk_free(bulk);
}
