/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/decided.h"

#include "convoy/base.h"
#include "core/fault.h"

#include <assert.h>
#include <string.h>

#define NO_ENTRY UINT32_MAX

static uint32_t slot_mask(const struct convoy_decided *decided)
{
    return 2 * decided->capacity - 1;
}

static uint32_t slot_home(const struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation)
{
    uint64_t hash = (key ^ ((uint64_t)generation << 32 | list)) * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(hash >> 32) & slot_mask(decided);
}

void convoy_decided_place(struct convoy_decided *decided, uint32_t capacity, struct convoy_memory_plan *plan)
{
    memset(decided, 0, sizeof *decided);
    decided->capacity = 1;
    while (decided->capacity < capacity) {
        decided->capacity *= 2;
    }
    decided->newest = decided->oldest = NO_ENTRY;
    decided->entries = convoy_memory_place(plan, decided->capacity, sizeof *decided->entries);
    decided->slots = convoy_memory_place(plan, 2 * (size_t)decided->capacity, sizeof *decided->slots);
}

static bool entry_is(const struct convoy_decided_entry *entry, uint32_t list, uint64_t key, uint32_t generation)
{
    return entry->key == key && entry->generation == generation && entry->list == list;
}

/* Slot of the identity, or the free slot where it would go. */
static uint32_t slot_find(const struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation)
{
    uint32_t slot = slot_home(decided, list, key, generation);
    while (decided->slots[slot] != 0 && !entry_is(&decided->entries[decided->slots[slot] - 1], list, key, generation)) {
        slot = (slot + 1) & slot_mask(decided);
    }
    return slot;
}

/* Frees a slot and moves later ones of the same run forward, so that searches need no tombstones. */
static void slot_remove(struct convoy_decided *decided, uint32_t slot)
{
    uint32_t mask = slot_mask(decided);
    decided->slots[slot] = 0;
    for (uint32_t next = (slot + 1) & mask; decided->slots[next] != 0; next = (next + 1) & mask) {
        const struct convoy_decided_entry *entry = &decided->entries[decided->slots[next] - 1];
        uint32_t home = slot_home(decided, entry->list, entry->key, entry->generation);
        if (((next - home) & mask) >= ((next - slot) & mask)) {
            decided->slots[slot] = decided->slots[next];
            decided->slots[next] = 0;
            slot = next;
        }
    }
}

static void age_unlink(struct convoy_decided *decided, uint32_t at)
{
    struct convoy_decided_entry *entry = &decided->entries[at];
    *(entry->newer != NO_ENTRY ? &decided->entries[entry->newer].older : &decided->newest) = entry->older;
    *(entry->older != NO_ENTRY ? &decided->entries[entry->older].newer : &decided->oldest) = entry->newer;
}

static void age_push(struct convoy_decided *decided, uint32_t at)
{
    struct convoy_decided_entry *entry = &decided->entries[at];
    entry->newer = NO_ENTRY;
    entry->older = decided->newest;
    *(decided->newest != NO_ENTRY ? &decided->entries[decided->newest].newer : &decided->oldest) = at;
    decided->newest = at;
}

uint8_t convoy_decided_find(struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation)
{
    if (decided->count == 0) {
        return CONVOY_DECIDED_NONE;
    }
    uint32_t found = decided->slots[slot_find(decided, list, key, generation)];
    if (found == 0) {
        return CONVOY_DECIDED_NONE;
    }
    age_unlink(decided, found - 1);
    age_push(decided, found - 1);
    return decided->entries[found - 1].state;
}

/* Number of an unused entry. */
static uint32_t entry_take(struct convoy_decided *decided)
{
    if (decided->count < decided->capacity) {
        return decided->count++;
    }
    uint32_t at = decided->oldest;
    const struct convoy_decided_entry *entry = &decided->entries[at];
    slot_remove(decided, slot_find(decided, entry->list, entry->key, entry->generation));
    age_unlink(decided, at);
    return at;
}

void convoy_decided_add(struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation, uint8_t state)
{
    if (CONVOY_MUTATED(decided_forgotten)) {
        return;
    }
    uint32_t at = entry_take(decided);
    uint32_t slot = slot_find(decided, list, key, generation);
    assert(decided->slots[slot] == 0);
    decided->slots[slot] = at + 1;
    decided->entries[at] = (struct convoy_decided_entry){
        .key = key, .generation = generation, .list = (uint8_t)list, .state = state};
    age_push(decided, at);
    decided->version++;
}
