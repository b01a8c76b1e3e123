/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the link brings: in UCX's callback, under the lock. Nothing is sent from here. The order of checks: a header; to
 * this incarnation; from one that is connected; of its present connection; in sequence; unharmed; wanted.
 */
#include "net/bulk_parts.h"

#include <string.h>

#define NOTICE_BYTES_MAX (64u << 20) /* of frames that the owner does not take: then the peer is dropped, loudly */

static void receive_break(struct convoy_bulk *bulk, struct bulk_peer *peer, int32_t status, const char *why)
{
    convoy_log_line(&bulk->options.runtime->log, CONVOY_LOG_WARN, "bulk peer %u dropped: %s",
                    bulk_peer_index(bulk, peer), why);
    convoy_bulk_peer_fail(bulk, bulk_peer_index(bulk, peer), status, true);
}

/* Whether a message is of the sender's present connection; one of a later connection begins that. */
static bool receive_epoch(struct bulk_peer *peer, uint32_t epoch)
{
    if (epoch > peer->their_epoch) {
        peer->their_epoch = epoch;
        peer->processed = 0;
        peer->processed_bytes = 0;
        peer->acknowledged = 0;
        peer->is_ack_due = false;
        peer->has_reasons = false;
    }
    return epoch == peer->their_epoch;
}

/* -- chunks -------------------------------------------------------------------------------------------------------- */

static enum bulk_reason chunk_apply(const struct convoy_bulk *bulk, const struct bulk_peer *peer,
                                    const struct bulk_header *header, const void *data, size_t bytes)
{
    const struct convoy_bulk_chunk chunk = {.transfer = header->transfer,
                                            .generation = header->generation,
                                            .offset = header->offset,
                                            .bytes = bytes};
    uint32_t index = bulk_peer_index(bulk, peer);
    void *to = NULL;
    if ((header->flags & BULK_FLAG_CHECKSUM) != 0 && convoy_bulk_checksum(header, data, bytes) != header->checksum) {
        return BULK_WRONG_CHECKSUM;
    }
    if (!bulk->options.ops.resolve(bulk->options.user, index, &chunk, &to)) {
        return BULK_NOT_WANTED;
    }
    if (bytes != 0) {
        memcpy(to, data, bytes);
    }
    if (bulk->options.ops.landed != NULL) {
        bulk->options.ops.landed(bulk->options.user, index, &chunk, to);
    }
    return BULK_APPLIED;
}

static enum bulk_reason chunk_take(struct convoy_bulk *bulk, struct bulk_peer *peer, const struct bulk_header *header,
                                   const void *data, size_t bytes)
{
    enum bulk_reason reason = chunk_apply(bulk, peer, header, data, bytes);
    if (reason == BULK_APPLIED) {
        peer->counts.received_bytes += bytes;
        peer->counts.received_chunks++;
    } else {
        peer->counts.dropped++;
        peer->has_reasons = true;
        peer->is_ack_due = true; /* the rest of the stream need not come */
    }
    return reason;
}

static bool abort_take(struct convoy_bulk *bulk, const struct bulk_peer *peer, const struct bulk_header *header)
{
    const struct convoy_bulk_event event = {.kind = CONVOY_BULK_ABORTED,
                                            .peer = bulk_peer_index(bulk, peer),
                                            .transfer = header->transfer,
                                            .generation = header->generation};
    return convoy_bulk_notice_make(bulk, &event, NULL, 0);
}

/* Chunks and aborts: what has a place in the sequence. */
static void receive_in_sequence(struct convoy_bulk *bulk, struct bulk_peer *peer, const struct bulk_header *header,
                                const void *data, size_t bytes)
{
    enum bulk_reason reason = BULK_APPLIED;
    if (header->sequence < peer->processed) {
        peer->counts.late++;
        return;
    }
    if (header->sequence > peer->processed || peer->processed - peer->acknowledged >= CONVOY_BULK_WINDOW_MAX) {
        receive_break(bulk, peer, CONVOY_MALFORMED, "chunks are missing, or more came than a window has");
        return;
    }
    if (header->kind == BULK_CHUNK) {
        reason = chunk_take(bulk, peer, header, data, bytes);
    } else if (!abort_take(bulk, peer, header)) {
        receive_break(bulk, peer, CONVOY_NO_MEMORY, "no memory for an event");
        return;
    }
    peer->reasons[peer->processed % CONVOY_BULK_WINDOW_MAX] = (uint8_t)reason;
    peer->processed++;
    peer->processed_bytes += bytes;
    peer->is_ack_due = peer->is_ack_due || (header->flags & BULK_FLAG_PUSH) != 0;
    convoy_bulk_peer_busy(bulk, peer);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

static bool ack_is_right(const struct bulk_peer *peer, const struct bulk_header *header, const uint8_t *reasons,
                         size_t count)
{
    uint64_t bytes = peer->answered_bytes;
    if (header->sequence > peer->sequence || (count != 0 && count != header->sequence - peer->answered)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (reasons[i] > BULK_WRONG_CHECKSUM) {
            return false;
        }
    }
    for (uint64_t i = peer->answered; i < header->sequence; i++) {
        bytes += peer->flights[i % CONVOY_BULK_WINDOW_MAX].bytes;
    }
    return bytes == header->offset;
}

static void receive_ack(struct convoy_bulk *bulk, struct bulk_peer *peer, const struct bulk_header *header,
                        const uint8_t *reasons, size_t count)
{
    if (header->generation != peer->epoch) {
        peer->counts.stale++;
        return;
    }
    if (header->sequence <= peer->answered) {
        peer->counts.late++;
        return;
    }
    if (!ack_is_right(peer, header, reasons, count)) {
        receive_break(bulk, peer, CONVOY_MALFORMED, "it acknowledges what was not sent");
        return;
    }
    peer->counts.received_acks++;
    peer->answered_bytes = header->offset;
    for (size_t i = 0; peer->answered < header->sequence; i++) {
        const struct bulk_flight *flight = &peer->flights[peer->answered++ % CONVOY_BULK_WINDOW_MAX];
        enum bulk_reason reason = i < count ? (enum bulk_reason)reasons[i] : BULK_APPLIED;
        peer->counts.applied_bytes += reason == BULK_APPLIED ? flight->bytes : 0;
        convoy_bulk_stream_answer(bulk, &bulk->streams[flight->stream], flight->bytes, reason);
    }
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

static void receive_frame(struct convoy_bulk *bulk, struct bulk_peer *peer, const void *data, size_t bytes)
{
    const struct convoy_bulk_event event = {.peer = bulk_peer_index(bulk, peer)};
    if (bulk->notice_bytes > NOTICE_BYTES_MAX) {
        receive_break(bulk, peer, CONVOY_LIMIT, "64 MiB of frames were not taken");
    } else if (!convoy_bulk_notice_make(bulk, &event, data, bytes)) {
        receive_break(bulk, peer, CONVOY_NO_MEMORY, "no memory for a frame");
    } else {
        peer->counts.received_frames++;
    }
}

static void receive_from(struct convoy_bulk *bulk, struct bulk_peer *peer, const struct bulk_header *header,
                         const void *data, size_t bytes)
{
    if (!receive_epoch(peer, header->epoch)) {
        peer->counts.stale++;
        return;
    }
    switch (header->kind) {
    case BULK_FRAME:
        receive_frame(bulk, peer, data, bytes);
        break;
    case BULK_CHUNK:
    case BULK_ABORT:
        receive_in_sequence(bulk, peer, header, data, bytes);
        break;
    case BULK_ACK:
        receive_ack(bulk, peer, header, data, bytes);
        break;
    }
}

void convoy_bulk_receive(void *user, const void *header_bytes, size_t header_length, const void *data, size_t bytes)
{
    struct convoy_bulk *bulk = user;
    struct bulk_header header;
    if (!convoy_bulk_header_decode(header_bytes, header_length, bytes, &header)) {
        bulk->refused++;
        return;
    }
    struct bulk_peer *peer = header.from != 0 ? convoy_bulk_peer_find(bulk, header.from) : NULL;
    if (header.to != bulk->incarnation || peer == NULL || !peer->is_up || bulk->is_deaf) {
        bulk->stale++;
        return;
    }
    receive_from(bulk, peer, &header, data, bytes);
}

void convoy_bulk_down(void *user, uint32_t peer, int32_t ucx_status)
{
    struct convoy_bulk *bulk = user;
    if (bulk->peers[peer].is_up) {
        convoy_log_line(&bulk->options.runtime->log, CONVOY_LOG_INFO, "bulk peer %u down ucx_status %d", peer,
                        (int)ucx_status);
    }
    convoy_bulk_peer_fail(bulk, peer, CONVOY_PEER_LOST, true);
}
