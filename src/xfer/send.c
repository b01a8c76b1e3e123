/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's side of a transfer: offers, what comes of them, and what others ask for by a descriptor. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/status.h"
#include "xfer/far.h"
#include "xfer/raw.h"

#include <string.h>

#define ASK_BACK_NS CONVOY_NS_PER_S /* how often a peer is asked for what it has not given back */

/* -- going out ----------------------------------------------------------------------------------------------------- */

static void say_order(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_peer *peer = &engine->peers[entry->peer];
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_OFFER};
    if (entry->offset != 0) { /* an address of the peer's */
        notice.type = CONVOY_SAY_RAW;
        notice.body.raw = (struct convoy_raw_order){.cookie = convoy_xfer_entry_handle(entry),
                                                    .offset = stage->slot.offset,
                                                    .target = entry->offset,
                                                    .bytes = stage->payload_bytes};
    } else {
        bool must_copy = entry->path == CONVOY_PATH_PUSH || entry->path == CONVOY_PATH_PULL;
        notice.body.offer = (struct convoy_offer){
            .serial = convoy_xfer_entry_handle(entry),
            .sequence = entry->sequence,
            .digest = entry->digest,
            .offset = stage->slot.offset,
            .bytes = stage->payload_bytes,
            .note_offset = stage->note.offset + CONVOY_MARK_BYTES,
            .note = (uint32_t)stage->known_bytes | (must_copy ? CONVOY_OFFER_COPY : 0) |
                    (stage->state == CONVOY_TRANSFER_STAGED ? 0 : CONVOY_OFFER_EARLY),
            .attempt = entry->attempt,
        };
    }
    CONVOY_POINT(offer_before_put);
    convoy_xfer_say(engine, peer, &notice);
    CONVOY_POINT(offer_after_put);
}

static void set_retry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t now_ns)
{
    entry->retry_ns = entry->retries_left != 0 ? convoy_deadline_after(now_ns, entry->retry_step_ns) : CONVOY_DEADLINE_NEVER;
    convoy_xfer_timer(engine, entry->retry_ns);
}

void convoy_xfer_send_advance(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    if (stage->state == CONVOY_TRANSFER_FAILED || stage->state == CONVOY_TRANSFER_ABORTED) {
        convoy_xfer_entry_fail(engine, entry, stage->state, stage->status, "was not staged: %s", stage->error.text);
        return;
    }
    bool is_early = stage->is_deferred && engine->peers[entry->peer].lane->may_be_early;
    if ((stage->state != CONVOY_TRANSFER_STAGED && !is_early) || entry->state != CONVOY_TRANSFER_QUEUED) {
        return;
    }
    if (convoy_xfer_admission_ask(engine, entry, stage->payload_bytes, is_early)) {
        convoy_xfer_send_offer(engine, entry);
    }
}

void convoy_xfer_send_offer(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    const struct convoy_xfer_entry *stage = &engine->entries[entry->source];
    bool is_early = stage->is_deferred;
    uint64_t now = convoy_now_ns();
    /* A reader may come to a lease that is filled; before that, only who may touch it while it is. */
    entry->reference = stage->is_deferred ? CONVOY_REFERENCE_WRITE : CONVOY_REFERENCE_READ;
    if (!CONVOY_MUTATED(reader_not_counted) &&
        convoy_pool_refer(engine->pool, stage->slot.lease, entry->peer, entry->reference, &entry->error) != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, entry->error.status, "no more readers: %s",
                               entry->error.text);
        return;
    }
    if (is_early && !engine->peers[entry->peer].lane->is_far) {
        engine->entries[entry->source].is_early = true;
    } else if (is_early) {
        engine->entries[entry->source].is_followed = true;
    }
    entry->slot = stage->slot;
    entry->sequence = ++engine->peers[entry->peer].sequence;
    entry->payload_bytes = stage->payload_bytes;
    entry->is_lent = true;
    entry->times_ns[CONVOY_TIME_READY] = stage->times_ns[CONVOY_TIME_READY];
    entry->times_ns[CONVOY_TIME_STAGED] = stage->times_ns[CONVOY_TIME_STAGED];
    entry->times_ns[CONVOY_TIME_OFFERED] = now;
    entry->retry_step_ns = convoy_xfer_retry_step(convoy_deadline_left(now, entry->deadline_ns), entry->retries_left);
    set_retry(engine, entry, now);
    (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_OFFERED);
    say_order(engine, entry);
}

void convoy_xfer_send_staged(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_STAGED};
    notice.body.reply = (struct convoy_reply){.serial = convoy_xfer_entry_handle(entry), .attempt = entry->attempt};
    convoy_xfer_say(engine, &engine->peers[entry->peer], &notice);
}

void convoy_xfer_send_withdraw(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
    notice.body.reply = (struct convoy_reply){
        .serial = convoy_xfer_entry_handle(entry), .status = entry->status, .attempt = entry->attempt};
    if (entry->peer != CONVOY_XFER_NOBODY && entry->is_lent && !entry->is_return_due) {
        convoy_xfer_say(engine, &engine->peers[entry->peer], &notice);
        CONVOY_POINT(withdraw_after_put);
        entry->retry_ns = convoy_deadline_after(convoy_now_ns(), ASK_BACK_NS);
        convoy_xfer_timer(engine, entry->retry_ns);
    }
}

void convoy_xfer_send_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->state != CONVOY_TRANSFER_OFFERED || entry->is_hidden) {
        convoy_xfer_send_withdraw(engine, entry); /* ended here, not given back: ask for it */
        return;
    }
    entry->retries++;
    entry->retries_left--;
    CONVOY_XFER_NOTE(engine, retries);
    set_retry(engine, entry, convoy_now_ns());
    say_order(engine, entry);
}

static void say_grant(struct convoy_xfer *engine, const struct convoy_xfer_entry *loan)
{
    struct convoy_xfer_notice grant = {.type = CONVOY_SAY_GRANT};
    grant.body.reply = (struct convoy_reply){.serial = convoy_xfer_entry_handle(loan),
                                             .cookie = loan->cookie,
                                             .attempt = loan->attempt,
                                             .flags = CONVOY_REPLY_PLACED,
                                             .figures = {loan->slot.offset}};
    convoy_xfer_say(engine, &engine->peers[loan->peer], &grant);
}

void convoy_xfer_send_repeat(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    entry->retries++;
    CONVOY_XFER_NOTE(engine, retries);
    if (entry->is_hidden) {
        say_grant(engine, entry);
    } else {
        say_order(engine, entry);
    }
}

/* -- the host's call ----------------------------------------------------------------------------------------------- */

static int32_t check_send(struct convoy_xfer *engine, const struct convoy_send *send, struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = convoy_xfer_peer_find(engine, send->peer, error);
    if (peer == NULL) {
        return CONVOY_CLOSED;
    }
    if (peer->state != CONVOY_PEER_IS_CONNECTED) {
        return convoy_error_set(error, CONVOY_PEER_LOST, "peer %s is gone", peer->session);
    }
    if (send->path > CONVOY_PATH_PULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "send.path is %u, allowed are 0 to %u", send->path,
                                CONVOY_PATH_PULL);
    }
    if (send->address != 0 && send->path != CONVOY_PATH_PUSH && send->path != CONVOY_PATH_AUTO) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "send.path is %u with an address, which is for PUSH",
                                send->path);
    }
    if (send->path == CONVOY_PATH_LEND && peer->lane->is_far) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "send.path is LEND, but peer %s shares no memory with this engine",
                                peer->session);
    }
    if (!peer->lane->is_far && engine->options.is_private && convoy_pool_bytes(engine->pool) != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "peer %s cannot read this engine's pool, which is private, and "
                                                           "this build has no other path",
                                peer->session);
    }
    return CONVOY_OK;
}

static struct convoy_xfer_entry *find_stage(struct convoy_xfer *engine, convoy_transfer staged,
                                            struct convoy_error *error)
{
    struct convoy_xfer_entry *stage = convoy_xfer_entry_find(engine, staged, error);
    if (stage != NULL && (stage->kind != CONVOY_XFER_STAGE || stage->is_released)) {
        (void)convoy_error_set(error, CONVOY_CLOSED, "send.staged is a %s, or was released",
                               convoy_xfer_kind_name(stage->kind));
        return NULL;
    }
    return stage;
}

static void fill_send(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, struct convoy_xfer_entry *stage,
                      const struct convoy_send *send)
{
    uint64_t timeout = send->timeout_ns != 0 ? send->timeout_ns : engine->options.timeout_ns;
    convoy_xfer_entry_name(entry, stage->request, stage->request_length, stage->attempt);
    convoy_xfer_entry_bind(engine, entry, (uint32_t)send->peer - 1);
    entry->source = stage->index;
    stage->users++;
    bool is_far = engine->peers[entry->peer].lane->is_far;
    entry->path = is_far || send->address != 0 ? CONVOY_PATH_PUSH : send->path != 0 ? send->path : CONVOY_PATH_LEND;
    entry->offset = send->address;
    entry->place = CONVOY_XFER_PLACE_STAGING;
    entry->wait.priority = send->priority != 0 ? send->priority : stage->descriptor.priority;
    entry->retries_left = convoy_xfer_retries(send->retries);
    entry->deadline_ns = convoy_deadline_after(entry->times_ns[CONVOY_TIME_STARTED], timeout);
    convoy_xfer_timer(engine, entry->deadline_ns);
}

/* A place for it, before anything is staged. What has come meanwhile may have made room; to hear it gives the lock up. */
static int32_t enter(struct convoy_xfer *engine, const struct convoy_send *send, struct convoy_error *error)
{
    int32_t status = check_send(engine, send, error);
    if (status == CONVOY_OK && convoy_xfer_admission_is_full(engine)) {
        convoy_xfer_pump(engine);
        convoy_xfer_admission_run(engine);
        status = convoy_xfer_check_open(engine, error);
        status = status == CONVOY_OK ? check_send(engine, send, error) : status;
    }
    return status == CONVOY_OK ? convoy_xfer_admission_enter(engine, error) : status;
}

static int32_t send_locked(struct convoy_xfer *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                           bool is_awaited, convoy_transfer *transfer_out, struct convoy_error *error)
{
    struct convoy_xfer_entry *staged = NULL;
    int32_t status = enter(engine, send, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (stage != NULL) {
        const struct convoy_lane *lane = engine->peers[(uint32_t)send->peer - 1].lane;
        /* To another host the descriptor goes last, and with it the checksum. */
        bool may_defer = send->address == 0 && lane->may_be_early &&
                         (lane->is_far || (stage->critical_flags & CONVOY_STAGE_CHECKSUM) == 0);
        const struct convoy_xfer_stage_way way = {.is_awaited = is_awaited, .may_defer = may_defer, .is_owned = true};
        status = convoy_xfer_stage_locked(engine, stage, way, &staged, error);
    } else {
        staged = find_stage(engine, send->staged, error);
        status = staged != NULL ? CONVOY_OK : CONVOY_CLOSED;
    }
    /* The lock was given up while it was staged: the peer may have gone, and another may be in its place. */
    int32_t there = status == CONVOY_OK && stage != NULL ? check_send(engine, send, error) : status;
    struct convoy_xfer_entry *entry = there == CONVOY_OK ? convoy_xfer_entry_new(engine, CONVOY_XFER_SEND, error) : NULL;
    if (status == CONVOY_OK && stage != NULL) {
        staged->is_hidden = true;
        staged->is_owned = entry != NULL;
        staged->is_released = entry == NULL;
    }
    if (entry == NULL) {
        convoy_xfer_admission_leave(engine);
        if (status == CONVOY_OK && stage != NULL) {
            convoy_xfer_entry_fail(engine, staged, CONVOY_TRANSFER_ABORTED, CONVOY_CANCELED, "it cannot be sent");
            convoy_xfer_entry_settle(engine, staged);
        }
        return there != CONVOY_OK ? there : CONVOY_LIMIT;
    }
    fill_send(engine, entry, staged, send);
    *transfer_out = convoy_xfer_entry_handle(entry);
    convoy_xfer_send_advance(engine, entry);
    if (staged->is_deferred && staged->state == CONVOY_TRANSFER_STAGING) {
        convoy_xfer_stage_begin(engine, staged, (stage->hint_flags & CONVOY_STAGE_INLINE) != 0, is_awaited);
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_send(struct convoy_xfer *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                         bool is_awaited, convoy_transfer *transfer_out, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = send_locked(engine, stage, send, is_awaited, transfer_out, error);
    }
    convoy_xfer_unlock(engine);
    return status;
}

/* -- what comes back ----------------------------------------------------------------------------------------------- */

void convoy_xfer_send_returned(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (!entry->is_lent || convoy_far_send_holds(engine, entry)) {
        return;
    }
    uint64_t now = convoy_now_ns();
    CONVOY_POINT(returned_before_free);
    entry->is_lent = false;
    entry->retry_ns = CONVOY_DEADLINE_NEVER;
    entry->times_ns[CONVOY_TIME_RETURNED] = now;
    (void)convoy_pool_unrefer(engine->pool, entry->slot.lease, entry->peer, entry->reference, NULL);
    convoy_xfer_record_returned(engine, entry);
}

static void taken(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, struct convoy_xfer_entry *entry,
                  const struct convoy_reply *reply)
{
    if (entry->state != CONVOY_TRANSFER_OFFERED) {
        return;
    }
    entry->retry_after_ms = reply->retry_after_ms;
    entry->is_answered = true;
    if (reply->status == CONVOY_OK) {
        /* Those of the offer are older when it was offered before it was staged. */
        entry->times_ns[CONVOY_TIME_READY] = engine->entries[entry->source].times_ns[CONVOY_TIME_READY];
        entry->times_ns[CONVOY_TIME_STAGED] = engine->entries[entry->source].times_ns[CONVOY_TIME_STAGED];
        entry->times_ns[CONVOY_TIME_LOADED] = convoy_now_ns();
        entry->deadline_ns = CONVOY_DEADLINE_NEVER;
        entry->retry_ns = convoy_deadline_after(entry->times_ns[CONVOY_TIME_LOADED], ASK_BACK_NS); /* until BACK */
        convoy_xfer_timer(engine, entry->retry_ns);
        entry->moved_bytes = entry->payload_bytes;
        peer->sent_bytes += entry->payload_bytes;
        engine->counters[peer->lane->is_far ? CONVOY_XFER_COUNT_pushed_bytes : CONVOY_XFER_COUNT_lent_bytes] +=
            entry->payload_bytes;
        (void)convoy_xfer_entry_move(engine, entry, CONVOY_TRANSFER_SENT);
        return;
    }
    CONVOY_XFER_NOTE(engine, refusals);
    int32_t status = reply->status < 0 ? reply->status : CONVOY_MALFORMED;
    if (status == CONVOY_POOL_EXHAUSTED || status == CONVOY_LIMIT) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status,
                               "peer %s does not take it: status %d, %llu bytes free there, largest block %llu, ask again "
                               "after %u ms",
                               peer->session, reply->status, (unsigned long long)reply->figures[0],
                               (unsigned long long)reply->figures[1], reply->retry_after_ms);
    } else { /* no matter of room, so no figures of its pool */
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, status, "peer %s does not take it: status %d, %s",
                               peer->session, reply->status, convoy_status_text(reply->status));
    }
}

void convoy_xfer_on_reply(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, enum convoy_say type,
                          const struct convoy_reply *reply)
{
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, reply->serial, NULL);
    if (entry == NULL || entry->kind != CONVOY_XFER_SEND || entry->peer != (uint32_t)(peer - engine->peers)) {
        bool is_known = type == CONVOY_SAY_BACK && convoy_xfer_order_back(engine, peer, reply);
        if (!is_known && !convoy_far_loan_answered(engine, (uint32_t)(peer - engine->peers), reply->serial)) {
            CONVOY_XFER_NOTE(engine, replies_late);
        }
        return;
    }
    bool is_back = type == CONVOY_SAY_BACK || (reply->flags & CONVOY_REPLY_BACK) != 0;
    bool is_late = is_back ? !entry->is_lent : entry->state != CONVOY_TRANSFER_OFFERED;
    if (is_late) {
        CONVOY_XFER_NOTE(engine, replies_late);
    }
    entry->users++; /* stays until this is done */
    if (type == CONVOY_SAY_TAKEN || entry->state == CONVOY_TRANSFER_OFFERED) {
        taken(engine, peer, entry, reply);
    }
    if (is_back) {
        convoy_xfer_send_returned(engine, entry);
        convoy_xfer_peer_check(engine, peer);
    }
    entry->users--;
    convoy_xfer_entry_settle(engine, entry);
}

/* -- readers that come with a descriptor --------------------------------------------------------------------------- */

/* JSON, which has no serial, counts from the start of the payload's generation. */
static uint64_t asked_offset(const struct convoy_xfer_entry *stage, const struct convoy_ask *ask)
{
    return stage->slot.offset - (ask->serial == 0 ? stage->descriptor.base : 0);
}

static struct convoy_xfer_entry *find_asked(struct convoy_xfer *engine, const struct convoy_ask *ask, int32_t *status_out)
{
    struct convoy_xfer_entry *entry = NULL;
    *status_out = CONVOY_NOT_FOUND;
    if (ask->serial != 0) {
        uint32_t index = (uint32_t)ask->serial - 1;
        entry = convoy_xfer_entry_find(engine, ask->serial, NULL);
        if (entry == NULL && index < engine->entry_count && ask->serial >> 32 <= engine->entries[index].generation) {
            *status_out = CONVOY_CLOSED;
        }
        return entry != NULL && entry->kind == CONVOY_XFER_STAGE ? entry : NULL;
    }
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_STAGE && entry->digest == ask->digest && entry->attempt == ask->attempt &&
            asked_offset(entry, ask) == ask->offset) {
            return entry;
        }
    }
    return NULL;
}

/* The four ways in which a descriptor is no good, each a status of its own, and the attempt. */
static int32_t judge_ask(const struct convoy_xfer_entry *stage, const struct convoy_ask *ask)
{
    if ((stage->digest != ask->digest || stage->is_released) && !CONVOY_MUTATED(released_is_lent)) {
        return CONVOY_CLOSED;
    }
    if (stage->state == CONVOY_TRANSFER_FAILED || stage->state == CONVOY_TRANSFER_ABORTED) {
        return stage->status;
    }
    if (stage->attempt != ask->attempt && !CONVOY_MUTATED(attempt_ignored)) {
        return CONVOY_STALE_EPOCH;
    }
    return ask->offset != asked_offset(stage, ask) || ask->bytes != stage->payload_bytes ? CONVOY_INVALID_ARGUMENT
           : stage->state == CONVOY_TRANSFER_STAGED                                ? CONVOY_OK
                                                                                   : CONVOY_BAD_STATE;
}

static struct convoy_xfer_entry *find_loan(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->kind == CONVOY_XFER_SEND && entry->peer == peer && entry->cookie == cookie) {
            return entry;
        }
    }
    return NULL;
}

/* A loan is a send that the host does not see. */
static int32_t lend(struct convoy_xfer *engine, uint32_t peer, const struct convoy_ask *ask,
                    struct convoy_xfer_entry *stage, struct convoy_xfer_entry **loan_out)
{
    struct convoy_xfer_entry *loan = convoy_xfer_entry_new(engine, CONVOY_XFER_SEND, NULL);
    if (loan == NULL) {
        return CONVOY_BUSY;
    }
    loan->is_hidden = loan->is_released = true;
    loan->cookie = ask->cookie;
    loan->source = stage->index;
    stage->users++;
    convoy_xfer_entry_name(loan, stage->request, stage->request_length, stage->attempt);
    convoy_xfer_entry_bind(engine, loan, peer);
    int32_t status = convoy_pool_refer(engine->pool, stage->slot.lease, peer, CONVOY_REFERENCE_READ, NULL);
    if (status != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, loan, CONVOY_TRANSFER_FAILED, status, "no more readers");
        return CONVOY_BUSY;
    }
    loan->slot = stage->slot;
    loan->payload_bytes = stage->payload_bytes;
    loan->reference = CONVOY_REFERENCE_READ;
    loan->is_lent = true;
    loan->path = CONVOY_PATH_LEND;
    loan->times_ns[CONVOY_TIME_OFFERED] = convoy_now_ns();
    loan->deadline_ns = convoy_deadline_after(convoy_now_ns(), engine->options.lease_ns);
    convoy_xfer_timer(engine, loan->deadline_ns);
    (void)convoy_xfer_entry_move(engine, loan, CONVOY_TRANSFER_OFFERED);
    *loan_out = loan;
    return CONVOY_OK;
}

void convoy_xfer_on_ask(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ask *ask)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    int32_t status = CONVOY_OK;
    struct convoy_xfer_entry *loan = find_loan(engine, index, ask->cookie);
    struct convoy_xfer_notice grant = {.type = CONVOY_SAY_GRANT};
    CONVOY_XFER_NOTE(engine, asks);
    if (loan != NULL) {
        CONVOY_XFER_NOTE(engine, asks_repeated);
    } else {
        struct convoy_xfer_entry *stage = find_asked(engine, ask, &status);
        status = stage != NULL ? judge_ask(stage, ask) : status;
        status = status == CONVOY_OK ? lend(engine, index, ask, stage, &loan) : status;
    }
    if (status != CONVOY_OK) {
        CONVOY_XFER_NOTE(engine, asks_refused);
    }
    grant.body.reply = (struct convoy_reply){
        .serial = loan != NULL ? convoy_xfer_entry_handle(loan) : 0,
        .cookie = ask->cookie,
        .status = status,
        .attempt = ask->attempt,
        .flags = loan != NULL ? CONVOY_REPLY_PLACED : 0,
        .figures = {loan != NULL ? loan->slot.offset : 0},
    };
    CONVOY_POINT(grant_before_put);
    convoy_xfer_say(engine, peer, &grant);
    CONVOY_POINT(grant_after_put);
}
