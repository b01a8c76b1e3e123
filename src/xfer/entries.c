/* SPDX-License-Identifier: Apache-2.0 */
/* The table of transfers: handles, states, ends, and when an entry is free again. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRY_STEP_MIN_NS UINT64_C(1000000)
#define RETRIES_DEFAULT 2u

convoy_transfer convoy_xfer_entry_handle(const struct convoy_xfer_entry *entry)
{
    return (uint64_t)entry->generation << 32 | (entry->index + 1);
}

struct convoy_xfer_entry *convoy_xfer_entry_find(struct convoy_xfer *engine, convoy_transfer transfer,
                                                 struct convoy_error *error)
{
    uint32_t number = (uint32_t)transfer;
    struct convoy_xfer_entry *entry = number - 1 < engine->entry_top ? &engine->entries[number - 1] : NULL;
    if (entry == NULL || entry->kind == CONVOY_XFER_NONE || entry->generation != transfer >> 32) {
        (void)convoy_error_set(error, CONVOY_CLOSED, "transfer 0x%" PRIx64 " was released, or never was one", transfer);
        return NULL;
    }
    return entry;
}

void convoy_xfer_timer(struct convoy_xfer *engine, uint64_t at_ns)
{
    engine->timer_ns = at_ns < engine->timer_ns ? at_ns : engine->timer_ns;
    if (engine->is_progress_asleep && at_ns < engine->progress_until_ns) { /* it would sleep past it */
        engine->is_progress_asleep = false;
        convoy_xfer_kick(engine);
    }
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

/* Memory that an entry keeps for whoever uses it next. */
struct kept {
    uint8_t *room;
    size_t room_bytes;
    struct convoy_manifest_room manifest_room;
    struct convoy_tensor_piece *pieces;
    struct convoy_extents written;
    uint32_t piece_room;
    uint32_t generation;
    uint32_t index;
    struct convoy_copy_piece *device_pieces;
    size_t device_piece_room;
};

static void reset(struct convoy_xfer_entry *entry)
{
    const struct kept kept = {
        .room = entry->room,
        .room_bytes = entry->room_bytes,
        .manifest_room = entry->manifest_room,
        .pieces = entry->pieces,
        .written = {.all = entry->written.all, .room = entry->written.room},
        .piece_room = entry->piece_room,
        .generation = entry->generation,
        .index = entry->index,
        .device_pieces = entry->device_pieces,
        .device_piece_room = entry->device_piece_room,
    };
    memset(entry, 0, offsetof(struct convoy_xfer_entry, error));
    entry->error.status = CONVOY_OK;
    entry->request_length = 0;
    entry->room = kept.room;
    entry->room_bytes = kept.room_bytes;
    entry->manifest_room = kept.manifest_room;
    entry->pieces = kept.pieces;
    entry->written = kept.written;
    entry->piece_room = kept.piece_room;
    entry->generation = kept.generation;
    entry->index = kept.index;
    entry->device_pieces = kept.device_pieces;
    entry->device_piece_room = kept.device_piece_room;
    entry->peer = entry->source = CONVOY_XFER_NOBODY;
    entry->next = entry->before = entry->next_job = entry->next_ended = CONVOY_XFER_NOBODY;
    entry->device.next = CONVOY_XFER_NOBODY;
    entry->deadline_ns = entry->retry_ns = CONVOY_DEADLINE_NEVER;
}

static void link_active(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    entry->before = engine->active_last;
    entry->next = CONVOY_XFER_NOBODY;
    if (engine->active_last != CONVOY_XFER_NOBODY) {
        engine->entries[engine->active_last].next = entry->index;
    } else {
        engine->active_first = entry->index;
    }
    engine->active_last = entry->index;
}

static void unlink_active(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->before != CONVOY_XFER_NOBODY) {
        engine->entries[entry->before].next = entry->next;
    } else {
        engine->active_first = entry->next;
    }
    if (entry->next != CONVOY_XFER_NOBODY) {
        engine->entries[entry->next].before = entry->before;
    } else {
        engine->active_last = entry->before;
    }
}

/* The one that was freed last, else one that was never used: a table that is larger than what is used of it costs nothing. */
static struct convoy_xfer_entry *take_free(struct convoy_xfer *engine)
{
    uint32_t index = engine->free_first;
    if (index != CONVOY_XFER_NOBODY) {
        engine->free_first = engine->entries[index].next;
        return &engine->entries[index];
    }
    if (engine->entry_top == engine->entry_count) {
        return NULL;
    }
    index = engine->entry_top++;
    engine->entries[index].index = index;
    return &engine->entries[index];
}

struct convoy_xfer_entry *convoy_xfer_entry_new(struct convoy_xfer *engine, enum convoy_xfer_kind kind,
                                                struct convoy_error *error)
{
    struct convoy_xfer_entry *entry = take_free(engine);
    if (entry == NULL) {
        (void)convoy_error_set(error, CONVOY_LIMIT, "%u transfers are not released, allowed are %u: option transfer_max",
                               engine->used_count, engine->entry_count);
        return NULL;
    }
    engine->used_count++;
    reset(entry);
    entry->kind = kind;
    entry->generation++;
    entry->generation += entry->generation == 0;
    entry->state = convoy_xfer_state_first(kind);
    entry->status = CONVOY_IN_PROGRESS;
    entry->attempt = 1;
    entry->times_ns[CONVOY_TIME_STARTED] = convoy_now_ns();
    link_active(engine, entry);
    return entry;
}

void convoy_xfer_entry_name(struct convoy_xfer_entry *entry, const char *request, size_t length, uint32_t attempt)
{
    memcpy(entry->request, request, length);
    entry->request[length] = '\0';
    entry->request_length = (uint32_t)length;
    entry->attempt = attempt;
    entry->digest = convoy_request_digest(request, length);
}

void convoy_xfer_entry_bind(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t peer)
{
    entry->peer = peer;
    engine->peers[peer].entries++;
}

/* -- completions --------------------------------------------------------------------------------------------------- */

static void notify(struct convoy_xfer *engine)
{
    const uint64_t one = 1;
    if (engine->notify_fd >= 0 && !engine->is_notified) {
        engine->is_notified = true;
        (void)!write(engine->notify_fd, &one, sizeof one);
    }
}

static void add_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->is_noted || entry->is_hidden || entry->is_owned) { /* the host has no value of these */
        return;
    }
    entry->is_noted = true;
    entry->next_ended = CONVOY_XFER_NOBODY;
    if (engine->ended_last != CONVOY_XFER_NOBODY) {
        engine->entries[engine->ended_last].next_ended = entry->index;
    } else {
        engine->ended_first = entry->index;
    }
    engine->ended_last = entry->index;
    engine->ended_count++;
    notify(engine);
}

static void drop_ended(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    uint32_t before = CONVOY_XFER_NOBODY;
    uint32_t at = engine->ended_first;
    while (at != CONVOY_XFER_NOBODY && at != entry->index) {
        before = at;
        at = engine->entries[at].next_ended;
    }
    if (at == CONVOY_XFER_NOBODY) {
        return; /* it was read */
    }
    if (before == CONVOY_XFER_NOBODY) {
        engine->ended_first = entry->next_ended;
    } else {
        engine->entries[before].next_ended = entry->next_ended;
    }
    engine->ended_last = engine->ended_last == at ? before : engine->ended_last;
    engine->ended_count--;
}

bool convoy_xfer_completion(struct convoy_xfer *engine, struct convoy_completion *completion_out)
{
    uint64_t count;
    convoy_xfer_lock(engine);
    if (engine->ended_first == CONVOY_XFER_NOBODY) {
        convoy_xfer_pump(engine);
    }
    bool is_there = engine->ended_first != CONVOY_XFER_NOBODY;
    if (is_there) {
        const struct convoy_xfer_entry *entry = &engine->entries[engine->ended_first];
        *completion_out = (struct convoy_completion){
            .transfer = convoy_xfer_entry_handle(entry), .status = entry->status, .state = entry->state};
        if (!CONVOY_MUTATED(completion_told_again)) {
            drop_ended(engine, entry);
        }
    }
    if (engine->ended_first == CONVOY_XFER_NOBODY && engine->is_notified) {
        engine->is_notified = false;
        (void)!read(engine->notify_fd, &count, sizeof count);
    }
    convoy_xfer_unlock(engine);
    return is_there;
}

/* -- states -------------------------------------------------------------------------------------------------------- */

static void count_end(struct convoy_xfer *engine, uint32_t state)
{
    static const uint8_t counters[CONVOY_XFER_STATES] = {
        [CONVOY_TRANSFER_STAGED] = CONVOY_XFER_COUNT_staged + 1, [CONVOY_TRANSFER_SENT] = CONVOY_XFER_COUNT_sent + 1,
        [CONVOY_TRANSFER_LOADED] = CONVOY_XFER_COUNT_loaded + 1, [CONVOY_TRANSFER_FAILED] = CONVOY_XFER_COUNT_failed + 1,
        [CONVOY_TRANSFER_ABORTED] = CONVOY_XFER_COUNT_aborted + 1};
    if (counters[state] != 0) {
        engine->counters[counters[state] - 1]++;
    }
}

/* What an end of one means for others. */
static void ended(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    bool is_good = entry->status == CONVOY_OK;
    switch (entry->kind) {
    case CONVOY_XFER_STAGE:
        if (!is_good) {
            if (entry->note.address != NULL) {
                atomic_store_explicit(convoy_xfer_stage_mark(entry), CONVOY_MARK_FAILED, memory_order_release);
            }
            convoy_xfer_stage_retire(engine, entry, entry->state == CONVOY_TRANSFER_ABORTED ? CONVOY_LEASE_END_ABORTED
                                                                                          : CONVOY_LEASE_END_EXPIRED);
        }
        for (uint32_t at = engine->active_first; entry->users != 0 && at != CONVOY_XFER_NOBODY;) {
            struct convoy_xfer_entry *send = &engine->entries[at];
            at = send->next;
            if (send->source == entry->index && send->state == CONVOY_TRANSFER_QUEUED) {
                convoy_xfer_send_advance(engine, send);
            } else if (send->source == entry->index && entry->is_followed && send->kind == CONVOY_XFER_SEND) {
                convoy_far_source_ended(engine, send);
            } else if (send->source == entry->index && send->state == CONVOY_TRANSFER_OFFERED &&
                       send->reference == CONVOY_REFERENCE_WRITE && is_good) {
                convoy_xfer_send_staged(engine, send);
            }
        }
        break;
    case CONVOY_XFER_SEND:
        if (entry->is_lent) {
            engine->peers[entry->peer].lane->send_ended(engine, entry);
        }
        if (entry->source != CONVOY_XFER_NOBODY && engine->entries[entry->source].is_owned) {
            struct convoy_xfer_entry *stage = &engine->entries[entry->source];
            stage->is_released = true;
            if (!convoy_xfer_state_is_end(stage->state)) { /* nobody waits for it any more */
                convoy_xfer_entry_fail(engine, stage, CONVOY_TRANSFER_ABORTED, CONVOY_CANCELED, "its send is over");
            }
            convoy_xfer_stage_retire(engine, stage, CONVOY_LEASE_END_RELEASED);
        }
        break;
    case CONVOY_XFER_LOAD:
        convoy_xfer_load_ended(engine, entry);
        break;
    case CONVOY_XFER_SLOT:
    case CONVOY_XFER_NONE:
    case CONVOY_XFER_KINDS:
        break;
    }
}

bool convoy_xfer_entry_move(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t state)
{
    if (!convoy_xfer_state_may(entry->state, state)) {
        return false;
    }
    entry->state = state;
    convoy_xfer_admission_moved(engine, entry);
    if (!convoy_xfer_state_is_end(state)) {
        return true;
    }
    if (state != CONVOY_TRANSFER_FAILED && state != CONVOY_TRANSFER_ABORTED) {
        entry->status = CONVOY_OK;
    }
    count_end(engine, state);
    convoy_xfer_record(engine, entry);
    add_ended(engine, entry);
    ended(engine, entry);
    convoy_xfer_wake(engine);
    return true;
}

uint32_t convoy_xfer_retries(uint32_t asked)
{
    uint32_t wanted = asked != 0 ? asked : RETRIES_DEFAULT;
    return asked != CONVOY_RETRIES_NONE ? wanted : 0;
}

uint64_t convoy_xfer_retry_step(uint64_t left_ns, uint32_t retries)
{
    uint64_t step = left_ns / ((uint64_t)retries + 1);
    return step > RETRY_STEP_MIN_NS ? step : RETRY_STEP_MIN_NS;
}

void convoy_xfer_entry_fail(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint32_t state,
                            int32_t status, const char *format, ...)
{
    if (!convoy_xfer_state_may(entry->state, state)) {
        return;
    }
    char text[CONVOY_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    entry->status = status;
    entry->error = (struct convoy_error)CONVOY_ERROR_INIT;
    if (entry->request_length != 0) {
        (void)convoy_error_set(&entry->error, status, "request %s attempt %u: %s", entry->request, entry->attempt, text);
    } else {
        (void)convoy_error_set(&entry->error, status, "any request: %s", text); /* an accept that nothing has come for */
    }
    entry->deadline_ns = entry->retry_ns = CONVOY_DEADLINE_NEVER;
    (void)convoy_xfer_entry_move(engine, entry, state);
    convoy_xfer_entry_settle(engine, entry);
}

/* -- freeing ------------------------------------------------------------------------------------------------------- */

static void free_kept(struct convoy_xfer_entry *entry)
{
    for (uint32_t i = 0; i < entry->kept_count; i++) {
        convoy_memory_free(entry->kept[i]);
    }
    convoy_memory_free(entry->kept);
    entry->kept = NULL;
    entry->kept_count = 0;
}

static void free_parts(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->kept != NULL) {
        free_kept(entry);
    }
    if (entry->kind == CONVOY_XFER_STAGE) {
        convoy_xfer_stage_retire(engine, entry, CONVOY_LEASE_END_RELEASED);
        if (entry->note.lease != CONVOY_LEASE_NONE) {
            (void)convoy_pool_retire(engine->notes, entry->note.lease, CONVOY_LEASE_END_RELEASED, NULL);
        }
    } else if (entry->kind == CONVOY_XFER_SLOT || entry->slot_id != 0) {
        convoy_xfer_slot_released(engine, entry);
    } else if (entry->kind == CONVOY_XFER_LOAD && entry->slot.lease != CONVOY_LEASE_NONE) { /* a send's is its stage's */
        (void)convoy_pool_retire(engine->pool, entry->slot.lease, CONVOY_LEASE_END_RELEASED, NULL);
    }
    if (engine->device != NULL) {
        convoy_xfer_device_let_go(engine, entry);
    }
    if (entry->view != NULL) {
        convoy_view_put(entry->view);
    }
    if (entry->storage != NULL) { /* of JSON */
        convoy_memory_free(entry->storage);
        convoy_manifest_destroy(entry->given);
    }
    entry->storage = NULL;
    entry->given = NULL;
    entry->view = NULL;
    entry->descriptor.manifest = NULL;
}

void convoy_xfer_entry_drop(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->kind != CONVOY_XFER_NONE && !entry->device.is_lost) {
        free_parts(engine, entry);
        entry->kind = CONVOY_XFER_NONE;
    }
}

void convoy_xfer_entry_settle(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->kind == CONVOY_XFER_NONE || !(entry->is_released || entry->is_hidden) ||
        !convoy_xfer_state_is_end(entry->state) || entry->is_copying || entry->is_queued || entry->users != 0 ||
        entry->is_lent) {
        return;
    }
    if (entry->kind == CONVOY_XFER_STAGE && entry->state == CONVOY_TRANSFER_STAGED && !entry->is_released) {
        return;
    }
    uint32_t source = entry->source;
    uint32_t peer = entry->peer;
    if (entry->is_noted) {
        drop_ended(engine, entry);
    }
    free_parts(engine, entry);
    unlink_active(engine, entry);
    entry->kind = CONVOY_XFER_NONE;
    entry->next = engine->free_first;
    engine->free_first = entry->index;
    engine->used_count--;
    CONVOY_XFER_NOTE(engine, released);
    if (peer != CONVOY_XFER_NOBODY) {
        engine->peers[peer].entries--;
        convoy_xfer_peer_free(engine, &engine->peers[peer]);
    }
    if (source != CONVOY_XFER_NOBODY) {
        engine->entries[source].users--;
        convoy_xfer_entry_settle(engine, &engine->entries[source]);
    }
}
