/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that go out: a send or an order that has been given room pushes what it has there. */
#include "xfer/far.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"

#define WORD_NS (CONVOY_NS_PER_S / 5) /* that a receiver has for saying why it refuses */

enum { STREAM_NOTE = 0, STREAM_PAYLOAD, STREAMS };

static int32_t push(struct convoy_xfer *engine, const struct convoy_far_source *source, uint64_t *id_out,
                    struct convoy_error *error)
{
    CONVOY_POINT(push_granted);
    return source->bytes != 0 ? convoy_far_push_start(engine, source, id_out, error) : CONVOY_OK;
}

/* -- sends --------------------------------------------------------------------------------------------------------- */

static struct convoy_far_source source_of(const struct convoy_xfer_entry *entry)
{
    return (struct convoy_far_source){.peer = entry->peer,
                                      .owner = convoy_xfer_entry_handle(entry),
                                      .landing = entry->landing,
                                      .generation = entry->landing_generation};
}

static int32_t push_note(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    struct convoy_far_source note = source_of(entry);
    note.data = (const uint8_t *)stage->note.address + CONVOY_MARK_BYTES;
    note.bytes = entry->note_bytes;
    entry->is_note_due = false;
    return push(engine, &note, &entry->streams[STREAM_NOTE], &entry->error);
}

static int32_t push_payload(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t put)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    struct convoy_far_source payload = source_of(entry);
    payload.offset = CONVOY_LANDING_PAYLOAD;
    payload.data = entry->slot.address;
    payload.bytes = entry->payload_bytes != 0 ? entry->payload_bytes : stage->payload_bytes;
    payload.ready = stage->is_followed && !CONVOY_MUTATED(mark_not_followed) ? convoy_xfer_stage_mark(stage) : NULL;
    payload.is_put = put != CONVOY_ROOM_NO_PUT;
    payload.put = put;
    entry->path = payload.is_put ? CONVOY_PATH_RMA : CONVOY_PATH_MESSAGES;
    return push(engine, &payload, &entry->streams[STREAM_PAYLOAD], &entry->error);
}

/* The descriptor, which has the checksum, goes when it is final. */
static int32_t push_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_room *room)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    if (room->note_bytes != 0 && room->note_bytes != stage->known_bytes) {
        return convoy_error_set(&entry->error, CONVOY_MALFORMED, "room for a descriptor of %llu bytes, it has %zu",
                                (unsigned long long)room->note_bytes, stage->known_bytes);
    }
    entry->landing = room->landing;
    entry->landing_generation = room->generation;
    entry->note_bytes = room->note_bytes;
    entry->is_note_due = stage->state == CONVOY_TRANSFER_STAGING;
    int32_t status = entry->is_note_due ? CONVOY_OK : push_note(engine, entry);
    bool may_put = room->put != CONVOY_ROOM_NO_PUT && !engine->far->is_halting && convoy_far_has_key(engine->far, entry->peer);
    if (room->put != CONVOY_ROOM_NO_PUT && (!may_put || status != CONVOY_OK)) { /* the slot waits for this word */
        convoy_far_say_put(engine, entry->peer, room->landing, room->generation, 0, CONVOY_UNSUPPORTED);
    }
    return status == CONVOY_OK ? push_payload(engine, entry, may_put ? room->put : CONVOY_ROOM_NO_PUT) : status;
}

static void fail_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    char text[CONVOY_ERROR_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "%s", entry->error.text);
    convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "its bytes cannot go: %s", text);
}

void convoy_far_source_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    if (entry->state != CONVOY_TRANSFER_OFFERED) {
        return;
    }
    if (stage->state != CONVOY_TRANSFER_STAGED) {
        convoy_xfer_entry_fail(engine, entry, stage->state, stage->status, "was not staged to its end: %s",
                               stage->error.text);
        return;
    }
    int32_t status = entry->is_note_due ? push_note(engine, entry) : CONVOY_OK;
    if (status != CONVOY_OK) {
        fail_send(engine, entry, status);
    }
    convoy_far_poke(engine); /* the last chunks */
}

/* A loan asks for nothing but its memory: once all bytes are there, whatever the receiver makes of them, it is over. */
static void finish_loan(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->is_hidden && entry->state == CONVOY_TRANSFER_OFFERED && !entry->is_note_due && !entry->must_push_again &&
        entry->streams[STREAM_NOTE] == 0 && entry->streams[STREAM_PAYLOAD] == 0) {
        engine->counters[CONVOY_XFER_COUNT_pushed_bytes] += entry->payload_bytes;
        entry->users++;
        (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_SENT);
        convoy_xfer_send_returned(engine, entry);
        entry->users--;
        engine->loans[engine->loan_count++ % CONVOY_XFER_DONE] =
            (struct convoy_xfer_done){.cookie = convoy_xfer_entry_handle(entry), .peer = entry->peer};
        convoy_xfer_entry_settle(engine, entry);
    }
}

bool convoy_far_loan_answered(struct convoy_xfer *engine, uint32_t peer, uint64_t serial)
{
    for (uint32_t i = 0; i < CONVOY_XFER_DONE && serial != 0; i++) {
        if (engine->loans[i].cookie == serial && engine->loans[i].peer == peer) {
            engine->loans[i].cookie = 0;
            return true;
        }
    }
    return false;
}

static bool is_read(const struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    return convoy_far_push_reads(engine, entry->streams[STREAM_NOTE]) ||
           convoy_far_push_reads(engine, entry->streams[STREAM_PAYLOAD]);
}

static void stop_pushes(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (entry->streams[i] != 0) {
            convoy_far_push_stop(engine, entry->streams[i]);
        }
    }
}

/* A new landing for a send that was under way: the receiver begins anew since the path was down, and with it all pushes have
 * ended. One that asks for it without that has to ask again. */
static bool stop_reading(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (is_read(engine, entry)) {
        entry->users++;
        convoy_far_take_news(engine);
        entry->users--;
    }
    if (is_read(engine, entry)) {
        stop_pushes(engine, entry);
        entry->must_push_again = true;
        return false;
    }
    return entry->state == CONVOY_TRANSFER_OFFERED;
}

static void room_for_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_room *room)
{
    bool has_room = entry->path == CONVOY_PATH_MESSAGES || entry->path == CONVOY_PATH_RMA;
    if (has_room && (room->generation <= entry->landing_generation || !stop_reading(engine, entry))) { /* said twice */
        CONVOY_XFER_NOTE(engine, rooms_repeated);
        return;
    }
    entry->streams[STREAM_NOTE] = entry->streams[STREAM_PAYLOAD] = 0;
    entry->must_push_again = false;
    int32_t status = push_send(engine, entry, room);
    if (status != CONVOY_OK) {
        fail_send(engine, entry, status);
    } else {
        finish_loan(engine, entry);
    }
}

bool convoy_far_send_holds(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (!is_read(engine, entry)) {
        return false;
    }
    if (!entry->is_return_due) { /* of one that the peer says to have, too: it is not believed */
        entry->is_return_due = true;
        stop_pushes(engine, entry);
    }
    return true;
}

/* One that was taken has nothing on its way any more; any other is read no more once its pushes have stopped, whatever the peer
 * does. */
void convoy_far_send_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->state == CONVOY_TRANSFER_SENT) {
        return;
    }
    stop_pushes(engine, entry);
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
    struct convoy_far_source source = {.peer = order->peer,
                                       .owner = order->cookie,
                                       .landing = room->landing,
                                       .generation = room->generation,
                                       .data = window->parts,
                                       .bytes = list_bytes};
    if (window->is_given_room && convoy_far_order_reads(engine, window)) {
        convoy_far_take_news(engine); /* the path was down: what was sent before it has ended */
    }
    if (window->is_given_room && (room->generation <= window->room_generation || convoy_far_order_reads(engine, window))) {
        return; /* said twice */
    }
    window->is_given_room = true;
    window->room_generation = room->generation;
    window->streams[STREAM_NOTE] = window->streams[STREAM_PAYLOAD] = 0;
    int32_t status = room->note_bytes == list_bytes ? push(engine, &source, &window->streams[STREAM_NOTE], NULL)
                                                    : CONVOY_MALFORMED;
    source.offset = CONVOY_LANDING_PAYLOAD;
    source.data = NULL;
    source.pieces = window->pieces;
    source.piece_count = window->count;
    source.bytes = window->bytes;
    if (status == CONVOY_OK) {
        status = push(engine, &source, &window->streams[STREAM_PAYLOAD], NULL);
    }
    if (status != CONVOY_OK && status != CONVOY_PEER_LOST) {
        order->is_failed = true;
        convoy_xfer_wake(engine);
    }
}

bool convoy_far_order_reads(const struct convoy_xfer *engine, const struct convoy_raw_window *window)
{
    return convoy_far_push_reads(engine, window->streams[STREAM_NOTE]) ||
           convoy_far_push_reads(engine, window->streams[STREAM_PAYLOAD]);
}

/* Whatever the peer has said: it may say that it has all while its bytes are still under way. Most often they stop with the
 * next look; nothing says when they do if another thread has them in its hands, so they are not waited for. */
void convoy_far_order_ended(struct convoy_xfer *engine, struct convoy_xfer_order *order)
{
    struct convoy_xfer_peer *peer = &engine->peers[order->peer];
    const uint64_t *streams = order->window->streams;
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (convoy_far_push_reads(engine, streams[i])) {
            convoy_far_push_stop(engine, streams[i]);
        }
    }
    if (!order->is_done && peer->generation == order->generation) {
        struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
        notice.body.reply = (struct convoy_reply){.serial = order->cookie, .status = CONVOY_TIMED_OUT};
        convoy_xfer_say(engine, peer, &notice);
    }
    if (convoy_far_order_reads(engine, order->window)) {
        convoy_xfer_pump(engine);
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
        if (room->put != CONVOY_ROOM_NO_PUT) {
            convoy_far_say_put(engine, index, room->landing, room->generation, 0, CONVOY_CANCELED);
        }
        struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
        notice.body.reply = (struct convoy_reply){.serial = room->serial, .status = CONVOY_CANCELED};
        CONVOY_XFER_NOTE(engine, replies_late);
        convoy_xfer_say(engine, peer, &notice);
    }
}

void convoy_far_push_released(struct convoy_xfer *engine, const struct convoy_far_end *end)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, end->owner, NULL);
    if (entry != NULL && entry->kind == CONVOY_XFER_SEND && entry->is_return_due && !is_read(engine, entry)) {
        convoy_xfer_send_returned(engine, entry);
        convoy_xfer_peer_check(engine, &engine->peers[entry->peer]);
        convoy_xfer_entry_settle(engine, entry);
    } else if (entry == NULL) {
        convoy_raw_window_released(engine, end->peer, end->owner);
    }
}

/* One that has not come to its end since the path was down, or since it went to a landing of before that: no failure of its
 * owner's, which begins anew when the receiver says where to. is_stopped: for that it was stopped here. */
static bool is_outdated(const struct convoy_xfer *engine, const struct convoy_far_end *end, bool is_stopped)
{
    bool was_down = engine->far->peers[end->peer].wire.count != 0 || !convoy_far_path_is_up(engine, end->peer);
    return convoy_far_may_come_back(engine, end->peer) && (end->status == CONVOY_PEER_LOST || is_stopped || was_down);
}

/* Said again when both of its streams have ended. */
static void order_outdated(struct convoy_xfer *engine, struct convoy_xfer_order *order, const struct convoy_far_end *end)
{
    const uint64_t *streams = order->window->streams;
    if (end->status != CONVOY_PEER_LOST && streams[STREAM_NOTE] == 0 && streams[STREAM_PAYLOAD] == 0 && !order->is_done) {
        convoy_raw_say_again(engine, order->window);
    }
}

static void order_push_ended(struct convoy_xfer *engine, const struct convoy_far_end *end)
{
    struct convoy_xfer_order *order = find_order(engine, end->peer, end->owner);
    for (uint32_t i = 0; order != NULL && i < STREAMS; i++) {
        if (order->window->streams[i] == end->push) {
            bool is_failed = end->status != CONVOY_OK && end->status != CONVOY_PEER_LOST; /* whose end comes next */
            bool is_old = end->status != CONVOY_OK && is_outdated(engine, end, false);
            order->is_failed = order->is_failed || (is_failed && !is_old);
            order->window->streams[i] = 0;
            if (is_old) {
                order_outdated(engine, order, end);
            }
            convoy_xfer_wake(engine);
        }
    }
}

/* What cannot be put after all (UNSUPPORTED: nothing of it was) goes as messages. */
static bool push_instead(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_far_end *end)
{
    return end->is_put && end->status == CONVOY_UNSUPPORTED && entry->state == CONVOY_TRANSFER_OFFERED &&
           push_payload(engine, entry, CONVOY_ROOM_NO_PUT) == CONVOY_OK;
}

/* One whose bytes are all there waits on for the receiver's word; one whose bytes are not wanted has ended. */
/* A receiver that refuses bytes has ended, and says why: that word is on another way, and may come behind the refusal. The
 * send ends by it, or a moment later as refused. */
static bool await_word(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    if (entry->is_hidden || status == CONVOY_PEER_LOST) {
        return false;
    }
    uint64_t until_ns = convoy_deadline_after(convoy_now_ns(), WORD_NS);
    entry->refused_status = status;
    entry->deadline_ns = until_ns < entry->deadline_ns ? until_ns : entry->deadline_ns;
    convoy_xfer_timer(engine, entry->deadline_ns);
    return true;
}

void convoy_far_push_ended(struct convoy_xfer *engine, const struct convoy_far_end *end)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, end->owner, NULL);
    CONVOY_POINT(push_ended);
    if (end->is_put) {
        convoy_far_say_put(engine, end->peer, end->landing, end->generation, end->bytes, end->status);
    }
    if (entry == NULL || entry->kind != CONVOY_XFER_SEND || entry->peer != end->peer) {
        order_push_ended(engine, end);
        return;
    }
    bool is_current = false;
    for (uint32_t i = 0; i < STREAMS; i++) {
        is_current = is_current || entry->streams[i] == end->push;
        entry->streams[i] = entry->streams[i] == end->push ? 0 : entry->streams[i];
    }
    if (!is_current || push_instead(engine, entry, end)) {
        return;
    }
    if (end->status != CONVOY_OK && entry->state == CONVOY_TRANSFER_OFFERED && is_outdated(engine, end, entry->must_push_again)) {
        entry->must_push_again = true;
        if (end->status != CONVOY_PEER_LOST && entry->streams[STREAM_NOTE] == 0 && entry->streams[STREAM_PAYLOAD] == 0) {
            convoy_xfer_send_repeat(engine, entry); /* the receiver says where it is */
        }
        return;
    }
    if (end->status != CONVOY_OK && entry->state == CONVOY_TRANSFER_OFFERED && await_word(engine, entry, end->status)) {
        return;
    }
    if (end->status != CONVOY_OK && entry->state == CONVOY_TRANSFER_OFFERED) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED,
                               end->status == CONVOY_PEER_LOST ? CONVOY_PEER_LOST : CONVOY_PEER_ERROR,
                               "peer %s did not take %llu of %llu bytes: status %d", engine->peers[entry->peer].session,
                               (unsigned long long)end->lost_bytes, (unsigned long long)end->bytes, end->status);
    } else {
        finish_loan(engine, entry);
    }
}
