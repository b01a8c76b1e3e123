/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing over what waits, as much as the connection takes: answers first (they free the peer's window), then frames,
 * then chunks, one of each stream in turn, never more than a window without an answer. What does not go waits here, not
 * in UCX: 1.13 over TCP collapses when much is queued in it.
 */
#include "net/bulk_parts.h"

#include "core/fault.h"
#include "core/memory.h"

#include <string.h>

#define PUMP_CHUNKS 16u     /* to one peer, before the others have their turn */
#define PUMP_PROBE_MIN 512u /* goes through unless the connection is busy */

static struct bulk_header pump_header(const struct convoy_bulk *bulk, const struct bulk_peer *peer,
                                      enum bulk_kind kind)
{
    return (struct bulk_header){
        .kind = kind, .epoch = peer->epoch, .from = bulk->incarnation, .to = peer->incarnation};
}

static int32_t pump_offer(struct convoy_bulk *bulk, struct bulk_peer *peer, const struct bulk_header *header,
                          const void *data, size_t bytes)
{
    uint8_t encoded[BULK_HEADER_BYTES];
    convoy_bulk_header_encode(header, encoded);
    int32_t status =
        convoy_link_offer(bulk->link, bulk_peer_index(bulk, peer), encoded, sizeof encoded, data, bytes);
    if (status == CONVOY_OK && bytes > peer->proven_bytes) {
        peer->proven_bytes = bytes;
    }
    return status;
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

static bool ack_is_due(const struct bulk_peer *peer, bool is_idle)
{
    uint64_t unanswered = peer->processed - peer->acknowledged;
    return unanswered != 0 && (is_idle || peer->is_ack_due || unanswered >= BULK_ACK_EVERY);
}

static int32_t pump_ack(struct convoy_bulk *bulk, struct bulk_peer *peer)
{
    uint8_t reasons[CONVOY_BULK_WINDOW_MAX];
    size_t count = 0;
    struct bulk_header header = pump_header(bulk, peer, BULK_ACK);
    header.generation = peer->their_epoch;
    header.offset = peer->processed_bytes;
    header.sequence = peer->processed;
    for (uint64_t i = peer->acknowledged; peer->has_reasons && i < peer->processed; i++) {
        reasons[count++] = peer->reasons[i % CONVOY_BULK_WINDOW_MAX];
    }
    int32_t status = pump_offer(bulk, peer, &header, reasons, count);
    if (status == CONVOY_OK) {
        peer->acknowledged = peer->processed;
        peer->is_ack_due = false;
        peer->has_reasons = false;
        peer->counts.sent_acks++;
    }
    return status;
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

int32_t convoy_bulk_pump_frame(struct convoy_bulk *bulk, struct bulk_peer *peer, const void *data, size_t bytes)
{
    const struct bulk_header header = pump_header(bulk, peer, BULK_FRAME);
    int32_t status = pump_offer(bulk, peer, &header, data, bytes);
    if (status == CONVOY_LIMIT && bytes > peer->proven_bytes && convoy_link_pending(bulk->link) == 0) {
        /* It may be longer than this connection's segment, which the host can choose: the link cuts it. */
        uint8_t encoded[BULK_HEADER_BYTES];
        convoy_bulk_header_encode(&header, encoded);
        status = convoy_link_send(bulk->link, bulk_peer_index(bulk, peer), encoded, sizeof encoded, data, bytes);
    }
    peer->counts.sent_frames += status == CONVOY_OK;
    return status;
}

static int32_t pump_waiting(struct convoy_bulk *bulk, struct bulk_peer *peer)
{
    struct bulk_waiting *frame = peer->first_frame;
    int32_t status = convoy_bulk_pump_frame(bulk, peer, frame->data, frame->bytes);
    if (status == CONVOY_OK) {
        peer->first_frame = frame->next;
        peer->last_frame = frame->next != NULL ? peer->last_frame : NULL;
        bulk_set_frame_bytes(peer, peer->frame_bytes - frame->bytes);
        convoy_memory_free(frame);
    }
    return status;
}

/* -- chunks -------------------------------------------------------------------------------------------------------- */

static void flight_note(struct convoy_bulk *bulk, struct bulk_peer *peer, struct bulk_stream *stream, size_t bytes)
{
    peer->flights[peer->sequence % CONVOY_BULK_WINDOW_MAX] =
        (struct bulk_flight){.stream = (uint32_t)(stream - bulk->streams), .bytes = (uint32_t)bytes};
    peer->sequence++;
    stream->in_flight++;
}

static struct bulk_header stream_header(const struct convoy_bulk *bulk, const struct bulk_peer *peer,
                                        const struct bulk_stream *stream, enum bulk_kind kind)
{
    struct bulk_header header = pump_header(bulk, peer, kind);
    header.transfer = stream->transfer;
    header.generation = stream->generation;
    header.sequence = peer->sequence;
    return header;
}

static int32_t pump_abort(struct convoy_bulk *bulk, struct bulk_peer *peer, struct bulk_stream *stream)
{
    struct bulk_header header = stream_header(bulk, peer, stream, BULK_ABORT);
    header.flags = BULK_FLAG_PUSH;
    int32_t status = pump_offer(bulk, peer, &header, NULL, 0);
    if (status == CONVOY_OK) {
        stream->is_abort_due = false;
        flight_note(bulk, peer, stream, 0);
        convoy_bulk_stream_delist(bulk, stream);
    }
    return status;
}

static int32_t chunk_offer(struct convoy_bulk *bulk, struct bulk_peer *peer, struct bulk_stream *stream, size_t bytes)
{
    struct bulk_header header = stream_header(bulk, peer, stream, BULK_CHUNK);
    const void *data = convoy_bulk_stream_look(bulk, stream, bytes);
    bool is_last = stream->sent + bytes == stream->bytes;
    header.offset = stream->offset + stream->sent;
    header.flags = is_last ? BULK_FLAG_PUSH : 0;
    if ((stream->flags & CONVOY_BULK_CHECKSUM) != 0) {
        header.flags |= BULK_FLAG_CHECKSUM;
        header.checksum = convoy_bulk_checksum(&header, data, bytes);
    }
    int32_t status = pump_offer(bulk, peer, &header, data, bytes);
    if (status == CONVOY_OK) {
        flight_note(bulk, peer, stream, bytes);
        convoy_bulk_stream_advance(stream, bytes);
        peer->counts.sent_bytes += bytes;
        peer->counts.sent_chunks++;
    }
    return status;
}

/* A connection that takes less after it has refused more has a smaller segment than convoy sets. Nothing changes in it
 * between the tries, since nothing progresses. */
static int32_t chunk_probe(struct convoy_bulk *bulk, struct bulk_peer *peer, struct bulk_stream *stream, size_t bytes)
{
    int32_t status = CONVOY_LIMIT;
    for (size_t less = bytes / 2; status == CONVOY_LIMIT && less >= PUMP_PROBE_MIN && less > peer->proven_bytes;
         less /= 2) {
        status = chunk_offer(bulk, peer, stream, less);
        peer->chunk_bytes = status == CONVOY_OK ? less : peer->chunk_bytes;
    }
    return status;
}

static int32_t pump_chunk(struct convoy_bulk *bulk, struct bulk_peer *peer, struct bulk_stream *stream, uint64_t ready)
{
    uint64_t left = ready - stream->sent;
    size_t bytes = left < peer->chunk_bytes ? (size_t)left : peer->chunk_bytes;
    int32_t status = chunk_offer(bulk, peer, stream, bytes);
    if (status == CONVOY_LIMIT && bytes > peer->proven_bytes) {
        status = chunk_probe(bulk, peer, stream, bytes);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    CONVOY_POINT(push_chunk);
    if (stream->state == BULK_QUEUED) {
        convoy_bulk_stream_move(stream, BULK_SENDING);
    }
    if (stream->sent == stream->bytes) {
        convoy_bulk_stream_sent(bulk, stream);
    } else {
        peer->turn = stream->next;
    }
    return status;
}

/* Whether something of it may go now: a part only if it fills a chunk, or is the last one. */
static bool stream_is_ready(const struct bulk_peer *peer, const struct bulk_stream *stream, uint64_t ready)
{
    return stream->is_abort_due || ready == stream->bytes || ready - stream->sent >= peer->chunk_bytes;
}

/* The next stream in the circle of which something may go; whatever is still being made stays where it is in it. */
static int32_t pump_stream(struct convoy_bulk *bulk, struct bulk_peer *peer)
{
    const struct bulk_stream *first = peer->turn;
    do {
        struct bulk_stream *stream = peer->turn;
        uint64_t ready = convoy_bulk_stream_ready(stream);
        if (ready == CONVOY_BULK_NEVER && !stream->is_abort_due) {
            convoy_bulk_stream_stop(bulk, stream, CONVOY_CANCELED);
            return CONVOY_OK;
        }
        if (stream_is_ready(peer, stream, ready)) {
            return stream->is_abort_due ? pump_abort(bulk, peer, stream) : pump_chunk(bulk, peer, stream, ready);
        }
        peer->turn = stream->next;
    } while (peer->turn != first);
    return CONVOY_IN_PROGRESS;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

/* The next thing for this peer; IN_PROGRESS: there is none that may go now. */
static int32_t pump_one(struct convoy_bulk *bulk, struct bulk_peer *peer, bool is_idle)
{
    if (ack_is_due(peer, is_idle)) {
        return pump_ack(bulk, peer);
    }
    if (peer->first_frame != NULL) {
        return pump_waiting(bulk, peer);
    }
    if (peer->turn != NULL && bulk_peer_in_flight(peer) < bulk->options.window) {
        return pump_stream(bulk, peer);
    }
    return CONVOY_IN_PROGRESS;
}

static uint32_t pump_peer(struct convoy_bulk *bulk, struct bulk_peer *peer, bool is_idle)
{
    uint32_t moved = 0;
    int32_t status = CONVOY_OK;
    while (peer->is_up && status == CONVOY_OK && moved < PUMP_CHUNKS) {
        status = pump_one(bulk, peer, is_idle);
        moved += status == CONVOY_OK;
    }
    if (status < 0 && status != CONVOY_LIMIT) { /* the link has noticed that the endpoint is gone */
        convoy_bulk_peer_fail(bulk, bulk_peer_index(bulk, peer), CONVOY_PEER_LOST, true);
        moved++;
    }
    return moved;
}

static bool peer_has_work(const struct bulk_peer *peer)
{
    return peer->is_up &&
           (peer->turn != NULL || peer->first_frame != NULL || peer->processed != peer->acknowledged);
}

uint32_t convoy_bulk_pump(struct convoy_bulk *bulk, bool is_idle)
{
    uint32_t moved = 0;
    uint32_t i = 0;
    while (i < bulk->busy_count) {
        struct bulk_peer *peer = &bulk->peers[bulk->busy[i]];
        moved += pump_peer(bulk, peer, is_idle);
        if (peer_has_work(peer)) {
            i++;
        } else {
            peer->is_busy = false;
            bulk->busy[i] = bulk->busy[--bulk->busy_count];
        }
    }
    return moved;
}
