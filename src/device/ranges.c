/* SPDX-License-Identifier: Apache-2.0 */
#include "device/ranges.h"

/* Whether two ranges share a byte; written so that nothing wraps. */
static bool range_overlaps(const struct convoy_range *row, uintptr_t address, uint64_t bytes)
{
    return address >= row->address ? address - row->address < row->bytes : row->address - address < bytes;
}

enum convoy_ranges_status convoy_ranges_add(struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes,
                                            uint32_t *row_out)
{
    uint32_t free_row = CONVOY_RANGES_MAX;
    for (uint32_t i = 0; i < CONVOY_RANGES_MAX; i++) {
        struct convoy_range *row = &ranges->rows[i];
        if (row->bytes == 0) {
            free_row = free_row == CONVOY_RANGES_MAX ? i : free_row;
            continue;
        }
        if (range_overlaps(row, address, bytes)) {
            *row_out = i;
            if (row->address != address || row->bytes != bytes) {
                return CONVOY_RANGES_OVERLAP;
            }
            row->count++;
            return CONVOY_RANGES_AGAIN;
        }
    }
    if (free_row == CONVOY_RANGES_MAX) {
        return CONVOY_RANGES_FULL;
    }
    ranges->rows[free_row] = (struct convoy_range){.address = address, .bytes = bytes, .count = 1};
    *row_out = free_row;
    return CONVOY_RANGES_NEW;
}

uint32_t convoy_ranges_exact(const struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes)
{
    uint32_t row = 0;
    while (row < CONVOY_RANGES_MAX && (ranges->rows[row].bytes == 0 || ranges->rows[row].address != address ||
                                       ranges->rows[row].bytes != bytes)) {
        row++;
    }
    return row;
}

uint64_t convoy_ranges_touched(const struct convoy_ranges *ranges, uintptr_t address, uint64_t bytes, bool *held_out)
{
    uint64_t touched = 0;
    *held_out = false;
    for (uint32_t i = 0; i < CONVOY_RANGES_MAX; i++) {
        const struct convoy_range *row = &ranges->rows[i];
        if (row->bytes == 0 || !range_overlaps(row, address, bytes)) {
            continue;
        }
        touched |= UINT64_C(1) << i;
        if (address >= row->address && bytes <= row->bytes - (address - row->address)) {
            *held_out = true;
        }
    }
    return touched;
}
