/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies in a fixed amount of memory: 32 buckets for each power of two, so a quantile is off by 3 % at most. */
#ifndef CONVOY_CLI_HISTOGRAM_H
#define CONVOY_CLI_HISTOGRAM_H

#include <stdint.h>

#define CONVOY_HISTOGRAM_SUB_BITS 5u
#define CONVOY_HISTOGRAM_SUB (1u << CONVOY_HISTOGRAM_SUB_BITS)
#define CONVOY_HISTOGRAM_BUCKETS (CONVOY_HISTOGRAM_SUB * 60u)

/* Zeroed is empty. One writer. */
struct convoy_histogram {
    uint64_t count;
    uint64_t max_ns;
    uint64_t buckets[CONVOY_HISTOGRAM_BUCKETS];
};

void convoy_histogram_add(struct convoy_histogram *histogram, uint64_t ns);

/* Upper edge of the bucket that holds the quantile, at most the maximum; 0 when empty. per_mille: 500 is the median. */
uint64_t convoy_histogram_quantile(const struct convoy_histogram *histogram, uint32_t per_mille);

#endif
