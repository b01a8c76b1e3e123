/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bulk in one rank (tests/lib/ranks.h): a context, memory that streams land in, and a record of what came. Transfer
 * t of a node is the t-th region of its memory; its generation is 1 until the test changes it. For unit tests only.
 */
#ifndef TESTS_LIB_BULKNODE_H
#define TESTS_LIB_BULKNODE_H

#include "net/bulk.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <stdbool.h>

#define BULKNODE_RANKS 3
#define BULKNODE_TRANSFERS 64u
#define BULKNODE_COOKIES 512u

/* Lies in the ranks' shared memory. */
struct bulknode_shared {
    struct {
        uint64_t bytes;
        uint8_t address[2048];
    } ports[BULKNODE_RANKS];
    uint64_t numbers[16]; /* for the test */
};

struct bulknode {
    struct convoy_runtime *runtime;
    struct convoy_bulk *bulk;
    const struct rank *rank;
    struct bulknode_shared *shared;
    uint8_t *memory;
    size_t region_bytes;
    uint64_t generations[BULKNODE_TRANSFERS];
    uint64_t landed[BULKNODE_TRANSFERS]; /* bytes */
    uint64_t landed_chunks;
    uint64_t resolves;
    uint64_t frames;
    uint64_t wrong_frames;
    uint64_t next_frame; /* number that the next one must have */
    uint64_t released;
    uint64_t ended;
    uint64_t aborted;
    uint64_t moved;
    uint64_t downs;
    bool is_released[BULKNODE_COOKIES];
    int32_t statuses[BULKNODE_COOKIES]; /* of ended streams; 1 = not yet */
    uint64_t lost[BULKNODE_COOKIES];
};

/* Settings of the contexts that are opened from now on: JSON, or NULL. */
extern const char *bulknode_settings;

/* options: NULL, or stream_count, window and with_rma to use. All ranks call it; returns when every rank
 * has its address out. */
void bulknode_open(struct bulknode *node, const struct rank *rank, size_t region_bytes,
                   const struct convoy_bulk_options *options);
/* Without a rank: no addresses are exchanged. */
void bulknode_make(struct bulknode *node, size_t region_bytes, const struct convoy_bulk_options *options);
void bulknode_connect(struct bulknode *node, uint32_t peer);

/* Bytes of transfer t at a place. */
void bulknode_fill(uint8_t *to, uint64_t transfer, size_t offset, size_t bytes);
/* Whether the region has what was filled in elsewhere. */
bool bulknode_is_right(const struct bulknode *node, uint64_t transfer, size_t bytes);

/* The numbered frame, `bytes` long (at least 8). */
int32_t bulknode_frame(struct bulknode *node, uint32_t peer, uint64_t number, size_t bytes);

/* One stream from one piece of memory, cookie = transfer. */
uint64_t bulknode_send(struct bulknode *node, uint32_t peer, uint64_t transfer, const void *data, size_t bytes,
                       uint32_t flags);

/* Works until the counter has the value; false: timeout_ms passed. */
bool bulknode_await(struct bulknode *node, const uint64_t *counter, uint64_t value, uint32_t timeout_ms);
/* Works for a while whatever comes. */
void bulknode_work(struct bulknode *node, uint32_t ms);

/* An integer of its description: of peer, or of the object with peer < 0. */
uint64_t bulknode_count(struct bulknode *node, int peer, const char *name);

/* Returns milliseconds that closing took. */
uint64_t bulknode_close(struct bulknode *node, uint64_t timeout_ns);

#endif
