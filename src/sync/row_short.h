/* SPDX-License-Identifier: Apache-2.0 */
/* Rows without slot and mask (sync/row.h), for the path of every round. Any alignment. Pure. */
#ifndef CONVOY_SYNC_ROW_SHORT_H
#define CONVOY_SYNC_ROW_SHORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CONVOY_ROW_INLINE static inline __attribute__((always_inline))

CONVOY_ROW_INLINE int64_t convoy_row_load(const uint8_t *values, uint32_t at)
{
    int64_t value;
    memcpy(&value, values + 8u * (size_t)at, sizeof value);
    return value;
}

CONVOY_ROW_INLINE void convoy_row_store(uint8_t *values, uint32_t at, int64_t value)
{
    memcpy(values + 8u * (size_t)at, &value, sizeof value);
}

CONVOY_ROW_INLINE int64_t convoy_row_narrow_load(const uint8_t *bytes, uint32_t at)
{
    int32_t value;
    memcpy(&value, bytes + 4u * (size_t)at, sizeof value);
    return value;
}

CONVOY_ROW_INLINE void convoy_row_narrow_store(uint8_t *out, uint32_t at, int64_t value)
{
    int32_t narrow = (int32_t)value;
    memcpy(out + 4u * (size_t)at, &narrow, sizeof narrow);
}

/* A value that fits 32 bits has nothing above them once it is shifted to be not negative. */
CONVOY_ROW_INLINE uint64_t convoy_row_excess(int64_t value)
{
    return (uint64_t)value + 0x80000000u;
}

/* Writes values as 4 bytes each if all fit, else as 8; returns the length: what convoy_row_encode makes of a row without
 * slot and mask. out has room for 8 bytes each. */
CONVOY_ROW_INLINE size_t convoy_row_put_shortest(const void *values, uint32_t count, uint8_t *out)
{
    const uint8_t *from = values;
    uint64_t excess = 0;
    uint32_t i = 0;
    for (; count - i >= 4; i += 4) {
        int64_t value[4] = {convoy_row_load(from, i), convoy_row_load(from, i + 1), convoy_row_load(from, i + 2),
                            convoy_row_load(from, i + 3)};
        excess |= convoy_row_excess(value[0]) | convoy_row_excess(value[1]) | convoy_row_excess(value[2]) |
                  convoy_row_excess(value[3]);
        convoy_row_narrow_store(out, i, value[0]);
        convoy_row_narrow_store(out, i + 1, value[1]);
        convoy_row_narrow_store(out, i + 2, value[2]);
        convoy_row_narrow_store(out, i + 3, value[3]);
    }
    for (; i < count; i++) {
        int64_t value = convoy_row_load(from, i);
        excess |= convoy_row_excess(value);
        convoy_row_narrow_store(out, i, value);
    }
    if (__builtin_expect(excess >> 32 == 0, 1)) {
        return 4u * (size_t)count;
    }
    memcpy(out, values, 8u * (size_t)count);
    return 8u * (size_t)count;
}

CONVOY_ROW_INLINE void convoy_row_widen(uint8_t *into, uint8_t *copy, uint32_t at, const uint8_t *bytes)
{
    int64_t value = convoy_row_narrow_load(bytes, at);
    convoy_row_store(into, at, value);
    convoy_row_store(copy, at, value);
}

/* Reads what that wrote, into two places. */
CONVOY_ROW_INLINE void convoy_row_take_both(uint8_t *into, uint8_t *copy, uint32_t count, bool is_narrow,
                                            const uint8_t *bytes)
{
    uint32_t i = 0;
    if (__builtin_expect(!is_narrow, 0)) {
        memcpy(into, bytes, 8u * (size_t)count);
        memcpy(copy, bytes, 8u * (size_t)count);
        return;
    }
    for (; count - i >= 4; i += 4) {
        convoy_row_widen(into, copy, i, bytes);
        convoy_row_widen(into, copy, i + 1, bytes);
        convoy_row_widen(into, copy, i + 2, bytes);
        convoy_row_widen(into, copy, i + 3, bytes);
    }
    for (; i < count; i++) {
        convoy_row_widen(into, copy, i, bytes);
    }
}

#endif
