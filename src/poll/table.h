/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of identities, and the union of one with a payload. Pure; memory comes from init. */
#ifndef CONVOY_POLL_TABLE_H
#define CONVOY_POLL_TABLE_H

#include "core/memory.h"
#include "poll/payload.h"

/* Identities of all keyed lists, list after list, each ascending by (key, generation). */
struct convoy_table {
    uint32_t starts[CONVOY_POLL_LISTS_MAX + 1]; /* by slot; starts[keyed_count] = all */
    uint64_t *keys;
    uint32_t *generations;
    uint16_t *listed; /* members that list it */
    uint8_t *states;  /* MIN over those */
    bool has_generations; /* any is not 0 */
};

/* Makes it new and empty. Its arrays are placed as in core/memory.h: twice, the second time for use. */
void convoy_table_place(struct convoy_table *table, size_t capacity, struct convoy_memory_plan *plan);

/* Forgets all identities. */
void convoy_table_clear(struct convoy_table *table);

/* Whether every list of the view ascends, and no identity is listed by nobody or by more than `members`. */
bool convoy_table_is_sound(const struct convoy_payload_shape *shape, const struct convoy_payload_view *view,
                           uint32_t members);

/* Whether the table has exactly the identities of the view. */
bool convoy_table_matches(const struct convoy_table *table, const struct convoy_payload_shape *shape,
                          const struct convoy_payload_view *view);

/* Puts the union of `from` (NULL = empty) and a sound view into another table as far as `capacity` goes: MIN of the
 * states, sum of listed. Unknown states of the view count as Bootstrapping. Returns how many identities there are;
 * with more than the capacity the table is not usable. */
uint64_t convoy_table_union(const struct convoy_table *from, const struct convoy_payload_shape *shape,
                            const struct convoy_payload_view *view, struct convoy_table *into, uint32_t capacity);

/* Adds how many members list each identity of a matching view. */
void convoy_table_listed_add(struct convoy_table *table, const struct convoy_payload_view *view);

static inline uint32_t convoy_table_generation(const struct convoy_table *table, uint32_t at)
{
    return table->has_generations ? table->generations[at] : 0;
}

/* -1, 0, 1: order of two identities. */
static inline int convoy_table_compare(uint64_t key_a, uint32_t generation_a, uint64_t key_b, uint32_t generation_b)
{
    if (key_a != key_b) {
        return key_a < key_b ? -1 : 1;
    }
    return generation_a == generation_b ? 0 : generation_a < generation_b ? -1 : 1;
}

#endif
