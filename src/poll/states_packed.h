/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States by the half byte, where that makes one cache line of a cell of what would be two. (Of longer lists the lines are
 * fetched together anyway, and packing takes as long as it saves.) The first half of the states lies in the low halves
 * of the bytes, the second half in the high ones, so that packing and merging need no shuffles; an odd last one has a
 * byte of its own. Pure.
 *
 *   n states, h = n / 2     byte j < h:  state j | state (h + j) << 4       byte h, n odd:  state n - 1
 */
#ifndef CONVOY_POLL_STATES_PACKED_H
#define CONVOY_POLL_STATES_PACKED_H

#include "core/fault.h"
#include "poll/states.h"

#define CONVOY_PACKED_MIN 33u /* the first line of a cell has room for 32 bytes */
#define CONVOY_PACKED_MAX 64u
#define CONVOY_PACKED_LOW 0x0fu
#define CONVOY_PACKED_HIGH 0xf0u

static inline bool convoy_packed_pays(size_t count)
{
    return count >= CONVOY_PACKED_MIN && count <= CONVOY_PACKED_MAX;
}

static inline size_t convoy_packed_bytes(size_t count)
{
    return count / 2 + count % 2;
}

static inline uint8_t convoy_packed_state(const uint8_t *packed, size_t count, size_t at)
{
    size_t half = count / 2;
    if (at < half) {
        return CONVOY_MUTATED(packed_halves_swapped) ? packed[at] >> 4 : packed[at] & CONVOY_PACKED_LOW;
    }
    return at < 2 * half ? packed[at - half] >> 4 : packed[half];
}

static inline void convoy_pack_block(uint8_t *into, const uint8_t *low, const uint8_t *high)
{
    uint8_t packed[CONVOY_STATES_BLOCK];
    for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
        packed[i] = (uint8_t)(low[i] | high[i] << 4);
    }
    memcpy(into, packed, sizeof packed);
}

/* As many states as it pays for, all known. */
static inline void convoy_states_pack(uint8_t *into, const uint8_t *from, size_t count)
{
    size_t half = count / 2;
    size_t last = half - CONVOY_STATES_BLOCK;
    for (size_t done = 0; done < last; done += CONVOY_STATES_BLOCK) {
        convoy_pack_block(into + done, from + done, from + half + done);
    }
    convoy_pack_block(into + last, from + last, from + half + last);
    if (count % 2 != 0) {
        into[half] = from[count - 1];
    }
}

/* Merging sixteen bytes, thirty-two states: where they lie, and what has been seen so far by lane. */
struct convoy_packed_lanes {
    uint8_t moved[CONVOY_STATES_BLOCK];
    uint8_t top[CONVOY_STATES_BLOCK];
};

static inline void convoy_packed_lanes_add(struct convoy_packed_lanes *lanes, const uint8_t *lowest, const uint8_t *top,
                                           uint8_t *into, uint8_t *copy)
{
    uint8_t last[CONVOY_STATES_BLOCK];
    memcpy(last, into, sizeof last);
    for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
        lanes->moved[i] |= last[i] ^ lowest[i];
    }
    convoy_block_max(lanes->top, top);
    memcpy(into, lowest, sizeof last);
    memcpy(copy, lowest, sizeof last);
}

static inline void convoy_merge_packed_block(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                             size_t at, size_t half, struct convoy_packed_lanes *lanes)
{
    uint8_t low[CONVOY_STATES_BLOCK];
    uint8_t high[CONVOY_STATES_BLOCK];
    uint8_t top_low[CONVOY_STATES_BLOCK] = {0};
    uint8_t top_high[CONVOY_STATES_BLOCK] = {0};
    const uint8_t *from = lists->first + at;
    memset(low, CONVOY_PACKED_LOW, sizeof low);
    memset(high, CONVOY_PACKED_LOW, sizeof high);
    for (uint32_t member = 0; member < lists->members; member++, from += lists->stride) {
        uint8_t packed[CONVOY_STATES_BLOCK];
        uint8_t theirs_low[CONVOY_STATES_BLOCK];
        uint8_t theirs_high[CONVOY_STATES_BLOCK];
        memcpy(packed, from, sizeof packed);
        for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
            theirs_low[i] = packed[i] & CONVOY_PACKED_LOW;
            theirs_high[i] = packed[i] >> 4;
        }
        convoy_block_max(top_low, theirs_low);
        convoy_block_max(top_high, theirs_high);
        convoy_block_min(low, theirs_low);
        convoy_block_min(high, theirs_high);
    }
    convoy_packed_lanes_add(lanes, low, top_low, into + at, copy + at);
    convoy_packed_lanes_add(lanes, high, top_high, into + half + at, copy + half + at);
}

/* The odd last state. */
static inline void convoy_merge_packed_odd(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                           size_t count, struct convoy_states_seen *seen)
{
    const struct convoy_states_lists odd = {lists->first + count / 2, lists->stride, lists->members};
    convoy_merge_part(into + count - 1, copy + count - 1, &odd, 1, seen);
}

/* As convoy_states_merge, of packed lists, into plain ones. */
static inline struct convoy_states_seen convoy_states_merge_packed(uint8_t *into, uint8_t *copy,
                                                                   const struct convoy_states_lists *lists, size_t count)
{
    struct convoy_packed_lanes lanes = {{0}, {0}};
    struct convoy_states_seen seen;
    size_t half = count / 2;
    size_t last = half - CONVOY_STATES_BLOCK;
    for (size_t at = 0; at < last; at += CONVOY_STATES_BLOCK) {
        convoy_merge_packed_block(into, copy, lists, at, half, &lanes);
    }
    convoy_merge_packed_block(into, copy, lists, last, half, &lanes); /* as in convoy_states_merge */
    seen.moved = convoy_word_load(lanes.moved) | convoy_word_load(lanes.moved + CONVOY_STATES_WORD);
    seen.unknown = convoy_word_unknown(convoy_word_load(lanes.top)) |
                   convoy_word_unknown(convoy_word_load(lanes.top + CONVOY_STATES_WORD));
    if (count % 2 != 0) {
        convoy_merge_packed_odd(into, copy, lists, count, &seen);
    }
    return seen;
}

#endif
