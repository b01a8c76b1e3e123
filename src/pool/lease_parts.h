/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a table of leases: what lease.c keeps and lease_move.c carries over. */
#ifndef CONVOY_POOL_LEASE_PARTS_H
#define CONVOY_POOL_LEASE_PARTS_H

#include "pool/lease.h"

#define CONVOY_LEASE_NO_ENTRY UINT32_MAX

struct lease_entry {
    uint64_t asked;
    uint64_t filled;
    uint64_t taken_ns;
    uint64_t deadline_ns;
    struct convoy_buddy_block block;
    uint32_t generation; /* of the lease that has this entry, or had it last */
    uint32_t state;      /* enum convoy_lease_state */
    uint32_t end;        /* enum convoy_lease_end */
    uint32_t next_free;
    uint32_t first; /* of its references */
    uint32_t references[CONVOY_REFERENCE_KINDS];
    uint32_t attempt;
    uint32_t request_length;
    char request[CONVOY_REQUEST_BYTES + 1];
};

/* One peer's references of one kind to one lease. In two lists: its lease's, and all. */
struct lease_reference {
    uint32_t entry;
    uint32_t peer;
    uint32_t kind;
    uint32_t count;
    uint32_t next; /* of the same lease; of an unused one: the next unused */
};

struct convoy_leases {
    uint32_t lease_count;
    uint32_t reference_count;
    uint32_t lease_top;     /* from here on no entry was ever used, and nothing of it was ever touched; */
    uint32_t reference_top; /* the same */
    uint32_t first_free;
    uint32_t last_free; /* of those that were used before, the one that was freed first is used first: generations last */
    uint32_t unused;
    uint64_t stale;
    struct lease_entry *entries;
    struct lease_reference *references;
};

/* A place for one more reference; NO_ENTRY: there is none. */
static inline uint32_t convoy_leases_take_reference(struct convoy_leases *leases)
{
    uint32_t at = leases->unused;
    if (at != CONVOY_LEASE_NO_ENTRY) {
        leases->unused = leases->references[at].next;
        return at;
    }
    return leases->reference_top < leases->reference_count ? leases->reference_top++ : CONVOY_LEASE_NO_ENTRY;
}

#endif
