/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/gather.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

/*
 * Merged state as bytes: the head, the mask bits (padded to 4) when not all are active, then one entry per member heard
 * of. The width of the values is the same for all rows of one partial.
 */
#define PARTIAL_WIDE 1u
#define PARTIAL_SLOTS 2u
#define PARTIAL_BITS 4u
#define ENTRY_BYTES 4u /* index 2, presence 1, zero 1; then slot 4 and the row, when present */

struct partial_head {
    uint32_t flags;
    uint32_t entry_count;
    uint64_t mask_version;
    uint32_t mask_first;
    uint32_t mask_other;
    uint32_t mask_agreeing;
    uint32_t mask_total;
};

int32_t convoy_gather_init(struct convoy_gather *gather, const struct convoy_grid *grid, struct convoy_error *error)
{
    memset(gather, 0, sizeof *gather);
    gather->form.width = grid->width;
    gather->form.member_count = grid->member_count;
    gather->slots = grid->slots;
    gather->rows = convoy_memory_array(grid->member_count, 8u * (size_t)grid->width);
    gather->presence = convoy_memory_zalloc(grid->member_count);
    gather->slot_of = convoy_memory_array(grid->member_count, sizeof *gather->slot_of);
    if (gather->rows == NULL || gather->presence == NULL || gather->slot_of == NULL) {
        convoy_gather_fini(gather);
        return convoy_error_set(error, CONVOY_NO_MEMORY,
                                "sync gather: no memory for the rows of %u members of %u columns", grid->member_count,
                                grid->width);
    }
    return CONVOY_OK;
}

void convoy_gather_fini(struct convoy_gather *gather)
{
    convoy_memory_free(gather->rows);
    convoy_memory_free(gather->presence);
    convoy_memory_free(gather->slot_of);
    memset(gather, 0, sizeof *gather);
}

void convoy_gather_prepare(struct convoy_gather *gather, bool is_world)
{
    gather->form.has_slot = is_world;
}

static size_t gather_bits_bytes(uint32_t member_count)
{
    return (convoy_mask_bytes(member_count) + 3u) / 4u * 4u;
}

size_t convoy_gather_partial_bytes_max(const struct convoy_grid *grid)
{
    if (grid->own.count == 0) {
        return 0;
    }
    size_t entry = ENTRY_BYTES + 4u + 8u * (size_t)grid->width;
    return sizeof(struct partial_head) + gather_bits_bytes(grid->member_count) + entry * grid->member_count;
}

static void gather_begin(void *state)
{
    struct convoy_gather *gather = state;
    gather->seen = 0;
    gather->present = 0;
    memset(gather->presence, CONVOY_GATHER_UNSEEN, gather->form.member_count);
    convoy_mask_clear(&gather->mask);
}

static int64_t *gather_row(const struct convoy_gather *gather, uint32_t index)
{
    return gather->rows + (size_t)index * gather->form.width;
}

static bool gather_slot_is_sound(const struct convoy_gather *gather, uint32_t slot)
{
    return slot < gather->slots || slot == CONVOY_GATHER_NO_SLOT;
}

/* Merges the mask of the member just decoded. */
static void gather_add_mask(struct convoy_gather *gather, uint32_t index)
{
    struct convoy_mask *into = &gather->mask;
    struct convoy_mask *from = &gather->incoming.mask;
    if (into->version == from->version && into->is_full && from->is_full && (into->first < index || into->total == 0)) {
        into->first = into->total == 0 ? index : into->first;
        into->agreeing++; /* the usual case: one version of all active */
        into->total++;
        return;
    }
    from->first = index;
    from->other = CONVOY_MASK_NOBODY;
    from->agreeing = 1;
    from->total = 1;
    convoy_mask_merge(into, from, gather->form.member_count);
}

__attribute__((noinline)) static int32_t gather_member_any(struct convoy_gather *gather, uint32_t index,
                                                           const uint8_t *payload, size_t bytes)
{
    if (index >= gather->form.member_count || gather->presence[index] != CONVOY_GATHER_UNSEEN) {
        return CONVOY_MALFORMED;
    }
    struct convoy_row_out *row = &gather->incoming;
    row->values = gather_row(gather, index);
    int32_t status = convoy_row_decode(&gather->form, payload, bytes, row);
    if (status != CONVOY_OK) {
        return status;
    }
    if (gather->form.has_slot) {
        if (!gather_slot_is_sound(gather, row->slot)) {
            return CONVOY_MALFORMED;
        }
        gather->slot_of[index] = row->slot;
    }
    gather_add_mask(gather, index);
    gather->presence[index] = CONVOY_PRESENT;
    gather->present++;
    gather->seen++;
    return CONVOY_OK;
}

/* The usual contribution: values that fit 32 bits and nothing else, after others of that kind. */
static inline bool gather_is_plain(const struct convoy_gather *gather, uint32_t index, size_t bytes)
{
    const struct convoy_mask *mask = &gather->mask;
    return bytes == 4u * (size_t)gather->form.width && !gather->form.has_slot && index < gather->form.member_count &&
           gather->presence[index] == CONVOY_GATHER_UNSEEN && mask->version == 0 && mask->is_full &&
           (mask->total == 0 || mask->first < index);
}

static int32_t gather_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    struct convoy_gather *gather = state;
    if (__builtin_expect(gather_is_plain(gather, index, bytes), 1)) {
        struct convoy_mask *mask = &gather->mask;
        convoy_row_take(gather_row(gather, index), gather->form.width, true, payload);
        mask->first = mask->total == 0 ? index : mask->first;
        mask->agreeing++;
        mask->total++;
        gather->presence[index] = CONVOY_PRESENT;
        gather->present++;
        gather->seen++;
        return CONVOY_OK;
    }
    return gather_member_any(gather, index, payload, bytes);
}
static void gather_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    struct convoy_gather *gather = state;
    (void)reason; /* the report has it */
    if (index < gather->form.member_count && gather->presence[index] == CONVOY_GATHER_UNSEEN) {
        gather->presence[index] = absence == CONVOY_ABSENT_LOST ? CONVOY_PRESENT_LOST : CONVOY_PRESENT_ERROR;
        gather->seen++;
    }
}

/* Whether all rows fit 32 bits a value; need_out: bytes of the whole state. */
static bool gather_measure(const struct convoy_gather *gather, size_t *need_out)
{
    bool is_narrow = true;
    size_t rows = 0;
    for (uint32_t i = 0; i < gather->form.member_count; i++) {
        if (gather->presence[i] == CONVOY_PRESENT) {
            rows++;
            is_narrow = is_narrow && convoy_row_is_narrow(gather_row(gather, i), gather->form.width);
        }
    }
    size_t row = (is_narrow ? 4u : 8u) * (size_t)gather->form.width + (gather->form.has_slot ? 4u : 0);
    size_t bits = gather->mask.is_full ? 0 : gather_bits_bytes(gather->form.member_count);
    *need_out = sizeof(struct partial_head) + bits + gather->seen * (size_t)ENTRY_BYTES + rows * row;
    return is_narrow;
}

static size_t gather_put_head(const struct convoy_gather *gather, bool is_narrow, uint8_t *out)
{
    const struct convoy_mask *mask = &gather->mask;
    struct partial_head head = {
        .flags = (is_narrow ? 0 : PARTIAL_WIDE) | (gather->form.has_slot ? PARTIAL_SLOTS : 0) |
                 (mask->is_full ? 0 : PARTIAL_BITS),
        .entry_count = gather->seen,
        .mask_version = mask->version,
        .mask_first = mask->first,
        .mask_other = mask->other,
        .mask_agreeing = mask->agreeing,
        .mask_total = mask->total,
    };
    memcpy(out, &head, sizeof head);
    if (mask->is_full) {
        return sizeof head;
    }
    uint32_t bytes = convoy_mask_bytes(gather->form.member_count);
    memcpy(out + sizeof head, mask->bits, bytes);
    memset(out + sizeof head + bytes, 0, gather_bits_bytes(gather->form.member_count) - bytes);
    return sizeof head + gather_bits_bytes(gather->form.member_count);
}

static size_t gather_put_entry(const struct convoy_gather *gather, uint32_t index, bool is_narrow, uint8_t *out)
{
    out[0] = (uint8_t)index;
    out[1] = (uint8_t)(index >> 8);
    out[2] = gather->presence[index];
    out[3] = 0;
    size_t length = ENTRY_BYTES;
    if (gather->presence[index] != CONVOY_PRESENT) {
        return length;
    }
    if (gather->form.has_slot) {
        memcpy(out + length, &gather->slot_of[index], 4);
        length += 4;
    }
    return length + convoy_row_put(gather_row(gather, index), gather->form.width, is_narrow, out + length);
}

static size_t gather_encode(const void *state, uint8_t *out, size_t capacity)
{
    const struct convoy_gather *gather = state;
    size_t need;
    bool is_narrow = gather_measure(gather, &need);
    if (need > capacity) {
        return 0;
    }
    size_t length = gather_put_head(gather, is_narrow, out);
    for (uint32_t i = 0; i < gather->form.member_count; i++) {
        if (gather->presence[i] != CONVOY_GATHER_UNSEEN) {
            length += gather_put_entry(gather, i, is_narrow, out + length);
        }
    }
    return length;
}

/* Bytes that the entry took, or 0 when it is none. */
static size_t gather_take_entry(struct convoy_gather *gather, const uint8_t *bytes, size_t length, bool is_narrow)
{
    if (length < ENTRY_BYTES) {
        return 0;
    }
    uint32_t index = bytes[0] | (uint32_t)bytes[1] << 8;
    uint8_t presence = bytes[2];
    if (index >= gather->form.member_count || gather->presence[index] != CONVOY_GATHER_UNSEEN || bytes[3] != 0) {
        return 0;
    }
    size_t need = ENTRY_BYTES;
    if (presence == CONVOY_PRESENT) {
        size_t slot = gather->form.has_slot ? 4u : 0;
        size_t row = (is_narrow ? 4u : 8u) * (size_t)gather->form.width;
        need += slot + row;
        if (length < need) {
            return 0;
        }
        memcpy(&gather->slot_of[index], bytes + ENTRY_BYTES, slot);
        if (slot != 0 && !gather_slot_is_sound(gather, gather->slot_of[index])) {
            return 0;
        }
        convoy_row_take(gather_row(gather, index), gather->form.width, is_narrow, bytes + ENTRY_BYTES + slot);
        gather->present++;
    } else if (presence != CONVOY_PRESENT_LOST && presence != CONVOY_PRESENT_ERROR) {
        return 0;
    }
    gather->presence[index] = presence;
    gather->seen++;
    return need;
}

/* The mask of a partial. Counts are checked against its entries by the caller. */
static bool gather_take_mask(struct convoy_gather *gather, const struct partial_head *head, const uint8_t *bits)
{
    struct convoy_mask *mask = &gather->incoming.mask;
    uint32_t count = gather->form.member_count;
    mask->version = head->mask_version;
    mask->first = head->mask_first;
    mask->other = head->mask_other;
    mask->agreeing = head->mask_agreeing;
    mask->total = head->mask_total;
    mask->is_full = true;
    if (bits != NULL && (!convoy_mask_set_bits(mask, bits, count) || mask->is_full)) {
        return false;
    }
    if (mask->total == 0) {
        return mask->first == CONVOY_MASK_NOBODY && mask->other == CONVOY_MASK_NOBODY && mask->agreeing == 0 &&
               mask->version == 0 && mask->is_full;
    }
    bool has_other = mask->other != CONVOY_MASK_NOBODY;
    return mask->first < count && mask->agreeing >= 1u + has_other && mask->agreeing <= mask->total &&
           (!has_other || (mask->other < count && mask->other > mask->first));
}

static int32_t gather_take_entries(struct convoy_gather *gather, const struct partial_head *head, const uint8_t *bytes,
                                   size_t length)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < head->entry_count; i++) {
        size_t taken = gather_take_entry(gather, bytes, length, (head->flags & PARTIAL_WIDE) == 0);
        if (taken == 0) {
            return CONVOY_MALFORMED;
        }
        rows += bytes[2] == CONVOY_PRESENT;
        bytes += taken;
        length -= taken;
    }
    return length == 0 && rows == head->mask_total ? CONVOY_OK : CONVOY_MALFORMED;
}

static int32_t gather_partial(void *state, const uint8_t *bytes, size_t length)
{
    struct convoy_gather *gather = state;
    struct partial_head head;
    if (length < sizeof head) {
        return CONVOY_MALFORMED;
    }
    memcpy(&head, bytes, sizeof head);
    bool has_bits = (head.flags & PARTIAL_BITS) != 0;
    size_t bits = has_bits ? gather_bits_bytes(gather->form.member_count) : 0;
    if ((head.flags & ~(PARTIAL_WIDE | PARTIAL_SLOTS | PARTIAL_BITS)) != 0 || length - sizeof head < bits ||
        ((head.flags & PARTIAL_SLOTS) != 0) != gather->form.has_slot ||
        !gather_take_mask(gather, &head, has_bits ? bytes + sizeof head : NULL)) {
        return CONVOY_MALFORMED;
    }
    int32_t status = gather_take_entries(gather, &head, bytes + sizeof head + bits, length - sizeof head - bits);
    if (status == CONVOY_OK) {
        convoy_mask_merge(&gather->mask, &gather->incoming.mask, gather->form.member_count);
    }
    return status;
}

const struct convoy_merge_ops convoy_gather_ops = {
    .begin = gather_begin,
    .member = gather_member,
    .absent = gather_absent,
    .encode = gather_encode,
    .partial = gather_partial,
};
