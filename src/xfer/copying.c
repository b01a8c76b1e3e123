/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of payloads, outside of the lock: by the copier, or by the host thread that waits for one anyway. */
#include "core/copy.h"
#include "core/memory.h"
#include "xfer/parts.h"

#include <string.h>

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

void convoy_copy_strided(uint8_t *to, const struct convoy_copy_piece *piece)
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

/* What lies between tensors is never given away with another owner's bytes in it. */
static void clear_gaps(uint8_t *slot, const struct convoy_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->count; i++) {
        uint64_t end = manifest->tensors[i].offset + manifest->tensors[i].bytes;
        uint64_t next = (end + CONVOY_MANIFEST_ALIGNMENT - 1) / CONVOY_MANIFEST_ALIGNMENT * CONVOY_MANIFEST_ALIGNMENT;
        next = next < manifest->payload_bytes ? next : manifest->payload_bytes;
        if (end < next) {
            memset(slot + end, 0, next - end);
        }
    }
}

static void copy_stage(const struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    uint8_t *slot = entry->slot.address;
    for (uint32_t i = 0; i < entry->piece_count; i++) {
        const struct convoy_copy_piece *piece = &entry->pieces[i];
        if (piece->bytes == 0) {
            continue;
        }
        if (piece->rank == 0) {
            convoy_copy(slot + piece->to, piece->from, piece->bytes, engine->stream_from);
        } else {
            convoy_copy_strided(slot + piece->to, piece);
        }
    }
    if (entry->payload_bytes != 0) {
        clear_gaps(slot, entry->descriptor.manifest);
    }
    if (entry->is_checksummed) {
        entry->checksum = XXH3_64bits(slot, entry->payload_bytes);
    }
}

/* Where a load's bytes go: the host's destination, or the own slot; NULL for a view. */
static uint8_t *target_of(const struct convoy_xfer_entry *entry)
{
    return entry->mode == CONVOY_LOAD_VIEW ? NULL
           : entry->destination != NULL    ? entry->destination
                                           : entry->slot.address;
}

static int32_t copy_load(const struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    uint8_t *to = target_of(entry);
    const uint8_t *read = entry->payload;
    if (to != NULL && entry->payload_bytes != 0) {
        if (entry->view == NULL) { /* from an own slot */
            convoy_copy(to, entry->payload, entry->payload_bytes, engine->stream_from);
        } else if (!convoy_view_read(entry->view, entry->offset, to, entry->payload_bytes, engine->stream_from)) {
            return CONVOY_UNREACHABLE;
        }
        read = to;
    }
    bool is_intact = !entry->is_checksummed || XXH3_64bits(read, entry->payload_bytes) == entry->checksum;
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
    } else {
        status = copy_load(engine, entry);
    }
    convoy_xfer_lock(engine);
    engine->copying_count--;
    entry->is_copying = false;
    engine->counters[CONVOY_XFER_COUNT_copied_bytes] += entry->mode == CONVOY_LOAD_VIEW && entry->kind == CONVOY_XFER_LOAD
                                                            ? 0
                                                            : entry->payload_bytes;
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
    while (!engine->must_stop) {
        if (engine->copies != NULL) {
            convoy_xfer_copy_run(engine);
        } else if (engine->job_first != CONVOY_XFER_NOBODY) {
            convoy_xfer_job_run(engine, &engine->entries[engine->job_first]);
        } else {
            (void)pthread_cond_wait(&engine->work, &engine->lock);
        }
    }
    convoy_xfer_unlock(engine);
    return NULL;
}
