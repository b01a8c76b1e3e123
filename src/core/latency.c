/* SPDX-License-Identifier: Apache-2.0 */
#include "core/latency.h"

#include <stdatomic.h>

#define SHARE_WHOLE 1000000u

/*
 * With v = value - 1 (so that ends are inclusive): below 4 the bucket is v itself; above, the position of the highest
 * bit gives the power of two and the two bits behind it the quarter.
 */
uint32_t convoy_latency_bucket(uint64_t value_ns)
{
    uint64_t v = value_ns != 0 ? value_ns - 1 : 0;
    if (v < 4) {
        return (uint32_t)v;
    }
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(v);
    uint32_t bucket = 4 * (octave - 1) + (uint32_t)((v >> (octave - 2)) & 3);
    return bucket < CONVOY_LATENCY_BUCKETS - 1 ? bucket : CONVOY_LATENCY_BUCKETS - 1;
}

uint64_t convoy_latency_high(uint32_t bucket)
{
    if (bucket >= CONVOY_LATENCY_BUCKETS - 1) {
        return UINT64_MAX;
    }
    if (bucket < 4) {
        return bucket + 1;
    }
    uint32_t octave = bucket / 4 + 1;
    return (uint64_t)(4 + bucket % 4 + 1) << (octave - 2);
}

/* One writer: a plain load and store, no locked instruction. */
static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

void convoy_latency_record(struct convoy_latency *histogram, uint64_t value_ns)
{
    add(&histogram->buckets[convoy_latency_bucket(value_ns)], 1);
    add(&histogram->sum_ns, value_ns);
    if (value_ns > atomic_load_explicit(&histogram->max_ns, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max_ns, value_ns, memory_order_relaxed);
    }
}

void convoy_latency_read(const struct convoy_latency *histogram, struct convoy_latency_view *view_out)
{
    view_out->count = 0;
    for (uint32_t i = 0; i < CONVOY_LATENCY_BUCKETS; i++) {
        view_out->buckets[i] = atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        view_out->count += view_out->buckets[i];
    }
    view_out->sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    view_out->max_ns = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
}

bool convoy_latency_is_used(const struct convoy_latency *histogram)
{
    struct convoy_latency_view view;
    convoy_latency_read(histogram, &view);
    return view.count != 0;
}

uint64_t convoy_latency_count_within(const struct convoy_latency_view *view, uint32_t octave)
{
    uint64_t count = 0;
    uint64_t end = (uint64_t)1 << octave;
    for (uint32_t i = 0; i < CONVOY_LATENCY_BUCKETS && convoy_latency_high(i) <= end; i++) {
        count += view->buckets[i];
    }
    return count;
}

/* The rank, from 1, of the value asked for: ceil(count x share), without overflow. */
static uint64_t rank_of(uint64_t count, uint32_t share_ppm)
{
    uint64_t rank = count / SHARE_WHOLE * share_ppm +
                    (count % SHARE_WHOLE * share_ppm + SHARE_WHOLE - 1) / SHARE_WHOLE;
    return rank != 0 ? rank : 1;
}

uint64_t convoy_latency_percentile(const struct convoy_latency_view *view, uint32_t share_ppm)
{
    if (view->count == 0) {
        return 0;
    }
    uint64_t rank = rank_of(view->count, share_ppm);
    uint64_t seen = 0;
    uint32_t bucket = 0;
    for (; bucket < CONVOY_LATENCY_BUCKETS - 1; bucket++) {
        seen += view->buckets[bucket];
        if (seen >= rank) {
            break;
        }
    }
    uint64_t high = convoy_latency_high(bucket);
    return high < view->max_ns || view->max_ns == 0 ? high : view->max_ns;
}
