/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's bulk: opening, what its callbacks queue, and taking that under the engine's lock. */
#include "xfer/far.h"

#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"

#include <string.h>
#include <unistd.h>

#define FRAME_HEAD_BYTES 16u /* type 2 | length 2 | zero 4 | incarnation of the sender 8 */
#define ROUNDS_MAX 64u       /* of progress before what came is looked at */
#define CUT_NS (200 * CONVOY_NS_PER_MS)
#define CLOSE_NS (500 * CONVOY_NS_PER_MS)

struct convoy_far_item {
    struct convoy_far_item *next;
    uint32_t peer;
    bool is_frame;
    bool is_malformed;
    uint64_t incarnation;
    struct convoy_ring_entry entry;
    struct convoy_bulk_event event;
};

/* -- what bulk calls ----------------------------------------------------------------------------------------------- */

static void queue_add(struct convoy_far *far, struct convoy_far_item *item)
{
    (void)pthread_mutex_lock(&far->lock);
    if (far->last != NULL) {
        far->last->next = item;
    } else {
        far->first = item;
    }
    far->last = item;
    (void)pthread_mutex_unlock(&far->lock);
}

static struct convoy_far_item *queue_take(struct convoy_far *far)
{
    (void)pthread_mutex_lock(&far->lock);
    struct convoy_far_item *item = far->first;
    if (item != NULL) {
        far->first = item->next;
        far->last = item->next != NULL ? far->last : NULL;
    }
    (void)pthread_mutex_unlock(&far->lock);
    return item;
}

static void take_frame(struct convoy_far_item *item, const uint8_t *data, size_t bytes)
{
    size_t length = bytes >= FRAME_HEAD_BYTES ? convoy_bytes_u16(data + 2) : SIZE_MAX;
    if (length > CONVOY_RING_DATA_BYTES || length != bytes - FRAME_HEAD_BYTES) {
        item->is_malformed = true;
        return;
    }
    item->incarnation = convoy_bytes_u64(data + 8);
    item->entry.type = convoy_bytes_u16(data);
    item->entry.length = (uint16_t)length;
    memcpy(item->entry.data, data + FRAME_HEAD_BYTES, length);
}

/* Out of memory: dropped, retries and deadlines are for this. */
static void on_frame(void *user, uint32_t peer, const void *data, size_t bytes)
{
    struct convoy_far_item *item = convoy_memory_zalloc(sizeof *item);
    if (item != NULL) {
        item->peer = peer;
        item->is_frame = true;
        take_frame(item, data, bytes);
        queue_add(user, item);
    }
}

static void on_event(void *user, const struct convoy_bulk_event *event)
{
    bool is_of_use = event->kind == CONVOY_BULK_ENDED || event->kind == CONVOY_BULK_DOWN;
    struct convoy_far_item *item = is_of_use ? convoy_memory_zalloc(sizeof *item) : NULL;
    if (item != NULL) {
        item->peer = event->peer;
        item->event = *event;
        queue_add(user, item);
    }
}

static struct convoy_landing_chunk chunk_of(uint32_t peer, const struct convoy_bulk_chunk *chunk)
{
    return (struct convoy_landing_chunk){.peer = peer,
                                         .number = chunk->transfer,
                                         .generation = chunk->generation,
                                         .offset = chunk->offset,
                                         .bytes = chunk->bytes};
}

static bool on_resolve(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void **to_out)
{
    const struct convoy_far *far = user;
    const struct convoy_landing_chunk landing = chunk_of(peer, chunk);
    *to_out = convoy_landing_resolve(far->landings, &landing);
    return *to_out != NULL;
}

static void on_landed(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void *to)
{
    const struct convoy_far *far = user;
    const struct convoy_landing_chunk landing = chunk_of(peer, chunk);
    (void)to;
    convoy_landing_landed(far->landings, &landing);
    CONVOY_POINT(push_landed);
}

/* -- opening and closing ------------------------------------------------------------------------------------------- */

static void destroy(struct convoy_far *far)
{
    struct convoy_far_item *item;
    while ((item = queue_take(far)) != NULL) {
        convoy_memory_free(item);
    }
    convoy_landings_destroy(far->landings);
    (void)pthread_mutex_destroy(&far->lock);
    convoy_memory_free(far);
}

static int32_t create(struct convoy_xfer *engine, struct convoy_far **far_out, struct convoy_error *error)
{
    uint32_t count = 2 * engine->options.transfer_max;
    struct convoy_far *far = convoy_memory_zalloc(sizeof *far);
    if (far == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for peers on other hosts");
    }
    (void)pthread_mutex_init(&far->lock, NULL);
    far->landings = convoy_landings_create(count);
    const struct convoy_bulk_options options = {
        .runtime = engine->runtime,
        .peer_count = engine->options.peer_max,
        .stream_count = count < CONVOY_BULK_STREAMS_MAX ? count : CONVOY_BULK_STREAMS_MAX,
        .ops = {.resolve = on_resolve, .landed = on_landed, .frame = on_frame, .event = on_event},
        .user = far,
    };
    int32_t status = far->landings != NULL ? convoy_bulk_open(&options, &far->bulk, error)
                                           : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u landings", count);
    if (status != CONVOY_OK) {
        destroy(far);
        return convoy_error_prefix(error, status, "peers on other hosts are reached over UCX");
    }
    *far_out = far;
    return CONVOY_OK;
}

int32_t convoy_far_open(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_far *far = NULL;
    int32_t status = CONVOY_OK;
    (void)pthread_mutex_lock(&engine->far_opening);
    convoy_xfer_lock(engine);
    bool is_open = engine->far != NULL;
    convoy_xfer_unlock(engine);
    if (!is_open) {
        status = create(engine, &far, error);
    }
    if (far != NULL) {
        convoy_xfer_lock(engine);
        engine->far = far;
        convoy_xfer_kick(engine); /* whoever sleeps does not know its descriptor */
        convoy_xfer_unlock(engine);
    }
    (void)pthread_mutex_unlock(&engine->far_opening);
    return status;
}

void convoy_far_close(struct convoy_xfer *engine)
{
    if (engine->far != NULL) {
        convoy_far_raw_drop(engine, CONVOY_XFER_NOBODY, UINT64_MAX); /* whatever its time */
        convoy_bulk_close(engine->far->bulk, convoy_deadline_after(convoy_now_ns(), CLOSE_NS));
        destroy(engine->far);
        engine->far = NULL;
    }
}

/* -- taking what came ---------------------------------------------------------------------------------------------- */

/* One that is left over from an earlier peer of that place has no endpoint any more to be told about. */
static void take_down(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    char transports[8];
    convoy_bulk_transports(engine->far->bulk, (uint32_t)(peer - engine->peers), transports, sizeof transports);
    if (transports[0] == '\0') {
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, true);
    }
}

static void take_item(struct convoy_xfer *engine, const struct convoy_far_item *item)
{
    struct convoy_xfer_peer *peer = &engine->peers[item->peer];
    bool is_up = peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
    if (!item->is_frame && item->event.kind == CONVOY_BULK_ENDED) {
        convoy_far_stream_ended(engine, &item->event);
    } else if (!is_up) {
        CONVOY_XFER_NOTE(engine, replies_late);
    } else if (!item->is_frame) {
        take_down(engine, peer);
    } else if (item->is_malformed) {
        (void)convoy_xfer_take(engine, peer, NULL);
    } else if (item->incarnation == peer->incarnation) {
        (void)convoy_xfer_take(engine, peer, &item->entry);
    } else {
        CONVOY_XFER_NOTE(engine, replies_late);
    }
}

/* The last words of a peer whose connection has ended had their time. */
static void end_cut(struct convoy_xfer *engine, uint64_t now_ns)
{
    for (uint32_t i = 0; engine->far->cut_count != 0 && i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->cut_ns != 0 && peer->cut_ns <= now_ns) {
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, true);
        } else if (peer->cut_ns != 0) {
            convoy_xfer_timer(engine, peer->cut_ns);
        }
    }
}

static void flush_all(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->lane == &convoy_lane_far && peer->backlog_count != 0) {
            convoy_xfer_peer_flush(engine, peer);
        }
    }
}

void convoy_far_pump(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_item *item;
    uint64_t owner;
    uint64_t number;
    convoy_xfer_unlock(engine);
    for (uint32_t i = 0; i < ROUNDS_MAX && convoy_bulk_progress(far->bulk) != 0; i++) {
    }
    convoy_xfer_lock(engine);
    while ((item = queue_take(far)) != NULL) {
        take_item(engine, item);
        convoy_memory_free(item);
    }
    while (convoy_landing_whole(far->landings, &owner, &number)) {
        convoy_far_landed(engine, owner, number);
    }
    flush_all(engine);
}

void convoy_far_timers(struct convoy_xfer *engine, uint64_t now_ns)
{
    convoy_far_raw_drop(engine, CONVOY_XFER_NOBODY, now_ns);
    end_cut(engine, now_ns);
}

void convoy_far_cut(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    (void)close(peer->tcp_fd);
    peer->tcp_fd = -1;
    peer->cut_ns = convoy_deadline_after(convoy_now_ns(), CUT_NS);
    engine->far->cut_count++;
    convoy_xfer_timer(engine, peer->cut_ns);
}

/* -- the lane ------------------------------------------------------------------------------------------------------ */

static bool put(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry)
{
    uint8_t frame[FRAME_HEAD_BYTES + CONVOY_RING_DATA_BYTES] = {0};
    if (peer->is_shy) {
        return false;
    }
    convoy_bytes_put_u16(frame, entry->type);
    convoy_bytes_put_u16(frame + 2, entry->length);
    convoy_bytes_put_u64(frame + 8, engine->incarnation);
    memcpy(frame + FRAME_HEAD_BYTES, entry->data, entry->length);
    int32_t status = convoy_bulk_frame(engine->far->bulk, (uint32_t)(peer - engine->peers), frame,
                                       FRAME_HEAD_BYTES + entry->length, NULL);
    return status != CONVOY_LIMIT && status != CONVOY_NO_MEMORY;
}

static bool part(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    engine->far->cut_count -= peer->cut_ns != 0;
    peer->cut_ns = 0;
    convoy_bulk_disconnect(engine->far->bulk, index);
    convoy_far_raw_drop(engine, index, 0);
    return true;
}

const struct convoy_lane convoy_lane_far = {
    .name = "far",
    .is_far = true,
    .put = put,
    .load = convoy_far_load,
    .send_ended = convoy_far_send_ended,
    .part = part,
};
