/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/buddy.h"

#include "core/fault.h"
#include "core/memory.h"

#include <string.h>

#define NOBODY UINT32_MAX
#define UNITS_MAX (UINT64_C(1) << 31)

/* What is known of a smallest block: nothing unless a block, of whatever order, starts there. */
#define UNIT_FREE 0x40u
#define UNIT_LIVE 0x80u
#define UNIT_ORDER 0x3fu

struct buddy_unit {
    uint64_t asked; /* live */
    uint32_t next;  /* free, in its order's list */
    uint32_t last;
};

struct buddy_list {
    uint32_t head;
    uint32_t tail;
    uint32_t count;
};

struct convoy_buddy {
    uint64_t asked;
    uint64_t taken_units;
    uint64_t live_count;
    uint32_t units;
    uint32_t shift; /* of the smallest block */
    uint32_t top;   /* highest order there is */
    uint32_t free_orders; /* bit i: the list of order i is not empty */
    struct buddy_list lists[CONVOY_BUDDY_ORDERS];
    uint8_t *state;
    struct buddy_unit *unit;
};

/* -- lists --------------------------------------------------------------------------------------------------------- */

static void list_append(struct convoy_buddy *buddy, uint32_t at, uint32_t order)
{
    struct buddy_list *list = &buddy->lists[order];
    buddy->state[at] = (uint8_t)(UNIT_FREE | order);
    buddy->unit[at].next = NOBODY;
    buddy->unit[at].last = list->tail;
    if (list->tail != NOBODY) {
        buddy->unit[list->tail].next = at;
    } else {
        list->head = at;
        buddy->free_orders |= UINT32_C(1) << order;
    }
    list->tail = at;
    list->count++;
}

static void list_remove(struct convoy_buddy *buddy, uint32_t at, uint32_t order)
{
    struct buddy_list *list = &buddy->lists[order];
    const struct buddy_unit *unit = &buddy->unit[at];
    if (unit->last != NOBODY) {
        buddy->unit[unit->last].next = unit->next;
    } else {
        list->head = unit->next;
    }
    if (unit->next != NOBODY) {
        buddy->unit[unit->next].last = unit->last;
    } else {
        list->tail = unit->last;
    }
    list->count--;
    if (list->head == NOBODY) {
        buddy->free_orders &= ~(UINT32_C(1) << order);
    }
    buddy->state[at] = 0;
}

/* -- sizes --------------------------------------------------------------------------------------------------------- */

/* Smallest order whose blocks hold that much; above top when none does. bytes is not 0. */
static uint32_t order_of(const struct convoy_buddy *buddy, uint64_t bytes)
{
    uint64_t units = ((bytes - 1) >> buddy->shift) + 1;
    uint32_t order = units == 1 ? 0 : 64 - (uint32_t)__builtin_clzll(units - 1);
    return order <= buddy->top ? order : buddy->top + 1;
}

static uint64_t bytes_of(const struct convoy_buddy *buddy, uint32_t units)
{
    return (uint64_t)units << buddy->shift;
}

uint64_t convoy_buddy_rounded(const struct convoy_buddy *buddy, uint64_t bytes)
{
    uint32_t order = bytes != 0 ? order_of(buddy, bytes) : buddy->top + 1;
    return order <= buddy->top ? bytes_of(buddy, UINT32_C(1) << order) : 0;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

struct convoy_buddy *convoy_buddy_create(uint64_t capacity_bytes, uint64_t block_bytes)
{
    if (block_bytes == 0 || (block_bytes & (block_bytes - 1)) != 0 || capacity_bytes < block_bytes ||
        capacity_bytes / block_bytes > UNITS_MAX) {
        return NULL;
    }
    struct convoy_buddy *buddy = convoy_memory_zalloc(sizeof *buddy);
    if (buddy == NULL) {
        return NULL;
    }
    buddy->shift = (uint32_t)__builtin_ctzll(block_bytes);
    buddy->units = (uint32_t)(capacity_bytes >> buddy->shift);
    buddy->top = 31 - (uint32_t)__builtin_clz(buddy->units);
    buddy->state = convoy_memory_array(buddy->units, sizeof *buddy->state);
    buddy->unit = convoy_memory_array(buddy->units, sizeof *buddy->unit);
    if (buddy->state == NULL || buddy->unit == NULL) {
        convoy_buddy_destroy(buddy);
        return NULL;
    }
    for (uint32_t order = 0; order < CONVOY_BUDDY_ORDERS; order++) {
        buddy->lists[order] = (struct buddy_list){.head = NOBODY, .tail = NOBODY};
    }
    uint32_t at = 0;
    for (uint32_t order = buddy->top + 1; order-- > 0;) {
        if ((buddy->units & UINT32_C(1) << order) != 0) {
            list_append(buddy, at, order);
            at += UINT32_C(1) << order;
        }
    }
    return buddy;
}

void convoy_buddy_destroy(struct convoy_buddy *buddy)
{
    if (buddy != NULL) {
        convoy_memory_free(buddy->state);
        convoy_memory_free(buddy->unit);
        convoy_memory_free(buddy);
    }
}

/* -- taking -------------------------------------------------------------------------------------------------------- */

/* There is a free block of this order or a higher one. */
static uint32_t take_order(struct convoy_buddy *buddy, uint32_t order)
{
    uint32_t from = (uint32_t)__builtin_ctz(buddy->free_orders >> order) + order;
    uint32_t at = buddy->lists[from].head;
    list_remove(buddy, at, from);
    while (from > order) {
        from--;
        list_append(buddy, at + (UINT32_C(1) << from), from);
    }
    return at;
}

static void set_live(struct convoy_buddy *buddy, uint32_t at, uint32_t order, uint64_t bytes)
{
    buddy->state[at] = (uint8_t)(UNIT_LIVE | order);
    buddy->unit[at].asked = bytes;
    buddy->asked += bytes;
    buddy->taken_units += UINT64_C(1) << order;
    buddy->live_count++;
}

static void take_block(struct convoy_buddy *buddy, uint32_t order, uint64_t bytes, struct convoy_buddy_block *block_out)
{
    uint32_t at = take_order(buddy, order);
    set_live(buddy, at, order, bytes);
    *block_out = (struct convoy_buddy_block){bytes_of(buddy, at), bytes_of(buddy, UINT32_C(1) << order)};
}

enum convoy_buddy_status convoy_buddy_take(struct convoy_buddy *buddy, uint64_t bytes,
                                           struct convoy_buddy_block *block_out)
{
    if (bytes == 0) {
        return CONVOY_BUDDY_ZERO;
    }
    uint32_t order = order_of(buddy, bytes);
    if (order > buddy->top) {
        return CONVOY_BUDDY_TOO_LARGE;
    }
    if (buddy->free_orders >> order == 0) {
        return CONVOY_BUDDY_FULL;
    }
    take_block(buddy, order, bytes, block_out);
    return CONVOY_BUDDY_OK;
}

/* How many blocks of each order the sizes need. */
static enum convoy_buddy_status count_needs(const struct convoy_buddy *buddy, const uint64_t *sizes, size_t count,
                                            uint64_t *needs_out)
{
    uint64_t units = 0;
    memset(needs_out, 0, CONVOY_BUDDY_ORDERS * sizeof *needs_out);
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == 0) {
            continue;
        }
        uint32_t order = order_of(buddy, sizes[i]);
        if (order > buddy->top || UINT64_C(1) << order > buddy->units - units) {
            return CONVOY_BUDDY_TOO_LARGE; /* blocks of powers of two fit into an empty pool if their sum does */
        }
        units += UINT64_C(1) << order;
        needs_out[order]++;
    }
    return CONVOY_BUDDY_OK;
}

/* From the largest down: what an order does not need is twice as many of the next. */
static bool has_needs(const struct convoy_buddy *buddy, const uint64_t *needs)
{
    uint64_t left = 0;
    for (uint32_t order = buddy->top + 1; order-- > 0;) {
        left = left * 2 + buddy->lists[order].count;
        if (needs[order] > left) {
            return false;
        }
        left -= needs[order];
    }
    return true;
}

enum convoy_buddy_status convoy_buddy_fits(const struct convoy_buddy *buddy, const uint64_t *sizes, size_t count)
{
    uint64_t needs[CONVOY_BUDDY_ORDERS];
    enum convoy_buddy_status status = count_needs(buddy, sizes, count, needs);
    return status != CONVOY_BUDDY_OK ? status : has_needs(buddy, needs) ? CONVOY_BUDDY_OK : CONVOY_BUDDY_FULL;
}

enum convoy_buddy_status convoy_buddy_take_all(struct convoy_buddy *buddy, const uint64_t *sizes, size_t count,
                                               struct convoy_buddy_block *blocks_out)
{
    uint64_t needs[CONVOY_BUDDY_ORDERS];
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == 0) {
            return CONVOY_BUDDY_ZERO;
        }
    }
    enum convoy_buddy_status status = count_needs(buddy, sizes, count, needs);
    if (status != CONVOY_BUDDY_OK || !has_needs(buddy, needs)) {
        return status != CONVOY_BUDDY_OK ? status : CONVOY_BUDDY_FULL;
    }
    for (uint32_t order = buddy->top + 1; order-- > 0;) { /* the largest first, as they were counted */
        for (size_t i = 0; i < count && needs[order] != 0; i++) {
            if (order_of(buddy, sizes[i]) == order) {
                take_block(buddy, order, sizes[i], &blocks_out[i]);
                needs[order]--;
            }
        }
    }
    return CONVOY_BUDDY_OK;
}

enum convoy_buddy_status convoy_buddy_take_at(struct convoy_buddy *buddy, const struct convoy_buddy_block *block,
                                              uint64_t bytes)
{
    uint64_t units = block->bytes >> buddy->shift;
    uint32_t order = units != 0 && units <= buddy->units ? (uint32_t)__builtin_ctzll(units) : buddy->top + 1;
    uint64_t offset = block->offset >> buddy->shift;
    if (order > buddy->top || bytes > block->bytes || units << buddy->shift != block->bytes || units != UINT64_C(1) << order ||
        offset << buddy->shift != block->offset || (offset & (units - 1)) != 0 || offset > buddy->units - units) {
        return CONVOY_BUDDY_UNKNOWN;
    }
    uint32_t at = (uint32_t)offset;
    uint32_t from = order; /* the free block that it lies in starts at a multiple of its own size */
    while (from <= buddy->top && buddy->state[at & ~((UINT32_C(1) << from) - 1)] != (UNIT_FREE | from)) {
        from++;
    }
    if (from > buddy->top) {
        return CONVOY_BUDDY_UNKNOWN;
    }
    list_remove(buddy, at & ~((UINT32_C(1) << from) - 1), from);
    while (from > order) { /* the half without it stays free */
        from--;
        list_append(buddy, (at ^ (UINT32_C(1) << from)) & ~((UINT32_C(1) << from) - 1), from);
    }
    set_live(buddy, at, order, bytes);
    return CONVOY_BUDDY_OK;
}

/* -- giving back --------------------------------------------------------------------------------------------------- */

static bool is_live_start(const struct convoy_buddy *buddy, uint64_t offset)
{
    uint64_t at = offset >> buddy->shift;
    return (offset & ((UINT64_C(1) << buddy->shift) - 1)) == 0 && at < buddy->units &&
           (buddy->state[at] & UNIT_LIVE) != 0;
}

enum convoy_buddy_status convoy_buddy_give(struct convoy_buddy *buddy, uint64_t offset)
{
    if (!is_live_start(buddy, offset)) {
        return CONVOY_BUDDY_UNKNOWN;
    }
    uint32_t at = (uint32_t)(offset >> buddy->shift);
    uint32_t order = buddy->state[at] & UNIT_ORDER;
    buddy->state[at] = 0;
    buddy->asked -= buddy->unit[at].asked;
    buddy->taken_units -= UINT64_C(1) << order;
    buddy->live_count--;
    for (; order < buddy->top && !CONVOY_MUTATED(block_not_merged); order++) {
        uint32_t other = at ^ (UINT32_C(1) << order);
        if (other >= buddy->units || buddy->state[other] != (UNIT_FREE | order)) {
            break;
        }
        list_remove(buddy, other, order);
        at = at < other ? at : other;
    }
    list_append(buddy, at, order);
    return CONVOY_BUDDY_OK;
}

/* -- looking ------------------------------------------------------------------------------------------------------- */

bool convoy_buddy_find(const struct convoy_buddy *buddy, uint64_t offset, uint64_t bytes,
                       struct convoy_buddy_block *block_out)
{
    uint64_t unit = offset >> buddy->shift;
    if (unit >= buddy->units) {
        return false;
    }
    for (uint32_t order = 0; order <= buddy->top; order++) { /* the block starts at a multiple of its own size */
        uint32_t at = (uint32_t)unit & ~((UINT32_C(1) << order) - 1);
        if (buddy->state[at] != (UNIT_LIVE | order)) {
            continue;
        }
        struct convoy_buddy_block block = {bytes_of(buddy, at), bytes_of(buddy, UINT32_C(1) << order)};
        if (bytes > block.bytes || offset - block.offset > block.bytes - bytes) {
            return false;
        }
        *block_out = block;
        return true;
    }
    return false;
}

void convoy_buddy_figures(const struct convoy_buddy *buddy, struct convoy_buddy_figures *figures_out)
{
    struct convoy_buddy_figures figures = {
        .capacity = bytes_of(buddy, buddy->units),
        .block = UINT64_C(1) << buddy->shift,
        .asked = buddy->asked,
        .taken = buddy->taken_units << buddy->shift,
        .live_count = buddy->live_count,
    };
    figures.free = figures.capacity - figures.taken;
    for (uint32_t order = 0; order < CONVOY_BUDDY_ORDERS; order++) {
        figures.free_counts[order] = buddy->lists[order].count;
        if (buddy->lists[order].count != 0) {
            figures.largest_free = bytes_of(buddy, UINT32_C(1) << order);
        }
    }
    figures.fragmentation = figures.free != 0 ? 1 - (double)figures.largest_free / (double)figures.free : 0;
    *figures_out = figures;
}

static const char *check_list(const struct convoy_buddy *buddy, uint32_t order)
{
    const struct buddy_list *list = &buddy->lists[order];
    uint32_t count = 0;
    uint32_t last = NOBODY;
    for (uint32_t at = list->head; at != NOBODY; at = buddy->unit[at].next) {
        if (at >= buddy->units || buddy->state[at] != (UNIT_FREE | order) || count == list->count) {
            return "a free list holds what is no free block of its order, or goes in a circle";
        }
        if (buddy->unit[at].last != last) {
            return "a free list is not the same backwards";
        }
        last = at;
        count++;
    }
    if (count != list->count || list->tail != last) {
        return "a free list does not end where, or after as many blocks as, it says";
    }
    bool has_bit = (buddy->free_orders & UINT32_C(1) << order) != 0;
    return has_bit != (count != 0) ? "the orders that are said to have free blocks are not those that have" : NULL;
}

/* Blocks that lie in the range one after the other. */
struct buddy_walk {
    uint64_t asked;
    uint64_t taken_units;
    uint64_t live_count;
    uint64_t free_counts[CONVOY_BUDDY_ORDERS];
};

static const char *check_block(const struct convoy_buddy *buddy, uint32_t at, struct buddy_walk *walk)
{
    uint32_t order = buddy->state[at] & UNIT_ORDER;
    uint32_t kind = buddy->state[at] & (UNIT_FREE | UNIT_LIVE);
    if ((kind != UNIT_FREE && kind != UNIT_LIVE) || order > buddy->top || (at & ((UINT32_C(1) << order) - 1)) != 0 ||
        UINT64_C(1) << order > buddy->units - at) {
        return "no block starts where one ends, or it is larger than its place";
    }
    for (uint32_t inside = at + 1; inside < at + (UINT32_C(1) << order); inside++) {
        if (buddy->state[inside] != 0) {
            return "a block starts within another";
        }
    }
    uint32_t other = at ^ (UINT32_C(1) << order);
    if (kind == UNIT_LIVE) {
        walk->asked += buddy->unit[at].asked;
        walk->taken_units += UINT64_C(1) << order;
        walk->live_count++;
    } else if (order < buddy->top && other < buddy->units && buddy->state[other] == (UNIT_FREE | order)) {
        return "two free halves were not merged";
    } else {
        walk->free_counts[order]++;
    }
    return NULL;
}

const char *convoy_buddy_check(const struct convoy_buddy *buddy)
{
    struct buddy_walk walk = {0};
    for (uint32_t at = 0; at < buddy->units; at += UINT32_C(1) << (buddy->state[at] & UNIT_ORDER)) {
        const char *wrong = check_block(buddy, at, &walk);
        if (wrong != NULL) {
            return wrong;
        }
    }
    for (uint32_t order = 0; order < CONVOY_BUDDY_ORDERS; order++) {
        const char *wrong = check_list(buddy, order);
        if (wrong != NULL || walk.free_counts[order] != buddy->lists[order].count) {
            return wrong != NULL ? wrong : "a free block is in no list";
        }
    }
    bool is_right = walk.asked == buddy->asked && walk.taken_units == buddy->taken_units &&
                    walk.live_count == buddy->live_count;
    return is_right ? NULL : "the sums of what is live are wrong";
}
