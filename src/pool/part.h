/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One generation of a pool: its memory and the blocks of it. Inside of the pool only; under its lock but for open and close.
 *
 *             open            switch           the next one's switch
 *   (free) --------> MADE ------------> CURRENT ------------> OLD
 *      ^               |                                       |
 *      |               | undo              its last block is given back
 *      |               v                                       |
 *      +---- reap -- ENDED <-----------------------------------+
 *
 * The generations of a pool share one line of offsets: each begins where the one before it ended, and no offset is ever used
 * by two, so that an offset alone says which memory is meant, here and at every peer.
 */
#ifndef CONVOY_POOL_PART_H
#define CONVOY_POOL_PART_H

#include "pool/pool.h"

#include <pthread.h>
#include <stdatomic.h>

enum convoy_pool_part_state {
    CONVOY_PART_FREE = 0,
    CONVOY_PART_MADE,    /* slots may be taken in it, nobody knows of it */
    CONVOY_PART_CURRENT, /* what is taken is taken here */
    CONVOY_PART_OLD,     /* what was taken stays until it is given back */
    CONVOY_PART_ENDED,   /* its memory is to be returned */
    CONVOY_PART_STATES,
};

struct convoy_pool_part {
    enum convoy_pool_part_state state;
    uint64_t generation; /* from 1 */
    uint64_t base;       /* its first offset on the line */
    uint64_t bytes;
    uint64_t block_bytes;
    uint8_t *memory;
    struct convoy_buddy *buddy; /* NULL: of no bytes */
    convoy_lease *lease_at;     /* [block]: the lease of the slot that starts there */
    int file;                   /* own; -1 = the memory is the host's */
};

struct convoy_pool {
    pthread_mutex_t lock;
    struct convoy_leases *leases; /* of all generations: a handle never means two slots */
    struct convoy_pool_part parts[CONVOY_POOL_GENERATIONS];
    struct convoy_pool_part *current;
    uint64_t line_end;
    uint64_t generations; /* made so far */
    uint64_t block_bytes;
    uint64_t exhausted;
    uint64_t expired;
    enum convoy_pool_kind kind;
    _Atomic bool has_ended;
    convoy_pool_ended_fn ended;
    convoy_pool_let_go_fn let_go;
    void *user;
};

bool convoy_pool_part_may(enum convoy_pool_part_state from, enum convoy_pool_part_state to);
/* false: not allowed, nothing happened. */
bool convoy_pool_part_move(struct convoy_pool_part *part, enum convoy_pool_part_state state);
const char *convoy_pool_part_name(enum convoy_pool_part_state state);

/* Its memory and tables; the state stays FREE. As convoy_pool_open. */
int32_t convoy_pool_part_open(struct convoy_pool_part *part, const struct convoy_pool_options *options,
                              struct convoy_error *error);
/* Returns all it has; it is FREE and can be opened again. */
void convoy_pool_part_close(struct convoy_pool_part *part);
/* The same, once nobody else holds its memory; else that stays mapped. */
void convoy_pool_part_return(const struct convoy_pool *pool, struct convoy_pool_part *part);

/* The one that has this offset, or this address of this process; NULL: none of those that are alive. */
struct convoy_pool_part *convoy_pool_part_at(struct convoy_pool *pool, uint64_t offset);
struct convoy_pool_part *convoy_pool_part_of(struct convoy_pool *pool, const void *address);

/* Gives a free block back; the last one of an OLD part ends that. */
void convoy_pool_part_give(struct convoy_pool *pool, const struct convoy_buddy_block *block);

/* Ends it if it is OLD and nothing of it is taken. */
void convoy_pool_part_settle(struct convoy_pool *pool, struct convoy_pool_part *part);

/* A lease of a block of this part, whose offset counts from the part's start. */
enum convoy_lease_status convoy_pool_part_lease(struct convoy_pool *pool, struct convoy_pool_part *part,
                                                const struct convoy_pool_request *request,
                                                const struct convoy_buddy_block *block, uint64_t bytes,
                                                struct convoy_slot *slot_out);

#endif
