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

/* It has no descriptor yet, and nothing is said to it. [no lock] */
static int32_t add_peer(struct convoy_xfer *engine, const struct convoy_introduction *theirs,
                        struct convoy_xfer_peer **peer_out, uint32_t *generation_out, struct convoy_error *error)
{
    const struct convoy_xfer_joined joined = {
        .introduction = theirs, .lane = &convoy_lane_far, .tcp_fd = -1, .wake_fd = -1, .pid_fd = -1};
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_peer_add(engine, &joined, peer_out, error);
    }
    if (status == CONVOY_OK) {
        (*peer_out)->is_shy = true;
        convoy_far_wire_begin(engine, (uint32_t)(*peer_out - engine->peers), theirs->flags);
        *generation_out = (*peer_out)->generation;
    }
    convoy_xfer_unlock(engine);
    return status;
}

static void say_connected(const struct convoy_xfer *engine, const struct convoy_introduction *theirs)
{
    bool is_alike = convoy_host_keys_same_boot(&engine->introduction.keys, &theirs->keys);
    convoy_log_line(&engine->runtime->log, is_alike ? CONVOY_LOG_WARN : CONVOY_LOG_INFO,
                    "engine %s: peer %s shares no memory with it%s: payloads go over UCX", engine->session, theirs->session,
                    is_alike ? ", though it runs on the same kernel" : "");
}

/* With its connection made, or not (status): it is a peer with a descriptor, or none. The engine may have ended it meanwhile.
 * [lock] */
static int32_t settle_peer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint32_t generation, int32_t status,
                           struct convoy_frame_stream *stream, struct convoy_error *error)
{
    bool is_there = peer->generation == generation && peer->state == CONVOY_PEER_IS_CONNECTED;
    if (status == CONVOY_OK && !is_there) {
        return convoy_error_set(error, CONVOY_PEER_LOST, "it was given up while its connection was made");
    }
    if (status != CONVOY_OK && is_there) {
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
    }
    if (status == CONVOY_OK) {
        peer->tcp_fd = stream->fd;
        stream->fd = -1; /* the peer's now */
        convoy_xfer_kick(engine); /* its connection is to be watched */
    }
    return status;
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

/* Making the endpoint takes milliseconds: without the engine's lock. */
static int32_t connect_peer(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer,
                            const struct convoy_frame *frame, struct convoy_error *error)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    convoy_xfer_lock(engine);
    int32_t status = convoy_far_wire_keep(engine, index, frame->body, frame->bytes);
    convoy_xfer_unlock(engine);
    return status == CONVOY_OK ? convoy_bulk_connect(engine->far->bulk, index, frame->body, frame->bytes, error)
                               : convoy_error_set(error, status, "no memory for the address of its bulk");
}

static int32_t join(struct convoy_xfer *engine, struct convoy_frame_stream *stream, const struct convoy_introduction *theirs,
                    const struct convoy_frame *frame, convoy_peer *peer_out, struct convoy_error *error)
{
    const struct convoy_xfer_notice hello = {.type = CONVOY_SAY_HELLO};
    struct convoy_ring_entry entry;
    struct convoy_xfer_peer *peer = NULL;
    uint32_t generation = 0;
    int32_t status = add_peer(engine, theirs, &peer, &generation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = connect_peer(engine, peer, frame, error);
    convoy_xfer_lock(engine);
    status = settle_peer(engine, peer, generation, status, stream, error);
    if (status == CONVOY_OK) {
        CONVOY_POINT(far_dial_joined);
        peer->is_held = true;
        *peer_out = convoy_xfer_peer_handle(engine, peer);
        peer->is_shy = false;
        convoy_xfer_notice_pack(&hello, &entry);
        (void)peer->lane->put(engine, peer, &entry); /* before what may wait already */
        convoy_far_hello(engine, peer);
        convoy_xfer_peer_flush(engine, peer);
    }
    convoy_xfer_unlock(engine);
    if (status == CONVOY_OK) {
        say_connected(engine, theirs);
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
    status = join(engine, stream, theirs, &frame, peer_out, error);
    convoy_memory_free(frame.body);
    return status;
}

int32_t convoy_far_admit(struct convoy_xfer *engine, struct convoy_frame_stream *stream,
                         const struct convoy_introduction *theirs, const struct convoy_frame *frame,
                         struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = NULL;
    uint32_t generation = 0;
    int32_t status = add_peer(engine, theirs, &peer, &generation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    CONVOY_POINT(far_door_joined);
    status = connect_peer(engine, peer, frame, error);
    if (status == CONVOY_OK) {
        status = send_address(engine, stream, error);
    }
    if (status == CONVOY_OK && convoy_frame_flush(stream) != CONVOY_OK) { /* so little fits the socket */
        status = convoy_error_set(error, CONVOY_PEER_LOST, "the connection ended before the own address was out");
    }
    convoy_xfer_lock(engine);
    status = settle_peer(engine, peer, generation, status, stream, error);
    convoy_xfer_unlock(engine);
    if (status == CONVOY_OK) {
        say_connected(engine, theirs);
    }
    return status;
}
