/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that come in for addresses: one part becomes a landing in the one slot or range that has it, a list of parts one in
 * memory that is nobody's yet, since what it says is known only when it is there. */
#include "xfer/far.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/fault.h"
#include "core/memory.h"

static void say_room(struct convoy_xfer *engine, const struct convoy_far_raw *raw)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_ROOM};
    notice.body.room = (struct convoy_room){.serial = raw->order.cookie,
                                            .landing = raw->landing,
                                            .generation = raw->generation,
                                            .note_bytes = raw->copy != NULL ? raw->copy->list_bytes : 0,
                                            .put = CONVOY_ROOM_NO_PUT};
    CONVOY_POINT(room_before_put);
    convoy_xfer_say(engine, &engine->peers[raw->peer], &notice);
    CONVOY_POINT(room_after_put);
}

static struct convoy_far_raw *find(const struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_far_raw *raw = engine->far->raws;
    while (raw != NULL && (raw->peer != peer || raw->order.cookie != cookie || raw->is_closing)) {
        raw = raw->next;
    }
    return raw;
}

static void unlink_raw(struct convoy_xfer *engine, const struct convoy_far_raw *raw)
{
    struct convoy_far_raw **at = &engine->far->raws;
    while (*at != raw) {
        at = &(*at)->next;
    }
    *at = raw->next;
}

/* The memory is its owner's again. false: what was written cannot be kept in mind. */
static bool finish(struct convoy_xfer *engine, struct convoy_far_raw *raw)
{
    bool is_kept = true;
    unlink_raw(engine, raw);
    if (raw->copy != NULL) {
        convoy_raw_copy_put(engine, raw->copy);
    } else if (raw->slot.lease != CONVOY_LEASE_NONE) {
        uint64_t from = raw->order.target - (uint64_t)(uintptr_t)raw->slot.address;
        const struct convoy_extent part = {from, from + raw->written_bytes};
        is_kept = convoy_xfer_slot_written(engine, &raw->slot, &part, raw->written_bytes != 0);
        (void)convoy_pool_unrefer(engine->pool, raw->slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else {
        convoy_xfer_range_use(engine, raw->order.target, false);
    }
    convoy_memory_free(raw);
    return is_kept;
}

/* Nothing lands any more from here on, but a chunk that is just being copied: convoy_far_raw_quiet follows then. As finish. */
static bool end(struct convoy_xfer *engine, struct convoy_far_raw *raw, uint64_t written_bytes)
{
    raw->written_bytes = written_bytes;
    raw->is_closing = !convoy_landing_close(engine->far->landings, raw->landing);
    return raw->is_closing || finish(engine, raw);
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
        (void)finish(engine, raw);
        convoy_xfer_wake(engine);
    }
}

/* BUSY: no landing is free. */
static int32_t open_landing(struct convoy_xfer *engine, const struct convoy_far_raw *given,
                            const struct convoy_landing_place *place)
{
    struct convoy_far_raw *raw = convoy_memory_zalloc(sizeof *raw);
    if (raw == NULL) {
        return CONVOY_NO_MEMORY;
    }
    *raw = *given;
    raw->deadline_ns = convoy_deadline_after(convoy_now_ns(), engine->options.lease_ns);
    raw->landing = convoy_landing_open(engine->far->landings, place, &raw->generation);
    if (raw->landing == CONVOY_LANDING_NONE) {
        convoy_memory_free(raw);
        return CONVOY_BUSY;
    }
    raw->next = engine->far->raws;
    engine->far->raws = raw;
    convoy_xfer_timer(engine, raw->deadline_ns);
    say_room(engine, raw);
    return CONVOY_OK;
}

int32_t convoy_far_raw_begin(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *order,
                             const struct convoy_slot *slot)
{
    const struct convoy_far_raw raw = {.order = *order, .slot = *slot, .peer = (uint32_t)(peer - engine->peers)};
    const struct convoy_landing_place place = {
        .peer = raw.peer, .payload = (uint8_t *)(uintptr_t)order->target, .payload_bytes = order->bytes};
    bool is_slot = slot->lease != CONVOY_LEASE_NONE;
    int32_t status = CONVOY_OK;
    if (is_slot) { /* its memory stays until nothing can land there */
        status = convoy_pool_refer(engine->pool, slot->lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    }
    if (status != CONVOY_OK) {
        return CONVOY_BUSY;
    }
    status = open_landing(engine, &raw, &place);
    if (is_slot && status != CONVOY_OK) {
        (void)convoy_pool_unrefer(engine->pool, slot->lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else if (!is_slot && status == CONVOY_OK) {
        convoy_xfer_range_use(engine, order->target, true);
    }
    return status;
}

int32_t convoy_far_raw_begin_list(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    const struct convoy_far_raw raw = {.order = {.cookie = copy->cookie}, .copy = copy, .peer = copy->peer};
    const struct convoy_landing_place place = {.peer = raw.peer,
                                               .note = copy->room,
                                               .note_bytes = copy->list_bytes,
                                               .payload = copy->room + copy->list_bytes,
                                               .payload_bytes = copy->bytes};
    return open_landing(engine, &raw, &place);
}

bool convoy_far_raw_again(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie)
{
    const struct convoy_far_raw *known = find(engine, (uint32_t)(peer - engine->peers), cookie);
    if (known != NULL) {
        say_room(engine, known);
    }
    return known != NULL;
}

void convoy_far_raw_rooms(struct convoy_xfer *engine, uint32_t peer)
{
    for (const struct convoy_far_raw *raw = engine->far->raws; raw != NULL; raw = raw->next) {
        if (raw->peer == peer && !raw->is_closing) {
            say_room(engine, raw);
        }
    }
}

bool convoy_far_raw_landed(struct convoy_xfer *engine, uint64_t number)
{
    struct convoy_far_raw *raw = find_landing(engine, number, false);
    if (raw == NULL) {
        return false;
    }
    if (raw->copy != NULL) { /* all of it is there, so no chunk is on its way */
        (void)convoy_landing_close(engine->far->landings, raw->landing);
        unlink_raw(engine, raw);
        convoy_raw_arrived(engine, raw->copy);
        convoy_memory_free(raw);
        return true;
    }
    struct convoy_xfer_peer *peer = &engine->peers[raw->peer];
    uint64_t cookie = raw->order.cookie;
    bool is_kept = end(engine, raw, raw->order.bytes);
    convoy_raw_done(engine, peer, cookie, is_kept ? CONVOY_OK : CONVOY_LIMIT);
    convoy_xfer_wake(engine);
    return true;
}

bool convoy_far_raw_withdraw(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_far_raw *raw = engine->far != NULL ? find(engine, peer, cookie) : NULL;
    if (raw != NULL) {
        (void)end(engine, raw, 0);
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
            (void)end(engine, raw, 0);
        } else if (peer == CONVOY_XFER_NOBODY) {
            convoy_xfer_timer(engine, raw->deadline_ns);
        }
        raw = next;
    }
}

void convoy_far_raw_forget(struct convoy_xfer *engine)
{
    while (engine->far->raws != NULL) {
        struct convoy_far_raw *raw = engine->far->raws;
        engine->far->raws = raw->next;
        if (raw->copy != NULL) {
            convoy_raw_copy_put(engine, raw->copy);
        }
        convoy_memory_free(raw);
    }
}

void convoy_far_raw_finish(struct convoy_xfer *engine)
{
    while (engine->far->raws != NULL) {
        (void)finish(engine, engine->far->raws);
    }
}
