/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer has ordered: what its parts go to, that this is held meanwhile, and the copies outside of the lock. */
#include "core/copy.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/raw.h"

#include <string.h>

#define COPIES_KEPT 4u
#define ARRAY_FIRST 16u

/* -- memory -------------------------------------------------------------------------------------------------------- */

static void destroy(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    engine->copy_room_bytes -= copy->room_bytes;
    convoy_memory_free(copy->pieces);
    convoy_memory_free(copy->targets);
    convoy_memory_free(copy->extents);
    convoy_memory_free(copy->room);
    convoy_memory_free(copy);
}

static bool grow(struct convoy_raw_copy *copy, uint32_t count)
{
    uint32_t room = ARRAY_FIRST;
    while (room < count) {
        room *= 2;
    }
    if (room <= copy->room_count) {
        return true;
    }
    convoy_memory_free(copy->pieces);
    convoy_memory_free(copy->targets);
    convoy_memory_free(copy->extents);
    copy->pieces = convoy_memory_array(room, sizeof *copy->pieces);
    copy->targets = convoy_memory_array(room, sizeof *copy->targets);
    copy->extents = convoy_memory_array(room, sizeof *copy->extents);
    bool is_there = copy->pieces != NULL && copy->targets != NULL && copy->extents != NULL;
    copy->room_count = is_there ? room : 0;
    return is_there;
}

static bool grow_room(struct convoy_xfer *engine, struct convoy_raw_copy *copy, uint64_t bytes)
{
    if (bytes <= copy->room_bytes) {
        return true;
    }
    uint8_t *room = convoy_memory_zalloc(bytes);
    if (room == NULL) {
        return false;
    }
    convoy_memory_free(copy->room);
    engine->copy_room_bytes += bytes - copy->room_bytes;
    copy->room = room;
    copy->room_bytes = bytes;
    return true;
}

struct convoy_raw_copy *convoy_raw_copy_take(struct convoy_xfer *engine, uint32_t count, uint64_t room_bytes)
{
    struct convoy_raw_copy *copy = engine->copies_free;
    if (copy != NULL) {
        engine->copies_free = copy->next;
        engine->copy_free_count--;
    } else {
        copy = convoy_memory_zalloc(sizeof *copy);
    }
    if (copy == NULL) {
        return NULL;
    }
    if (!grow(copy, count) || !grow_room(engine, copy, room_bytes)) {
        destroy(engine, copy);
        return NULL;
    }
    copy->next = NULL;
    copy->is_running = false;
    copy->view = NULL;
    copy->count = copy->target_count = 0;
    copy->list_bytes = copy->bytes = 0;
    return copy;
}

void convoy_raw_copy_put(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    if (engine->copy_free_count >= COPIES_KEPT) {
        destroy(engine, copy);
        return;
    }
    copy->next = engine->copies_free;
    engine->copies_free = copy;
    engine->copy_free_count++;
}

/* -- where parts go ------------------------------------------------------------------------------------------------ */

static void set_slot(const struct convoy_xfer *engine, const struct convoy_slot *slot, struct convoy_raw_target *out)
{
    out->slot = *slot;
    out->from = (uint64_t)(uintptr_t)slot->address;
    out->to = out->from + slot->bytes;
    out->is_alone = !convoy_xfer_range_touches(engine, out->from, slot->bytes);
}

static void set_range(const struct convoy_xfer *engine, const struct convoy_xfer_range *range, struct convoy_raw_target *out)
{
    out->from = (uint64_t)(uintptr_t)range->memory;
    out->to = out->from + range->bytes;
    out->is_alone = !convoy_pool_touches(engine->pool, range->memory, range->bytes);
}

int32_t convoy_raw_resolve(struct convoy_xfer *engine, uint64_t address, uint64_t bytes, struct convoy_raw_target *target_out)
{
    struct convoy_slot slot;
    bool is_slot = convoy_pool_find(engine->pool, (const void *)(uintptr_t)address, bytes, &slot, NULL) == CONVOY_OK &&
                   convoy_xfer_slot_is_open(engine, slot.lease);
    const struct convoy_xfer_range *range = convoy_xfer_range_find(engine, address, bytes);
    *target_out = (struct convoy_raw_target){.slot = {.lease = CONVOY_LEASE_NONE}, .from = address, .to = address + bytes};
    if (is_slot == (range != NULL) && !CONVOY_MUTATED(any_target_taken)) {
        return CONVOY_NOT_FOUND;
    }
    if (is_slot) {
        set_slot(engine, &slot, target_out);
    } else if (range != NULL) {
        set_range(engine, range, target_out);
    }
    return CONVOY_OK;
}

static bool is_same(const struct convoy_raw_target *one, const struct convoy_raw_target *other)
{
    return one->slot.lease == other->slot.lease && one->from == other->from && one->to == other->to;
}

/* The target of a part, among those that there are already or as a new one; the last one is most often the one. */
static int32_t find_target(struct convoy_xfer *engine, struct convoy_raw_copy *copy, const struct convoy_raw_part *part,
                           uint32_t *where_out)
{
    const struct convoy_raw_target *last = copy->target_count != 0 ? &copy->targets[copy->target_count - 1] : NULL;
    struct convoy_raw_target *next = &copy->targets[copy->target_count];
    if (last != NULL && last->is_alone && part->target >= last->from && part->target + part->bytes <= last->to) {
        *where_out = copy->target_count - 1;
        return CONVOY_OK;
    }
    int32_t status = convoy_raw_resolve(engine, part->target, part->bytes, next);
    if (status != CONVOY_OK) {
        return status;
    }
    for (uint32_t i = copy->target_count; i-- > 0;) {
        if (is_same(&copy->targets[i], next)) {
            *where_out = i;
            return CONVOY_OK;
        }
    }
    *where_out = copy->target_count++;
    return CONVOY_OK;
}

int32_t convoy_raw_copy_add(struct convoy_xfer *engine, struct convoy_raw_copy *copy, const struct convoy_raw_part *part)
{
    bool is_readable = copy->view != NULL ? convoy_view_has(copy->view, part->offset, part->bytes)
                                          : part->bytes <= copy->bytes && part->offset <= copy->bytes - part->bytes;
    if (copy->count != 0 && CONVOY_MUTATED(first_part_checked)) {
        copy->pieces[copy->count++] = (struct convoy_raw_piece_in){.part = *part};
        return CONVOY_OK;
    }
    if (part->bytes == 0 || !is_readable || part->target > UINT64_MAX - part->bytes) {
        return CONVOY_INVALID_ARGUMENT;
    }
    struct convoy_raw_piece_in *piece = &copy->pieces[copy->count];
    piece->part = *part;
    int32_t status = find_target(engine, copy, part, &piece->where);
    copy->count += status == CONVOY_OK;
    return status;
}

/* -- holding them -------------------------------------------------------------------------------------------------- */

static void release_target(struct convoy_xfer *engine, struct convoy_raw_target *target)
{
    if (target->slot.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_unrefer(engine->pool, target->slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL);
    } else {
        convoy_xfer_range_use(engine, target->from, false);
    }
    if (target->owner != NULL) {
        target->owner->users--;
        convoy_xfer_entry_settle(engine, target->owner);
    }
}

/* A slot's memory stays until the copy has stopped, and one that was made at open gets no next request before that. */
static bool hold_target(struct convoy_xfer *engine, struct convoy_raw_target *target)
{
    if (target->slot.lease == CONVOY_LEASE_NONE) {
        convoy_xfer_range_use(engine, target->from, true);
        return true;
    }
    if (convoy_pool_refer(engine->pool, target->slot.lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE, NULL) != CONVOY_OK) {
        return false;
    }
    target->owner = convoy_xfer_slot_owner(engine, target->slot.lease);
    if (target->owner != NULL) {
        target->owner->users++;
    }
    return true;
}

int32_t convoy_raw_copy_start(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    uint32_t held = 0;
    while (held < copy->target_count && hold_target(engine, &copy->targets[held])) {
        held++;
    }
    if (held < copy->target_count) {
        while (held-- > 0) {
            release_target(engine, &copy->targets[held]);
        }
        return CONVOY_BUSY;
    }
    if (copy->view != NULL) {
        copy->view->references++;
    }
    engine->peers[copy->peer].entries++;
    engine->copy_count++;
    struct convoy_raw_copy **last = &engine->copies;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = copy;
    if (!engine->is_progress_at_it || copy->bytes > CONVOY_XFER_INLINE_BYTES) { /* else it copies next */
        (void)pthread_cond_signal(&engine->work);
    }
    return CONVOY_OK;
}

/* Out of the list; all that it held is given back, and its memory is another order's. */
static void finish(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    struct convoy_raw_copy **at = &engine->copies;
    struct convoy_xfer_peer *peer = &engine->peers[copy->peer];
    while (*at != copy) {
        at = &(*at)->next;
    }
    *at = copy->next;
    engine->copy_count--;
    for (uint32_t i = 0; i < copy->target_count; i++) {
        release_target(engine, &copy->targets[i]);
    }
    if (copy->view != NULL) {
        convoy_view_put(copy->view);
    }
    convoy_raw_copy_put(engine, copy);
    peer->entries--;
    convoy_xfer_peer_free(engine, peer);
}

void convoy_raw_copy_cancel(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    finish(engine, copy);
}

/* -- copying ------------------------------------------------------------------------------------------------------- */

/* What came from another host. */
static void copy_room(const struct convoy_xfer *engine, const struct convoy_raw_copy *copy)
{
    for (uint32_t i = 0; i < copy->count; i++) {
        const struct convoy_raw_part *part = &copy->pieces[i].part;
        convoy_copy((void *)(uintptr_t)part->target, copy->room + copy->list_bytes + part->offset, part->bytes,
                    convoy_copy_choice_best(&engine->copy_choice, part->bytes));
    }
}

/* false: the sender's process can be read no more. */
static bool copy_view(const struct convoy_xfer *engine, const struct convoy_raw_copy *copy)
{
    struct convoy_view_part parts[CONVOY_VIEW_PARTS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < copy->count; i++) {
        const struct convoy_raw_part *part = &copy->pieces[i].part;
        parts[count++] = (struct convoy_view_part){part->offset, (void *)(uintptr_t)part->target, part->bytes};
        if (count == CONVOY_VIEW_PARTS_MAX || i + 1 == copy->count) {
            enum convoy_copy_way way = convoy_copy_choice_best(&engine->copy_choice, copy->bytes);
            if (!convoy_view_read_parts(copy->view, parts, count, way)) {
                return false;
            }
            count = 0;
        }
    }
    return true;
}

static bool copy_all(const struct convoy_xfer *engine, const struct convoy_raw_copy *copy)
{
    if (copy->view == NULL) {
        copy_room(engine, copy);
    }
    return copy->view == NULL || copy_view(engine, copy);
}

static bool is_before(const struct convoy_raw_piece_in *one, const struct convoy_raw_piece_in *other)
{
    return one->where != other->where ? one->where < other->where : one->part.target < other->part.target;
}

/* By target and address (shell sort; they mostly are already, and nothing is allocated). */
static void sort(struct convoy_raw_copy *copy)
{
    for (uint32_t gap = copy->count > 1000 ? 301 : copy->count > 57 ? 57 : copy->count > 10 ? 10 : 1; gap != 0;
         gap = gap > 57 ? 57 : gap > 10 ? 10 : gap > 1 ? 1 : 0) {
        for (uint32_t i = gap; i < copy->count; i++) {
            struct convoy_raw_piece_in moved = copy->pieces[i];
            uint32_t at = i;
            for (; at >= gap && is_before(&moved, &copy->pieces[at - gap]); at -= gap) {
                copy->pieces[at] = copy->pieces[at - gap];
            }
            copy->pieces[at] = moved;
        }
    }
}

/* What was written of each slot, in order. */
static void note_extents(struct convoy_raw_copy *copy)
{
    sort(copy);
    for (uint32_t i = 0; i < copy->count; i++) {
        const struct convoy_raw_part *part = &copy->pieces[i].part;
        struct convoy_raw_target *target = &copy->targets[copy->pieces[i].where];
        uint64_t from = part->target - target->from;
        if (target->extent_count++ == 0) {
            target->extent_first = i;
        }
        copy->extents[i] = (struct convoy_extent){from, from + part->bytes};
    }
}

static bool count_written(struct convoy_xfer *engine, const struct convoy_raw_copy *copy)
{
    bool is_kept = true;
    for (uint32_t i = 0; i < copy->target_count; i++) {
        const struct convoy_raw_target *target = &copy->targets[i];
        if (target->slot.lease != CONVOY_LEASE_NONE) {
            is_kept = convoy_xfer_slot_written(engine, &target->slot, &copy->extents[target->extent_first],
                                               target->extent_count) && is_kept;
        }
    }
    return is_kept;
}

struct convoy_raw_copy *convoy_raw_copy_next(const struct convoy_xfer *engine, uint64_t bytes_max)
{
    struct convoy_raw_copy *copy = engine->copies;
    while (copy != NULL && (copy->is_running || copy->bytes > bytes_max)) {
        copy = copy->next;
    }
    return copy;
}

void convoy_raw_copy_run(struct convoy_xfer *engine, struct convoy_raw_copy *copy)
{
    copy->is_running = true;
    engine->copying_count++;
    convoy_xfer_unlock(engine);
    CONVOY_POINT(raw_copying);
    bool is_whole = copy_all(engine, copy);
    if (is_whole) {
        note_extents(copy);
    }
    CONVOY_POINT(raw_copied);
    convoy_xfer_lock(engine);
    engine->copying_count--;
    engine->counters[CONVOY_XFER_COUNT_copied_bytes] += copy->bytes;
    int32_t status = !is_whole ? CONVOY_UNREACHABLE : count_written(engine, copy) ? CONVOY_OK : CONVOY_LIMIT;
    convoy_raw_done(engine, &engine->peers[copy->peer], copy->cookie, status);
    finish(engine, copy);
    convoy_xfer_wake(engine);
}
