/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/row.h"

#include <string.h>

#define ROW_WIDE 1u
#define ROW_MASK 2u /* a version follows */
#define ROW_BITS 4u /* and bits; without them all are active */
#define ROW_SLOT 8u

bool convoy_row_is_narrow(const int64_t *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] != (int32_t)values[i]) {
            return false;
        }
    }
    return true;
}

size_t convoy_row_put(const int64_t *values, uint32_t count, bool is_narrow, uint8_t *out)
{
    if (!is_narrow) {
        memcpy(out, values, 8u * (size_t)count);
        return 8u * (size_t)count;
    }
    for (uint32_t i = 0; i < count; i++) {
        convoy_row_narrow_store(out, i, values[i]);
    }
    return 4u * (size_t)count;
}

void convoy_row_take(int64_t *restrict values_out, uint32_t count, bool is_narrow, const uint8_t *restrict bytes)
{
    if (!is_narrow) {
        memcpy(values_out, bytes, 8u * (size_t)count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        values_out[i] = convoy_row_narrow_load(bytes, i);
    }
}

/* Mask bits keep the length at 1 modulo 4, which tells a row with extra from one without. */
static size_t row_bits_bytes(const struct convoy_row_form *form)
{
    return (convoy_mask_bytes(form->member_count) + 3u) / 4u * 4u;
}

size_t convoy_row_bytes_max(const struct convoy_row_form *form)
{
    return 8u * (size_t)form->width + 4u + 8u + row_bits_bytes(form) + 1u;
}

static size_t row_put_mask(const struct convoy_row_form *form, const struct convoy_mask *mask, uint8_t *out)
{
    memcpy(out, &mask->version, 8);
    if (mask->is_full) {
        return 8;
    }
    uint32_t bytes = convoy_mask_bytes(form->member_count);
    memcpy(out + 8, mask->bits, bytes);
    memset(out + 8 + bytes, 0, row_bits_bytes(form) - bytes);
    return 8 + row_bits_bytes(form);
}

size_t convoy_row_encode(const struct convoy_row_form *form, const int64_t *values, uint32_t slot,
                         const struct convoy_mask *mask, uint8_t *out)
{
    bool is_narrow = convoy_row_is_narrow(values, form->width);
    bool has_mask = mask->version != 0 || !mask->is_full;
    size_t length = convoy_row_put(values, form->width, is_narrow, out);
    if (!has_mask && !form->has_slot) {
        return length;
    }
    if (form->has_slot) {
        memcpy(out + length, &slot, 4);
        length += 4;
    }
    if (has_mask) {
        length += row_put_mask(form, mask, out + length);
    }
    unsigned flags = (is_narrow ? 0 : ROW_WIDE) | (form->has_slot ? ROW_SLOT : 0) | (has_mask ? ROW_MASK : 0) |
                     (mask->is_full ? 0 : ROW_BITS);
    out[length] = (uint8_t)flags;
    return length + 1;
}

/* The extra part: `length` bytes in front of the flags. */
static int32_t row_take_extra(const struct convoy_row_form *form, unsigned flags, const uint8_t *bytes, size_t length,
                              struct convoy_row_out *row_out)
{
    size_t need = ((flags & ROW_SLOT) != 0 ? 4u : 0u) + ((flags & ROW_MASK) != 0 ? 8u : 0u) +
                  ((flags & ROW_BITS) != 0 ? row_bits_bytes(form) : 0u);
    if (length != need || ((flags & ROW_BITS) != 0 && (flags & ROW_MASK) == 0)) {
        return CONVOY_MALFORMED;
    }
    if ((flags & ROW_SLOT) != 0) {
        memcpy(&row_out->slot, bytes, 4);
        bytes += 4;
    }
    if ((flags & ROW_MASK) != 0) {
        memcpy(&row_out->mask.version, bytes, 8);
        bytes += 8;
    }
    if ((flags & ROW_BITS) != 0 && !convoy_mask_set_bits(&row_out->mask, bytes, form->member_count)) {
        return CONVOY_MALFORMED;
    }
    return CONVOY_OK;
}

int32_t convoy_row_decode(const struct convoy_row_form *form, const uint8_t *bytes, size_t length,
                          struct convoy_row_out *row_out)
{
    size_t narrow = 4u * (size_t)form->width;
    row_out->slot = 0;
    row_out->mask.version = 0;
    row_out->mask.is_full = true;
    if (length % 4 == 0) {
        if ((length != narrow && length != 2 * narrow) || form->has_slot) {
            return CONVOY_MALFORMED;
        }
        convoy_row_take(row_out->values, form->width, length == narrow, bytes);
        return CONVOY_OK;
    }
    unsigned flags = bytes[length - 1];
    size_t row = (flags & ROW_WIDE) != 0 ? 2 * narrow : narrow;
    if ((flags & ~(ROW_WIDE | ROW_MASK | ROW_BITS | ROW_SLOT)) != 0 || length - 1 < row ||
        ((flags & ROW_SLOT) != 0) != form->has_slot) {
        return CONVOY_MALFORMED;
    }
    convoy_row_take(row_out->values, form->width, (flags & ROW_WIDE) == 0, bytes);
    return row_take_extra(form, flags, bytes + row, length - 1 - row, row_out);
}
