/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identities that a merged outcome has ended (Failed or Success). It is fed from merged outcomes only, in round order
 * and in the order of the outcome, so it is the same on all members. Bounded: the identity that was longest neither
 * ended nor listed is forgotten first; if it is listed again afterwards, it counts as a new one. Pure; memory comes
 * from init.
 */
#ifndef CONVOY_POLL_DECIDED_H
#define CONVOY_POLL_DECIDED_H

#include "core/memory.h"
#include <stdbool.h>
#include <stdint.h>

#define CONVOY_DECIDED_NONE 255u

struct convoy_decided_entry {
    uint64_t key;
    uint32_t generation;
    uint32_t newer; /* neighbours by age; entry numbers */
    uint32_t older;
    uint8_t list;
    uint8_t state;
};

struct convoy_decided {
    uint32_t capacity; /* power of two */
    uint32_t count;
    uint32_t newest;
    uint32_t oldest;
    uint64_t version; /* changes when an identity is added or forgotten */
    struct convoy_decided_entry *entries;
    uint32_t *slots; /* hash table of entry number + 1, 0 = free; twice the capacity */
};

/* Makes it new; capacity: rounded up to a power of two. Its tables are placed as in core/memory.h: twice, the second time for
 * use. */
void convoy_decided_place(struct convoy_decided *decided, uint32_t capacity, struct convoy_memory_plan *plan);

/* How the identity ended, or CONVOY_DECIDED_NONE; makes it the newest. */
uint8_t convoy_decided_find(struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation);

/* Adds an identity that is not there, as the newest; forgets the oldest when full. */
void convoy_decided_add(struct convoy_decided *decided, uint32_t list, uint64_t key, uint32_t generation,
                        uint8_t state);

#endif
