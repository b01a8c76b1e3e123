/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ends at a page nobody may touch: one byte read or written past the end is a fault. */
#ifndef TESTS_ABI_GUARDED_H
#define TESTS_ABI_GUARDED_H

#include <stddef.h>

struct guarded {
    void *map;
    size_t map_bytes;
};

/* `bytes` that end at the guard page, filled with 0xee. Expects to succeed. */
void *guarded_create(struct guarded *guarded, size_t bytes);
void guarded_destroy(struct guarded *guarded);

#endif
