/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of the shared segment's cells. Part of the wire version: builds of different releases share one segment, so
 * every offset here is pinned by a static assertion and a golden image.
 *
 *   cold line  64 bytes  what must agree, read only when fingerprints differ
 *   hot line   64 bytes  word 8 | fingerprint 8 | votes 4 | info 4 | tag 8 | first 32 payload bytes
 *   more       the rest of the payload, contiguous with the first 32 bytes
 *
 * The word says which round the cell holds and is the only thing two members ever race for:
 *
 *   bits 63..62 seal reason (0 = published), 61..52 sealer, 51..40 generation, 39..0 round
 *
 * A member publishes by swapping its old word for {generation, round}; whoever gives up on a round swaps unpublished
 * words to {reason, sealer, generation, round}. Exactly one of the two wins, and all members see the same winner.
 */
#ifndef CONVOY_ROUND_CELL_H
#define CONVOY_ROUND_CELL_H

#include "round/engine.h"

#include <assert.h>
#include "core/memory.h"

#include <stdatomic.h>

#define CONVOY_CELL_INLINE_BYTES 32u

#define CONVOY_SEAL_NONE 0u
#define CONVOY_SEAL_LOST 1u    /* its process has ended, or its host is gone */
#define CONVOY_SEAL_ABANDON 2u /* a member gave up on the round */
#define CONVOY_SEAL_CLOSED 3u  /* its owner said goodbye */

#define CONVOY_WORD_ROUND_MASK ((UINT64_C(1) << 40) - 1)
#define CONVOY_GENERATION_MAX 4095u

/* convoy_cell.info: length in the low 24 bits, flags above */
#define CONVOY_INFO_LENGTH_MASK 0x00ffffffu
#define CONVOY_INFO_ERROR 0x01000000u /* error row: the payload is an int32 reason */
#define CONVOY_INFO_SHORT 0x02000000u /* the payload has the family's form for short rounds */

struct convoy_cell {
    struct convoy_round_header cold;
    _Atomic uint64_t word;
    uint64_t fingerprint;
    uint32_t votes;
    uint32_t info;
    uint64_t tag;
    uint8_t payload[CONVOY_CELL_INLINE_BYTES]; /* goes on behind the struct */
};

static_assert(sizeof(struct convoy_round_header) == 64, "the cold line is one cache line");
static_assert(offsetof(struct convoy_cell, word) == 64, "the hot line starts a cache line");
static_assert(offsetof(struct convoy_cell, payload) == 96, "payload starts in the hot line");
static_assert(sizeof(struct convoy_cell) == 128, "two cache lines");

/* Bytes of one cell with room for `payload_bytes`. */
static inline size_t convoy_cell_bytes(size_t payload_bytes)
{
    size_t bytes = offsetof(struct convoy_cell, payload) + payload_bytes;
    size_t whole = (bytes + CONVOY_LINE_BYTES - 1) & ~(size_t)(CONVOY_LINE_BYTES - 1);
    return whole < sizeof(struct convoy_cell) ? sizeof(struct convoy_cell) : whole;
}

static inline uint64_t convoy_word(uint32_t generation, uint64_t round)
{
    return ((uint64_t)generation << 40) | (round & CONVOY_WORD_ROUND_MASK);
}

static inline uint64_t convoy_word_sealed(uint32_t generation, uint64_t round, uint32_t reason, uint32_t sealer)
{
    return ((uint64_t)reason << 62) | ((uint64_t)(sealer & 1023u) << 52) | convoy_word(generation, round);
}

static inline uint32_t convoy_word_reason(uint64_t word)
{
    return (uint32_t)(word >> 62);
}

static inline uint32_t convoy_word_sealer(uint64_t word)
{
    return (uint32_t)(word >> 52) & 1023u;
}

static inline uint32_t convoy_word_generation(uint64_t word)
{
    return (uint32_t)(word >> 40) & CONVOY_GENERATION_MAX;
}

static inline uint64_t convoy_word_round(uint64_t word)
{
    return word & CONVOY_WORD_ROUND_MASK;
}

/* What a cell says about one round. */
enum convoy_cell_view {
    CONVOY_CELL_PENDING = 0, /* not yet */
    CONVOY_CELL_PUBLISHED,
    CONVOY_CELL_SEALED,
    CONVOY_CELL_MOVED_ON, /* its owner is in a later generation: this round never completed */
};

/* Pure. In one generation a cell of round r's parity holds r - 2, r, or a seal of r: nobody can be two rounds ahead. */
static inline enum convoy_cell_view convoy_cell_view_of(uint64_t word, uint32_t generation, uint64_t round)
{
    uint64_t key = convoy_word(generation, round);
    if (word == key) {
        return CONVOY_CELL_PUBLISHED;
    }
    uint64_t bare = word & ((UINT64_C(1) << 52) - 1);
    if (bare == key && convoy_word_reason(word) != CONVOY_SEAL_NONE) {
        return CONVOY_CELL_SEALED;
    }
    return convoy_word_generation(word) > generation ? CONVOY_CELL_MOVED_ON : CONVOY_CELL_PENDING;
}

#endif
