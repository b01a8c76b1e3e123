/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This member's own order of its keyed lists, and the ascending order in which they are contributed. Kept from round
 * to round: an unchanged list costs one comparison and no sort. Memory comes from init.
 */
#ifndef CONVOY_POLL_ORDER_H
#define CONVOY_POLL_ORDER_H

#include "core/memory.h"
#include "poll/payload.h"

struct convoy_order {
    uint32_t capacity; /* entries of all keyed lists together */
    uint64_t version;  /* changes with every change of the identities or their order */
    uint32_t slots;
    uint32_t starts[CONVOY_POLL_LISTS_MAX + 1]; /* by slot */
    bool has_generations[CONVOY_POLL_LISTS_MAX]; /* any is not 0 */
    uint64_t *keys;        /* own order */
    uint32_t *generations; /* own order */
    uint32_t *ranks;       /* own order -> ascending order, counted from the list's start */
    uint64_t *sorted_keys;
    uint32_t *sorted_generations;
    uint32_t *scratch; /* two arrays of capacity */
};

/* Makes it new. Its tables are placed as in core/memory.h: twice, the second time for use. */
void convoy_order_place(struct convoy_order *order, uint32_t capacity, struct convoy_memory_plan *plan);

/*
 * Takes over the keyed lists of a call whose shape was checked (the entries fit the capacity). INVALID_ARGUMENT:
 * (key, generation) appears twice in one list; the text names it. O(n log n) when a list changed, else O(n).
 */
int32_t convoy_order_take(struct convoy_order *order, const struct convoy_poll_list *lists,
                          const struct convoy_payload_shape *shape, struct convoy_error *error);

/* Whether the keyed lists of a call have the identities of the order, and their order. */
bool convoy_order_is_same(const struct convoy_order *order, const struct convoy_poll_list *lists,
                          const struct convoy_payload_shape *shape);

/* States of one list, from own order into ascending order. Nothing overlaps. */
void convoy_order_sort(const struct convoy_order *order, uint32_t slot, uint8_t *to, const uint8_t *states);

/* Whether any generation of any list is not 0. */
bool convoy_order_has_generations(const struct convoy_order *order);

#endif
