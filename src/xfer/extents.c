/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/extents.h"

#include "core/fault.h"
#include "core/memory.h"

#include <string.h>

#define ROOM_FIRST 16u

static bool grow(struct convoy_extents *extents, uint64_t count)
{
    uint64_t room = extents->room != 0 ? extents->room : ROOM_FIRST;
    while (room < count) {
        room *= 2;
    }
    if (room == extents->room) {
        return true;
    }
    struct convoy_extent *grown = convoy_memory_array(room, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    if (extents->count != 0) {
        memcpy(grown, extents->all, extents->count * sizeof *grown);
    }
    convoy_memory_free(extents->all);
    extents->all = grown;
    extents->room = (uint32_t)room;
    return true;
}

/* The first one that ends at `at` or behind it. */
static uint32_t find(const struct convoy_extents *extents, uint64_t at)
{
    uint32_t low = 0;
    uint32_t high = extents->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (extents->all[middle].to < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Behind the last one of those that are written already, or into it. */
static uint32_t put(struct convoy_extent *all, uint32_t first, uint32_t written, struct convoy_extent next)
{
    bool is_beside = written != first && next.from <= all[written - 1].to;
    if (is_beside && !CONVOY_MUTATED(written_bytes_added)) {
        all[written - 1].to = next.to > all[written - 1].to ? next.to : all[written - 1].to;
        return written;
    }
    all[written] = next;
    return written + 1;
}

bool convoy_extents_add(struct convoy_extents *extents, const struct convoy_extent *parts, uint32_t count)
{
    if (count == 0) {
        return true;
    }
    if (!grow(extents, (uint64_t)extents->count + count)) {
        return false;
    }
    /* What may change moves up, out of the way of what is written from there on: one write, one read at the least. */
    struct convoy_extent *all = extents->all;
    uint32_t first = find(extents, parts[0].from);
    uint32_t end = extents->count + count;
    uint32_t old = first + count;
    uint32_t written = first;
    memmove(&all[old], &all[first], (extents->count - first) * sizeof *all);
    for (uint32_t i = 0; i < count || old < end;) {
        bool is_old = i == count || (old < end && all[old].from <= parts[i].from);
        struct convoy_extent next = is_old ? all[old++] : parts[i++];
        if (next.from < next.to) {
            written = put(all, first, written, next);
        }
    }
    extents->count = written <= CONVOY_EXTENTS_MAX ? written : CONVOY_EXTENTS_MAX;
    return written <= CONVOY_EXTENTS_MAX;
}

bool convoy_extents_cover(const struct convoy_extents *extents, uint64_t bytes)
{
    if (CONVOY_MUTATED(written_bytes_added)) {
        return convoy_extents_bytes(extents) >= bytes;
    }
    return bytes == 0 || (extents->count != 0 && extents->all[0].from == 0 && extents->all[0].to >= bytes);
}

uint64_t convoy_extents_bytes(const struct convoy_extents *extents)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < extents->count; i++) {
        bytes += extents->all[i].to - extents->all[i].from;
    }
    return bytes;
}

void convoy_extents_move(struct convoy_extents *from, struct convoy_extents *to)
{
    struct convoy_extents other = *to;
    *to = *from;
    *from = other;
    from->count = 0;
}

void convoy_extents_free(struct convoy_extents *extents)
{
    convoy_memory_free(extents->all);
    *extents = (struct convoy_extents){0};
}
