/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/histogram.h"

static uint32_t histogram_bucket(uint64_t ns)
{
    if (ns < CONVOY_HISTOGRAM_SUB) {
        return (uint32_t)ns;
    }
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(ns) - CONVOY_HISTOGRAM_SUB_BITS;
    return (shift + 1) * CONVOY_HISTOGRAM_SUB + (uint32_t)(ns >> shift) - CONVOY_HISTOGRAM_SUB;
}

static uint64_t histogram_upper_edge(uint32_t bucket)
{
    if (bucket < CONVOY_HISTOGRAM_SUB) {
        return bucket;
    }
    uint32_t shift = bucket / CONVOY_HISTOGRAM_SUB - 1;
    uint64_t base = CONVOY_HISTOGRAM_SUB + bucket % CONVOY_HISTOGRAM_SUB;
    return ((base + 1) << shift) - 1;
}

void convoy_histogram_add(struct convoy_histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
    histogram->buckets[histogram_bucket(ns)]++;
}

uint64_t convoy_histogram_quantile(const struct convoy_histogram *histogram, uint32_t per_mille)
{
    uint64_t wanted = (histogram->count * per_mille + 999) / 1000;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < CONVOY_HISTOGRAM_BUCKETS && wanted != 0; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted) {
            uint64_t edge = histogram_upper_edge(i);
            return edge < histogram->max_ns ? edge : histogram->max_ns;
        }
    }
    return 0;
}
