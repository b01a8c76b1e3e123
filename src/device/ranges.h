/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses that are registered with a device, at most 64, so that those which a copy touches are one word of
 * bits. The same range twice is one range, counted; a range that overlaps another is refused. Pure: no lock, no driver.
 */
#ifndef CONVOY_DEVICE_RANGES_H
#define CONVOY_DEVICE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_RANGES_MAX 64u

struct convoy_range {
    uintptr_t address;
    uint64_t bytes; /* 0: free */
    uint32_t count;
    bool is_foreign; /* somebody else has pinned it, and unpins it */
};

struct convoy_ranges {
    struct convoy_range rows[CONVOY_RANGES_MAX];
};

enum convoy_ranges_status {
    CONVOY_RANGES_NEW = 0, /* row_out is to be registered */
    CONVOY_RANGES_AGAIN,   /* known, counted */
    CONVOY_RANGES_OVERLAP, /* with row_out */
    CONVOY_RANGES_FULL,
};

/* row_out is not written on FULL. bytes is not 0 and address + bytes does not wrap. */
enum convoy_ranges_status convoy_ranges_add(struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes,
                                            uint32_t *row_out);

/* Row of exactly this range, or CONVOY_RANGES_MAX. */
uint32_t convoy_ranges_exact(const struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes);

/* Bits of the rows that share a byte with it. held_out: one of them holds all of it. bytes is not 0. */
uint64_t convoy_ranges_touched(const struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes, bool *held_out);

#endif
