/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two one-way queues of small entries in memory that two processes share: what one side puts, the other takes, in order,
 * without a system call. Neither side believes the other: whatever a peer has scribbled over the memory, put and take stay
 * inside it and answer OK, FULL, EMPTY or MALFORMED.
 *
 *   shared memory      [ queue 0 ][ queue 1 ]     side 0 puts into queue 0 and takes from queue 1, side 1 the other way
 *   queue              [ produced ][ consumed ][ sleeping ][ entry 0 ] ... [ entry 63 ]    one cache line each
 *   entry              [ number 4 ][ type 2 ][ length 2 ][ data 56 ]
 *
 * The producer fills an entry and then stores its number, counted from 1 over all entries (release); the consumer looks
 * at the number alone, copies the entry and then stores how many it has consumed, which is what makes room. `produced` is
 * for people who look at a dump.
 *
 * Sleeping: a consumer that is about to sleep says so and looks once more; a producer that finds it saying so is told to
 * wake it, by whatever the two have agreed on (an eventfd). A peer that lies about this delays nobody but itself and its
 * reader, whose sleep has an end of its own.
 */
#ifndef CONVOY_XFER_RING_H
#define CONVOY_XFER_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_RING_ENTRIES 64u
#define CONVOY_RING_DATA_BYTES 56u
#define CONVOY_RING_BYTES (2u * (3u + CONVOY_RING_ENTRIES) * 64u) /* of shared memory */

enum convoy_ring_status {
    CONVOY_RING_OK = 0,
    CONVOY_RING_FULL,
    CONVOY_RING_EMPTY,
    CONVOY_RING_MALFORMED, /* the peer wrote what it must not; stays */
};

struct convoy_ring_entry {
    uint16_t type;
    uint16_t length; /* up to CONVOY_RING_DATA_BYTES */
    uint8_t data[CONVOY_RING_DATA_BYTES];
};

struct convoy_ring_queue;

/* One side's view. Plain data. */
struct convoy_ring {
    struct convoy_ring_queue *out;
    struct convoy_ring_queue *in;
    uint32_t put;   /* entries so far */
    uint32_t taken; /* entries so far */
    bool is_malformed;
};

/* memory: CONVOY_RING_BYTES, aligned to a cache line, all zero before either side looks at it. side: 0 or 1. */
void convoy_ring_init(struct convoy_ring *ring, void *memory, uint32_t side);

/* Sends a copy. must_wake_out: the peer said that it sleeps. [one thread at a time] */
enum convoy_ring_status convoy_ring_put(struct convoy_ring *ring, const struct convoy_ring_entry *entry,
                                        bool *must_wake_out);

/* Takes the oldest. [one thread at a time] */
enum convoy_ring_status convoy_ring_take(struct convoy_ring *ring, struct convoy_ring_entry *entry_out);

/* true: nothing is there, and whoever puts something now will wake; convoy_ring_awake is to be called afterwards. */
bool convoy_ring_doze(struct convoy_ring *ring);
void convoy_ring_awake(struct convoy_ring *ring);

#endif
