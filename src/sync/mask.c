/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/mask.h"

#include "core/fault.h"

#include <string.h>

void convoy_mask_clear(struct convoy_mask *mask)
{
    mask->version = 0;
    mask->first = CONVOY_MASK_NOBODY;
    mask->other = CONVOY_MASK_NOBODY;
    mask->agreeing = 0;
    mask->total = 0;
    mask->is_full = true;
}

void convoy_mask_set(struct convoy_mask *mask, uint32_t member, uint64_t version, const uint8_t *active,
                     size_t active_count, uint32_t member_count)
{
    mask->version = version;
    mask->first = member;
    mask->other = CONVOY_MASK_NOBODY;
    mask->agreeing = 1;
    mask->total = 1;
    mask->is_full = true;
    if (active == NULL || active_count < member_count || memchr(active, 0, member_count) == NULL) {
        return;
    }
    mask->is_full = false;
    memset(mask->bits, 0, convoy_mask_bytes(member_count));
    for (uint32_t i = 0; i < member_count; i++) {
        mask->bits[i / 8] |= (uint8_t)((active[i] != 0) << (i % 8));
    }
}

bool convoy_mask_set_bits(struct convoy_mask *mask, const uint8_t *bits, uint32_t member_count)
{
    uint32_t bytes = convoy_mask_bytes(member_count);
    uint8_t last = (uint8_t)(0xffu >> (7u - (member_count + 7u) % 8u));
    if ((bits[bytes - 1] & ~last) != 0) {
        return false;
    }
    mask->is_full = bits[bytes - 1] == last;
    for (uint32_t i = 0; i + 1 < bytes && mask->is_full; i++) {
        mask->is_full = bits[i] == 0xff;
    }
    memcpy(mask->bits, bits, bytes);
    return true;
}

static bool mask_bits_equal(const struct convoy_mask *left, const struct convoy_mask *right, uint32_t member_count)
{
    if (left->is_full || right->is_full) {
        return left->is_full == right->is_full; /* all bits set is always is_full */
    }
    return memcmp(left->bits, right->bits, convoy_mask_bytes(member_count)) == 0;
}

static uint32_t mask_lower(uint32_t left, uint32_t right)
{
    return left < right ? left : right;
}

static void mask_take(struct convoy_mask *into, const struct convoy_mask *from, uint32_t member_count)
{
    into->version = from->version;
    into->first = from->first;
    into->other = from->other;
    into->is_full = from->is_full;
    if (!from->is_full) {
        memcpy(into->bits, from->bits, convoy_mask_bytes(member_count));
    }
}

void convoy_mask_merge(struct convoy_mask *into, const struct convoy_mask *from, uint32_t member_count)
{
    uint32_t total = into->total + from->total;
    if (from->total == 0 || (into->total != 0 && into->version > from->version)) {
        into->total = total;
        return;
    }
    if (into->total == 0 || into->version < from->version) {
        mask_take(into, from, member_count);
        into->agreeing = from->agreeing;
        into->total = total;
        return;
    }
    /* One version. Whoever is lower keeps its bits, so that the pair named does not depend on the order. */
    bool is_equal = mask_bits_equal(into, from, member_count);
    uint32_t higher_first = into->first < from->first ? from->first : into->first;
    uint32_t lower_other = into->first < from->first ? into->other : from->other;
    uint32_t other = is_equal ? mask_lower(into->other, from->other) : mask_lower(lower_other, higher_first);
    if (from->first < into->first) {
        mask_take(into, from, member_count);
    }
    into->other = other;
    into->agreeing += from->agreeing;
    into->total = total;
}

bool convoy_mask_is_active(const struct convoy_mask *mask, uint32_t member)
{
    return mask->is_full || CONVOY_MUTATED(mask_ignored) || ((unsigned)mask->bits[member / 8] >> (member % 8) & 1u) != 0;
}
