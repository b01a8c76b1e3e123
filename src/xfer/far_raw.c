/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that come in for an address: the resolve message becomes a landing in the one slot or range that has it. */
#include "xfer/far.h"

#include "core/clock.h"
#include "core/memory.h"

static void say_room(struct convoy_xfer *engine, const struct convoy_far_raw *raw)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_ROOM};
    notice.body.room = (struct convoy_room){
        .serial = raw->order.cookie, .landing = raw->landing, .generation = raw->generation, .put = CONVOY_ROOM_NO_PUT};
    convoy_xfer_say(engine, &engine->peers[raw->peer], &notice);
}

static struct convoy_far_raw *find(const struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_far_raw *raw = engine->far->raws;
    while (raw != NULL && (raw->peer != peer || raw->order.cookie != cookie || raw->is_closing)) {
        raw = raw->next;
    }
    return raw;
}

/* The memory is its owner's again. */
static void finish(struct convoy_xfer *engine, struct convoy_far_raw *raw)
{
    struct convoy_far_raw **at = &engine->far->raws;
    while (*at != raw) {
        at = &(*at)->next;
    }
    *at = raw->next;
    if (raw->slot.lease != CONVOY_LEASE_NONE) {
        convoy_xfer_slot_written(engine, &raw->slot, raw->written_bytes);
        (void)convoy_pool_unrefer(engine->pool, raw->slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else {
        engine->range_copies--;
    }
    convoy_memory_free(raw);
}

/* Nothing lands any more from here on, but a chunk that is just being copied. */
static void end(struct convoy_xfer *engine, struct convoy_far_raw *raw, uint64_t written_bytes)
{
    raw->written_bytes = written_bytes;
    raw->is_closing = !convoy_landing_close(engine->far->landings, raw->landing);
    if (!raw->is_closing) {
        finish(engine, raw);
    }
}

static struct convoy_far_raw *find_landing(const struct convoy_xfer *engine, uint64_t number, bool is_closing)
{
    struct convoy_far_raw *raw = engine->far->raws;
    while (raw != NULL && (raw->landing != number || raw->is_closing != is_closing)) {
        raw = raw->next;
    }
    return raw;
}

void convoy_far_raw_quiet(struct convoy_xfer *engine, uint64_t number)
{
    struct convoy_far_raw *raw = find_landing(engine, number, true);
    if (raw != NULL) {
        finish(engine, raw);
        convoy_xfer_wake(engine);
    }
}

static int32_t begin(struct convoy_xfer *engine, uint32_t peer, const struct convoy_raw_order *order,
                     const struct convoy_slot *slot)
{
    struct convoy_far_raw *raw = convoy_memory_zalloc(sizeof *raw);
    const struct convoy_landing_place place = {
        .peer = peer, .owner = 0, .payload = (uint8_t *)(uintptr_t)order->target, .payload_bytes = order->bytes};
    if (raw == NULL) {
        return CONVOY_NO_MEMORY;
    }
    *raw = (struct convoy_far_raw){.order = *order, .slot = *slot, .peer = peer};
    raw->deadline_ns = convoy_deadline_after(convoy_now_ns(), engine->options.lease_ns);
    raw->landing = convoy_landing_open(engine->far->landings, &place, &raw->generation);
    if (raw->landing == CONVOY_LANDING_NONE) {
        convoy_memory_free(raw);
        return CONVOY_BUSY;
    }
    if (slot->lease != CONVOY_LEASE_NONE) { /* the slot's memory stays until nothing can land there */
        (void)convoy_pool_refer(engine->pool, slot->lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else {
        engine->range_copies++;
    }
    raw->next = engine->far->raws;
    engine->far->raws = raw;
    convoy_xfer_timer(engine, raw->deadline_ns);
    say_room(engine, raw);
    return CONVOY_OK;
}

static bool is_done(const struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    for (uint32_t i = 0; i < CONVOY_FAR_DONE; i++) {
        const struct convoy_far_done *done = &engine->far->done[i];
        if (done->cookie == cookie && done->peer == peer && done->generation == engine->peers[peer].generation) {
            return true;
        }
    }
    return false;
}

void convoy_far_on_raw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *order,
                       int32_t status, const struct convoy_slot *slot)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    const struct convoy_far_raw *known = find(engine, index, order->cookie);
    if (known != NULL) { /* it was said twice */
        say_room(engine, known);
        return;
    }
    if (is_done(engine, index, order->cookie)) { /* but its word was lost */
        convoy_xfer_raw_done(engine, peer, order->cookie, CONVOY_OK);
        return;
    }
    status = status == CONVOY_OK ? begin(engine, index, order, slot) : status;
    if (status != CONVOY_OK) {
        convoy_xfer_raw_done(engine, peer, order->cookie, status);
    }
}

bool convoy_far_raw_landed(struct convoy_xfer *engine, uint64_t number)
{
    struct convoy_far_raw *raw = find_landing(engine, number, false);
    if (raw == NULL) {
        return false;
    }
    struct convoy_xfer_peer *peer = &engine->peers[raw->peer];
    uint64_t cookie = raw->order.cookie;
    engine->far->done[engine->far->done_count++ % CONVOY_FAR_DONE] =
        (struct convoy_far_done){.cookie = cookie, .peer = raw->peer, .generation = peer->generation};
    end(engine, raw, raw->order.bytes);
    convoy_xfer_raw_done(engine, peer, cookie, CONVOY_OK);
    convoy_xfer_wake(engine);
    return true;
}

bool convoy_far_raw_withdraw(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_far_raw *raw = engine->far != NULL ? find(engine, peer, cookie) : NULL;
    if (raw != NULL) {
        end(engine, raw, 0);
    }
    return raw != NULL;
}

void convoy_far_raw_drop(struct convoy_xfer *engine, uint32_t peer, uint64_t now_ns)
{
    struct convoy_far_raw *raw = engine->far->raws;
    while (raw != NULL) {
        struct convoy_far_raw *next = raw->next;
        if (raw->is_closing) { /* ends by itself */
            raw = next;
            continue;
        }
        if (peer != CONVOY_XFER_NOBODY ? raw->peer == peer : raw->deadline_ns <= now_ns) {
            end(engine, raw, 0);
        } else if (peer == CONVOY_XFER_NOBODY) {
            convoy_xfer_timer(engine, raw->deadline_ns);
        }
        raw = next;
    }
}
