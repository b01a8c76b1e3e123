/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool: one range of memory, the blocks of it that are taken (pool/buddy.h), and their leases (pool/lease.h), behind one
 * lock that is held for arithmetic only.
 *
 *   kind     whose memory            who else can read it
 *   SHARED   a sealed memfd of ours  every peer that was given its file, read-only, for as long as it likes
 *   HOST     the host's, by address  nobody but through this process
 *   DEVICE   the host's, by address  as HOST; convoy itself never touches its bytes
 *
 * A pool of no bytes is legal: requests without payload still get their lease, others are refused as more than it holds.
 * What is refused says with which figures: asked, capacity, free, the largest free block.
 *
 * A SHARED pool may go on with new memory, its next generation: what was taken before stays where it is until it is given
 * back, and the memory of a generation is returned once nothing of it is taken any more. Leases are of the pool, offsets
 * count on over all its generations (pool/part.h), so that neither ever means two things.
 */
#ifndef CONVOY_POOL_POOL_H
#define CONVOY_POOL_POOL_H

#include "convoy/base.h"
#include "pool/lease.h"

#define CONVOY_POOL_TOGETHER_MAX 256u /* slots in one take_all */
#define CONVOY_POOL_POISON 0xdbu /* debug builds: every byte of a freed block of memory that this process can write */

enum convoy_pool_kind {
    CONVOY_POOL_SHARED = 0,
    CONVOY_POOL_HOST,
    CONVOY_POOL_DEVICE,
};

#define CONVOY_POOL_GENERATIONS 8u /* that are alive at a time: the current one and those of which something is taken */

/* There is something to reap. Called under the pool's lock. */
typedef void (*convoy_pool_ended_fn)(void *user);

/* Asked before the memory of a generation is returned, without the lock. false: somebody else still holds it, and it stays
 * mapped while the process lives. */
typedef bool (*convoy_pool_let_go_fn)(void *user, void *memory, uint64_t bytes);

struct convoy_pool_options {
    enum convoy_pool_kind kind;
    void *memory;         /* HOST, DEVICE: stays the host's */
    uint64_t bytes;       /* SHARED: rounded up to whole blocks; else down */
    uint64_t block_bytes; /* 0 = CONVOY_BUDDY_BLOCK_BYTES */
    uint32_t lease_max;
    uint32_t reference_max;
    convoy_pool_ended_fn ended; /* may be NULL */
    convoy_pool_let_go_fn let_go; /* may be NULL */
    void *user;
};

/* A leased piece. bytes 0: no memory, address NULL. */
struct convoy_slot {
    convoy_lease lease;
    uint64_t offset; /* on the line of all generations */
    uint64_t bytes;  /* of the block */
    void *address;
};

struct convoy_pool_figures {
    struct convoy_buddy_figures blocks;
    struct convoy_lease_figures leases;
    uint64_t exhausted; /* requests refused since blocks or leases were missing */
    uint64_t expired;   /* leases retired by their deadline */
    uint64_t old_count; /* generations before the current one that still have their memory, */
    uint64_t old_bytes; /* how much that is, */
    uint64_t old_taken; /* and what of it is taken; blocks is of the current one alone */
};

struct convoy_pool;

/* INVALID_ARGUMENT: block_bytes is no power of two, no memory was given, no lease is wanted; LIMIT: more than 2^31
 * blocks; NO_MEMORY; SYSTEM: shared memory cannot be had. pool_out: gives */
int32_t convoy_pool_open(const struct convoy_pool_options *options, struct convoy_pool **pool_out,
                         struct convoy_error *error);

/* Nobody uses it any more; views that peers have mapped stay theirs. */
void convoy_pool_close(struct convoy_pool *pool);
/* The same, but its memory stays mapped while the process lives, and nobody is asked: something may still write there. */
void convoy_pool_leave(struct convoy_pool *pool);

/* Of the current generation. SHARED: the file to give to peers (borrowed), else -1. */
int convoy_pool_file(const struct convoy_pool *pool);
void *convoy_pool_memory(const struct convoy_pool *pool);
uint64_t convoy_pool_bytes(const struct convoy_pool *pool);

/* A generation as others may map it. */
struct convoy_pool_share {
    uint64_t generation;
    uint64_t base; /* its first offset */
    uint64_t bytes;
    int file; /* -1 = there is none */
};

/* generation 0 = the current one. share_out->file: gives, unless -1. false: it has ended, or there is no descriptor left. */
bool convoy_pool_share(struct convoy_pool *pool, uint64_t generation, struct convoy_pool_share *share_out);
/* The current one, without a file. */
struct convoy_pool_share convoy_pool_current(struct convoy_pool *pool);
/* The generation that has this offset, without a file. false: it has ended, or never was. */
bool convoy_pool_generation_at(struct convoy_pool *pool, uint64_t offset, struct convoy_pool_share *share_out);

struct convoy_pool_request {
    struct convoy_lease_owner owner;
    uint64_t bytes; /* 0: a lease without memory */
    uint64_t now_ns;
    uint64_t deadline_ns;
};

/* POOL_EXHAUSTED: not now; LIMIT: never in this pool, or a request id that is too long. */
int32_t convoy_pool_take(struct convoy_pool *pool, const struct convoy_pool_request *request,
                         struct convoy_slot *slot_out, struct convoy_error *error);

/* `count` slots for one owner, or none of them. bytes: of each, not 0. LIMIT also: more than TOGETHER_MAX. */
int32_t convoy_pool_take_all(struct convoy_pool *pool, const struct convoy_pool_request *request, const uint64_t *bytes,
                             size_t count, struct convoy_slot *slots_out, struct convoy_error *error);

/* Whether slots of these sizes fit together now; one of 0 needs no room. POOL_EXHAUSTED: not now. LIMIT: never. */
int32_t convoy_pool_fits(struct convoy_pool *pool, const uint64_t *bytes, size_t count, struct convoy_error *error);

/*
 * The next generation, with `count` slots taken in it; nothing else is taken there before the switch. To be called by one
 * thread at a time, and followed by switch or undo. INVALID_ARGUMENT: its size, or the slots do not fit into it. UNSUPPORTED:
 * the memory is the host's. LIMIT: as many generations as can be are alive. NO_MEMORY; SYSTEM.
 */
int32_t convoy_pool_renew(struct convoy_pool *pool, uint64_t bytes, const struct convoy_pool_request *each, uint32_t count,
                          struct convoy_slot *slots_out, struct convoy_error *error);
/* Between renew and what follows it: where that generation lies. */
void *convoy_pool_made(struct convoy_pool *pool, uint64_t *bytes_out);
/* From now on everything is taken there. Its number. */
uint64_t convoy_pool_switch(struct convoy_pool *pool);
/* Instead of switch: it never was. The slots are void. */
void convoy_pool_undo(struct convoy_pool *pool);

/* Whether a generation has ended whose memory is not returned yet. */
bool convoy_pool_has_ended(const struct convoy_pool *pool);
/* Returns the memory of those that have ended, without the lock. How many; their numbers. */
uint32_t convoy_pool_reap(struct convoy_pool *pool, uint64_t generations_out[CONVOY_POOL_GENERATIONS]);

/* As convoy_lease_*; memory of what became free is given back. CLOSED: a stale handle; BAD_STATE; LIMIT: no room for
 * another reference, or more bytes than the block has; NOT_FOUND: that peer has no such reference. */
int32_t convoy_pool_filled(struct convoy_pool *pool, convoy_lease lease, uint64_t bytes, struct convoy_error *error);
int32_t convoy_pool_retire(struct convoy_pool *pool, convoy_lease lease, enum convoy_lease_end end,
                           struct convoy_error *error);
int32_t convoy_pool_adopt(struct convoy_pool *pool, convoy_lease lease, const struct convoy_lease_owner *owner,
                          uint64_t deadline_ns, struct convoy_error *error);
int32_t convoy_pool_refer(struct convoy_pool *pool, convoy_lease lease, uint32_t peer, enum convoy_reference kind,
                          struct convoy_error *error);
int32_t convoy_pool_unrefer(struct convoy_pool *pool, convoy_lease lease, uint32_t peer, enum convoy_reference kind,
                            struct convoy_error *error);

/* Ends all references of a peer that is proven to touch nothing any more. How many leases that concerned. */
uint32_t convoy_pool_drop_peer(struct convoy_pool *pool, uint32_t peer);

/* One that the sweep retired, told while it still is known. request is borrowed for the call. */
typedef void (*convoy_pool_expired_fn)(void *user, const struct convoy_lease_view *view);

/* Retires every lease that is past its deadline. How many. expired: may be NULL; called under the pool's lock. */
uint32_t convoy_pool_sweep(struct convoy_pool *pool, uint64_t now_ns, convoy_pool_expired_fn expired, void *user);

/* The live slot that holds all of [address, address + bytes), as its owner sees it. NOT_FOUND: there is none. */
int32_t convoy_pool_find(struct convoy_pool *pool, const void *address, uint64_t bytes, struct convoy_slot *slot_out,
                         struct convoy_error *error);
/* Whether any of these bytes lie in the memory of a generation that is alive. */
bool convoy_pool_touches(struct convoy_pool *pool, const void *memory, uint64_t bytes);

/* false: stale. view_out->owner.request is copied to request_out (CONVOY_REQUEST_BYTES + 1), which may be NULL. */
bool convoy_pool_look(struct convoy_pool *pool, convoy_lease lease, struct convoy_lease_view *view_out,
                      char *request_out);

void convoy_pool_figures(struct convoy_pool *pool, struct convoy_pool_figures *figures_out);

/* NULL, or what is wrong with it: convoy_buddy_check, and that every block has one lease. */
const char *convoy_pool_check(struct convoy_pool *pool);

#endif
