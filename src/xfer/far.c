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

#define CUT_NS (200 * CONVOY_NS_PER_MS)
#define CLOSE_NS (500 * CONVOY_NS_PER_MS)

/* A frame. */
struct convoy_far_item {
    struct convoy_far_item *next;
    uint32_t peer;
    bool is_malformed;
    uint64_t incarnation;
    struct convoy_ring_entry entry;
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
    size_t length = bytes >= CONVOY_FAR_FRAME_HEAD_BYTES ? convoy_bytes_u16(data + 2) : SIZE_MAX;
    if (length > CONVOY_RING_DATA_BYTES || length != bytes - CONVOY_FAR_FRAME_HEAD_BYTES) {
        item->is_malformed = true;
        return;
    }
    item->incarnation = convoy_bytes_u64(data + 8);
    item->entry.type = convoy_bytes_u16(data);
    item->entry.length = (uint16_t)length;
    memcpy(item->entry.data, data + CONVOY_FAR_FRAME_HEAD_BYTES, length);
}

/* Out of memory: dropped, retries and deadlines are for this. */
static void on_frame(void *user, uint32_t peer, const void *data, size_t bytes)
{
    if (bytes > CONVOY_FAR_FRAME_HEAD_BYTES && convoy_bytes_u16(data) == CONVOY_FAR_KEY_TYPE) {
        convoy_far_take_key(user, peer, (const uint8_t *)data + CONVOY_FAR_FRAME_HEAD_BYTES,
                            bytes - CONVOY_FAR_FRAME_HEAD_BYTES);
        return;
    }
    struct convoy_far_item *item = convoy_memory_zalloc(sizeof *item);
    if (item != NULL) {
        item->peer = peer;
        take_frame(item, data, bytes);
        queue_add(user, item);
    }
}

static void on_event(void *user, const struct convoy_bulk_event *event)
{
    struct convoy_far *far = user;
    if (event->kind == CONVOY_BULK_ENDED || event->kind == CONVOY_BULK_RELEASED || event->kind == CONVOY_BULK_MOVED) {
        convoy_far_push_event(far, event);
    } else if (event->kind == CONVOY_BULK_DOWN && !convoy_bulk_is_up(far->bulk, event->peer)) { /* not one of before */
        (void)pthread_mutex_lock(&far->lock);
        far->peers[event->peer].is_down = true;
        far->has_words = true;
        (void)pthread_mutex_unlock(&far->lock);
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

void convoy_far_destroy(struct convoy_far *far)
{
    struct convoy_far_item *item;
    while ((item = queue_take(far)) != NULL) {
        convoy_memory_free(item);
    }
    while (far->spare_frames != NULL) {
        struct convoy_far_frame *frame = far->spare_frames;
        far->spare_frames = frame->spare;
        convoy_memory_free(frame);
    }
    for (uint32_t i = 0; far->peers != NULL && i < far->peer_count; i++) {
        convoy_far_wire_free(&far->peers[i].wire);
    }
    convoy_landings_destroy(far->landings);
    convoy_memory_free(far->pushes);
    convoy_memory_free(far->peers);
    (void)pthread_mutex_destroy(&far->lock);
    convoy_memory_free(far);
}

int32_t convoy_far_make(struct convoy_xfer *engine, struct convoy_far **far_out, struct convoy_error *error)
{
    uint32_t count = 2 * engine->options.transfer_max;
    struct convoy_far *far = convoy_memory_zalloc(sizeof *far);
    if (far == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for peers on other hosts");
    }
    (void)pthread_mutex_init(&far->lock, NULL);
    far->last_command = &far->first_command;
    far->landings = convoy_landings_create(count);
    far->peers = convoy_memory_array(engine->options.peer_max, sizeof *far->peers);
    far->peer_count = far->peers != NULL ? engine->options.peer_max : 0;
    far->pushes = convoy_memory_array(count, sizeof *far->pushes);
    far->push_count = far->pushes != NULL ? count : 0;
    for (uint32_t i = far->push_count; i-- > 0;) {
        far->pushes[i].next_free = far->free_pushes;
        far->free_pushes = &far->pushes[i];
    }
    if (far->landings == NULL || far->peers == NULL || far->pushes == NULL) {
        convoy_far_destroy(far);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u landings and pushes", count);
    }
    *far_out = far;
    return CONVOY_OK;
}

int32_t convoy_far_open_bulk(struct convoy_xfer *engine, struct convoy_far *far, struct convoy_error *error)
{
    uint32_t count = far->push_count;
    far->rma = convoy_far_rma_kind(engine);
    const struct convoy_bulk_options options = {
        .runtime = engine->runtime,
        .peer_count = engine->options.peer_max,
        .stream_count = count < CONVOY_BULK_STREAMS_MAX ? count : CONVOY_BULK_STREAMS_MAX,
        .with_rma = far->rma != CONVOY_LINK_RMA_NEVER,
        .without_peer_errors = far->rma == CONVOY_LINK_RMA_ALLOCATED, /* shared memory: the TCP connection tells */
        .ops = {.resolve = on_resolve, .landed = on_landed, .frame = on_frame, .event = on_event},
        .user = far,
    };
    int32_t status = convoy_bulk_open(&options, &far->bulk, error);
    if (status != CONVOY_OK) {
        return convoy_error_prefix(error, status, "peers on other hosts are reached over UCX");
    }
    convoy_far_rma_register(engine, far);
    return CONVOY_OK;
}

static int32_t create(struct convoy_xfer *engine, struct convoy_far **far_out, struct convoy_error *error)
{
    struct convoy_far *far = NULL;
    int32_t status = convoy_far_make(engine, &far, error);
    if (status == CONVOY_OK) {
        status = convoy_far_open_bulk(engine, far, error);
    }
    if (status != CONVOY_OK && far != NULL) {
        convoy_far_destroy(far);
        return status;
    }
    *far_out = far;
    return status;
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
        convoy_far_tell_device(engine);
        convoy_xfer_lock(engine);
        engine->far = far;
        convoy_xfer_kick(engine); /* whoever sleeps does not know its descriptor */
        convoy_xfer_unlock(engine);
    }
    (void)pthread_mutex_unlock(&engine->far_opening);
    return status;
}

/* A put that does not come to its end keeps its key: it is never given back then. */
static void close_keys(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    uint64_t end_ns = convoy_deadline_after(convoy_now_ns(), CLOSE_NS);
    for (uint32_t i = 0; i < engine->options.peer_max; i++) {
        while (!convoy_far_put_drop(far, i) && convoy_now_ns() < end_ns) {
            convoy_bulk_sleep(far->bulk, end_ns);
            convoy_far_work(engine);
        }
    }
}

void convoy_far_close(struct convoy_xfer *engine)
{
    if (engine->far != NULL) {
        convoy_far_raw_drop(engine, CONVOY_XFER_NOBODY, UINT64_MAX); /* whatever its time */
        convoy_far_flush(engine);
        close_keys(engine);
        convoy_far_rma_forget(engine, CONVOY_XFER_NOBODY);
        convoy_bulk_memory_close(engine->far->memory);
        convoy_bulk_close(engine->far->bulk, convoy_deadline_after(convoy_now_ns(), CLOSE_NS));
        convoy_far_raw_finish(engine); /* those that were closed under a chunk */
        convoy_far_destroy(engine->far);
        engine->far = NULL;
    }
}

/* -- taking what came ---------------------------------------------------------------------------------------------- */

static void take_item(struct convoy_xfer *engine, const struct convoy_far_item *item)
{
    struct convoy_xfer_peer *peer = &engine->peers[item->peer];
    bool is_up = peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
    if (is_up && item->is_malformed) {
        (void)convoy_xfer_take(engine, peer, NULL);
    } else if (is_up && item->incarnation == peer->incarnation) {
        (void)convoy_xfer_take(engine, peer, &item->entry);
    } else {
        CONVOY_XFER_NOTE(engine, replies_late);
    }
}

/* What is known of one peer's connection; is_settled: else it is being connected, and an earlier one was meant. */
static void take_word(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_far_place *word)
{
    bool is_settled = peer->tcp_fd >= 0 || peer->cut_ns != 0;
    bool is_here = peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
    if (word->is_wired && is_here) {
        convoy_far_wired(engine, peer, word->wired_number, word->wired_status);
    }
    is_here = peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
    if (word->is_down && is_settled && is_here && !convoy_far_wire_failed(engine, peer)) {
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
    }
    if (word->is_gone && peer->is_parting) {
        peer->is_parting = false;
        convoy_far_rma_forget(engine, (uint32_t)(peer - engine->peers));
        convoy_xfer_peer_end(engine, peer, peer->state, true);
    }
}

/* Who is down, wired again, or was parted with: behind all that they have said. */
static void take_words(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    (void)pthread_mutex_lock(&far->lock);
    bool has_words = far->has_words;
    far->has_words = false;
    (void)pthread_mutex_unlock(&far->lock);
    for (uint32_t i = 0; has_words && i < engine->peer_top; i++) {
        struct convoy_far_place *place = &far->peers[i];
        (void)pthread_mutex_lock(&far->lock);
        const struct convoy_far_place word = {.is_down = place->is_down,
                                              .is_gone = place->is_gone,
                                              .is_wired = place->is_wired,
                                              .wired_status = place->wired_status,
                                              .wired_number = place->wired_number};
        place->is_down = place->is_gone = place->is_wired = false;
        (void)pthread_mutex_unlock(&far->lock);
        take_word(engine, &engine->peers[i], &word);
    }
}

/* The last words of a peer whose connection has ended had their time. */
static void end_cut(struct convoy_xfer *engine, uint64_t now_ns)
{
    for (uint32_t i = 0; engine->far->cut_count != 0 && i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->cut_ns != 0 && peer->cut_ns <= now_ns) {
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
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
    convoy_far_work(engine);
    convoy_xfer_lock(engine);
    while ((item = queue_take(far)) != NULL) {
        take_item(engine, item);
        convoy_memory_free(item);
    }
    take_words(engine);
    convoy_far_take_news(engine);
    while (convoy_landing_whole(far->landings, &owner, &number)) {
        convoy_far_landed(engine, owner, number);
    }
    while (convoy_landing_quiet(far->landings, &owner, &number)) {
        convoy_far_quiet(engine, owner, number);
    }
    flush_all(engine);
}

void convoy_far_timers(struct convoy_xfer *engine, uint64_t now_ns)
{
    convoy_far_raw_drop(engine, CONVOY_XFER_NOBODY, now_ns);
    end_cut(engine, now_ns);
    convoy_far_wire_timers(engine, now_ns);
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
    uint8_t frame[CONVOY_FAR_FRAME_HEAD_BYTES + CONVOY_RING_DATA_BYTES] = {0};
    if (peer->is_shy || !convoy_far_path_is_up(engine, (uint32_t)(peer - engine->peers))) {
        return false;
    }
    convoy_bytes_put_u16(frame, entry->type);
    convoy_bytes_put_u16(frame + 2, entry->length);
    convoy_bytes_put_u64(frame + 8, engine->incarnation);
    memcpy(frame + CONVOY_FAR_FRAME_HEAD_BYTES, entry->data, entry->length);
    return convoy_far_frame(engine, (uint32_t)(peer - engine->peers), frame, CONVOY_FAR_FRAME_HEAD_BYTES + entry->length);
}

/* It is connected now, too. */
void convoy_far_hello(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    if (peer->lane->is_far) {
        convoy_far_rma_hello(engine, (uint32_t)(peer - engine->peers));
    }
}

/* What it may still touch is known to be free when the connection was ended, by whoever gives the lock up. */
static bool part(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    engine->far->cut_count -= peer->cut_ns != 0;
    peer->cut_ns = 0;
    peer->is_parting = true;
    convoy_far_part(engine, index);
    convoy_far_raw_drop(engine, index, 0);
    return false;
}

const struct convoy_lane convoy_lane_far = {
    .name = "far",
    .is_far = true,
    .may_be_early = true,
    .put = put,
    .load = convoy_far_load,
    .send_ended = convoy_far_send_ended,
    .part = part,
};
