/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's side: offers that wait, requests that wait for one, loads by descriptor or from an own slot. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"
#include "xfer/raw.h"

#include <stdatomic.h>
#include <string.h>

#define RETRY_AFTER_MS 10u
#define ROOM_STEP 4096u

/* -- what the sender is told --------------------------------------------------------------------------------------- */

static void say_reply(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, enum convoy_say type,
                      const struct convoy_reply *reply)
{
    struct convoy_xfer_notice notice = {.type = type};
    notice.body.reply = *reply;
    convoy_xfer_say(engine, peer, &notice);
}

static void refuse_offer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_offer *offer,
                         int32_t status, uint32_t retry_after_ms)
{
    convoy_window_end(&peer->window, offer->sequence, status);
    say_reply(engine, peer, CONVOY_SAY_TAKEN,
              &(struct convoy_reply){.serial = offer->serial,
                                     .status = status,
                                     .attempt = offer->attempt,
                                     .retry_after_ms = retry_after_ms,
                                     .flags = CONVOY_REPLY_BACK});
}

void convoy_xfer_load_give_back(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (!entry->is_lent || CONVOY_MUTATED(back_not_said)) {
        return;
    }
    entry->is_lent = false;
    CONVOY_POINT(back_before_put);
    say_reply(engine, &engine->peers[entry->peer], CONVOY_SAY_BACK,
              &(struct convoy_reply){.serial = entry->serial, .status = entry->status, .attempt = entry->attempt});
    CONVOY_POINT(back_after_put);
}

/* TAKEN, once; together with BACK where nothing is read there any more. */
static void tell(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    bool is_back = entry->is_lent && !entry->is_copying &&
                   (entry->mode == CONVOY_LOAD_COPY || entry->is_pushed || entry->state != CONVOY_TRANSFER_LOADED);
    struct convoy_reply reply = {.serial = entry->serial,
                                 .status = entry->status,
                                 .attempt = entry->attempt,
                                 .retry_after_ms = entry->retry_after_ms,
                                 .flags = is_back ? CONVOY_REPLY_BACK : 0};
    if (entry->is_told || entry->serial == 0) {
        return;
    }
    if (engine->peers[entry->peer].state != CONVOY_PEER_IS_CONNECTED) { /* who is gone only wants its memory back */
        if (is_back) {
            convoy_xfer_load_give_back(engine, entry);
        }
        return;
    }
    if (entry->status == CONVOY_POOL_EXHAUSTED) {
        struct convoy_pool_figures figures;
        convoy_pool_figures(engine->pool, &figures);
        reply.figures[0] = figures.blocks.free;
        reply.figures[1] = figures.blocks.largest_free;
    }
    entry->is_told = true;
    entry->is_lent = entry->is_lent && !is_back;
    CONVOY_POINT(taken_before_put);
    say_reply(engine, &engine->peers[entry->peer], CONVOY_SAY_TAKEN, &reply);
    CONVOY_POINT(taken_after_put);
}

void convoy_xfer_load_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->is_accepting) {
        entry->is_accepting = false;
        engine->accepting_count--;
    }
    convoy_xfer_job_drop(engine, entry);
    entry->must_stop = true;
    if (entry->peer != CONVOY_XFER_NOBODY && entry->serial != 0) {
        convoy_window_end(&engine->peers[entry->peer].window, entry->sequence, entry->status);
        tell(engine, entry);
    }
    if (entry->landing != 0) { /* behind TAKEN, so that the sender learns the reason before its bytes are refused */
        convoy_far_load_ended(engine, entry);
    }
}

/* -- loading ------------------------------------------------------------------------------------------------------- */

bool convoy_xfer_load_room(struct convoy_xfer_entry *entry, size_t bytes)
{
    if (bytes <= entry->room_bytes) {
        return true;
    }
    size_t wanted = (bytes + ROOM_STEP - 1) / ROOM_STEP * ROOM_STEP;
    uint8_t *room = convoy_memory_zalloc(wanted);
    if (room == NULL) {
        return false;
    }
    convoy_memory_free(entry->room);
    entry->room = room;
    entry->room_bytes = wanted;
    return true;
}

int32_t convoy_xfer_load_decode(struct convoy_xfer_entry *entry, size_t bytes, struct convoy_error *error)
{
    return convoy_descriptor_decode(entry->room, bytes, &entry->manifest_room, &entry->descriptor, error);
}

/* An own copy first: the sender could change what was checked. */
static int32_t read_note(struct convoy_xfer_entry *entry, const struct convoy_offer *offer, struct convoy_error *error)
{
    size_t bytes = offer->note & CONVOY_OFFER_NOTE_BYTES;
    const struct convoy_view *view = entry->view;
    if (bytes > view->notes_bytes || offer->note_offset > view->notes_bytes - bytes ||
        offer->note_offset < CONVOY_MARK_BYTES || offer->note_offset % CONVOY_MARK_BYTES != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "offer.note %llu + %zu lies beyond the peer's %zu bytes",
                                (unsigned long long)offer->note_offset, bytes, view->notes_bytes);
    }
    if (!convoy_xfer_load_room(entry, bytes)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a descriptor of %zu bytes", bytes);
    }
    entry->is_early = (offer->note & CONVOY_OFFER_EARLY) != 0;
    entry->mark = (const _Atomic uint64_t *)(const void *)(view->notes + offer->note_offset - CONVOY_MARK_BYTES);
    memcpy(entry->room, view->notes + offer->note_offset, bytes);
    int32_t status = convoy_xfer_load_decode(entry, bytes, error);
    if (status == CONVOY_OK && (entry->descriptor.payload_bytes != offer->bytes || entry->descriptor.offset != offer->offset ||
                                entry->descriptor.attempt != offer->attempt)) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "offer and descriptor differ in bytes, offset or attempt");
    }
    return status;
}

/* Where the payload lies here, and where it goes. */
static int32_t place_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_error *error)
{
    const struct convoy_view *view = entry->view;
    uint64_t bytes = entry->descriptor.payload_bytes;
    entry->payload_bytes = bytes;
    entry->is_checksummed = (entry->descriptor.flags & CONVOY_DESCRIPTOR_CHECKSUM) != 0;
    entry->checksum = entry->descriptor.checksum;
    if (bytes != 0 && view->pool == NULL && view->address == 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "the sender's pool cannot be mapped, and the system does not allow "
                                                           "to read it out of its process");
    }
    if (bytes != 0 && !convoy_view_has(view, entry->offset, bytes)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "payload at %llu + %llu lies beyond the peer's pool of %zu bytes",
                                (unsigned long long)entry->offset, (unsigned long long)bytes, view->pool_bytes);
    }
    entry->payload = bytes != 0 && view->pool != NULL ? view->pool + (entry->offset - view->base) : NULL;
    entry->mode = view->pool == NULL && bytes != 0 ? CONVOY_LOAD_COPY : entry->mode;
    if (entry->mode == CONVOY_LOAD_VIEW || entry->destination != NULL) {
        return entry->mode == CONVOY_LOAD_COPY && entry->destination_bytes < bytes
                   ? convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "load.destination has %llu bytes, the payload %llu",
                                      (unsigned long long)entry->destination_bytes, (unsigned long long)bytes)
                   : CONVOY_OK;
    }
    const struct convoy_pool_request request = {
        .owner = {entry->request, entry->request_length, entry->attempt},
        .bytes = bytes,
        .now_ns = convoy_now_ns(),
        .deadline_ns = CONVOY_LEASE_NEVER,
    };
    entry->retry_after_ms = RETRY_AFTER_MS;
    return convoy_pool_take(engine->pool, &request, &entry->slot, error);
}

void convoy_xfer_load_finish(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->device.is_target && !entry->device.is_done) {
        convoy_xfer_device_load(engine, entry);
        return;
    }
    uint8_t *target = entry->destination != NULL ? entry->destination : entry->slot.address;
    if (entry->mode == CONVOY_LOAD_COPY || entry->is_pushed) {
        entry->payload = target;
        entry->moved_bytes = entry->payload_bytes;
    }
    entry->times_ns[CONVOY_TIME_LOADED] = convoy_now_ns();
    entry->deadline_ns = entry->retry_ns = CONVOY_DEADLINE_NEVER;
    entry->retry_after_ms = 0;
    if (entry->slot.lease != CONVOY_LEASE_NONE && entry->slot_id == 0) {
        (void)convoy_pool_filled(engine->pool, entry->slot.lease, entry->payload_bytes, NULL);
    }
    if (entry->peer != CONVOY_XFER_NOBODY) {
        engine->peers[entry->peer].received_bytes += entry->payload_bytes;
    }
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_LOADED);
}

void convoy_xfer_load_copied(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    if (entry->state != CONVOY_TRANSFER_LOADING) { /* ended meanwhile; it is read no more from now on */
        convoy_xfer_load_give_back(engine, entry);
    } else if (status == CONVOY_PEER_ERROR) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "its sender did not finish to stage it");
    } else if (status == CONVOY_UNREACHABLE) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status,
                               "the sender's process can be read no more (process_vm_readv)");
    } else if (status != CONVOY_OK) {
        CONVOY_XFER_NOTE(engine, checksum_errors);
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_MALFORMED,
                               "checksum of the payload is not that of its descriptor");
    } else {
        convoy_xfer_load_finish(engine, entry);
    }
}

static void fail_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    char text[CONVOY_ERROR_TEXT_BYTES];
    memcpy(text, entry->error.text, sizeof text);
    convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "%s", text);
}

/* A view of what was offered early takes no copy and no thread: it is there once the mark says so. */
static void look_at_mark(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    uint64_t ready = atomic_load_explicit(entry->mark, memory_order_acquire);
    if (ready == CONVOY_MARK_FAILED || ready >= entry->payload_bytes) {
        convoy_xfer_load_copied(engine, entry, ready == CONVOY_MARK_FAILED ? CONVOY_PEER_ERROR : CONVOY_OK);
    }
}

/* With the descriptor there: from LOADING on. */
static void go_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, int32_t status)
{
    entry->times_ns[CONVOY_TIME_OFFERED] = convoy_now_ns();
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_LOADING);
    if (status == CONVOY_OK) {
        status = place_load(engine, entry, &entry->error);
    }
    if (status != CONVOY_OK) {
        fail_load(engine, entry, status);
        return;
    }
    entry->path = entry->mode == CONVOY_LOAD_VIEW ? CONVOY_PATH_LEND
                  : entry->view->pool == NULL   ? CONVOY_PATH_PROCESS_VM
                                                : CONVOY_PATH_PULL;
    if (entry->is_early && entry->mode == CONVOY_LOAD_VIEW && entry->payload_bytes != 0) {
        look_at_mark(engine, entry); /* else STAGED will come */
        return;
    }
    bool is_there = !entry->is_early && !entry->is_checksummed;
    if ((entry->mode == CONVOY_LOAD_VIEW && is_there) || entry->payload_bytes == 0 ||
        CONVOY_MUTATED(taken_before_copied)) {
        convoy_xfer_load_finish(engine, entry);
        return;
    }
    convoy_xfer_job_add(engine, entry, entry->is_awaited);
}

void convoy_xfer_load_near(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const struct convoy_offer *offer)
{
    int32_t status = CONVOY_OK;
    uint64_t bytes = offer != NULL ? offer->bytes : entry->descriptor.payload_bytes;
    struct convoy_view *newest = engine->peers[entry->peer].view;
    struct convoy_view *view = convoy_view_at(newest, entry->offset, bytes);
    entry->view = view != NULL ? view : newest;
    entry->view->references++;
    if (offer != NULL) {
        status = read_note(entry, offer, &entry->error);
    }
    if (view == NULL) { /* never from one that keeps to the protocol: what is lent keeps its generation alive */
        CONVOY_XFER_NOTE(engine, generations_late);
        status = convoy_error_set(&entry->error, CONVOY_CLOSED, "payload at %llu is in a generation of the sender's pool that "
                                                                "has ended",
                                  (unsigned long long)entry->offset);
    }
    if (offer != NULL && status == CONVOY_OK) {
        convoy_xfer_entry_name(entry, entry->descriptor.request.text, entry->descriptor.request.bytes, offer->attempt);
        if (entry->digest != offer->digest) {
            status = convoy_error_set(&entry->error, CONVOY_MALFORMED, "offer and descriptor differ in the request");
        }
    }
    go_load(engine, entry, status);
}

void convoy_xfer_load_begin(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t index,
                            const struct convoy_offer *offer)
{
    struct convoy_xfer_peer *peer = &engine->peers[index];
    if (entry->is_accepting) {
        entry->is_accepting = false;
        engine->accepting_count--;
    }
    convoy_xfer_entry_bind(engine, entry, index);
    entry->serial = offer->serial;
    entry->sequence = offer->sequence;
    entry->offset = offer->offset;
    entry->attempt = offer->attempt;
    entry->is_lent = true;
    entry->mode = (offer->note & CONVOY_OFFER_COPY) != 0 && !entry->device.is_target ? CONVOY_LOAD_COPY : entry->mode;
    entry->error = (struct convoy_error)CONVOY_ERROR_INIT;
    peer->lane->load(engine, entry, offer);
}

/* -- offers and who waits for them --------------------------------------------------------------------------------- */

bool convoy_xfer_load_wants(const struct convoy_xfer_entry *entry, uint32_t peer, const struct convoy_offer *offer)
{
    return entry->kind == CONVOY_XFER_LOAD && entry->is_accepting &&
           (entry->wanted_peer == CONVOY_XFER_NOBODY || entry->wanted_peer == peer) &&
           (entry->request_length == 0 || entry->digest == offer->digest || CONVOY_MUTATED(request_ignored));
}

static struct convoy_xfer_entry *find_acceptor(struct convoy_xfer *engine, uint32_t peer, const struct convoy_offer *offer)
{
    for (uint32_t at = engine->active_first; engine->accepting_count != 0 && at != CONVOY_XFER_NOBODY;
         at = engine->entries[at].next) {
        if (convoy_xfer_load_wants(&engine->entries[at], peer, offer)) {
            return &engine->entries[at];
        }
    }
    return NULL;
}

void convoy_xfer_waiting_remove(struct convoy_xfer *engine, uint32_t position)
{
    engine->waiting_count--;
    memmove(&engine->waiting[position], &engine->waiting[position + 1],
            (engine->waiting_count - position) * sizeof engine->waiting[0]);
}

void convoy_xfer_waiting_drop_peer(struct convoy_xfer *engine, uint32_t peer)
{
    for (uint32_t i = engine->waiting_count; i-- > 0;) {
        if (engine->waiting[i].peer == peer) {
            const struct convoy_offer offer = engine->waiting[i].offer;
            convoy_xfer_waiting_remove(engine, i);
            say_reply(engine, &engine->peers[peer], CONVOY_SAY_BACK,
                      &(struct convoy_reply){.serial = offer.serial, .status = CONVOY_PEER_LOST});
        }
    }
}

void convoy_xfer_waiting_refuse_all(struct convoy_xfer *engine, int32_t status)
{
    while (engine->waiting_count != 0) {
        const struct convoy_xfer_waiting last = engine->waiting[--engine->waiting_count];
        refuse_offer(engine, &engine->peers[last.peer], &last.offer, status, 0);
    }
}

/* What came before: answered from what is known, done no second time. */
static void offer_repeated(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_offer *offer,
                           int32_t status)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    bool is_held = false;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        is_held = is_held || (entry->kind == CONVOY_XFER_LOAD && entry->peer == index &&
                              entry->serial == offer->serial && entry->is_lent);
    }
    say_reply(engine, peer, CONVOY_SAY_TAKEN,
              &(struct convoy_reply){.serial = offer->serial,
                                     .status = status,
                                     .attempt = offer->attempt,
                                     .flags = is_held ? 0 : CONVOY_REPLY_BACK});
}

/* Offers of an earlier attempt that nobody took are refused: the sender has begun anew. */
static bool is_outdated(struct convoy_xfer *engine, uint32_t peer, const struct convoy_offer *offer)
{
    for (uint32_t i = engine->waiting_count; i-- > 0;) {
        const struct convoy_offer other = engine->waiting[i].offer;
        if (engine->waiting[i].peer != peer || other.digest != offer->digest) {
            continue;
        }
        if (other.attempt > offer->attempt) {
            return true;
        }
        if (other.attempt < offer->attempt && !CONVOY_MUTATED(earlier_attempt_kept)) {
            convoy_xfer_waiting_remove(engine, i);
            refuse_offer(engine, &engine->peers[peer], &other, CONVOY_STALE_EPOCH, 0);
        }
    }
    return false;
}

void convoy_xfer_on_offer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_offer *offer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    int32_t known = CONVOY_OK;
    CONVOY_XFER_NOTE(engine, offers);
    switch (CONVOY_MUTATED(offer_taken_twice) ? CONVOY_WINDOW_NEW
                                              : convoy_window_see(&peer->window, offer->sequence, &known)) {
    case CONVOY_WINDOW_NEW:
        break;
    case CONVOY_WINDOW_ENDED:
        offer_repeated(engine, peer, offer, known);
        CONVOY_XFER_NOTE(engine, offers_repeated);
        return;
    case CONVOY_WINDOW_LIVE:
        CONVOY_XFER_NOTE(engine, offers_repeated);
        convoy_far_load_repeat(engine, index, offer->serial);
        convoy_xfer_on_staged(engine, peer, offer->serial);
        return;
    case CONVOY_WINDOW_OLD:
        CONVOY_XFER_NOTE(engine, offers_late);
        return;
    }
    if (is_outdated(engine, index, offer)) {
        refuse_offer(engine, peer, offer, CONVOY_STALE_EPOCH, 0);
        return;
    }
    struct convoy_xfer_entry *acceptor = find_acceptor(engine, index, offer);
    if (acceptor != NULL) {
        convoy_xfer_load_begin(engine, acceptor, index, offer);
    } else if (engine->state != CONVOY_ENGINE_OPEN || engine->waiting_count == engine->options.transfer_max) {
        refuse_offer(engine, peer, offer, engine->state == CONVOY_ENGINE_OPEN ? CONVOY_BUSY : CONVOY_CLOSED,
                     RETRY_AFTER_MS);
    } else {
        engine->waiting[engine->waiting_count++] = (struct convoy_xfer_waiting){
            .offer = *offer, .came_ns = convoy_now_ns(), .peer = index, .generation = peer->generation};
        convoy_xfer_wake(engine);
    }
}

void convoy_xfer_on_staged(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, uint64_t serial)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_LOAD && entry->peer == index && entry->serial == serial && entry->is_early &&
            entry->mode == CONVOY_LOAD_VIEW && entry->state == CONVOY_TRANSFER_LOADING) {
            look_at_mark(engine, entry);
            return;
        }
    }
}

void convoy_xfer_on_withdraw(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                             const struct convoy_reply *reply)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    if (CONVOY_MUTATED(withdraw_ignored)) {
        return;
    }
    for (uint32_t i = 0; i < engine->waiting_count; i++) {
        if (engine->waiting[i].peer == index && engine->waiting[i].offer.serial == reply->serial) {
            const struct convoy_offer offer = engine->waiting[i].offer;
            convoy_xfer_waiting_remove(engine, i);
            refuse_offer(engine, peer, &offer, CONVOY_CANCELED, 0);
            return;
        }
    }
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_LOAD && entry->peer == index && entry->serial == reply->serial) {
            convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_PEER_ERROR,
                                   "its sender %s has given it up: status %d", peer->session, reply->status);
            return; /* one that is loaded stays with the host; BACK comes when it is released */
        }
    }
    if (convoy_raw_withdraw(engine, peer, reply->serial)) {
        return;
    }
    say_reply(engine, peer, CONVOY_SAY_BACK, &(struct convoy_reply){.serial = reply->serial, .status = CONVOY_CANCELED});
}

void convoy_xfer_on_grant(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, reply->cookie, NULL);
    bool is_ours = entry != NULL && entry->kind == CONVOY_XFER_LOAD && entry->peer == (uint32_t)(peer - engine->peers);
    if (!is_ours || entry->state != CONVOY_TRANSFER_WAITING) {
        CONVOY_XFER_NOTE(engine, replies_late);
        if (is_ours && entry->is_told && entry->serial == reply->serial) { /* the lender has not heard it */
            say_reply(engine, peer, CONVOY_SAY_TAKEN,
                      &(struct convoy_reply){.serial = entry->serial,
                                             .status = entry->status,
                                             .attempt = entry->attempt,
                                             .flags = entry->is_lent ? 0 : CONVOY_REPLY_BACK});
        }
        if (reply->status == CONVOY_OK && (!is_ours || entry->serial != reply->serial)) {
            say_reply(engine, peer, CONVOY_SAY_BACK,
                      &(struct convoy_reply){.serial = reply->serial, .status = CONVOY_CANCELED});
        }
        return;
    }
    if (reply->status != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, reply->status < 0 ? reply->status : CONVOY_MALFORMED,
                               "its sender %s refuses the descriptor: status %d", peer->session, reply->status);
        return;
    }
    entry->serial = reply->serial;
    entry->offset = (reply->flags & CONVOY_REPLY_PLACED) != 0 ? reply->figures[0] : entry->offset;
    entry->is_lent = true;
    peer->lane->load(engine, entry, NULL);
}
