/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States by the block, for the path of every round: sixteen bytes at a time, eight in short lists. A list whose length
 * is no multiple of a block ends with a block that overlaps the one before it. Sources may have any alignment, and may
 * lie in memory that others write: what is used of them is what was checked. Pure.
 */
#ifndef CONVOY_POLL_STATES_H
#define CONVOY_POLL_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CONVOY_STATES_BLOCK 16u
#define CONVOY_STATES_WORD 8u
#define CONVOY_STATES_HIGH_BITS 0x8080808080808080ull

/* The compilers make one instruction of each of the loops over a block, with the instructions that every machine has. */
static inline void convoy_block_max(uint8_t *into, const uint8_t *from)
{
    for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
        into[i] = from[i] > into[i] ? from[i] : into[i];
    }
}

static inline void convoy_block_min(uint8_t *into, const uint8_t *from)
{
    for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
        into[i] = from[i] < into[i] ? from[i] : into[i];
    }
}

/* High bits of those of eight states that are above 4: it is set, or adding 123 sets it. Other bits are of no use. */
static inline uint64_t convoy_word_unknown(uint64_t word)
{
    return word | (word + 0x7b7b7b7b7b7b7b7bull);
}

static inline bool convoy_word_has_unknown(uint64_t word)
{
    return (convoy_word_unknown(word) & CONVOY_STATES_HIGH_BITS) != 0;
}

static inline bool convoy_block_has_unknown(const uint8_t *states)
{
    uint64_t words[CONVOY_STATES_BLOCK / CONVOY_STATES_WORD];
    memcpy(words, states, sizeof words);
    return ((convoy_word_unknown(words[0]) | convoy_word_unknown(words[1])) & CONVOY_STATES_HIGH_BITS) != 0;
}

/* MIN of eight known states in each: where a byte of `mine` is not below that of `theirs`, subtracting it leaves the
 * high bit, which then selects the whole byte. */
static inline uint64_t convoy_word_min(uint64_t mine, uint64_t theirs)
{
    uint64_t takes = ((((mine | CONVOY_STATES_HIGH_BITS) - theirs) & CONVOY_STATES_HIGH_BITS) >> 7) * 0xff;
    return (theirs & takes) | (mine & ~takes);
}

/* Fewer than eight bytes, in at most two reads or writes; what is beyond them is 0. */
static inline uint64_t convoy_word_load_part(const uint8_t *from, size_t bytes)
{
    uint64_t word = 0;
    if (bytes >= 4) {
        uint32_t low;
        uint32_t high;
        memcpy(&low, from, sizeof low);
        memcpy(&high, from + bytes - 4, sizeof high);
        return low | (uint64_t)high << (8 * (bytes - 4));
    }
    for (size_t i = 0; i < bytes; i++) {
        word |= (uint64_t)from[i] << (8 * i);
    }
    return word;
}

static inline void convoy_word_store_part(uint8_t *to, uint64_t word, size_t bytes)
{
    if (bytes >= 4) {
        uint32_t low = (uint32_t)word;
        uint32_t high = (uint32_t)(word >> (8 * (bytes - 4)));
        memcpy(to, &low, sizeof low);
        memcpy(to + bytes - 4, &high, sizeof high);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(word >> (8 * i));
    }
}

static inline uint64_t convoy_word_load(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static inline void convoy_word_store(uint8_t *to, uint64_t word)
{
    memcpy(to, &word, sizeof word);
}

/* Copies states that do not overlap. false: some are above 4. The largest of each lane over all blocks is enough to see
 * that. */
static inline bool convoy_states_copy(uint8_t *into, const uint8_t *from, size_t count)
{
    if (count < CONVOY_STATES_WORD) {
        uint64_t word = convoy_word_load_part(from, count);
        convoy_word_store_part(into, word, count);
        return !convoy_word_has_unknown(word);
    }
    if (count < CONVOY_STATES_BLOCK) {
        uint64_t first = convoy_word_load(from);
        uint64_t last = convoy_word_load(from + count - CONVOY_STATES_WORD);
        convoy_word_store(into, first);
        convoy_word_store(into + count - CONVOY_STATES_WORD, last);
        return ((convoy_word_unknown(first) | convoy_word_unknown(last)) & CONVOY_STATES_HIGH_BITS) == 0;
    }
    uint8_t top[CONVOY_STATES_BLOCK] = {0};
    uint8_t block[CONVOY_STATES_BLOCK];
    size_t last = count - CONVOY_STATES_BLOCK;
    for (size_t done = 0; done < last; done += CONVOY_STATES_BLOCK) {
        memcpy(block, from + done, sizeof block);
        convoy_block_max(top, block);
        memcpy(into + done, block, sizeof block);
    }
    memcpy(block, from + last, sizeof block);
    convoy_block_max(top, block);
    memcpy(into + last, block, sizeof block);
    return !convoy_block_has_unknown(top);
}

/* Copies any bytes that do not overlap, of a length that is not worth a call. */
static inline void convoy_states_spread(uint8_t *into, const uint8_t *from, size_t count)
{
    uint8_t block[CONVOY_STATES_BLOCK];
    if (count < CONVOY_STATES_BLOCK) {
        if (count < CONVOY_STATES_WORD) {
            convoy_word_store_part(into, convoy_word_load_part(from, count), count);
        } else {
            uint64_t last = convoy_word_load(from + count - CONVOY_STATES_WORD);
            convoy_word_store(into, convoy_word_load(from));
            convoy_word_store(into + count - CONVOY_STATES_WORD, last);
        }
        return;
    }
    size_t last = count - CONVOY_STATES_BLOCK;
    for (size_t done = 0; done < last; done += CONVOY_STATES_BLOCK) {
        memcpy(block, from + done, sizeof block);
        memcpy(into + done, block, sizeof block);
    }
    memcpy(block, from + last, sizeof block);
    memcpy(into + last, block, sizeof block);
}

/* Lists of `members` members that lie `stride` bytes apart. */
struct convoy_states_lists {
    const uint8_t *first;
    size_t stride;
    uint32_t members;
};

/* What a merge has seen. */
struct convoy_states_seen {
    uint64_t moved;   /* not 0: the outcome differs from what was there before */
    uint64_t unknown; /* with a high bit: a state is above 4, and the outcome is of no use */
};

static inline uint64_t convoy_merge_word(const struct convoy_states_lists *lists, size_t at, uint64_t last,
                                         struct convoy_states_seen *seen)
{
    const uint8_t *from = lists->first + at;
    uint64_t lowest = convoy_word_load(from);
    seen->unknown |= convoy_word_unknown(lowest);
    for (uint32_t i = 1; i < lists->members; i++) {
        from += lists->stride;
        uint64_t theirs = convoy_word_load(from);
        seen->unknown |= convoy_word_unknown(theirs);
        lowest = convoy_word_min(lowest, theirs);
    }
    seen->moved |= lowest ^ last;
    return lowest;
}

static inline void convoy_merge_part(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                     size_t bytes, struct convoy_states_seen *seen)
{
    const uint8_t *from = lists->first;
    uint64_t lowest = convoy_word_load_part(from, bytes);
    seen->unknown |= convoy_word_unknown(lowest);
    for (uint32_t i = 1; i < lists->members; i++) {
        from += lists->stride;
        uint64_t theirs = convoy_word_load_part(from, bytes);
        seen->unknown |= convoy_word_unknown(theirs);
        lowest = convoy_word_min(lowest, theirs);
    }
    seen->moved |= lowest ^ convoy_word_load_part(into, bytes);
    convoy_word_store_part(into, lowest, bytes);
    convoy_word_store_part(copy, lowest, bytes);
}

/* Blocks: `moved` and `top` are gathered by lane. */
static inline void convoy_merge_block(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists, size_t at,
                                      uint8_t *moved, uint8_t *top)
{
    uint8_t lowest[CONVOY_STATES_BLOCK];
    uint8_t last[CONVOY_STATES_BLOCK];
    const uint8_t *from = lists->first + at;
    memcpy(lowest, from, sizeof lowest);
    convoy_block_max(top, lowest);
    for (uint32_t i = 1; i < lists->members; i++) {
        uint8_t theirs[CONVOY_STATES_BLOCK];
        from += lists->stride;
        memcpy(theirs, from, sizeof theirs);
        convoy_block_max(top, theirs);
        convoy_block_min(lowest, theirs);
    }
    memcpy(last, into + at, sizeof last);
    for (uint32_t i = 0; i < CONVOY_STATES_BLOCK; i++) {
        moved[i] |= last[i] ^ lowest[i];
    }
    memcpy(into + at, lowest, sizeof lowest);
    memcpy(copy + at, lowest, sizeof lowest);
}

/* MIN over all lists at once. into: the outcome of the round before, which may be anything. copy: gets the new one, too;
 * may be `into`. */
static inline struct convoy_states_seen convoy_states_merge(uint8_t *into, uint8_t *copy,
                                                            const struct convoy_states_lists *lists, size_t count)
{
    struct convoy_states_seen seen = {0, 0};
    if (count < CONVOY_STATES_WORD) {
        convoy_merge_part(into, copy, lists, count, &seen);
        return seen;
    }
    if (count < CONVOY_STATES_BLOCK) {
        size_t at = count - CONVOY_STATES_WORD;
        uint64_t last = convoy_word_load(into + at);
        uint64_t first = convoy_merge_word(lists, 0, convoy_word_load(into), &seen);
        convoy_word_store(into, first);
        convoy_word_store(copy, first);
        if (at != 0) {
            uint64_t rest = convoy_merge_word(lists, at, last, &seen);
            convoy_word_store(into + at, rest);
            convoy_word_store(copy + at, rest);
        }
        return seen;
    }
    uint8_t moved[CONVOY_STATES_BLOCK] = {0};
    uint8_t top[CONVOY_STATES_BLOCK] = {0};
    size_t last = count - CONVOY_STATES_BLOCK;
    for (size_t at = 0; at < last; at += CONVOY_STATES_BLOCK) {
        convoy_merge_block(into, copy, lists, at, moved, top);
    }
    convoy_merge_block(into, copy, lists, last, moved, top); /* where it overlaps it finds what was just written */
    seen.moved = convoy_word_load(moved) | convoy_word_load(moved + CONVOY_STATES_WORD);
    seen.unknown = convoy_word_unknown(convoy_word_load(top)) | convoy_word_unknown(convoy_word_load(top + CONVOY_STATES_WORD));
    return seen;
}

#endif
