/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines that share no memory exchange the addresses of their bulks, over the connection that introduced them. */
#include "xfer/far.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/message.h"

static int32_t send_address(struct convoy_xfer *engine, struct convoy_frame_stream *stream, struct convoy_error *error)
{
    size_t bytes = 0;
    const void *address = convoy_bulk_address(engine->far->bulk, &bytes);
    int32_t status = bytes <= CONVOY_FAR_ADDRESS_BYTES
                         ? convoy_frame_queue(stream, CONVOY_INTRODUCE_BULK, address, (uint32_t)bytes)
                         : CONVOY_LIMIT;
    return status == CONVOY_OK ? CONVOY_OK
                               : convoy_error_set(error, status, "the own bulk address of %zu bytes, allowed are %u", bytes,
                                                  CONVOY_FAR_ADDRESS_BYTES);
}

/* On failure there is no such peer. [lock] */
static int32_t add_peer(struct convoy_xfer *engine, const struct convoy_introduction *theirs, int fd,
                        const struct convoy_frame *frame, struct convoy_xfer_peer **peer_out, struct convoy_error *error)
{
    const struct convoy_xfer_joined joined = {
        .introduction = theirs, .lane = &convoy_lane_far, .tcp_fd = fd, .wake_fd = -1, .pid_fd = -1};
    int32_t status = convoy_xfer_peer_add(engine, &joined, peer_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_xfer_peer *peer = *peer_out;
    status = convoy_bulk_connect(engine->far->bulk, (uint32_t)(peer - engine->peers), frame->body, frame->bytes, error);
    if (status != CONVOY_OK) {
        peer->tcp_fd = -1; /* stays the caller's */
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, true);
        return status;
    }
    bool is_alike = convoy_host_keys_same_boot(&engine->introduction.keys, &theirs->keys);
    convoy_log_line(&engine->runtime->log, is_alike ? CONVOY_LOG_WARN : CONVOY_LOG_INFO,
                    "engine %s: peer %s shares no memory with it%s: payloads go over UCX", engine->session, theirs->session,
                    is_alike ? ", though it runs on the same kernel" : "");
    return CONVOY_OK;
}

/* The answer: an address, or why not. */
static int32_t take_answer(struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                           struct convoy_frame *frame_out, struct convoy_error *error)
{
    int32_t status = convoy_frame_wait_recv(stream, wait, frame_out);
    if (status != CONVOY_OK) {
        return convoy_error_set(error, status, "the connection ended before the address of its bulk, status %d", status);
    }
    if (frame_out->type == CONVOY_INTRODUCE_BULK) {
        return CONVOY_OK;
    }
    struct convoy_notice notice;
    bool is_refusal = frame_out->type == CONVOY_INTRODUCE_REFUSED &&
                      convoy_notice_decode(frame_out->body, frame_out->bytes, &notice);
    convoy_memory_free(frame_out->body);
    return is_refusal ? convoy_notice_to_error(&notice, error)
                      : convoy_error_set(error, CONVOY_UNKNOWN_MESSAGE, "type %u instead of the address of its bulk",
                                         frame_out->type);
}

static int32_t join_locked(struct convoy_xfer *engine, struct convoy_frame_stream *stream,
                           const struct convoy_introduction *theirs, const struct convoy_frame *frame,
                           convoy_peer *peer_out, struct convoy_error *error)
{
    const struct convoy_xfer_notice hello = {.type = CONVOY_SAY_HELLO};
    struct convoy_ring_entry entry;
    struct convoy_xfer_peer *peer = NULL;
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = add_peer(engine, theirs, stream->fd, frame, &peer, error);
    }
    if (status == CONVOY_OK) {
        CONVOY_POINT(far_dial_joined);
        stream->fd = -1; /* the peer's now */
        peer->is_held = true;
        *peer_out = convoy_xfer_peer_handle(engine, peer);
        convoy_xfer_notice_pack(&hello, &entry);
        (void)peer->lane->put(engine, peer, &entry);
        convoy_xfer_kick(engine); /* its connection is to be watched */
    }
    return status;
}

int32_t convoy_far_join(struct convoy_xfer *engine, struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                        const struct convoy_introduction *theirs, convoy_peer *peer_out, struct convoy_error *error)
{
    struct convoy_frame frame = {.body = NULL};
    stream->limit = CONVOY_FAR_ADDRESS_BYTES;
    int32_t status = convoy_far_open(engine, error);
    if (status == CONVOY_OK) {
        status = send_address(engine, stream, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_frame_wait_flush(stream, wait);
    }
    CONVOY_POINT(far_dial_address);
    if (status == CONVOY_OK) {
        status = take_answer(stream, wait, &frame, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    status = join_locked(engine, stream, theirs, &frame, peer_out, error);
    convoy_xfer_unlock(engine);
    convoy_memory_free(frame.body);
    return status;
}

int32_t convoy_far_admit(struct convoy_xfer *engine, struct convoy_frame_stream *stream,
                         const struct convoy_introduction *theirs, const struct convoy_frame *frame,
                         struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = NULL;
    int32_t status = add_peer(engine, theirs, stream->fd, frame, &peer, error);
    if (status != CONVOY_OK) {
        return status;
    }
    peer->is_shy = true;
    CONVOY_POINT(far_door_joined);
    status = send_address(engine, stream, error);
    if (status == CONVOY_OK && convoy_frame_flush(stream) != CONVOY_OK) { /* so little fits the socket */
        status = convoy_error_set(error, CONVOY_PEER_LOST, "the connection ended before the own address was out");
    }
    if (status != CONVOY_OK) {
        peer->tcp_fd = -1;
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, true);
        return status;
    }
    stream->fd = -1;
    return CONVOY_OK;
}
