/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activity masks of a round: one bit per member under a version. The highest version wins, older ones are counted as
 * skew; one version with different bits is a conflict, kept with the two lowest members that show it. Merging is
 * associative and commutative: a lower version is dropped together with a conflict in it. Pure.
 */
#ifndef CONVOY_SYNC_MASK_H
#define CONVOY_SYNC_MASK_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_MASK_BYTES_MAX 128u /* 1,024 members */
#define CONVOY_MASK_NOBODY UINT32_MAX

struct convoy_mask {
    uint64_t version;
    uint32_t first;    /* lowest member of this version, NOBODY before any */
    uint32_t other;    /* lowest member whose bits differ from those of `first`, or NOBODY */
    uint32_t agreeing; /* members that brought this version */
    uint32_t total;    /* members that brought any */
    bool is_full;      /* all active; bits are not used */
    uint8_t bits[CONVOY_MASK_BYTES_MAX];
};

/* Bytes that hold one bit per member. */
static inline uint32_t convoy_mask_bytes(uint32_t member_count)
{
    return (member_count + 7u) / 8u;
}

/* Nobody's mask. */
void convoy_mask_clear(struct convoy_mask *mask);

/* What one member brings: bytes of 0 and not 0, or NULL or fewer than member_count for all active. */
void convoy_mask_set(struct convoy_mask *mask, uint32_t member, uint64_t version, const uint8_t *active,
                     size_t active_count, uint32_t member_count);

/* The same from bits. false: a bit behind the last member is set. All bits set becomes is_full. */
bool convoy_mask_set_bits(struct convoy_mask *mask, const uint8_t *bits, uint32_t member_count);

void convoy_mask_merge(struct convoy_mask *into, const struct convoy_mask *from, uint32_t member_count);

bool convoy_mask_is_active(const struct convoy_mask *mask, uint32_t member);

#endif
