/* SPDX-License-Identifier: Apache-2.0 */
#include "net/bulk_parts.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *describe_counts(const struct bulk_peer_counts *counts)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bytes_sent",
                     number(counts->sent_bytes), "chunks_sent", number(counts->sent_chunks), "frames_sent",
                     number(counts->sent_frames), "bytes_applied", number(counts->applied_bytes), "bytes_received",
                     number(counts->received_bytes), "chunks_received", number(counts->received_chunks),
                     "frames_received", number(counts->received_frames), "acks_sent", number(counts->sent_acks),
                     "acks_received", number(counts->received_acks), "chunks_dropped", number(counts->dropped), "late",
                     number(counts->late), "stale", number(counts->stale));
}

static json_t *describe_peer(const struct convoy_bulk *bulk, uint32_t index)
{
    const struct bulk_peer *peer = &bulk->peers[index];
    char incarnation[20];
    char transports[CONVOY_LINK_TRANSPORTS_BYTES];
    (void)snprintf(incarnation, sizeof incarnation, "%016llx", (unsigned long long)peer->incarnation);
    convoy_bulk_transports(bulk, index, transports, sizeof transports);
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:I, s:I, s:o}", "peer", (int)index, "state",
                     peer->is_up ? "up" : "down", "incarnation", incarnation, "transports", transports,
                     "chunks_in_flight", (int)bulk_peer_in_flight(peer), "chunk_bytes", (json_int_t)peer->chunk_bytes,
                     "frame_bytes_waiting", (json_int_t)peer->frame_bytes, "counts", describe_counts(&peer->counts));
}

static json_t *describe_locked(const struct convoy_bulk *bulk)
{
    char incarnation[20];
    json_t *peers = json_array();
    for (uint32_t i = 0; i < bulk->options.peer_count; i++) {
        if (bulk->peers[i].epoch != 0) {
            (void)json_array_append_new(peers, describe_peer(bulk, i));
        }
    }
    (void)snprintf(incarnation, sizeof incarnation, "%016llx", (unsigned long long)bulk->incarnation);
    return json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "incarnation", incarnation, "window",
                     (int)bulk->options.window, "streams_open", (int)(bulk->options.stream_count - bulk->free_count),
                     "streams_max", (int)bulk->options.stream_count, "stale", number(bulk->stale), "refused",
                     number(bulk->refused), "deliveries", number(bulk->deliveries), "peers", peers);
}

json_t *convoy_bulk_describe(struct convoy_bulk *bulk)
{
    (void)pthread_mutex_lock(&bulk->lock);
    json_t *object = describe_locked(bulk);
    (void)pthread_mutex_unlock(&bulk->lock);
    return object;
}
