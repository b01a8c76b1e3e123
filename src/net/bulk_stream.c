/* SPDX-License-Identifier: Apache-2.0 */
/* One stream: its states, its source, and how it ends. Everything under the lock of bulk. */
#include "net/bulk_parts.h"

#include "core/clock.h"

#include <stdatomic.h>
#include <string.h>

/* -- states -------------------------------------------------------------------------------------------------------- */

#define BIT(state) (1u << (state))

static const uint32_t stream_edges[BULK_STREAM_STATES] = {
    [BULK_FREE] = BIT(BULK_QUEUED),
    [BULK_QUEUED] = BIT(BULK_SENDING) | BIT(BULK_ENDED),
    [BULK_SENDING] = BIT(BULK_SENT) | BIT(BULK_STOPPING) | BIT(BULK_ENDED),
    [BULK_SENT] = BIT(BULK_STOPPING) | BIT(BULK_ENDED),
    [BULK_STOPPING] = BIT(BULK_ENDED),
    [BULK_ENDED] = BIT(BULK_FREE),
};

bool convoy_bulk_stream_may(enum bulk_stream_state from, enum bulk_stream_state to)
{
    return (stream_edges[from] & BIT(to)) != 0;
}

void convoy_bulk_stream_move(struct bulk_stream *stream, enum bulk_stream_state to)
{
    bool is_legal = convoy_bulk_stream_may((enum bulk_stream_state)stream->state, to);
    assert(is_legal && "a stream takes an edge that there is not");
    if (is_legal) {
        stream->state = to;
    }
}

/* -- table --------------------------------------------------------------------------------------------------------- */

struct bulk_stream *convoy_bulk_stream_take(struct convoy_bulk *bulk)
{
    if (bulk->free_count == 0) {
        return NULL;
    }
    struct bulk_stream *stream = &bulk->streams[bulk->free_streams[--bulk->free_count]];
    uint32_t generation = stream->generation_of_value + 1;
    memset(stream, 0, sizeof *stream);
    stream->generation_of_value = generation;
    stream->released.stream = stream;
    stream->ended.stream = stream;
    stream->deadline_ns = CONVOY_DEADLINE_NEVER;
    return stream;
}

void convoy_bulk_stream_free(struct convoy_bulk *bulk, struct bulk_stream *stream)
{
    if (stream->state != BULK_FREE) {
        convoy_bulk_stream_move(stream, BULK_FREE);
    }
    bulk->free_streams[bulk->free_count++] = (uint32_t)(stream - bulk->streams);
}

uint64_t convoy_bulk_stream_value(const struct convoy_bulk *bulk, const struct bulk_stream *stream)
{
    return (uint64_t)stream->generation_of_value << 32 | (uint32_t)(stream - bulk->streams);
}

struct bulk_stream *convoy_bulk_stream_find(const struct convoy_bulk *bulk, uint64_t value)
{
    uint32_t index = (uint32_t)value;
    if (index >= bulk->options.stream_count) {
        return NULL;
    }
    struct bulk_stream *stream = &bulk->streams[index];
    bool is_live = stream->state != BULK_FREE && stream->state != BULK_ENDED;
    return is_live && stream->generation_of_value == value >> 32 ? stream : NULL;
}

/* -- turns --------------------------------------------------------------------------------------------------------- */

/* At the end of the circle: behind all that wait for a turn already. */
void convoy_bulk_stream_enlist(struct convoy_bulk *bulk, struct bulk_stream *stream)
{
    struct bulk_peer *peer = &bulk->peers[stream->peer];
    if (stream->next != NULL) {
        return;
    }
    if (peer->turn == NULL) {
        stream->next = stream;
        stream->previous = stream;
        peer->turn = stream;
    } else {
        stream->next = peer->turn;
        stream->previous = peer->turn->previous;
        stream->previous->next = stream;
        stream->next->previous = stream;
    }
    convoy_bulk_peer_busy(bulk, peer);
}

void convoy_bulk_stream_delist(struct convoy_bulk *bulk, struct bulk_stream *stream)
{
    struct bulk_peer *peer = &bulk->peers[stream->peer];
    if (stream->next == NULL) {
        return;
    }
    if (peer->turn == stream) {
        peer->turn = stream->next != stream ? stream->next : NULL;
    }
    stream->previous->next = stream->next;
    stream->next->previous = stream->previous;
    stream->next = NULL;
    stream->previous = NULL;
}

/* -- source -------------------------------------------------------------------------------------------------------- */

const void *convoy_bulk_stream_look(struct convoy_bulk *bulk, const struct bulk_stream *stream, size_t bytes)
{
    uint32_t index = stream->piece_index;
    size_t at = stream->piece_at;
    size_t done = 0;
    if (bytes == 0) {
        return bulk->gather;
    }
    if (stream->pieces[index].bytes - at >= bytes) {
        return (const uint8_t *)stream->pieces[index].data + at;
    }
    while (done < bytes) {
        size_t here = stream->pieces[index].bytes - at;
        size_t part = here < bytes - done ? here : bytes - done;
        if (part != 0) {
            memcpy(bulk->gather + done, (const uint8_t *)stream->pieces[index].data + at, part);
        }
        done += part;
        index++;
        at = 0;
    }
    return bulk->gather;
}

uint64_t convoy_bulk_stream_ready(const struct bulk_stream *stream)
{
    uint64_t ready = stream->ready != NULL ? atomic_load_explicit(stream->ready, memory_order_acquire) : stream->bytes;
    return ready < stream->bytes || ready == CONVOY_BULK_NEVER ? ready : stream->bytes;
}

void convoy_bulk_stream_advance(struct bulk_stream *stream, size_t bytes)
{
    stream->sent += bytes;
    stream->piece_at += bytes;
    while (stream->piece_index < stream->piece_count &&
           stream->piece_at >= stream->pieces[stream->piece_index].bytes) {
        stream->piece_at -= stream->pieces[stream->piece_index].bytes;
        stream->piece_index++;
    }
}

/* -- ways ---------------------------------------------------------------------------------------------------------- */

static struct convoy_bulk_event stream_event(const struct convoy_bulk *bulk, const struct bulk_stream *stream,
                                             enum convoy_bulk_event_kind kind, int32_t status)
{
    return (struct convoy_bulk_event){.kind = kind,
                                      .peer = stream->peer,
                                      .status = status,
                                      .transfer = stream->transfer,
                                      .generation = stream->generation,
                                      .stream = convoy_bulk_stream_value(bulk, stream),
                                      .cookie = stream->cookie,
                                      .bytes = stream->bytes,
                                      .lost_bytes = stream->bytes - stream->applied};
}

static void stream_release(struct convoy_bulk *bulk, struct bulk_stream *stream)
{
    if (stream->is_released) {
        return;
    }
    stream->is_released = true;
    stream->released.event = stream_event(bulk, stream, CONVOY_BULK_RELEASED, CONVOY_OK);
    convoy_bulk_notice_push(bulk, &stream->released);
}

void convoy_bulk_stream_sent(struct convoy_bulk *bulk, struct bulk_stream *stream)
{
    convoy_bulk_stream_move(stream, BULK_SENT);
    convoy_bulk_stream_delist(bulk, stream);
    stream_release(bulk, stream);
}

void convoy_bulk_stream_end(struct convoy_bulk *bulk, struct bulk_stream *stream, int32_t status)
{
    convoy_bulk_stream_delist(bulk, stream);
    stream_release(bulk, stream);
    convoy_bulk_stream_move(stream, BULK_ENDED);
    stream->ended.event = stream_event(bulk, stream, CONVOY_BULK_ENDED, status);
    convoy_bulk_notice_push(bulk, &stream->ended);
}

/* The peer is told in the stream's own place in the order, so that it knows what was the last chunk. */
static void stream_stop(struct convoy_bulk *bulk, struct bulk_stream *stream, int32_t status, bool tell)
{
    if (stream->state == BULK_QUEUED) {
        convoy_bulk_stream_end(bulk, stream, status);
        return;
    }
    if (stream->state != BULK_SENDING && stream->state != BULK_SENT) {
        return; /* the first cause counts */
    }
    convoy_bulk_stream_move(stream, BULK_STOPPING);
    convoy_bulk_stream_delist(bulk, stream);
    stream_release(bulk, stream);
    stream->status = status;
    if (tell) {
        stream->is_abort_due = true;
        convoy_bulk_stream_enlist(bulk, stream);
    }
}

void convoy_bulk_stream_stop(struct convoy_bulk *bulk, struct bulk_stream *stream, int32_t status)
{
    stream_stop(bulk, stream, status, true);
}

void convoy_bulk_stream_answer(struct convoy_bulk *bulk, struct bulk_stream *stream, uint32_t bytes,
                               enum bulk_reason reason)
{
    assert(stream->in_flight != 0);
    stream->in_flight--;
    if (reason == BULK_APPLIED) {
        stream->applied += bytes;
    } else {
        bool is_damaged = reason == BULK_WRONG_CHECKSUM; /* then the owner of the memory knows nothing of it */
        stream_stop(bulk, stream, is_damaged ? CONVOY_MALFORMED : CONVOY_PEER_ERROR, is_damaged);
    }
    if (stream->in_flight != 0 || stream->is_abort_due) {
        return;
    }
    if (stream->state == BULK_SENT) {
        convoy_bulk_stream_end(bulk, stream, CONVOY_OK);
    } else if (stream->state == BULK_STOPPING) {
        convoy_bulk_stream_end(bulk, stream, stream->status);
    }
}

uint32_t convoy_bulk_stream_expire(struct convoy_bulk *bulk, uint64_t now_ns)
{
    uint32_t expired = 0;
    uint64_t earliest_ns = CONVOY_DEADLINE_NEVER;
    for (uint32_t i = 0; i < bulk->options.stream_count; i++) {
        struct bulk_stream *stream = &bulk->streams[i];
        if (stream->state < BULK_QUEUED || stream->state > BULK_SENT) {
            continue;
        }
        if (stream->deadline_ns <= now_ns) {
            convoy_bulk_stream_stop(bulk, stream, CONVOY_TIMED_OUT);
            expired++;
        } else if (stream->deadline_ns < earliest_ns) {
            earliest_ns = stream->deadline_ns;
        }
    }
    bulk->deadline_ns = earliest_ns;
    return expired;
}
