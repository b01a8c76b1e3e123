/* SPDX-License-Identifier: Apache-2.0 */
/* What callers start and stop: frames and streams. */
#include "net/bulk_parts.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <string.h>

static int32_t send_check_peer(const struct convoy_bulk *bulk, uint32_t peer, struct convoy_error *error)
{
    if (peer >= bulk->options.peer_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "peer is %u, allowed are 0 to %u", peer,
                                bulk->options.peer_count - 1);
    }
    if (bulk->is_closing) {
        return convoy_error_set(error, CONVOY_CLOSED, "bulk is closing");
    }
    if (!bulk->peers[peer].is_up) {
        bool was_up = bulk->peers[peer].epoch != 0;
        return convoy_error_set(error, was_up ? CONVOY_PEER_LOST : CONVOY_BAD_STATE, "peer %u %s", peer,
                                was_up ? "is not connected any more" : "was never connected");
    }
    return CONVOY_OK;
}

/* A sleeper must hear of what it would not be woken for by the network. */
static void send_wake(struct convoy_bulk *bulk)
{
    if (bulk->is_armed && (bulk->first_notice != NULL || bulk->busy_count != 0 ||
                           bulk->deadline_ns != CONVOY_DEADLINE_NEVER)) {
        convoy_bulk_wake(bulk);
    }
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

static int32_t frame_keep(struct convoy_bulk *bulk, struct bulk_peer *peer, const void *data, size_t bytes,
                          struct convoy_error *error)
{
    if (peer->frame_bytes + bytes > CONVOY_BULK_QUEUE_BYTES) {
        return convoy_error_set(error, CONVOY_LIMIT, "%zu bytes of frames wait for peer %u, %zu more would pass %u",
                                peer->frame_bytes, bulk_peer_index(bulk, peer), bytes, CONVOY_BULK_QUEUE_BYTES);
    }
    struct bulk_waiting *frame = convoy_memory_zalloc(sizeof *frame + bytes);
    if (frame == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a frame of %zu bytes", bytes);
    }
    memcpy(frame->data, data, bytes);
    frame->bytes = bytes;
    if (peer->last_frame != NULL) {
        peer->last_frame->next = frame;
    } else {
        peer->first_frame = frame;
    }
    peer->last_frame = frame;
    bulk_set_frame_bytes(peer, peer->frame_bytes + bytes);
    convoy_bulk_peer_busy(bulk, peer);
    return CONVOY_OK;
}

static int32_t frame_locked(struct convoy_bulk *bulk, uint32_t index, const void *data, size_t bytes,
                            struct convoy_error *error)
{
    int32_t status = send_check_peer(bulk, index, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (bytes == 0 || bytes > CONVOY_BULK_FRAME_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a frame has %zu bytes, allowed are 1 to %u", bytes,
                                CONVOY_BULK_FRAME_BYTES);
    }
    struct bulk_peer *peer = &bulk->peers[index];
    status = peer->first_frame == NULL ? convoy_bulk_pump_frame(bulk, peer, data, bytes) : CONVOY_LIMIT;
    if (status == CONVOY_LIMIT) {
        return frame_keep(bulk, peer, data, bytes, error);
    }
    if (status != CONVOY_OK) {
        convoy_bulk_peer_fail(bulk, index, CONVOY_PEER_LOST, true);
        return convoy_error_set(error, CONVOY_PEER_LOST, "peer %u is lost", index);
    }
    return status;
}

int32_t convoy_bulk_frame(struct convoy_bulk *bulk, uint32_t peer, const void *data, size_t bytes,
                          struct convoy_error *error)
{
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = frame_locked(bulk, peer, data, bytes, error);
    send_wake(bulk);
    (void)pthread_mutex_unlock(&bulk->lock);
    return status;
}

/* -- streams ------------------------------------------------------------------------------------------------------- */

static int32_t send_measure(const struct convoy_bulk_send *send, uint64_t *bytes_out, struct convoy_error *error)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < send->piece_count; i++) {
        if (send->pieces[i].data == NULL && send->pieces[i].bytes != 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pieces[%u].data is NULL with %zu bytes", i,
                                    send->pieces[i].bytes);
        }
        if (send->pieces[i].bytes > UINT64_MAX - send->offset - bytes) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pieces[%u].bytes is %zu: offset and bytes pass 2^64",
                                    i, send->pieces[i].bytes);
        }
        bytes += send->pieces[i].bytes;
    }
    *bytes_out = bytes;
    return CONVOY_OK;
}

static int32_t send_check(const struct convoy_bulk *bulk, const struct convoy_bulk_send *send, uint64_t *bytes_out,
                          struct convoy_error *error)
{
    int32_t status = send_check_peer(bulk, send->peer, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if ((send->flags & ~CONVOY_BULK_CHECKSUM) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "flags is 0x%x, allowed are 0 and %u", send->flags,
                                CONVOY_BULK_CHECKSUM);
    }
    if (send->piece_count > CONVOY_BULK_PIECES_MAX || (send->piece_count != 0 && send->pieces == NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "piece_count is %u with pieces %s, allowed are 0 to %u",
                                send->piece_count, send->pieces == NULL ? "NULL" : "given", CONVOY_BULK_PIECES_MAX);
    }
    return send_measure(send, bytes_out, error);
}

static void stream_fill(struct convoy_bulk *bulk, struct bulk_stream *stream, const struct convoy_bulk_send *send,
                        uint64_t bytes)
{
    stream->peer = send->peer;
    stream->flags = send->flags;
    stream->transfer = send->transfer;
    stream->generation = send->generation;
    stream->offset = send->offset;
    stream->cookie = send->cookie;
    stream->piece_count = send->piece_count;
    stream->pieces = send->pieces;
    stream->ready = send->ready;
    stream->bytes = bytes;
    if (send->piece_count == 1) {
        stream->one = send->pieces[0];
        stream->pieces = &stream->one;
    }
    if (send->deadline_ns != 0) {
        stream->deadline_ns = send->deadline_ns;
        bulk->deadline_ns = send->deadline_ns < bulk->deadline_ns ? send->deadline_ns : bulk->deadline_ns;
    }
    convoy_bulk_stream_advance(stream, 0); /* past empty pieces */
}

static int32_t send_locked(struct convoy_bulk *bulk, const struct convoy_bulk_send *send, uint64_t *stream_out,
                           struct convoy_error *error)
{
    uint64_t bytes = 0;
    int32_t status = send_check(bulk, send, &bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct bulk_stream *stream = convoy_bulk_stream_take(bulk);
    if (stream == NULL) {
        return convoy_error_set(error, CONVOY_LIMIT, "%u streams are open, as many as stream_count allows",
                                bulk->options.stream_count);
    }
    convoy_bulk_stream_move(stream, BULK_QUEUED);
    stream_fill(bulk, stream, send, bytes);
    *stream_out = convoy_bulk_stream_value(bulk, stream);
    convoy_bulk_stream_enlist(bulk, stream);
    (void)convoy_bulk_pump(bulk, false);
    return CONVOY_OK;
}

int32_t convoy_bulk_send(struct convoy_bulk *bulk, const struct convoy_bulk_send *send, uint64_t *stream_out,
                         struct convoy_error *error)
{
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = send_locked(bulk, send, stream_out, error);
    send_wake(bulk);
    (void)pthread_mutex_unlock(&bulk->lock);
    return status;
}

void convoy_bulk_poke(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    if (bulk->busy_count != 0) {
        (void)convoy_bulk_pump(bulk, false);
    }
    send_wake(bulk);
    (void)pthread_mutex_unlock(&bulk->lock);
}

size_t convoy_bulk_waiting(const struct convoy_bulk *bulk, uint32_t peer)
{
    return __atomic_load_n(&bulk->peers[peer].frame_bytes, __ATOMIC_RELAXED);
}

int32_t convoy_bulk_abort(struct convoy_bulk *bulk, uint64_t value, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    (void)pthread_mutex_lock(&bulk->lock);
    struct bulk_stream *stream = convoy_bulk_stream_find(bulk, value);
    if (stream == NULL) {
        status = convoy_error_set(error, CONVOY_CLOSED, "stream %llx has ended", (unsigned long long)value);
    } else {
        convoy_bulk_stream_stop(bulk, stream, CONVOY_CANCELED);
        (void)convoy_bulk_pump(bulk, false);
    }
    send_wake(bulk);
    (void)pthread_mutex_unlock(&bulk->lock);
    return status;
}
