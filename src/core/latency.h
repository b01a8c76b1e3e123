/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency histogram on a logarithmic scale: four buckets to each power of two, so an estimate is at most 19 % off, from
 * 1 ns to 2^44 ns (five hours) in fixed memory. One thread writes without locked instructions, any thread reads.
 *
 *   bucket   0   1   2   3   4    5    6    7    8     9    10  ...   values in (low, high], so that a bucket's end is
 *   high     1   2   3   4   5    6    7    8    10    12   14        also a Prometheus "le"
 */
#ifndef CONVOY_CORE_LATENCY_H
#define CONVOY_CORE_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#define CONVOY_LATENCY_OCTAVES 44u
#define CONVOY_LATENCY_BUCKETS (4u * (CONVOY_LATENCY_OCTAVES - 1u) + 1u) /* the last takes all that is larger */

/* All zero is an empty histogram. */
struct convoy_latency {
    _Atomic uint64_t buckets[CONVOY_LATENCY_BUCKETS];
    _Atomic uint64_t sum_ns;
    _Atomic uint64_t max_ns;
};

/* What a reader saw. Its count is that of its buckets; sum and max may be one value ahead or behind. */
struct convoy_latency_view {
    uint64_t buckets[CONVOY_LATENCY_BUCKETS];
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
};

/* [one thread at a time] */
void convoy_latency_record(struct convoy_latency *histogram, uint64_t value_ns);

/* Overwrites the view. [any thread] */
void convoy_latency_read(const struct convoy_latency *histogram, struct convoy_latency_view *view_out);

/* Whether it has a value. [any thread] */
bool convoy_latency_is_used(const struct convoy_latency *histogram);

/* The bucket of a value, and the largest value of a bucket (UINT64_MAX for the last). */
uint32_t convoy_latency_bucket(uint64_t value_ns);
uint64_t convoy_latency_high(uint32_t bucket);

/* Values at most 2^octave ns, octave < CONVOY_LATENCY_OCTAVES; exact. */
uint64_t convoy_latency_count_within(const struct convoy_latency_view *view, uint32_t octave);

/* The value that `share_ppm` (1 to 1,000,000) of the values do not exceed: the end of its bucket, but never more than
 * the largest value seen. 0 when empty. */
uint64_t convoy_latency_percentile(const struct convoy_latency_view *view, uint32_t share_ppm);

#endif
