/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buddy arithmetic: which blocks of a range are taken. Pure: it knows offsets and sizes, no memory, no lock, no clock.
 *
 * A block is the smallest one (`block_bytes`) times a power of two, and starts at a multiple of its own size. Taking
 * splits the first block of the smallest order that is large enough, keeps the lower half and puts the upper halves at
 * the end of their orders' lists; giving back merges with the other half as far as that is free, and puts what comes of
 * it at the end. Each order's list is first in, first out, so that an offset is used again as late as possible. Every
 * call takes at most one step per order (32), and none allocates.
 *
 * A capacity that is no power of two is a row of such blocks, the largest first; they never merge with each other.
 */
#ifndef CONVOY_POOL_BUDDY_H
#define CONVOY_POOL_BUDDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_BUDDY_ORDERS 32u
#define CONVOY_BUDDY_BLOCK_BYTES (UINT64_C(1) << 20) /* the usual smallest block: 1 MiB */

struct convoy_buddy;

/* All in bytes but for the counts. free = capacity - taken; taken - asked is lost to rounding. */
struct convoy_buddy_figures {
    uint64_t capacity;
    uint64_t block; /* the smallest */
    uint64_t asked;
    uint64_t taken;
    uint64_t free;
    uint64_t largest_free; /* block; 0 = none */
    uint64_t live_count;
    uint64_t free_counts[CONVOY_BUDDY_ORDERS]; /* free blocks of block << i bytes */
    double fragmentation;                      /* 1 - largest_free / free; 0 when nothing is free */
};

enum convoy_buddy_status {
    CONVOY_BUDDY_OK = 0,
    CONVOY_BUDDY_ZERO,      /* nothing was asked for */
    CONVOY_BUDDY_TOO_LARGE, /* for this range, even if it were empty */
    CONVOY_BUDDY_FULL,      /* for now */
    CONVOY_BUDDY_UNKNOWN,   /* no live block starts there */
};

struct convoy_buddy_block {
    uint64_t offset;
    uint64_t bytes; /* of the block, at least what was asked for */
};

/* For a range of capacity_bytes, rounded down to a multiple of block_bytes, which is a power of two. NULL: out of memory,
 * or not one block, or more than 2^31 of them. gives */
struct convoy_buddy *convoy_buddy_create(uint64_t capacity_bytes, uint64_t block_bytes);
void convoy_buddy_destroy(struct convoy_buddy *buddy);

/* block_out is written on OK only. */
enum convoy_buddy_status convoy_buddy_take(struct convoy_buddy *buddy, uint64_t bytes,
                                           struct convoy_buddy_block *block_out);

/* Whether blocks for all these sizes could be taken now, together. FULL: not now. TOO_LARGE: not even when
 * nothing is taken. A size of 0 needs no block. */
enum convoy_buddy_status convoy_buddy_fits(const struct convoy_buddy *buddy, const uint64_t *sizes, size_t count);

/* Takes all of them, or none; blocks_out[i] is for sizes[i]. */
enum convoy_buddy_status convoy_buddy_take_all(struct convoy_buddy *buddy, const uint64_t *sizes, size_t count,
                                               struct convoy_buddy_block *blocks_out);

/* Takes that very block, of which all is free. UNKNOWN: it is not, or there cannot be such a block. */
enum convoy_buddy_status convoy_buddy_take_at(struct convoy_buddy *buddy, const struct convoy_buddy_block *block,
                                              uint64_t bytes);

/* The block that starts at offset. OK, or UNKNOWN: nothing was changed. */
enum convoy_buddy_status convoy_buddy_give(struct convoy_buddy *buddy, uint64_t offset);

/* The live block that holds all of [offset, offset + bytes). false: there is none, or it ends before. */
bool convoy_buddy_find(const struct convoy_buddy *buddy, uint64_t offset, uint64_t bytes,
                       struct convoy_buddy_block *block_out);

/* Bytes that taking `bytes` would take; 0: more than the largest block there is, or nothing asked for. */
uint64_t convoy_buddy_rounded(const struct convoy_buddy *buddy, uint64_t bytes);

void convoy_buddy_figures(const struct convoy_buddy *buddy, struct convoy_buddy_figures *figures_out);

/* Looks at everything: every byte belongs to one block, lists and sums are right, no two free halves lie side by side.
 * NULL, or what is wrong. Takes time in proportion to the range. */
const char *convoy_buddy_check(const struct convoy_buddy *buddy);

#endif
