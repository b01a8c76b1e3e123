/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which generations of the own pool a peer on this host has mapped, by what it has said. Plain data, fixed size; pure.
 *
 *                  want             sent              yes
 *     (nothing) --------> WANTED --------> SENT ---------------> TAKEN      from here on it may be named to the peer
 *                           ^                |  no
 *                           +----------------+-----------------> REFUSED    named all the same: each transfer gets its no
 *                             no word of it
 *
 *     any of them, when the generation ends -> (nothing)
 *
 * One is SENT at a time and waits for its answer as long as it takes: a peer that stands still costs one descriptor, and
 * holds up nobody but itself.
 */
#ifndef CONVOY_XFER_SHARE_H
#define CONVOY_XFER_SHARE_H

#include "pool/pool.h"

#define CONVOY_SHARES (2 * CONVOY_POOL_GENERATIONS) /* some may have ended and not be forgotten yet */

enum convoy_share_state {
    CONVOY_SHARE_NONE = 0,
    CONVOY_SHARE_WANTED,
    CONVOY_SHARE_SENT,
    CONVOY_SHARE_TAKEN,
    CONVOY_SHARE_REFUSED,
    CONVOY_SHARE_STATES,
};

struct convoy_share {
    enum convoy_share_state state;
    uint64_t generation;
    uint64_t base; /* its offsets are base to base + bytes */
    uint64_t bytes;
};

struct convoy_shares {
    struct convoy_share rows[CONVOY_SHARES];
    uint32_t pending_count; /* WANTED or SENT */
};

bool convoy_share_may(enum convoy_share_state from, enum convoy_share_state to);
const char *convoy_share_name(enum convoy_share_state state);

/* The one mover. false: not allowed, nothing happened. */
bool convoy_share_move(struct convoy_shares *shares, struct convoy_share *share, enum convoy_share_state state);

/* A generation that is not known there yet, as WANTED, or TAKEN if it came with the connection. NULL: no room. */
struct convoy_share *convoy_shares_add(struct convoy_shares *shares, const struct convoy_pool_share *generation,
                                       enum convoy_share_state state);

/* NULL: nothing is known of it. */
struct convoy_share *convoy_shares_at(struct convoy_shares *shares, uint64_t offset);
struct convoy_share *convoy_shares_of(struct convoy_shares *shares, uint64_t generation);

/* The newest in this state, or NULL. */
struct convoy_share *convoy_shares_newest(struct convoy_shares *shares, enum convoy_share_state state);

/* The oldest generation that the peer has, or may have; 0: none. */
uint64_t convoy_shares_oldest(const struct convoy_shares *shares);

#endif
