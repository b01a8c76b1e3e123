/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: connecting, the list of those with something to do, and what ends with an endpoint. */
#include "net/bulk_parts.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

void convoy_bulk_peer_busy(struct convoy_bulk *bulk, struct bulk_peer *peer)
{
    if (!peer->is_busy) {
        peer->is_busy = true;
        bulk->busy[bulk->busy_count++] = bulk_peer_index(bulk, peer);
    }
}

struct bulk_peer *convoy_bulk_peer_find(struct convoy_bulk *bulk, uint64_t incarnation)
{
    if (bulk->peers[bulk->recent].incarnation == incarnation) {
        return &bulk->peers[bulk->recent];
    }
    for (uint32_t i = 0; i < bulk->options.peer_count; i++) {
        if (bulk->peers[i].incarnation == incarnation) {
            bulk->recent = i;
            return &bulk->peers[i];
        }
    }
    return NULL;
}

void convoy_bulk_peer_drop_frames(struct bulk_peer *peer)
{
    while (peer->first_frame != NULL) {
        struct bulk_waiting *frame = peer->first_frame;
        peer->first_frame = frame->next;
        convoy_memory_free(frame);
    }
    peer->last_frame = NULL;
    bulk_set_frame_bytes(peer, 0);
}

/* Every stream to this peer: what it has in flight will not be answered any more. */
static void peer_end_streams(struct convoy_bulk *bulk, uint32_t peer, int32_t status)
{
    for (uint32_t i = 0; i < bulk->options.stream_count; i++) {
        struct bulk_stream *stream = &bulk->streams[i];
        if (stream->state != BULK_FREE && stream->state != BULK_ENDED && stream->peer == peer) {
            bool is_stopping = stream->state == BULK_STOPPING;
            convoy_bulk_stream_end(bulk, stream, is_stopping ? stream->status : status);
        }
    }
}

void convoy_bulk_peer_fail(struct convoy_bulk *bulk, uint32_t index, int32_t status, bool tell)
{
    struct bulk_peer *peer = &bulk->peers[index];
    if (!peer->is_up) {
        return;
    }
    peer->is_up = false;
    peer_end_streams(bulk, index, CONVOY_PEER_LOST);
    convoy_bulk_peer_drop_frames(peer);
    peer->answered = peer->sequence;
    peer->is_ack_due = false;
    convoy_link_fail(bulk->link, index);
    if (tell) {
        peer->down.event = (struct convoy_bulk_event){.kind = CONVOY_BULK_DOWN, .peer = index, .status = status};
        convoy_bulk_notice_push(bulk, &peer->down);
    }
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

/* What we send begins anew. What the peer sends goes on, if it is the same one: it may not have noticed anything. */
static void peer_begin(struct convoy_bulk *bulk, struct bulk_peer *peer, uint64_t incarnation)
{
    if (peer->incarnation != incarnation) {
        peer->incarnation = incarnation;
        peer->their_epoch = 0;
        peer->processed = 0;
        peer->processed_bytes = 0;
        peer->acknowledged = 0;
        peer->has_reasons = false;
    }
    peer->epoch = ++bulk->epochs;
    peer->sequence = 0;
    peer->answered = 0;
    peer->answered_bytes = 0;
    peer->chunk_bytes = CONVOY_BULK_CHUNK_BYTES;
    peer->proven_bytes = 0;
    peer->is_up = true;
}

static int32_t connect_check(struct convoy_bulk *bulk, uint32_t peer, uint64_t incarnation, struct convoy_error *error)
{
    if (peer >= bulk->options.peer_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "peer is %u, allowed are 0 to %u", peer,
                                bulk->options.peer_count - 1);
    }
    if (incarnation == bulk->incarnation) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "address of peer %u is this engine's own", peer);
    }
    const struct bulk_peer *other = convoy_bulk_peer_find(bulk, incarnation);
    if (other != NULL && other->is_up && bulk_peer_index(bulk, other) != peer) {
        return convoy_error_set(error, CONVOY_BUSY, "the address given for peer %u is that of peer %u", peer,
                                bulk_peer_index(bulk, other));
    }
    return CONVOY_OK;
}

/* An incarnation that came under another number before must not be found there any more. */
static void connect_forget_elsewhere(struct convoy_bulk *bulk, uint32_t peer, uint64_t incarnation)
{
    for (uint32_t i = 0; i < bulk->options.peer_count; i++) {
        if (i != peer && bulk->peers[i].incarnation == incarnation) {
            bulk->peers[i].incarnation = 0;
        }
    }
}

static int32_t connect_locked(struct convoy_bulk *bulk, uint32_t index, const void *address, size_t bytes,
                              struct convoy_error *error)
{
    uint64_t incarnation;
    if (bulk->is_closing) {
        return convoy_error_set(error, CONVOY_CLOSED, "bulk is closing");
    }
    if (!convoy_bulk_address_decode(address, bytes, &incarnation)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the bulk address of peer %u (%zu bytes) is malformed", index,
                                bytes);
    }
    int32_t status = connect_check(bulk, index, incarnation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_bulk_peer_fail(bulk, index, CONVOY_PEER_LOST, false);
    status = convoy_link_connect(bulk->link, index, (const uint8_t *)address + BULK_ADDRESS_HEAD_BYTES,
                                 bytes - BULK_ADDRESS_HEAD_BYTES, error);
    if (status == CONVOY_OK) {
        connect_forget_elsewhere(bulk, index, incarnation);
        peer_begin(bulk, &bulk->peers[index], incarnation);
    }
    return status;
}

int32_t convoy_bulk_connect(struct convoy_bulk *bulk, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error)
{
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = connect_locked(bulk, peer, address, bytes, error);
    if (bulk->is_armed) {
        convoy_bulk_wake(bulk);
    }
    (void)pthread_mutex_unlock(&bulk->lock);
    return status;
}

bool convoy_bulk_is_up(struct convoy_bulk *bulk, uint32_t peer)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bool is_up = bulk->peers[peer].is_up;
    (void)pthread_mutex_unlock(&bulk->lock);
    return is_up;
}

bool convoy_bulk_is_closed(struct convoy_bulk *bulk, uint32_t peer)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bool is_closed = !bulk->peers[peer].is_up && convoy_link_is_closed(bulk->link, peer);
    (void)pthread_mutex_unlock(&bulk->lock);
    return is_closed;
}

void convoy_bulk_disconnect(struct convoy_bulk *bulk, uint32_t peer)
{
    (void)pthread_mutex_lock(&bulk->lock);
    if (peer < bulk->options.peer_count) {
        convoy_bulk_peer_fail(bulk, peer, CONVOY_PEER_LOST, false);
    }
    if (bulk->is_armed) {
        convoy_bulk_wake(bulk);
    }
    (void)pthread_mutex_unlock(&bulk->lock);
}
