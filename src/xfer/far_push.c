/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that go out: a send or an order that has been given room streams what it has there. What its connection takes at once
 * is handed over under the engine's lock, at most a window of chunks; the rest goes while bulk makes progress, without it. */
#include "xfer/far.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"

enum { STREAM_NOTE = 0, STREAM_PAYLOAD, STREAMS };

struct outgoing {
    uint32_t peer;
    uint64_t offset;
    const void *data;
    uint64_t bytes;
    uint64_t cookie;
};

static int32_t push_pieces(struct convoy_xfer *engine, const struct convoy_room *room, const struct outgoing *what,
                           const struct convoy_bulk_piece *pieces, uint32_t count, uint64_t *stream_out,
                           struct convoy_error *error)
{
    const struct convoy_bulk_send send = {.peer = what->peer,
                                          .transfer = room->landing,
                                          .generation = room->generation,
                                          .offset = what->offset,
                                          .pieces = pieces,
                                          .piece_count = count,
                                          .cookie = what->cookie};
    CONVOY_POINT(push_granted);
    return convoy_bulk_send(engine->far->bulk, &send, stream_out, error);
}

static int32_t push(struct convoy_xfer *engine, const struct convoy_room *room, const struct outgoing *what,
                    uint64_t *stream_out, struct convoy_error *error)
{
    const struct convoy_bulk_piece piece = {.data = what->data, .bytes = what->bytes};
    return what->bytes != 0 ? push_pieces(engine, room, what, &piece, 1, stream_out, error) : CONVOY_OK;
}

/* -- sends --------------------------------------------------------------------------------------------------------- */

static int32_t push_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_room *room)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    const struct outgoing note = {
        .peer = entry->peer,
        .data = (const uint8_t *)stage->note.address + CONVOY_MARK_BYTES,
        .bytes = room->note_bytes,
        .cookie = convoy_xfer_entry_handle(entry),
    };
    const struct outgoing payload = {
        .peer = entry->peer,
        .offset = CONVOY_LANDING_PAYLOAD,
        .data = entry->slot.address,
        .bytes = entry->payload_bytes != 0 ? entry->payload_bytes : stage->payload_bytes,
        .cookie = note.cookie,
    };
    if (room->note_bytes != 0 && room->note_bytes != stage->known_bytes) {
        return convoy_error_set(&entry->error, CONVOY_MALFORMED, "room for a descriptor of %llu bytes, it has %zu",
                                (unsigned long long)room->note_bytes, stage->known_bytes);
    }
    int32_t status = push(engine, room, &note, &entry->streams[STREAM_NOTE], &entry->error);
    return status == CONVOY_OK ? push(engine, room, &payload, &entry->streams[STREAM_PAYLOAD], &entry->error) : status;
}

/* A loan asks for nothing but its memory: once all bytes are there, whatever the receiver makes of them, it is over. */
static void finish_loan(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->is_hidden && entry->state == CONVOY_TRANSFER_OFFERED && entry->streams[STREAM_NOTE] == 0 &&
        entry->streams[STREAM_PAYLOAD] == 0) {
        engine->counters[CONVOY_XFER_COUNT_pushed_bytes] += entry->payload_bytes;
        entry->users++;
        (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_SENT);
        convoy_xfer_send_returned(engine, entry);
        entry->users--;
        convoy_xfer_entry_settle(engine, entry);
    }
}

static void room_for_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_room *room)
{
    if (entry->path == CONVOY_PATH_MESSAGES) { /* ROOM was said twice */
        CONVOY_XFER_NOTE(engine, rooms_repeated);
        return;
    }
    entry->path = CONVOY_PATH_MESSAGES;
    int32_t status = push_send(engine, entry, room);
    if (status != CONVOY_OK) {
        char text[CONVOY_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%s", entry->error.text);
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "its bytes cannot go: %s", text);
    } else {
        finish_loan(engine, entry);
    }
}

static void stop_streams(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (entry->streams[i] != 0) {
            (void)convoy_bulk_abort(engine->far->bulk, entry->streams[i], NULL);
            entry->streams[i] = 0;
        }
    }
}

/* One that was taken has nothing on its way any more; any other is read no more once its streams have stopped, whatever the
 * peer does. */
void convoy_far_send_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->state == CONVOY_TRANSFER_SENT) {
        return;
    }
    stop_streams(engine, entry);
    if (!entry->is_answered) {
        struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
        notice.body.reply = (struct convoy_reply){
            .serial = convoy_xfer_entry_handle(entry), .status = entry->status, .attempt = entry->attempt};
        convoy_xfer_say(engine, &engine->peers[entry->peer], &notice);
    }
    convoy_xfer_send_returned(engine, entry);
}

/* -- orders -------------------------------------------------------------------------------------------------------- */

static struct convoy_xfer_order *find_order(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_xfer_order *order = engine->orders;
    while (order != NULL && (order->cookie != cookie || order->peer != peer || order->window == NULL ||
                             !order->window->is_far)) {
        order = order->next;
    }
    return order;
}

static void room_for_order(struct convoy_xfer *engine, struct convoy_xfer_order *order, const struct convoy_room *room)
{
    struct convoy_raw_window *window = order->window;
    uint64_t list_bytes = window->count > 1 ? window->count * sizeof window->parts[0] : 0;
    const struct outgoing list = {
        .peer = order->peer, .data = window->parts, .bytes = list_bytes, .cookie = order->cookie};
    const struct outgoing bytes = {.peer = order->peer, .offset = CONVOY_LANDING_PAYLOAD, .cookie = order->cookie};
    if (window->is_given_room) { /* ROOM was said twice */
        return;
    }
    window->is_given_room = true;
    int32_t status = room->note_bytes == list_bytes ? push(engine, room, &list, &window->streams[STREAM_NOTE], NULL)
                                                    : CONVOY_MALFORMED;
    if (status == CONVOY_OK) {
        status = push_pieces(engine, room, &bytes, window->pieces, window->count, &window->streams[STREAM_PAYLOAD], NULL);
    }
    if (status != CONVOY_OK && status != CONVOY_PEER_LOST) {
        order->is_failed = true;
        convoy_xfer_wake(engine);
    }
}

void convoy_far_order_ended(struct convoy_xfer *engine, struct convoy_xfer_order *order)
{
    struct convoy_xfer_peer *peer = &engine->peers[order->peer];
    for (uint32_t i = 0; i < STREAMS; i++) { /* also where the peer says that it has all: the source is read no more */
        if (order->window->streams[i] != 0) {
            (void)convoy_bulk_abort(engine->far->bulk, order->window->streams[i], NULL);
        }
        order->window->streams[i] = 0;
    }
    if (!order->is_done && peer->generation == order->generation) {
        struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
        notice.body.reply = (struct convoy_reply){.serial = order->cookie, .status = CONVOY_TIMED_OUT};
        convoy_xfer_say(engine, peer, &notice);
    }
}

/* -- what comes ---------------------------------------------------------------------------------------------------- */

void convoy_far_on_room(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_room *room)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, room->serial, NULL);
    struct convoy_xfer_order *order = find_order(engine, index, room->serial);
    if (!peer->lane->is_far) {
        CONVOY_XFER_NOTE(engine, malformed);
    } else if (entry != NULL && entry->kind == CONVOY_XFER_SEND && entry->peer == index &&
               entry->state == CONVOY_TRANSFER_OFFERED) {
        room_for_send(engine, entry, room);
    } else if (order != NULL) {
        room_for_order(engine, order, room);
    } else { /* it was given up meanwhile */
        struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
        notice.body.reply = (struct convoy_reply){.serial = room->serial, .status = CONVOY_CANCELED};
        CONVOY_XFER_NOTE(engine, replies_late);
        convoy_xfer_say(engine, peer, &notice);
    }
}

static void order_stream_ended(struct convoy_xfer *engine, const struct convoy_bulk_event *event)
{
    struct convoy_xfer_order *order = find_order(engine, event->peer, event->cookie);
    for (uint32_t i = 0; order != NULL && i < STREAMS; i++) {
        if (order->window->streams[i] == event->stream) {
            bool is_failed = event->status != CONVOY_OK && event->status != CONVOY_PEER_LOST; /* whose end comes next */
            order->is_failed = order->is_failed || is_failed;
            order->window->streams[i] = 0;
            convoy_xfer_wake(engine);
        }
    }
}

/* One whose bytes are all there waits on for the receiver's word; one whose bytes are not wanted has ended. */
void convoy_far_stream_ended(struct convoy_xfer *engine, const struct convoy_bulk_event *event)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, event->cookie, NULL);
    CONVOY_POINT(push_ended);
    if (entry == NULL || entry->kind != CONVOY_XFER_SEND || entry->peer != event->peer) {
        order_stream_ended(engine, event);
        return;
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        entry->streams[i] = entry->streams[i] == event->stream ? 0 : entry->streams[i];
    }
    if (event->status != CONVOY_OK && entry->state == CONVOY_TRANSFER_OFFERED) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED,
                               event->status == CONVOY_PEER_LOST ? CONVOY_PEER_LOST : CONVOY_PEER_ERROR,
                               "peer %s did not take %llu of %llu bytes: status %d", engine->peers[entry->peer].session,
                               (unsigned long long)event->lost_bytes, (unsigned long long)event->bytes, event->status);
    } else {
        finish_loan(engine, entry);
    }
}
