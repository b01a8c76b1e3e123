/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/table.h"


#include <string.h>

#define LISTED_LANES 8u

typedef uint16_t listed_lanes __attribute__((vector_size(LISTED_LANES * sizeof(uint16_t))));

/* One identity as it lies in a source. */
struct item {
    uint64_t key;
    uint32_t generation;
    uint32_t listed;
    uint8_t state;
};

void convoy_table_place(struct convoy_table *table, size_t capacity, struct convoy_memory_plan *plan)
{
    memset(table, 0, sizeof *table);
    table->keys = convoy_memory_place(plan, capacity, sizeof *table->keys);
    table->generations = convoy_memory_place(plan, capacity, sizeof *table->generations);
    table->listed = convoy_memory_place(plan, capacity, sizeof *table->listed);
    table->states = convoy_memory_place(plan, capacity, sizeof *table->states);
}

static struct item view_item(const struct convoy_payload_view *view, uint32_t at)
{
    struct item item = {.listed = 1, .state = view->states[at]};
    memcpy(&item.key, view->keys + sizeof item.key * at, sizeof item.key);
    if (view->generations != NULL) {
        memcpy(&item.generation, view->generations + sizeof item.generation * at, sizeof item.generation);
    }
    if (view->listed != NULL) {
        uint16_t listed;
        memcpy(&listed, view->listed + sizeof listed * at, sizeof listed);
        item.listed = listed;
    }
    return item;
}

void convoy_table_clear(struct convoy_table *table)
{
    memset(table->starts, 0, sizeof table->starts);
    table->has_generations = false;
}

bool convoy_table_is_sound(const struct convoy_payload_shape *shape, const struct convoy_payload_view *view,
                           uint32_t members)
{
    uint32_t at = 0;
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        struct item last = {0};
        for (uint32_t i = 0; i < view->counts[slot]; i++, at++) {
            struct item item = view_item(view, at);
            bool ascends = i == 0 || convoy_table_compare(last.key, last.generation, item.key, item.generation) < 0;
            if (!ascends || item.listed == 0 || item.listed > members) {
                return false;
            }
            last = item;
        }
    }
    return true;
}

bool convoy_table_matches(const struct convoy_table *table, const struct convoy_payload_shape *shape,
                          const struct convoy_payload_view *view)
{
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        if (table->starts[slot + 1] - table->starts[slot] != view->counts[slot]) {
            return false;
        }
    }
    if (table->has_generations != (view->generations != NULL) ||
        memcmp(table->keys, view->keys, sizeof *table->keys * view->entries) != 0) {
        return false;
    }
    return view->generations == NULL ||
           memcmp(table->generations, view->generations, sizeof *table->generations * view->entries) == 0;
}

void convoy_table_listed_add(struct convoy_table *table, const struct convoy_payload_view *view)
{
    uint16_t *listed = table->listed;
    if (view->listed == NULL) {
        uint32_t done = 0;
        for (; view->entries - done >= LISTED_LANES; done += LISTED_LANES) {
            listed_lanes block;
            memcpy(&block, listed + done, sizeof block);
            block += 1;
            memcpy(listed + done, &block, sizeof block);
        }
        for (; done < view->entries; done++) {
            listed[done] = (uint16_t)(listed[done] + 1);
        }
        return;
    }
    for (uint32_t i = 0; i < view->entries; i++) {
        listed[i] = (uint16_t)(listed[i] + view_item(view, i).listed);
    }
}

/* -- the general case: two ascending lists into a third ---------------------------------------------------------- */

/* Where a merge of one list stands. */
struct merging {
    const struct convoy_table *from;
    const struct convoy_payload_view *view;
    struct convoy_table *into;
    uint32_t capacity;
    uint64_t count; /* identities so far; those beyond the capacity are only counted */
};

static void merging_put(struct merging *merging, struct item item)
{
    if (merging->count < merging->capacity) {
        struct convoy_table *into = merging->into;
        uint64_t at = merging->count;
        into->keys[at] = item.key;
        into->generations[at] = item.generation;
        into->listed[at] = (uint16_t)item.listed;
        into->states[at] = item.state;
        into->has_generations |= item.generation != 0;
    }
    merging->count++;
}

static struct item table_item(const struct convoy_table *table, uint32_t at)
{
    return (struct item){
        .key = table->keys[at],
        .generation = convoy_table_generation(table, at),
        .listed = table->listed[at],
        .state = table->states[at],
    };
}

static struct item view_item_known(const struct convoy_payload_view *view, uint32_t at)
{
    struct item item = view_item(view, at);
    if (item.state > CONVOY_STATE_SUCCESS) {
        item.state = CONVOY_STATE_BOOTSTRAPPING;
    }
    return item;
}

static struct item item_both(struct item a, struct item b)
{
    a.listed += b.listed;
    a.state = b.state < a.state ? b.state : a.state;
    return a;
}

/* left: of the table, from `i` to `i_end`; right: of the view, `count` entries from `j`. */
static void merging_list(struct merging *merging, uint32_t i, uint32_t i_end, uint32_t j, uint32_t count)
{
    uint32_t j_end = j + count;
    while (i < i_end && j < j_end) {
        struct item left = table_item(merging->from, i);
        struct item right = view_item_known(merging->view, j);
        int order = convoy_table_compare(left.key, left.generation, right.key, right.generation);
        merging_put(merging, order == 0 ? item_both(left, right) : order < 0 ? left : right);
        i += order <= 0;
        j += order >= 0;
    }
    for (; i < i_end; i++) {
        merging_put(merging, table_item(merging->from, i));
    }
    for (; j < j_end; j++) {
        merging_put(merging, view_item_known(merging->view, j));
    }
}

uint64_t convoy_table_union(const struct convoy_table *from, const struct convoy_payload_shape *shape,
                            const struct convoy_payload_view *view, struct convoy_table *into, uint32_t capacity)
{
    struct merging merging = {.from = from, .view = view, .into = into, .capacity = capacity};
    uint32_t at = 0;
    into->has_generations = from != NULL && from->has_generations;
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        into->starts[slot] = (uint32_t)merging.count;
        uint32_t start = from != NULL ? from->starts[slot] : 0;
        merging_list(&merging, start, from != NULL ? from->starts[slot + 1] : 0, at, view->counts[slot]);
        at += view->counts[slot];
    }
    into->starts[shape->keyed_count] = (uint32_t)merging.count;
    return merging.count;
}
