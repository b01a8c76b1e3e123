/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/states_wide.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define WIDE CONVOY_STATES_WIDE
#define WITH_AVX2 __attribute__((target("avx2")))
#define INLINE_AVX2 static inline __attribute__((always_inline, target("avx2")))

INLINE_AVX2 __m256i block_load(const uint8_t *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

INLINE_AVX2 void block_store(uint8_t *to, __m256i block)
{
    _mm256_storeu_si256((__m256i *)(void *)to, block);
}

/* All bits that are set in any of four words. */
INLINE_AVX2 uint64_t block_or(__m256i block)
{
    __m128i half = _mm_or_si128(_mm256_castsi256_si128(block), _mm256_extracti128_si256(block, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_or_si128(half, _mm_unpackhi_epi64(half, half)));
}

/* As convoy_word_unknown, by the byte. */
INLINE_AVX2 uint64_t block_unknown(__m256i top)
{
    return block_or(_mm256_or_si256(top, _mm256_add_epi8(top, _mm256_set1_epi8(0x7b))));
}

WITH_AVX2 bool convoy_states_copy_wide(uint8_t *into, const uint8_t *from, size_t count)
{
    size_t last = count - WIDE;
    __m256i block = block_load(from + last);
    __m256i top = block;
    block_store(into + last, block);
    for (size_t done = 0; done < last; done += WIDE) {
        block = block_load(from + done);
        top = _mm256_max_epu8(top, block);
        block_store(into + done, block);
    }
    return (block_unknown(top) & CONVOY_STATES_HIGH_BITS) == 0;
}

/* What has been seen so far, by lane. */
struct lanes {
    __m256i moved;
    __m256i top;
};

INLINE_AVX2 void merge_block(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists, size_t at,
                             struct lanes *lanes)
{
    const uint8_t *from = lists->first + at;
    __m256i lowest = block_load(from);
    __m256i top = _mm256_max_epu8(lanes->top, lowest);
    for (uint32_t i = 1; i < lists->members; i++) {
        from += lists->stride;
        __m256i theirs = block_load(from);
        top = _mm256_max_epu8(top, theirs);
        lowest = _mm256_min_epu8(lowest, theirs);
    }
    lanes->top = top;
    lanes->moved = _mm256_or_si256(lanes->moved, _mm256_xor_si256(lowest, block_load(into + at)));
    block_store(into + at, lowest);
    block_store(copy + at, lowest);
}

WITH_AVX2 struct convoy_states_seen convoy_states_merge_wide(uint8_t *into, uint8_t *copy,
                                                             const struct convoy_states_lists *lists, size_t count)
{
    struct lanes lanes = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    size_t last = count - WIDE;
    for (size_t at = 0; at < last; at += WIDE) {
        merge_block(into, copy, lists, at, &lanes);
    }
    merge_block(into, copy, lists, last, &lanes); /* where it overlaps it finds what was just written */
    return (struct convoy_states_seen){.moved = block_or(lanes.moved), .unknown = block_unknown(lanes.top)};
}

#else

bool convoy_states_copy_wide(uint8_t *into, const uint8_t *from, size_t count)
{
    return convoy_states_copy(into, from, count);
}

struct convoy_states_seen convoy_states_merge_wide(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                                   size_t count)
{
    return convoy_states_merge(into, copy, lists, count);
}

#endif
