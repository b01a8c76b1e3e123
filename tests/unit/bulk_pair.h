/* SPDX-License-Identifier: Apache-2.0 */
/* Two bulks in one thread over pretended links (tests/lib/fake_wire.h), each the other's peer 0. */
#ifndef TESTS_UNIT_BULK_PAIR_H
#define TESTS_UNIT_BULK_PAIR_H

#include "net/bulk_parts.h"
#include "tests/lib/bulknode.h"
#include "tests/lib/fake_wire.h"

struct bulk_pair {
    struct bulknode a;
    struct bulknode b;
};

static inline void pair_connect(struct bulknode *from, const struct bulknode *to)
{
    size_t bytes;
    const void *address = convoy_bulk_address(to->bulk, &bytes);
    EXPECT_OK(convoy_bulk_connect(from->bulk, 0, address, bytes, NULL), NULL);
}

static inline void pair_open(struct bulk_pair *pair, size_t region_bytes, const struct convoy_bulk_options *options)
{
    fake_wire_reset();
    bulknode_make(&pair->a, region_bytes, options);
    bulknode_make(&pair->b, region_bytes, options);
    pair_connect(&pair->a, &pair->b);
    pair_connect(&pair->b, &pair->a);
}

static inline void pair_close(struct bulk_pair *pair)
{
    (void)bulknode_close(&pair->a, 0);
    (void)bulknode_close(&pair->b, 0);
}

/* Until neither has anything to do. */
static inline void pair_settle(struct bulk_pair *pair)
{
    uint32_t quiet = 0;
    for (uint32_t i = 0; quiet < 3; i++) {
        uint32_t events = convoy_bulk_progress(pair->a.bulk) + convoy_bulk_progress(pair->b.bulk);
        quiet = events == 0 ? quiet + 1 : 0;
        EXPECT(i < 2000000);
    }
}

static inline const struct bulk_peer_counts *pair_counts(const struct bulknode *node)
{
    return &node->bulk->peers[0].counts;
}

#endif
