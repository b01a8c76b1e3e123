/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced columns: values in, {value, agreed} out. Pure. */
#ifndef CONVOY_SYNC_DERIVE_H
#define CONVOY_SYNC_DERIVE_H

#include "sync/schema.h"

struct convoy_derive {
    const struct convoy_schema_column *column; /* borrows */
    uint32_t counted; /* values added that are not ignored */
    bool is_unequal;
    int64_t value;
    __int128 sum; /* clamped at the end only, so that the order of the values does not matter */
};

void convoy_derive_begin(struct convoy_derive *derive, const struct convoy_schema_column *column);

/* Adds `count` values that lie `stride` values apart. */
void convoy_derive_add(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count);

/*
 * NONE: {0, 1}. MIN, MAX, SUM: {value, 1}. ALL_EQUAL: {the value, 1}; values differ: {the first counted one, 0}; all
 * are ignored: {ignored, 0}. No value was added (nobody is present): {ignored or fallback, 0}, NONE {0, 1}.
 */
struct convoy_sync_reduced convoy_derive_end(const struct convoy_derive *derive);

/* All three in one, for a column whose values are all at hand; count is not 0. */
struct convoy_sync_reduced convoy_derive_column(const struct convoy_schema_column *column, const int64_t *values,
                                                size_t stride, uint32_t count);

#endif
