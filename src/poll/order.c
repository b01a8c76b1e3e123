/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/order.h"

#include "core/error.h"
#include "poll/check.h"
#include "poll/table.h"

#include <string.h>

void convoy_order_place(struct convoy_order *order, uint32_t capacity, struct convoy_memory_plan *plan)
{
    memset(order, 0, sizeof *order);
    order->capacity = capacity;
    order->keys = convoy_memory_place(plan, capacity, sizeof *order->keys);
    order->generations = convoy_memory_place(plan, capacity, sizeof *order->generations);
    order->ranks = convoy_memory_place(plan, capacity, sizeof *order->ranks);
    order->sorted_keys = convoy_memory_place(plan, capacity, sizeof *order->sorted_keys);
    order->sorted_generations = convoy_memory_place(plan, capacity, sizeof *order->sorted_generations);
    order->scratch = convoy_memory_place(plan, 2 * (size_t)capacity, sizeof *order->scratch);
}

bool convoy_order_has_generations(const struct convoy_order *order)
{
    bool any = false;
    for (uint32_t slot = 0; slot < order->slots; slot++) {
        any |= order->has_generations[slot];
    }
    return any;
}

/* One list's part of the arrays. */
struct part {
    uint32_t count;
    const uint64_t *keys;
    const uint32_t *generations;
};

static bool generations_equal(const uint32_t *given, const struct convoy_order *order, uint32_t slot, uint32_t start,
                              uint32_t count)
{
    if (given == NULL) {
        return !order->has_generations[slot];
    }
    return memcmp(given, order->generations + start, sizeof *given * count) == 0;
}

/* starts: those of the last round; the order's own are being replaced. */
static bool list_is_unchanged(const struct convoy_order *order, const uint32_t *starts,
                              const struct convoy_poll_list *list, uint32_t slot, uint32_t start)
{
    uint32_t count = (uint32_t)list->count;
    if (slot >= order->slots || starts[slot] != start || starts[slot + 1] != start + count) {
        return false;
    }
    return count == 0 || (memcmp(list->keys, order->keys + start, sizeof *list->keys * count) == 0 &&
                          generations_equal(list->generations, order, slot, start, count));
}

static int part_compare(const struct part *part, uint32_t a, uint32_t b)
{
    return convoy_table_compare(part->keys[a], part->generations[a], part->keys[b], part->generations[b]);
}

/* Merges two neighbouring runs of positions. */
static void runs_merge(const struct part *part, const uint32_t *from, uint32_t *into, uint32_t middle, uint32_t end)
{
    uint32_t i = 0;
    uint32_t j = middle;
    for (uint32_t k = 0; k < end; k++) {
        bool takes_left = j >= end || (i < middle && part_compare(part, from[i], from[j]) <= 0);
        into[k] = takes_left ? from[i++] : from[j++];
    }
}

/* Positions in ascending order of identity; a merge sort between two scratch arrays. Returns the one that has them. */
static const uint32_t *part_sort(const struct part *part, uint32_t *from, uint32_t *into)
{
    bool ascends = true;
    for (uint32_t i = 0; i < part->count; i++) {
        from[i] = i;
        ascends = ascends && (i == 0 || part_compare(part, i - 1, i) < 0);
    }
    for (uint32_t width = 1; !ascends && width < part->count; width *= 2) {
        for (uint32_t start = 0; start < part->count; start += 2 * width) {
            uint32_t left = part->count - start;
            uint32_t end = left < 2 * width ? left : 2 * width;
            runs_merge(part, from + start, into + start, width < end ? width : end, end);
        }
        uint32_t *swap = from;
        from = into;
        into = swap;
    }
    return from;
}

static int32_t duplicate_refuse(const struct part *part, uint32_t at, const struct convoy_poll_list *list,
                                uint32_t list_index, struct convoy_error *error)
{
    char name[CONVOY_CHECK_NAME_BYTES];
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                            "%s: key %llu, generation %u, is there twice; every (key, generation) of a list differs",
                            convoy_check_list_name(list, list_index, name), (unsigned long long)part->keys[at],
                            part->generations[at]);
}

static void list_copy(struct convoy_order *order, const struct convoy_poll_list *list, uint32_t slot, uint32_t start)
{
    size_t count = list->count;
    uint32_t any = 0;
    if (count != 0) {
        memcpy(order->keys + start, list->keys, sizeof *list->keys * count);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t generation = list->generations != NULL ? list->generations[i] : 0;
        order->generations[start + i] = generation;
        any |= generation;
    }
    order->has_generations[slot] = any != 0;
    order->starts[slot] = start;
    order->starts[slot + 1] = start + (uint32_t)count;
}

static int32_t list_take(struct convoy_order *order, const struct convoy_poll_list *list, uint32_t list_index,
                         uint32_t slot, uint32_t start, struct convoy_error *error)
{
    list_copy(order, list, slot, start);
    struct part part = {(uint32_t)list->count, order->keys + start, order->generations + start};
    const uint32_t *sorted = part_sort(&part, order->scratch, order->scratch + order->capacity);
    for (uint32_t i = 0; i < part.count; i++) {
        if (i != 0 && part_compare(&part, sorted[i - 1], sorted[i]) == 0) {
            return duplicate_refuse(&part, sorted[i], list, list_index, error);
        }
        order->ranks[start + sorted[i]] = i;
        order->sorted_keys[start + i] = part.keys[sorted[i]];
        order->sorted_generations[start + i] = part.generations[sorted[i]];
    }
    return CONVOY_OK;
}

bool convoy_order_is_same(const struct convoy_order *order, const struct convoy_poll_list *lists,
                          const struct convoy_payload_shape *shape)
{
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        uint32_t list = shape->list_of[slot];
        bool has_keys = lists[list].keys != NULL || lists[list].count == 0;
        if (!has_keys || !list_is_unchanged(order, order->starts, &lists[list], slot, shape->starts[list])) {
            return false;
        }
    }
    return order->slots == shape->keyed_count;
}

static void states_sort(uint8_t *restrict to, const uint8_t *restrict states, const uint32_t *restrict ranks,
                        uint32_t count)
{
    uint32_t i = 0;
    for (; count - i >= 4; i += 4) {
        to[ranks[i]] = states[i];
        to[ranks[i + 1]] = states[i + 1];
        to[ranks[i + 2]] = states[i + 2];
        to[ranks[i + 3]] = states[i + 3];
    }
    for (; i < count; i++) {
        to[ranks[i]] = states[i];
    }
}

void convoy_order_sort(const struct convoy_order *order, uint32_t slot, uint8_t *to, const uint8_t *states)
{
    uint32_t start = order->starts[slot];
    states_sort(to, states, order->ranks + start, order->starts[slot + 1] - start);
}

int32_t convoy_order_take(struct convoy_order *order, const struct convoy_poll_list *lists,
                          const struct convoy_payload_shape *shape, struct convoy_error *error)
{
    bool is_changed = order->slots != shape->keyed_count;
    uint32_t starts[CONVOY_POLL_LISTS_MAX + 1];
    memcpy(starts, order->starts, sizeof starts);
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        uint32_t list = shape->list_of[slot];
        if (list_is_unchanged(order, starts, &lists[list], slot, shape->starts[list])) {
            continue;
        }
        is_changed = true;
        int32_t status = list_take(order, &lists[list], list, slot, shape->starts[list], error);
        if (status != CONVOY_OK) {
            order->slots = 0; /* what is here now is nobody's order */
            order->version++;
            return status;
        }
    }
    order->slots = shape->keyed_count;
    order->version += is_changed;
    return CONVOY_OK;
}
