/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw transfers: addresses instead of requests, as hosts of today ask for them. The peer copies, since it is its memory: an
 * address must lie in exactly one slot that waits for bytes, or in memory that its host has registered.
 */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"

#include <string.h>

#define BOUNCE_BYTES (UINT64_C(4) << 20)

/* -- registered memory --------------------------------------------------------------------------------------------- */

static bool overlaps(const struct convoy_xfer_range *range, const uint8_t *memory, uint64_t bytes)
{
    return memory < range->memory + range->bytes && range->memory < memory + bytes;
}

static struct convoy_xfer_range *find_range(struct convoy_xfer *engine, const void *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        if (engine->ranges[i].memory == memory && engine->ranges[i].bytes == bytes) {
            return &engine->ranges[i];
        }
    }
    return NULL;
}

static bool is_registered(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        uint64_t start = (uint64_t)(uintptr_t)engine->ranges[i].memory;
        if (address >= start && bytes <= engine->ranges[i].bytes && address - start <= engine->ranges[i].bytes - bytes) {
            return true;
        }
    }
    return false;
}

static int32_t add_range(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    struct convoy_xfer_range *known = find_range(engine, memory, bytes);
    if (known != NULL) {
        known->references++;
        return CONVOY_OK;
    }
    for (uint32_t i = 0; i < engine->range_count; i++) {
        if (overlaps(&engine->ranges[i], memory, bytes)) {
            return convoy_error_set(error, CONVOY_BUSY, "memory %p of %llu bytes overlaps %p of %llu, registered before",
                                    memory, (unsigned long long)bytes, (void *)engine->ranges[i].memory,
                                    (unsigned long long)engine->ranges[i].bytes);
        }
    }
    if (engine->range_count == engine->range_room) {
        uint32_t room = engine->range_room != 0 ? 2 * engine->range_room : 16;
        struct convoy_xfer_range *grown = convoy_memory_array(room, sizeof *grown);
        if (grown == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u registered ranges", room);
        }
        if (engine->range_count != 0) {
            memcpy(grown, engine->ranges, engine->range_count * sizeof *grown);
        }
        convoy_memory_free(engine->ranges);
        engine->ranges = grown;
        engine->range_room = room;
    }
    engine->ranges[engine->range_count++] = (struct convoy_xfer_range){.memory = memory, .bytes = bytes, .references = 1};
    return CONVOY_OK;
}

int32_t convoy_xfer_register(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    if (memory == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)memory) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "memory %p of %llu bytes is no range", memory,
                                (unsigned long long)bytes);
    }
    int32_t status = convoy_xfer_device_check_range(engine, memory, bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = add_range(engine, memory, bytes, error);
    }
    convoy_xfer_unlock(engine);
    return status;
}

int32_t convoy_xfer_deregister(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_range *range = find_range(engine, memory, bytes);
    int32_t status = CONVOY_OK;
    if (range == NULL) {
        status = convoy_error_set(error, CONVOY_NOT_FOUND, "memory %p of %llu bytes is not registered", memory,
                                  (unsigned long long)bytes);
    } else if (range->references == 1 && engine->range_copies != 0) {
        status = convoy_error_set(error, CONVOY_BUSY, "memory %p is written by a peer right now", memory);
    } else if (--range->references == 0) {
        *range = engine->ranges[--engine->range_count];
    }
    convoy_xfer_unlock(engine);
    return status;
}

/* -- what a peer orders -------------------------------------------------------------------------------------------- */

void convoy_xfer_raw_done(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie, int32_t status)
{
    struct convoy_xfer_notice done = {.type = CONVOY_SAY_RAW_DONE};
    done.body.reply = (struct convoy_reply){.serial = cookie, .cookie = cookie, .status = status, .flags = CONVOY_REPLY_BACK};
    CONVOY_XFER_NOTE(engine, raw_orders);
    if (status != CONVOY_OK) {
        CONVOY_XFER_NOTE(engine, raw_refused);
    }
    convoy_xfer_say(engine, peer, &done);
}

static int32_t resolve(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw,
                       struct convoy_slot *slot_out)
{
    const struct convoy_view *view = peer->view;
    bool is_readable = view == NULL || (raw->bytes <= view->pool_bytes && raw->offset <= view->pool_bytes - raw->bytes);
    if (!is_readable || raw->target > UINT64_MAX - raw->bytes) {
        return CONVOY_INVALID_ARGUMENT;
    }
    bool is_slot = convoy_pool_find(engine->pool, (const void *)(uintptr_t)raw->target, raw->bytes, slot_out, NULL) ==
                       CONVOY_OK &&
                   convoy_xfer_slot_is_open(engine, slot_out->lease);
    bool is_range = is_registered(engine, raw->target, raw->bytes);
    if (!is_slot) {
        *slot_out = (struct convoy_slot){.lease = CONVOY_LEASE_NONE};
    }
    return is_slot != is_range || CONVOY_MUTATED(any_target_taken) ? CONVOY_OK : CONVOY_NOT_FOUND;
}

/* Said again while the first one waits or runs: that one answers. */
static bool is_ordered(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, uint64_t cookie)
{
    for (const struct convoy_xfer_copy *copy = engine->copies; copy != NULL; copy = copy->next) {
        if (copy->order.cookie == cookie && &engine->peers[copy->peer] == peer && copy->generation == peer->generation) {
            return !CONVOY_MUTATED(push_copied_twice);
        }
    }
    return false;
}

void convoy_xfer_on_raw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw)
{
    struct convoy_slot slot;
    if (is_ordered(engine, peer, raw->cookie)) {
        CONVOY_XFER_NOTE(engine, offers_repeated);
        return;
    }
    int32_t status = resolve(engine, peer, raw, &slot);
    if (peer->lane->is_far) {
        convoy_far_on_raw(engine, peer, raw, status, &slot);
        return;
    }
    struct convoy_xfer_copy *copy = status == CONVOY_OK ? convoy_memory_zalloc(sizeof *copy) : NULL;
    if (copy == NULL) {
        convoy_xfer_raw_done(engine, peer, raw->cookie, status != CONVOY_OK ? status : CONVOY_NO_MEMORY);
        return;
    }
    *copy = (struct convoy_xfer_copy){.order = *raw,
                                      .slot = slot,
                                      .view = peer->view,
                                      .peer = (uint32_t)(peer - engine->peers),
                                      .generation = peer->generation};
    peer->view->references++;
    peer->entries++;
    if (slot.lease != CONVOY_LEASE_NONE) { /* the slot's memory stays until the copy has stopped */
        (void)convoy_pool_refer(engine->pool, slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
        copy->owner = convoy_xfer_slot_owner(engine, slot.lease);
    } else {
        engine->range_copies++;
    }
    if (copy->owner != NULL) { /* nor does one that was made at open get its next request before that */
        copy->owner->users++;
    }
    struct convoy_xfer_copy **last = &engine->copies;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = copy;
    (void)pthread_cond_signal(&engine->work);
}

/* The oldest of them, outside of the lock; it stays in the list until it is done. [copier] */
void convoy_xfer_copy_run(struct convoy_xfer *engine)
{
    struct convoy_xfer_copy *copy = engine->copies;
    engine->copying_count++;
    convoy_xfer_unlock(engine);
    bool is_whole = convoy_view_read(copy->view, copy->order.offset, (void *)(uintptr_t)copy->order.target,
                                     copy->order.bytes, engine->stream_from);
    convoy_xfer_lock(engine);
    engine->copies = copy->next;
    engine->copying_count--;
    engine->counters[CONVOY_XFER_COUNT_copied_bytes] += copy->order.bytes;
    if (copy->slot.lease != CONVOY_LEASE_NONE) {
        convoy_xfer_slot_written(engine, &copy->slot, is_whole ? copy->order.bytes : 0);
        (void)convoy_pool_unrefer(engine->pool, copy->slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else {
        engine->range_copies--;
    }
    if (copy->owner != NULL) {
        copy->owner->users--;
        convoy_xfer_entry_settle(engine, copy->owner);
    }
    struct convoy_xfer_peer *peer = &engine->peers[copy->peer];
    convoy_xfer_raw_done(engine, peer, copy->order.cookie, is_whole ? CONVOY_OK : CONVOY_UNREACHABLE);
    convoy_view_put(copy->view);
    peer->entries--;
    convoy_xfer_peer_free(engine, peer);
    convoy_memory_free(copy);
    convoy_xfer_wake(engine);
}

/* -- what is ordered here ------------------------------------------------------------------------------------------ */

void convoy_xfer_order_add(struct convoy_xfer *engine, struct convoy_xfer_order *order)
{
    order->cookie = ++engine->order_count << 32; /* no transfer's handle has these low bits */
    order->generation = engine->peers[order->peer].generation;
    order->next = engine->orders;
    engine->orders = order;
}

static void order_remove(struct convoy_xfer *engine, const struct convoy_xfer_order *order)
{
    struct convoy_xfer_order **at = &engine->orders;
    while (*at != order) {
        at = &(*at)->next;
    }
    *at = order->next;
}

int32_t convoy_xfer_order_wait(struct convoy_xfer *engine, struct convoy_xfer_order *order, uint64_t timeout_ns,
                               struct convoy_error *error)
{
    struct convoy_xfer_pausing pausing = {0};
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : engine->options.timeout_ns;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    const struct convoy_xfer_peer *peer = &engine->peers[order->peer];
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) {
        uint64_t now = convoy_now_ns();
        engine->attended_ns = now;
        convoy_xfer_pump(engine);
        if (order->is_done) {
            status = CONVOY_OK;
        } else if (order->is_failed) {
            status = convoy_error_set(error, CONVOY_PEER_ERROR, "peer %s did not take the bytes", peer->session);
        } else if (peer->state != CONVOY_PEER_IS_CONNECTED || peer->generation != order->generation) {
            status = convoy_error_set(error, CONVOY_PEER_LOST, "the peer went away before it answered");
        } else if (engine->state != CONVOY_ENGINE_OPEN) {
            status = convoy_error_set(error, CONVOY_CLOSED, "the engine was closed meanwhile");
        } else if (now >= deadline) {
            status = convoy_error_set(error, CONVOY_TIMED_OUT, "peer %s did not answer in %llu ms", peer->session,
                                      (unsigned long long)(timeout / CONVOY_NS_PER_MS));
        } else {
            convoy_xfer_pause(engine, deadline, false, &pausing);
        }
    }
    order_remove(engine, order);
    if (order->source != NULL) {
        convoy_far_order_ended(engine, order);
    }
    return status;
}

void convoy_xfer_on_raw_done(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                             const struct convoy_reply *reply)
{
    for (struct convoy_xfer_order *order = engine->orders; order != NULL; order = order->next) {
        bool is_answer = order->cookie == reply->cookie || CONVOY_MUTATED(cookie_ignored);
        if (is_answer && order->peer == (uint32_t)(peer - engine->peers)) {
            order->reply = *reply;
            order->is_done = true;
            convoy_xfer_wake(engine);
            return;
        }
    }
    convoy_xfer_on_reply(engine, peer, CONVOY_SAY_TAKEN, reply); /* a send to an address */
}

/* source: what a far peer is brought; NULL: the peer reads it. */
static int32_t order_piece(struct convoy_xfer *engine, uint32_t peer, const struct convoy_raw_order *raw,
                           const void *source, uint64_t timeout_ns, struct convoy_error *error)
{
    struct convoy_xfer_order order = {.peer = peer, .source = source, .bytes = raw->bytes};
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_RAW};
    convoy_xfer_order_add(engine, &order);
    notice.body.raw = *raw;
    notice.body.raw.cookie = order.cookie;
    convoy_xfer_say(engine, &engine->peers[peer], &notice);
    int32_t status = convoy_xfer_order_wait(engine, &order, timeout_ns, error);
    if (status == CONVOY_OK && order.reply.status != CONVOY_OK) {
        status = convoy_error_set(error, order.reply.status < 0 ? order.reply.status : CONVOY_MALFORMED,
                                  "the peer does not write %llu bytes at 0x%llx: status %d; the range must lie in one slot "
                                  "that waits for bytes, or be registered",
                                  (unsigned long long)raw->bytes, (unsigned long long)raw->target, order.reply.status);
    }
    return status;
}

/* The peer may read in the lease's block until it has answered; one that has not in time, until it is proven dead. */
static int32_t order_read(struct convoy_xfer *engine, uint32_t peer, convoy_lease lease,
                          const struct convoy_raw_order *raw, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = convoy_pool_refer(engine->pool, lease, peer, CONVOY_REFERENCE_DEVICE, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = order_piece(engine, peer, raw, NULL, timeout_ns, error);
    if (status != CONVOY_TIMED_OUT || CONVOY_MUTATED(unanswered_is_freed)) {
        (void)convoy_pool_unrefer(engine->pool, lease, peer, CONVOY_REFERENCE_DEVICE, NULL);
    }
    return status;
}

/* Registered memory goes through a block of the own pool, which the peer can read. */
static int32_t bounce(struct convoy_xfer *engine, uint32_t peer, const struct convoy_raw_piece *piece,
                      uint64_t timeout_ns, struct convoy_error *error)
{
    uint64_t room = piece->bytes < BOUNCE_BYTES ? piece->bytes : BOUNCE_BYTES;
    const struct convoy_pool_request request = {
        .owner = {"raw", 3, 1}, .bytes = room, .now_ns = convoy_now_ns(), .deadline_ns = CONVOY_LEASE_NEVER};
    struct convoy_slot slot;
    int32_t status = convoy_pool_take(engine->pool, &request, &slot, error);
    if (status != CONVOY_OK) {
        return convoy_error_prefix(error, status, "room to send registered memory");
    }
    for (uint64_t done = 0; status == CONVOY_OK && done < piece->bytes; done += room) {
        uint64_t bytes = piece->bytes - done < room ? piece->bytes - done : room;
        memcpy(slot.address, (const uint8_t *)piece->source + done, bytes);
        const struct convoy_raw_order raw = {.offset = slot.offset, .target = piece->target + done, .bytes = bytes};
        status = order_read(engine, peer, slot.lease, &raw, timeout_ns, error);
    }
    (void)convoy_pool_retire(engine->pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL);
    return status;
}

static int32_t send_piece(struct convoy_xfer *engine, uint32_t peer, const struct convoy_raw_piece *piece,
                          uint64_t timeout_ns, struct convoy_error *error)
{
    struct convoy_slot slot;
    bool is_far = engine->peers[peer].lane != NULL && engine->peers[peer].lane->is_far;
    bool is_range = is_registered(engine, (uint64_t)(uintptr_t)piece->source, piece->bytes);
    if (is_far && is_range) {
        const struct convoy_raw_order raw = {.target = piece->target, .bytes = piece->bytes};
        return order_piece(engine, peer, &raw, piece->source, timeout_ns, error);
    }
    if (convoy_pool_find(engine->pool, piece->source, piece->bytes, &slot, NULL) == CONVOY_OK) {
        uint64_t offset = (uint64_t)((const uint8_t *)piece->source - (const uint8_t *)convoy_pool_memory(engine->pool));
        const struct convoy_raw_order raw = {.offset = offset, .target = piece->target, .bytes = piece->bytes};
        return is_far ? order_piece(engine, peer, &raw, piece->source, timeout_ns, error)
                      : order_read(engine, peer, slot.lease, &raw, timeout_ns, error);
    }
    if (is_range) {
        return bounce(engine, peer, piece, timeout_ns, error);
    }
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                            "source %p of %llu bytes lies in no live slot of the pool and is not registered",
                            piece->source, (unsigned long long)piece->bytes);
}

int32_t convoy_xfer_raw(struct convoy_xfer *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                        struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK && convoy_xfer_peer_find(engine, raw->peer, error) == NULL) {
        status = CONVOY_CLOSED;
    }
    bool is_far = status == CONVOY_OK && engine->peers[(uint32_t)raw->peer - 1].locality == CONVOY_LOCALITY_REMOTE;
    if (status == CONVOY_OK && engine->options.is_private && !is_far) {
        status = convoy_error_set(error, CONVOY_UNSUPPORTED, "no peer can read this engine's pool, which is private");
    }
    for (size_t i = 0; status == CONVOY_OK && i < raw->piece_count;) {
        struct convoy_raw_piece piece = raw->pieces[i++];
        while (i < raw->piece_count && raw->pieces[i].bytes != 0 &&
               (const uint8_t *)piece.source + piece.bytes == (const uint8_t *)raw->pieces[i].source &&
               piece.target + piece.bytes == raw->pieces[i].target) {
            piece.bytes += raw->pieces[i++].bytes;
        }
        if (piece.bytes != 0) {
            status = send_piece(engine, (uint32_t)raw->peer - 1, &piece, timeout_ns, error);
        }
    }
    convoy_xfer_unlock(engine);
    return status;
}
