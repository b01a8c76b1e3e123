/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of peers: each is carried out once, whole or not at all, and answered once. */
#include "core/fault.h"
#include "xfer/far.h"
#include "xfer/raw.h"

#include <string.h>

#define RETRY_AFTER_MS 10u
#define ROOM_MAX (UINT64_C(64) << 20) /* for what comes from other hosts, all orders together */

static uint32_t index_of(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return (uint32_t)(peer - engine->peers);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

/* A peer that is gone only wants its memory back. */
static void answer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie, int32_t status, uint32_t part)
{
    bool is_up = peer->state == CONVOY_PEER_IS_CONNECTED;
    struct convoy_xfer_notice done = {.type = is_up ? CONVOY_SAY_RAW_DONE : CONVOY_SAY_BACK};
    done.body.reply = (struct convoy_reply){.serial = cookie,
                                            .cookie = cookie,
                                            .figures = {part},
                                            .status = status,
                                            .retry_after_ms = status == CONVOY_BUSY ? RETRY_AFTER_MS : 0,
                                            .flags = CONVOY_REPLY_BACK};
    CONVOY_XFER_NOTE(engine, raw_orders);
    if (status != CONVOY_OK) {
        CONVOY_XFER_NOTE(engine, raw_refused);
    }
    CONVOY_POINT(raw_done_before_put);
    convoy_xfer_say(engine, peer, &done);
    CONVOY_POINT(raw_done_after_put);
}

static void remember(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, uint64_t cookie, int32_t status)
{
    engine->done[engine->done_count++ % CONVOY_XFER_DONE] = (struct convoy_xfer_done){
        .cookie = cookie, .peer = index_of(engine, peer), .generation = peer->generation, .status = status};
}

void convoy_raw_done(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie, int32_t status)
{
    remember(engine, peer, cookie, status);
    answer(engine, peer, cookie, status, 0);
}

/* What is being carried out is answered by that; what was, has its answer again: its sender may not have heard it, and may
 * have other bytes there by now. */
static bool is_repeated(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie)
{
    for (const struct convoy_raw_copy *copy = engine->copies; copy != NULL; copy = copy->next) {
        if (copy->cookie == cookie && copy->peer == index_of(engine, peer) && copy->generation == peer->generation) {
            return !CONVOY_MUTATED(push_copied_twice);
        }
    }
    for (uint32_t i = 0; i < CONVOY_XFER_DONE; i++) {
        const struct convoy_xfer_done *done = &engine->done[i];
        if (done->cookie == cookie && done->peer == index_of(engine, peer) && done->generation == peer->generation) {
            answer(engine, peer, cookie, done->status, 0);
            return true;
        }
    }
    return false;
}

/* -- one part ------------------------------------------------------------------------------------------------------ */

static struct convoy_raw_copy *copy_new(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie,
                                        uint32_t count, uint64_t room_bytes)
{
    struct convoy_raw_copy *copy = convoy_raw_copy_take(engine, count, room_bytes);
    if (copy != NULL) {
        copy->cookie = cookie;
        copy->peer = index_of(engine, peer);
        copy->generation = peer->generation;
    }
    return copy;
}

/* Whether there may be another one; every order of a peer costs memory here. */
static int32_t check_room(const struct convoy_xfer *engine)
{
    return engine->state != CONVOY_ENGINE_OPEN                           ? CONVOY_CLOSED
           : engine->copy_count >= 2 * engine->options.transfer_max ? CONVOY_BUSY
                                                                         : CONVOY_OK;
}

static int32_t begin_near(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw)
{
    const struct convoy_raw_part part = {.offset = raw->offset, .target = raw->target, .bytes = raw->bytes};
    struct convoy_raw_copy *copy = copy_new(engine, peer, raw->cookie, 1, 0);
    if (copy == NULL) {
        return CONVOY_NO_MEMORY;
    }
    copy->bytes = raw->bytes;
    copy->view = convoy_view_at(peer->view, raw->offset, raw->bytes);
    int32_t status = copy->view != NULL ? convoy_raw_copy_add(engine, copy, &part) : CONVOY_INVALID_ARGUMENT;
    status = status == CONVOY_OK ? convoy_raw_copy_start(engine, copy) : status;
    if (status != CONVOY_OK) {
        convoy_raw_copy_put(engine, copy);
    }
    return status;
}

static int32_t begin_far(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw)
{
    struct convoy_raw_target target;
    if (raw->bytes == 0 || raw->target > UINT64_MAX - raw->bytes) {
        return CONVOY_INVALID_ARGUMENT;
    }
    int32_t status = convoy_raw_resolve(engine, raw->target, raw->bytes, &target);
    return status == CONVOY_OK ? convoy_far_raw_begin(engine, peer, raw, &target.slot) : status;
}

void convoy_raw_on_order(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_order *raw)
{
    bool is_far = peer->lane->is_far;
    if ((is_far && convoy_far_raw_again(engine, peer, raw->cookie)) || is_repeated(engine, peer, raw->cookie)) {
        CONVOY_XFER_NOTE(engine, offers_repeated);
        return;
    }
    int32_t status = check_room(engine);
    if (status == CONVOY_OK) {
        status = is_far ? begin_far(engine, peer, raw) : begin_near(engine, peer, raw);
    }
    if (status != CONVOY_OK) {
        answer(engine, peer, raw->cookie, status, 0);
    }
}

/* -- lists --------------------------------------------------------------------------------------------------------- */

/* The generation of the peer's pool that the first part lies in; all of them do. NULL: it has ended, or never was. */
static struct convoy_view *find_view(const struct convoy_xfer_peer *peer, const uint8_t *list)
{
    struct convoy_raw_part first;
    memcpy(&first, list, sizeof first);
    return convoy_view_at(peer->view, first.offset, first.bytes);
}

/* Every part is checked before any byte is copied. list: of the peer's making; each is read once. */
static int32_t add_parts(struct convoy_xfer *engine, struct convoy_raw_copy *copy, const uint8_t *list, uint32_t count,
                         uint32_t *part_out)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct convoy_raw_part part;
        memcpy(&part, list + i * sizeof part, sizeof part);
        int32_t status = convoy_raw_copy_add(engine, copy, &part);
        *part_out = i;
        if (status != CONVOY_OK) {
            return status;
        }
        bytes += part.bytes;
    }
    copy->bytes = bytes;
    return CONVOY_OK;
}

static int32_t begin_list(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_list *list,
                          uint32_t *part_out)
{
    const struct convoy_view *view = peer->view;
    uint64_t bytes = list->count * sizeof(struct convoy_raw_part);
    if (bytes > view->notes_bytes || list->note_offset > view->notes_bytes - bytes) {
        return CONVOY_INVALID_ARGUMENT;
    }
    struct convoy_raw_copy *copy = copy_new(engine, peer, list->cookie, list->count, 0);
    if (copy == NULL) {
        return CONVOY_NO_MEMORY;
    }
    copy->view = find_view(peer, view->notes + list->note_offset);
    int32_t status = copy->view != NULL ? add_parts(engine, copy, view->notes + list->note_offset, list->count, part_out)
                                        : CONVOY_INVALID_ARGUMENT;
    status = status == CONVOY_OK ? convoy_raw_copy_start(engine, copy) : status;
    if (status != CONVOY_OK) {
        convoy_raw_copy_put(engine, copy);
    }
    return status;
}

static int32_t begin_far_list(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_list *list)
{
    uint64_t list_bytes = list->count * sizeof(struct convoy_raw_part);
    if (list->bytes == 0 || list->bytes > CONVOY_RAW_WINDOW_BYTES) {
        return CONVOY_INVALID_ARGUMENT;
    }
    if (engine->copy_room_bytes > ROOM_MAX) {
        return CONVOY_BUSY;
    }
    struct convoy_raw_copy *copy = copy_new(engine, peer, list->cookie, list->count, list_bytes + list->bytes);
    if (copy == NULL) {
        return CONVOY_NO_MEMORY;
    }
    copy->list_bytes = list_bytes;
    copy->bytes = list->bytes;
    int32_t status = convoy_far_raw_begin_list(engine, copy);
    if (status != CONVOY_OK) {
        convoy_raw_copy_put(engine, copy);
    }
    return status;
}

void convoy_raw_on_list(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_raw_list *list)
{
    uint32_t part = 0;
    bool is_far = peer->lane->is_far;
    if ((is_far && convoy_far_raw_again(engine, peer, list->cookie)) || is_repeated(engine, peer, list->cookie)) {
        CONVOY_XFER_NOTE(engine, offers_repeated);
        return;
    }
    int32_t status = list->count == 0 || list->count > CONVOY_RAW_PARTS_MAX ? CONVOY_INVALID_ARGUMENT : check_room(engine);
    if (status == CONVOY_OK) {
        status = is_far ? begin_far_list(engine, peer, list) : begin_list(engine, peer, list, &part);
    }
    if (status != CONVOY_OK) {
        answer(engine, peer, list->cookie, status, part);
    }
}

void convoy_raw_arrived(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    struct convoy_xfer_peer *peer = &engine->peers[copy->peer];
    uint32_t part = 0;
    uint64_t cookie = copy->cookie;
    uint32_t count = (uint32_t)(copy->list_bytes / sizeof(struct convoy_raw_part));
    int32_t status = engine->state == CONVOY_ENGINE_OPEN ? add_parts(engine, copy, copy->room, count, &part) : CONVOY_CLOSED;
    status = status == CONVOY_OK ? convoy_raw_copy_start(engine, copy) : status;
    if (status != CONVOY_OK) {
        convoy_raw_copy_put(engine, copy);
        answer(engine, peer, cookie, status, part);
    }
}

/* -- given up ------------------------------------------------------------------------------------------------------ */

bool convoy_raw_withdraw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t cookie)
{
    if (peer->lane->is_far && convoy_far_raw_withdraw(engine, index_of(engine, peer), cookie)) {
        return true;
    }
    struct convoy_raw_copy *copy = engine->copies;
    while (copy != NULL && (copy->cookie != cookie || copy->peer != index_of(engine, peer))) {
        copy = copy->next;
    }
    if (copy == NULL) { /* one that comes behind this word is not carried out: its sender's memory is another's by then */
        remember(engine, peer, cookie, CONVOY_CANCELED);
        return false;
    }
    if (copy->is_running) { /* that one is answered when it stops */
        return true;
    }
    struct convoy_xfer_notice back = {.type = CONVOY_SAY_BACK};
    back.body.reply = (struct convoy_reply){.serial = cookie, .status = CONVOY_CANCELED};
    convoy_xfer_say(engine, peer, &back);
    convoy_raw_copy_cancel(engine, copy);
    return true;
}
