/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: who has which block of a pool, until when, and who else may still touch it. Pure: a table made once, times as
 * arguments, no lock.
 *
 *              take              filled
 *     (free) --------> TAKEN -----------> READY
 *        ^               |                  |
 *        |        retire |           retire |        retire: by the owner, or since the deadline has passed
 *        |               v                  v
 *        +------------ RETIRED <------------+
 *          nobody refers to it (any more)
 *
 * References are of three kinds, each by one peer:
 *
 *   READ    a view was lent to it            begins in READY; ends with the notice, or with proof that it is dead
 *   WRITE   it may write into the block      begins in TAKEN; ends when it says "drained", is proven dead, or its
 *                                            endpoint is closed
 *   DEVICE  a copy on a stream is under way  begins in any state but free; ends with its event. Its peer is NOBODY.
 *
 * A block is free only when its lease is retired and nobody refers to it. A deadline retires a lease; it never ends a
 * reference: memory that somebody may still touch is not given to anyone else. What is retired and still referred to is
 * what this library calls quarantined.
 *
 * A handle holds the generation of its lease: whatever is asked by an old handle is refused (STALE) and never done to the
 * block's new owner.
 */
#ifndef CONVOY_POOL_LEASE_H
#define CONVOY_POOL_LEASE_H

#include "pool/buddy.h"

#define CONVOY_REQUEST_BYTES 255u /* longest request id */
#define CONVOY_LEASE_NONE UINT64_C(0)
#define CONVOY_LEASE_NOBODY UINT32_MAX /* peer of a DEVICE reference */
#define CONVOY_LEASE_NEVER UINT64_MAX  /* deadline */

typedef uint64_t convoy_lease; /* generation << 32 | entry + 1 */

enum convoy_lease_state {
    CONVOY_LEASE_FREE = 0,
    CONVOY_LEASE_TAKEN,
    CONVOY_LEASE_READY,
    CONVOY_LEASE_RETIRED,
    CONVOY_LEASE_STATES,
};

enum convoy_reference {
    CONVOY_REFERENCE_READ = 0,
    CONVOY_REFERENCE_WRITE,
    CONVOY_REFERENCE_DEVICE,
    CONVOY_REFERENCE_KINDS,
};

enum convoy_lease_status {
    CONVOY_LEASE_OK = 0,
    CONVOY_LEASE_FREED,     /* OK, and the block is free: it is to be given back */
    CONVOY_LEASE_STALE,     /* no such lease (any more) */
    CONVOY_LEASE_BAD_STATE, /* not in this state */
    CONVOY_LEASE_FULL,      /* no entry left, of leases or of references */
    CONVOY_LEASE_UNKNOWN,   /* that peer has no such reference */
    CONVOY_LEASE_TOO_LARGE, /* request id, or more bytes than the block has */
};

/* Why a lease was retired; the first reason stays. */
enum convoy_lease_end {
    CONVOY_LEASE_END_NONE = 0,
    CONVOY_LEASE_END_RELEASED,
    CONVOY_LEASE_END_ABORTED,
    CONVOY_LEASE_END_EXPIRED,
    CONVOY_LEASE_END_CLOSED,
};

struct convoy_lease_owner {
    const char *request;
    size_t request_length;
    uint32_t attempt;
};

/* What is known of one. request is borrowed from the table until the lease is free. */
struct convoy_lease_view {
    convoy_lease lease;
    enum convoy_lease_state state;
    enum convoy_lease_end end;
    struct convoy_lease_owner owner;
    struct convoy_buddy_block block;
    uint64_t asked; /* bytes */
    uint64_t filled; /* exact bytes, from READY on */
    uint64_t taken_ns;
    uint64_t deadline_ns;
    uint32_t references[CONVOY_REFERENCE_KINDS];
};

struct convoy_lease_figures {
    uint64_t counts[CONVOY_LEASE_STATES];
    uint64_t bytes[CONVOY_LEASE_STATES]; /* of blocks; those of RETIRED are quarantined */
    uint64_t references[CONVOY_REFERENCE_KINDS];
    uint64_t stale; /* calls refused by an old handle */
};

struct convoy_leases;

/* Room for so many leases and references at a time. NULL: out of memory, or none. gives */
struct convoy_leases *convoy_leases_create(uint32_t lease_count, uint32_t reference_count);
void convoy_leases_destroy(struct convoy_leases *leases);

struct convoy_lease_take {
    struct convoy_lease_owner owner; /* copies */
    struct convoy_buddy_block block;
    uint64_t asked;
    uint64_t now_ns;
    uint64_t deadline_ns;
};
enum convoy_lease_status convoy_lease_take(struct convoy_leases *leases, const struct convoy_lease_take *take,
                                           convoy_lease *lease_out);

/* TAKEN to READY: `bytes` of the block hold what they should. */
enum convoy_lease_status convoy_lease_filled(struct convoy_leases *leases, convoy_lease lease, uint64_t bytes);

/* TAKEN or READY to RETIRED. FREED: nobody refers to it; block_out has what to give back. BAD_STATE: it is already. */
enum convoy_lease_status convoy_lease_retire(struct convoy_leases *leases, convoy_lease lease,
                                             enum convoy_lease_end end, struct convoy_buddy_block *block_out);

/* Another owner: a slot that was taken before its request was known, or is used again. TAKEN only. */
enum convoy_lease_status convoy_lease_adopt(struct convoy_leases *leases, convoy_lease lease,
                                            const struct convoy_lease_owner *owner, uint64_t deadline_ns);

/* A peer's own second reference of the same kind counts too. */
enum convoy_lease_status convoy_lease_refer(struct convoy_leases *leases, convoy_lease lease, uint32_t peer,
                                            enum convoy_reference kind);

/* Ends one. FREED as retire. */
enum convoy_lease_status convoy_lease_unrefer(struct convoy_leases *leases, convoy_lease lease, uint32_t peer,
                                              enum convoy_reference kind, struct convoy_buddy_block *block_out);

/*
 * Ends one of the references of a peer that is proven to touch nothing any more; to be called until it answers UNKNOWN.
 * OK, FREED: lease_out is the one that it referred to. cursor: 0 at first.
 */
enum convoy_lease_status convoy_lease_drop_peer(struct convoy_leases *leases, uint32_t peer, uint32_t *cursor,
                                                convoy_lease *lease_out, struct convoy_buddy_block *block_out);

/* The next lease, in no order, that is TAKEN or READY and past its deadline; NONE: there is none. It is to be retired.
 * cursor: 0 at first. */
convoy_lease convoy_lease_expired(const struct convoy_leases *leases, uint64_t now_ns, uint32_t *cursor);

/* The next one that is not free. */
convoy_lease convoy_lease_next(const struct convoy_leases *leases, uint32_t *cursor);

/* false: stale. */
bool convoy_lease_look(const struct convoy_leases *leases, convoy_lease lease, struct convoy_lease_view *view_out);

void convoy_lease_figures(const struct convoy_leases *leases, struct convoy_lease_figures *figures_out);

const char *convoy_lease_state_name(enum convoy_lease_state state);
const char *convoy_lease_end_name(enum convoy_lease_end end);

#endif
