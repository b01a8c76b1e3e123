/* SPDX-License-Identifier: Apache-2.0 */
/* What the host does with any transfer: wait, look into it, release, abort, ask about a request. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/utf8.h"
#include "xfer/device_jobs.h"
#include "xfer/raw.h"

#include <string.h>

/* -- waiting ------------------------------------------------------------------------------------------------------- */

static void fill_result(const struct convoy_xfer *engine, const struct convoy_xfer_entry *entry,
                        struct convoy_transfer_result *out)
{
    const struct convoy_xfer_entry *stage = entry->source != CONVOY_XFER_NOBODY ? &engine->entries[entry->source] : NULL;
    bool is_staging = entry->state == CONVOY_TRANSFER_STAGING ||
                      (entry->state == CONVOY_TRANSFER_QUEUED && stage != NULL && stage->state == CONVOY_TRANSFER_STAGING);
    const struct convoy_slot *slot = entry->device.slot.lease != CONVOY_LEASE_NONE ? &entry->device.slot : &entry->slot;
    bool has_slot = entry->kind != CONVOY_XFER_SEND && slot->bytes != 0;
    out->state = entry->state;
    out->path = entry->path;
    out->status = entry->status;
    out->attempt = entry->attempt;
    out->retries = entry->retries;
    out->retry_after_ms = entry->retry_after_ms;
    out->is_source_free = !is_staging && !entry->is_copying && !(stage != NULL && stage->is_copying);
    out->slot_id = entry->slot_id;
    out->peer = entry->peer != CONVOY_XFER_NOBODY ? convoy_xfer_peer_handle(engine, &engine->peers[entry->peer]) : 0;
    out->payload_bytes = entry->payload_bytes;
    out->moved_bytes = entry->moved_bytes;
    out->address = has_slot ? slot->address : NULL;
    out->slot_offset = has_slot ? slot->offset : 0;
    out->slot_bytes = has_slot ? slot->bytes : 0;
    memcpy(out->times_ns, entry->times_ns, sizeof out->times_ns);
}

/* Whatever this thread can do for it: ask its producer, copy. may_copy_much: it has nothing better to do. */
static void help(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool may_copy_much)
{
    struct convoy_xfer_entry *stage = entry->kind == CONVOY_XFER_STAGE ? entry
                                      : entry->kind == CONVOY_XFER_SEND && entry->source != CONVOY_XFER_NOBODY
                                          ? &engine->entries[entry->source]
                                          : NULL;
    struct convoy_xfer_entry *copied = stage != NULL ? stage : entry;
    if (stage != NULL && stage->ready != NULL) {
        convoy_xfer_stage_poll(engine, stage, may_copy_much);
    }
    convoy_xfer_device_run(engine, copied);
    bool is_little = copied->payload_bytes <= CONVOY_XFER_INLINE_BYTES && !copied->is_early;
    if (copied->is_queued && (may_copy_much || is_little)) {
        convoy_xfer_job_run(engine, copied);
    }
}

int32_t convoy_xfer_wait(struct convoy_xfer *engine, convoy_transfer transfer, uint64_t deadline_ns,
                         struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    struct convoy_xfer_pausing pausing = {0};
    int32_t status = CONVOY_CLOSED;
    bool was_there = false; /* a close ends and forgets what is open, before the one that waits for it has the lock again */
    convoy_xfer_lock(engine);
    for (;;) {
        uint64_t now = convoy_now_ns();
        engine->attended_ns = now;
        convoy_xfer_pump(engine);
        struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, transfer, error);
        if (entry != NULL && entry->paused_ns != 0 && pausing.looks == 0) { /* as if the last wait had gone on */
            pausing = (struct convoy_xfer_pausing){.looks = 1, .since_ns = now - entry->paused_ns};
        }
        if (entry != NULL && !convoy_xfer_state_is_end(entry->state)) {
            help(engine, entry, deadline_ns != 0);
            entry = convoy_xfer_entry_find(engine, transfer, error); /* the lock was given up */
        }
        if (entry == NULL) {
            bool is_closed_under_it = was_there && convoy_xfer_check_open(engine, NULL) != CONVOY_OK;
            status = is_closed_under_it ? convoy_error_set(error, CONVOY_CANCELED, "the engine is closing") : CONVOY_CLOSED;
            break;
        }
        was_there = true;
        if (engine->is_halted) { /* whoever has the new build's handle waits there */
            status = convoy_error_set(error, CONVOY_MOVED, "engine %s moves to another build", engine->session);
            entry->is_awaited = false;
            (void)pthread_cond_signal(&engine->work);
            break;
        }
        if (convoy_xfer_state_is_end(entry->state) || now >= deadline_ns) {
            status = convoy_xfer_state_is_end(entry->state) ? entry->status : CONVOY_IN_PROGRESS;
            if (status == CONVOY_IN_PROGRESS && entry->is_awaited) { /* this thread copies nothing any more */
                entry->is_awaited = false;
                (void)pthread_cond_signal(&engine->work);
            }
            if (status == CONVOY_IN_PROGRESS && pausing.looks != 0) {
                entry->paused_ns = now - pausing.since_ns;
            }
            if (result_out != NULL) {
                fill_result(engine, entry, result_out);
            }
            if (status < CONVOY_OK) {
                (void)convoy_error_copy(error, &entry->error);
            }
            break;
        }
        entry->is_awaited = true;
        convoy_xfer_pause(engine, deadline_ns, entry->ready != NULL || convoy_xfer_device_is_asking(engine), &pausing);
    }
    convoy_xfer_unlock(engine);
    return status;
}

int32_t convoy_xfer_contents(struct convoy_xfer *engine, convoy_transfer transfer,
                             struct convoy_xfer_contents *contents_out, struct convoy_error *error)
{
    int32_t status = CONVOY_CLOSED;
    convoy_xfer_lock(engine);
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, transfer, error);
    if (entry != NULL && entry->state != CONVOY_TRANSFER_LOADED && entry->state != CONVOY_TRANSFER_STAGED) {
        status = convoy_error_set(error, CONVOY_BAD_STATE, "transfer is a %s in state %s, it must be LOADED or STAGED",
                                  convoy_xfer_kind_name(entry->kind), convoy_xfer_state_name(entry->state));
    } else if (entry != NULL) {
        entry->is_shown = true;
        *contents_out = (struct convoy_xfer_contents){
            .manifest = entry->descriptor.manifest,
            .base = entry->kind != CONVOY_XFER_STAGE                     ? entry->payload
                    : entry->device.slot.lease != CONVOY_LEASE_NONE ? entry->device.slot.address
                                                                    : entry->slot.address,
            .request = entry->descriptor.request,
            .session = entry->descriptor.session,
            .scalars = entry->descriptor.scalars,
            .attempt = entry->attempt,
            .priority = entry->descriptor.priority,
        };
        status = CONVOY_OK;
    }
    convoy_xfer_unlock(engine);
    return status;
}

/* -- ending -------------------------------------------------------------------------------------------------------- */

static void abort_entry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const char *reason)
{
    bool is_out = entry->kind == CONVOY_XFER_SEND && entry->is_lent;
    entry->users++; /* stays until this is done */
    convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_ABORTED, CONVOY_CANCELED, "%s", reason);
    if (is_out && entry->state == CONVOY_TRANSFER_ABORTED && !CONVOY_MUTATED(abort_not_told)) {
        convoy_xfer_send_withdraw(engine, entry);
    }
    entry->users--;
}

static void release_entry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    bool is_ended = convoy_xfer_state_is_end(entry->state);
    entry->is_released = true;
    bool is_used = entry->users != 0 && entry->kind != CONVOY_XFER_SLOT; /* of a slot they are copies, which end by themselves */
    if (!is_ended && entry->kind != CONVOY_XFER_SEND && !is_used) {
        abort_entry(engine, entry, "released before its end");
    }
    if (entry->kind == CONVOY_XFER_STAGE && entry->state == CONVOY_TRANSFER_STAGED) {
        convoy_xfer_stage_let_go(engine, entry);
    }
    if (entry->kind == CONVOY_XFER_LOAD && !entry->is_copying) {
        convoy_xfer_load_give_back(engine, entry);
    }
    convoy_xfer_entry_settle(engine, entry);
}

int32_t convoy_xfer_release(struct convoy_xfer *engine, convoy_transfer transfer, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, transfer, error);
    int32_t status = entry != NULL ? CONVOY_OK : CONVOY_CLOSED;
    if (entry != NULL && entry->is_released) {
        status = convoy_error_set(error, CONVOY_CLOSED, "the transfer was released before");
    } else if (entry != NULL) {
        release_entry(engine, entry);
        convoy_xfer_wake(engine);
    }
    convoy_xfer_unlock(engine);
    return status;
}

int32_t convoy_xfer_abort(struct convoy_xfer *engine, convoy_transfer transfer, const char *reason, size_t length,
                          struct convoy_error *error)
{
    char text[128] = "aborted";
    if (reason != NULL && length != 0) {
        size_t kept = length < 120 ? length : 120;
        memcpy(text, reason, kept);
        text[kept] = '\0';
    }
    convoy_xfer_lock(engine);
    struct convoy_xfer_entry *entry = convoy_xfer_entry_find(engine, transfer, error);
    if (entry != NULL) {
        abort_entry(engine, entry, text);
        convoy_xfer_entry_settle(engine, entry);
    }
    convoy_xfer_unlock(engine);
    return entry != NULL ? CONVOY_OK : CONVOY_CLOSED;
}

/* -- asking -------------------------------------------------------------------------------------------------------- */

static const struct convoy_xfer_entry *find_request(const struct convoy_xfer *engine, uint64_t digest, uint32_t attempt)
{
    const struct convoy_xfer_entry *found = NULL;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        if (entry->digest == digest && !entry->is_accepting && (attempt == 0 || entry->attempt == attempt) &&
            !(entry->is_hidden && entry->kind == CONVOY_XFER_STAGE) &&
            (found == NULL || entry->attempt >= found->attempt)) {
            found = entry;
        }
    }
    return found;
}

/* Whether this side may still read or write memory for it. */
static bool is_drained(const struct convoy_xfer_entry *entry)
{
    return !entry->is_copying && !entry->is_lent && convoy_xfer_state_is_end(entry->state);
}

void convoy_xfer_on_query(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ask *ask)
{
    const struct convoy_xfer_entry *entry = find_request(engine, ask->digest, ask->attempt);
    struct convoy_xfer_notice answer = {.type = CONVOY_SAY_ANSWER};
    answer.body.reply = (struct convoy_reply){
        .cookie = ask->cookie,
        .status = entry != NULL ? entry->status : CONVOY_NOT_FOUND,
        .state = entry != NULL ? entry->state : 0,
        .attempt = entry != NULL ? entry->attempt : 0,
        .is_drained = entry == NULL || is_drained(entry),
    };
    convoy_xfer_say(engine, peer, &answer);
}

static void answer_here(const struct convoy_xfer *engine, const struct convoy_transfer_query *query, uint64_t digest,
                        struct convoy_transfer_answer *answer_out)
{
    const struct convoy_xfer_entry *entry = find_request(engine, digest, query->attempt);
    answer_out->status = entry != NULL ? entry->status : CONVOY_NOT_FOUND;
    answer_out->state = entry != NULL ? entry->state : 0;
    answer_out->attempt = entry != NULL ? entry->attempt : 0;
    answer_out->is_drained = entry == NULL || is_drained(entry);
    answer_out->transfer = entry != NULL && !entry->is_hidden ? convoy_xfer_entry_handle(entry) : 0;
}

static int32_t answer_there(struct convoy_xfer *engine, const struct convoy_transfer_query *query, uint64_t digest,
                            uint64_t timeout_ns, struct convoy_transfer_answer *answer_out, struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = convoy_xfer_peer_find(engine, query->peer, error);
    struct convoy_xfer_order order = {.peer = (uint32_t)query->peer - 1, .digest = digest, .attempt = query->attempt};
    if (peer == NULL) {
        return CONVOY_CLOSED;
    }
    convoy_xfer_order_add(engine, &order);
    convoy_xfer_order_again(engine, &order);
    int32_t status = convoy_xfer_order_wait(engine, &order, convoy_xfer_order_deadline(engine, timeout_ns), error);
    if (status == CONVOY_OK) {
        answer_out->status = order.reply.status;
        answer_out->state = order.reply.state < CONVOY_XFER_STATES ? order.reply.state : 0;
        answer_out->attempt = order.reply.attempt;
        answer_out->is_drained = order.reply.is_drained;
    }
    return status;
}

int32_t convoy_xfer_query(struct convoy_xfer *engine, const struct convoy_transfer_query *query, uint64_t timeout_ns,
                          struct convoy_transfer_answer *answer_out, struct convoy_error *error)
{
    if (query->request == NULL || query->request_length == 0 || query->request_length > CONVOY_REQUEST_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "query.request of %zu bytes, allowed are 1 to %u",
                                query->request == NULL ? 0 : query->request_length, CONVOY_REQUEST_BYTES);
    }
    uint64_t digest = convoy_request_digest(query->request, query->request_length);
    convoy_xfer_lock(engine);
    convoy_xfer_pump(engine); /* may give the lock up */
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK && query->peer == 0) {
        answer_here(engine, query, digest, answer_out);
    } else if (status == CONVOY_OK) {
        status = answer_there(engine, query, digest, timeout_ns, answer_out, error);
    }
    convoy_xfer_unlock(engine);
    return status;
}
