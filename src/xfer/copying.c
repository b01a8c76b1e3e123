/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of payloads, outside of the lock: by the copier, or by the host thread that waits for one anyway. */
#include "core/clock.h"
#include "core/copy.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/far.h"
#include "xfer/raw.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define LOOKS_BEFORE_YIELD 64u
#define LOOKS_OF_A_TURN 2048u
#define PUSH_STEP_BYTES (1u << 20) /* what is pushed while it is staged goes in such steps */
#define FOLLOWED_USUALLY_FROM (4u << 20) /* more than stays in the caches until the reader comes */
#define WAY_BYTES_MIN 4096u /* less is always copied the plain way: the others take longer to begin */

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Element by element along the last dimension, where elements that lie side by side go together. */
static void copy_row(uint8_t *to, const uint8_t *from, uint64_t count, int64_t stride, uint32_t item)
{
    if (stride == (int64_t)item) {
        memcpy(to, from, count * item);
        return;
    }
    for (uint64_t i = 0; i < count; i++, to += item, from += stride) {
        memcpy(to, from, item);
    }
}

bool convoy_copy_is_reachable(const struct convoy_tensor_piece *piece)
{
    int64_t reach[2] = {0, 0}; /* above where it begins, and below */
    for (uint32_t d = 0; d < piece->rank; d++) {
        int64_t way;
        int64_t *side = &reach[piece->strides[d] < 0];
        if (piece->shape[d] > 1 && (__builtin_mul_overflow(piece->strides[d], (int64_t)piece->shape[d], &way) ||
                                    __builtin_add_overflow(*side, way, side))) {
            return false;
        }
    }
    return -(uint64_t)reach[1] <= (uintptr_t)piece->from && (uint64_t)reach[0] <= UINT64_MAX - (uintptr_t)piece->from;
}

void convoy_copy_strided(uint8_t *to, const struct convoy_tensor_piece *piece)
{
    uint64_t at[CONVOY_MANIFEST_RANK_MAX] = {0};
    uint32_t last = piece->rank - 1;
    uint64_t row = piece->shape[last];
    const uint8_t *from = piece->from;
    for (uint64_t done = 0; done < piece->bytes; done += row * piece->item) {
        copy_row(to + done, from, row, piece->strides[last], piece->item);
        for (uint32_t d = last; d-- > 0;) { /* the next row: count up from the last but one dimension */
            from += piece->strides[d];
            if (++at[d] < piece->shape[d]) {
                break;
            }
            from -= piece->strides[d] * (int64_t)piece->shape[d];
            at[d] = 0;
        }
    }
}

/* What lies behind a tensor is never given away with another owner's bytes in it. Returns where the next one starts. */
uint64_t convoy_copy_clear_gap(uint8_t *slot, uint64_t end, uint64_t payload_bytes)
{
    uint64_t next = (end + CONVOY_MANIFEST_ALIGNMENT - 1) / CONVOY_MANIFEST_ALIGNMENT * CONVOY_MANIFEST_ALIGNMENT;
    next = next < payload_bytes ? next : payload_bytes;
    if (end < next) {
        memset(slot + end, 0, next - end);
    }
    return next;
}

/* Moves the mark, and what is pushed as far as that, once it is worth it: the swap waits until all that was written has come
 * out of the processor. false: the stage was given up meanwhile, nobody needs the rest. */
static bool mark(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t *before, uint64_t now)
{
    if (now - *before < CONVOY_XFER_CHUNK_BYTES) {
        return true;
    }
    bool is_step = now / PUSH_STEP_BYTES != *before / PUSH_STEP_BYTES;
    bool is_wanted = atomic_compare_exchange_strong_explicit(convoy_xfer_stage_mark(entry), before, now,
                                                             memory_order_release, memory_order_relaxed);
    *before = is_wanted ? now : *before;
    if (is_wanted && entry->is_followed && is_step) {
        convoy_far_staged(engine);
    }
    return is_wanted;
}

/* One tensor in chunks, so that a reader can follow. false: given up. */
static bool copy_dense(struct convoy_xfer *engine, struct convoy_xfer_entry *entry,
                       const struct convoy_tensor_piece *piece, enum convoy_copy_way way, uint64_t *marked)
{
    uint8_t *to = (uint8_t *)entry->slot.address + piece->to;
    for (uint64_t done = 0; done < piece->bytes;) {
        uint64_t left = piece->bytes - done;
        uint64_t bytes = left < CONVOY_XFER_CHUNK_BYTES ? left : CONVOY_XFER_CHUNK_BYTES;
        convoy_copy(to + done, piece->from + done, bytes, bytes < WAY_BYTES_MIN ? CONVOY_COPY_PLAIN : way);
        done += bytes;
        if (done < piece->bytes && !mark(engine, entry, marked, piece->to + done)) {
            return false;
        }
    }
    return true;
}

/* false: given up. */
static bool copy_pieces(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, enum convoy_copy_way way)
{
    uint8_t *slot = entry->slot.address;
    uint64_t marked = 0;
    for (uint32_t i = 0; i < entry->piece_count; i++) {
        const struct convoy_tensor_piece *piece = &entry->pieces[i];
        if (piece->bytes == 0) {
            continue;
        }
        if (piece->rank != 0) {
            convoy_copy_strided(slot + piece->to, piece);
        } else if (!copy_dense(engine, entry, piece, way, &marked)) {
            return false;
        }
        uint64_t end = convoy_copy_clear_gap(slot, piece->to + piece->bytes, entry->payload_bytes);
        bool is_last = i + 1 == entry->piece_count; /* the last mark is the state's */
        if (!is_last && !mark(engine, entry, &marked, end)) {
            return false;
        }
    }
    return true;
}

/* Copies element by element say nothing of how fast whole ones are. */
static bool is_dense(const struct convoy_xfer_entry *entry)
{
    uint32_t dense = 0;
    while (dense < entry->piece_count && entry->pieces[dense].rank == 0) {
        dense++;
    }
    return dense == entry->piece_count;
}

/* What is the fastest for this copy alone may slow down one that follows it, of which nothing is known here. */
static bool is_learnt(const struct convoy_xfer_entry *entry)
{
    return entry->payload_bytes >= CONVOY_COPY_LEARN_FROM && !entry->device.is_done &&
           !(entry->is_early && entry->payload_bytes >= FOLLOWED_USUALLY_FROM) && is_dense(entry);
}

/* All tensors of a payload go the same way, as if they were one. */
static void copy_stage(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    uint64_t began_ns = is_learnt(entry) ? convoy_now_ns() : 0;
    enum convoy_copy_way way = began_ns != 0 ? convoy_copy_choice_next(&engine->copy_choice, entry->payload_bytes)
                                             : convoy_copy_choice_usual(entry->payload_bytes);
    if (!entry->device.is_done && !copy_pieces(engine, entry, way)) {
        return;
    }
    if (began_ns != 0) {
        convoy_copy_choice_learn(&engine->copy_choice, entry->payload_bytes, way, convoy_now_ns() - began_ns);
    }
    if (entry->is_checksummed) {
        entry->checksum = XXH3_64bits(entry->slot.address, entry->payload_bytes);
    }
}

/* Where a load's bytes go: the host's destination, or the own slot; NULL for a view. */
static uint8_t *target_of(const struct convoy_xfer_entry *entry)
{
    return entry->mode == CONVOY_LOAD_VIEW || entry->is_pushed ? NULL
           : entry->destination != NULL    ? entry->destination
                                           : entry->slot.address;
}

/* How far the payload may be read now; waits a little for that to be beyond `done`. IN_PROGRESS: it is not yet, and whoever
 * waits here may be the one that something else waits for. */
static int32_t await_mark(const struct convoy_xfer_entry *entry, uint64_t done, uint64_t *ready_out)
{
    for (uint32_t looks = 1; looks < LOOKS_OF_A_TURN; looks++) {
        uint64_t ready = atomic_load_explicit(entry->mark, memory_order_acquire);
        if (ready == CONVOY_MARK_FAILED) {
            return CONVOY_PEER_ERROR;
        }
        if (ready > done) {
            *ready_out = ready < entry->payload_bytes ? ready : entry->payload_bytes; /* the sender is not believed */
            return CONVOY_OK;
        }
        if (atomic_load_explicit(&entry->must_stop, memory_order_relaxed)) {
            return CONVOY_CANCELED;
        }
        if (looks % LOOKS_BEFORE_YIELD == 0) {
            (void)sched_yield();
        }
    }
    return CONVOY_IN_PROGRESS;
}

/* Follows the sender's mark with a copy, from where it was left. */
static int32_t follow(const struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint8_t *to)
{
    enum convoy_copy_way way = convoy_copy_choice_best(&engine->copy_choice, entry->payload_bytes);
    while (entry->followed_bytes < entry->payload_bytes) {
        uint64_t done = entry->followed_bytes;
        uint64_t ready = 0;
        int32_t status = await_mark(entry, done, &ready);
        if (status != CONVOY_OK) {
            return status;
        }
        if (!convoy_view_read(entry->view, entry->offset + done, to + done, ready - done, way)) {
            return CONVOY_UNREACHABLE;
        }
        entry->followed_bytes = ready;
    }
    return CONVOY_OK;
}

/* false: the sender's process can be read no more. */
static bool copy_payload(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry, uint8_t *to)
{
    bool is_there = true;
    enum convoy_copy_way way = convoy_copy_choice_next(&engine->copy_choice, entry->payload_bytes);
    uint64_t began_ns = convoy_now_ns();
    if (entry->view == NULL) { /* from an own slot */
        convoy_copy(to, entry->payload, entry->payload_bytes, way);
    } else {
        is_there = convoy_view_read(entry->view, entry->offset, to, entry->payload_bytes, way);
    }
    if (entry->view == NULL || entry->view->pool != NULL) { /* what the kernel copies tells nothing */
        convoy_copy_choice_learn(&engine->copy_choice, entry->payload_bytes, way, convoy_now_ns() - began_ns);
    }
    return is_there;
}

static int32_t copy_load(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    uint8_t *to = target_of(entry);
    const uint8_t *read = entry->payload;
    if (entry->is_early) { /* without a checksum: its sender did not know it yet */
        return follow(engine, entry, to);
    }
    if (to != NULL && entry->payload_bytes != 0) {
        if (!copy_payload(engine, entry, to)) {
            return CONVOY_UNREACHABLE;
        }
        read = to;
    }
    bool is_intact = !entry->is_checksummed || XXH3_64bits(read, entry->payload_bytes) == entry->checksum ||
                     CONVOY_MUTATED(checksum_not_compared);
    return is_intact ? CONVOY_OK : CONVOY_MALFORMED;
}

/* -- who does it --------------------------------------------------------------------------------------------------- */

static void unlink_job(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    uint32_t before = CONVOY_XFER_NOBODY;
    for (uint32_t at = engine->job_first; at != entry->index; at = engine->entries[at].next_job) {
        before = at;
    }
    if (before == CONVOY_XFER_NOBODY) {
        engine->job_first = entry->next_job;
    } else {
        engine->entries[before].next_job = entry->next_job;
    }
    engine->job_last = engine->job_last == entry->index ? before : engine->job_last;
    entry->is_queued = false;
}

void convoy_xfer_job_drop(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->is_queued) {
        unlink_job(engine, entry);
    }
}

void convoy_xfer_job_run(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (!entry->is_queued) {
        return;
    }
    int32_t status = CONVOY_OK;
    unlink_job(engine, entry);
    entry->is_copying = true;
    engine->copying_count++;
    convoy_xfer_unlock(engine);
    if (entry->kind == CONVOY_XFER_STAGE) {
        copy_stage(engine, entry);
        CONVOY_POINT(stage_copied);
    } else {
        status = copy_load(engine, entry);
        CONVOY_POINT(load_copied);
    }
    convoy_xfer_lock(engine);
    engine->copying_count--;
    entry->is_copying = false;
    if (status == CONVOY_IN_PROGRESS && entry->state == CONVOY_TRANSFER_LOADING) { /* behind what else there is to do */
        convoy_xfer_job_add(engine, entry, entry->is_awaited);
        return;
    }
    bool has_copied = entry->kind == CONVOY_XFER_LOAD ? entry->mode != CONVOY_LOAD_VIEW : !entry->device.is_done;
    engine->counters[CONVOY_XFER_COUNT_copied_bytes] += has_copied ? entry->payload_bytes : 0;
    if (entry->kind == CONVOY_XFER_STAGE) {
        convoy_xfer_stage_copied(engine, entry);
    } else {
        convoy_xfer_load_copied(engine, entry, status);
    }
    convoy_xfer_wake(engine);
    convoy_xfer_entry_settle(engine, entry);
}

void convoy_xfer_job_add(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, bool is_awaited)
{
    entry->is_queued = true;
    entry->next_job = CONVOY_XFER_NOBODY;
    if (engine->job_last != CONVOY_XFER_NOBODY) {
        engine->entries[engine->job_last].next_job = entry->index;
    } else {
        engine->job_first = entry->index;
    }
    engine->job_last = entry->index;
    if (!is_awaited) {
        (void)pthread_cond_signal(&engine->work);
    }
}

void *convoy_xfer_copier_main(void *argument)
{
    struct convoy_xfer *engine = argument;
    convoy_xfer_lock(engine);
    while (engine->is_parked && !engine->must_stop) {
        (void)pthread_cond_wait(&engine->work, &engine->lock);
    }
    while (!engine->must_stop) {
        struct convoy_raw_copy *ordered = convoy_raw_copy_next(engine, UINT64_MAX);
        if (ordered != NULL) {
            convoy_raw_copy_run(engine, ordered);
        } else if (engine->job_first != CONVOY_XFER_NOBODY) {
            convoy_xfer_job_run(engine, &engine->entries[engine->job_first]);
        } else if (convoy_xfer_is_owing(engine)) {
            convoy_xfer_unlock(engine);
            convoy_xfer_lock(engine);
        } else {
            (void)pthread_cond_wait(&engine->work, &engine->lock);
        }
    }
    convoy_xfer_unlock(engine);
    return NULL;
}
