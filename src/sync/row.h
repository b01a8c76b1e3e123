/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One member's contribution as bytes, made to be short: a row whose values all fit 32 bits, without mask and slot, is
 * 4 bytes a column and nothing else (8 columns: the 32 bytes that a cell's first line has room for).
 *
 *   values  4 or 8 bytes each
 *   [extra] slot 4, if any | mask version 8, if any | mask bits, padded to 4, if any | flags 1
 *
 * Without extra the length is a multiple of 4 and tells the width of a value; with extra it is not, and the last byte
 * tells. Pure.
 */
#ifndef CONVOY_SYNC_ROW_H
#define CONVOY_SYNC_ROW_H

#include "convoy/sync.h"
#include "sync/mask.h"
#include "sync/row_short.h"

#define CONVOY_ROW_BYTES_MAX (8u * CONVOY_SYNC_COLUMNS_MAX + 4u + 8u + CONVOY_MASK_BYTES_MAX + 1u)

/* What the bytes of a row depend on. */
struct convoy_row_form {
    uint32_t width;
    uint32_t member_count;
    bool has_slot;
};

/* Whether every value fits 32 bits. */
bool convoy_row_is_narrow(const int64_t *values, uint32_t count);

/* Writes values as 4 or 8 bytes each; returns the length. Reading takes as many bytes. Any alignment of bytes. */
size_t convoy_row_put(const int64_t *values, uint32_t count, bool is_narrow, uint8_t *out);
void convoy_row_take(int64_t *restrict values_out, uint32_t count, bool is_narrow, const uint8_t *restrict bytes);

/* Longest contribution. */
size_t convoy_row_bytes_max(const struct convoy_row_form *form);

/* slot: ignored unless form->has_slot. out has room for convoy_row_bytes_max. Returns the length. */
size_t convoy_row_encode(const struct convoy_row_form *form, const int64_t *values, uint32_t slot,
                         const struct convoy_mask *mask, uint8_t *out);

struct convoy_row_out {
    int64_t *values; /* in: where to write form->width values */
    uint32_t slot;
    struct convoy_mask mask; /* version, is_full and bits only */
};

/* MALFORMED: the length fits nothing, unknown flags, a slot where none belongs or none where one does, bits behind the
 * last member. The values are undefined then. */
int32_t convoy_row_decode(const struct convoy_row_form *form, const uint8_t *bytes, size_t length,
                          struct convoy_row_out *row_out);

#endif
