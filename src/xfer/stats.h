/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine counts, measures and holds, as one walk over named samples: JSON and Prometheus text print what it brings,
 * so that there is one list of names. A snapshot is taken under the engine's lock, the walk is over the copy.
 */
#ifndef CONVOY_XFER_STATS_H
#define CONVOY_XFER_STATS_H

#include "xfer/landing.h"
#include "xfer/parts.h"

#define CONVOY_XFER_PEER_STATES 4u /* free, then CONVOY_PEER_IS_* */

struct convoy_xfer_snapshot {
    char session[CONVOY_SESSION_BYTES];
    uint64_t counters[CONVOY_XFER_COUNTER_COUNT];
    struct convoy_latency phases[CONVOY_XFER_PHASE_COUNT][CONVOY_XFER_PATHS];
    struct convoy_pool_figures pool;
    struct convoy_pool_figures notes;
    uint64_t peers[CONVOY_XFER_PEER_STATES];
    uint64_t transfers[CONVOY_XFER_STATES];
    uint64_t lent; /* sends that a peer may read */
    uint64_t offers_waiting;
    struct convoy_xfer_admission admission;
    uint64_t completions;
    uint64_t copies;
    uint64_t orders;
    uint64_t backlog;
    bool has_device;
    bool has_device_pool;
    uint64_t device_copies;
    uint64_t device_lost;
    uint64_t device_bytes;
    struct convoy_pool_figures device_pool;
    bool has_far;
    struct convoy_landing_figures landings;
    uint64_t rewires;
    uint64_t rewire_down_ns;
};

enum convoy_xfer_sample_type { CONVOY_XFER_COUNTER = 0, CONVOY_XFER_GAUGE, CONVOY_XFER_HISTOGRAM };

/* One number, or one histogram. All samples of a name come one after another. */
struct convoy_xfer_sample {
    const char *section; /* object of the JSON */
    const char *name;    /* in it; the metric is convoy_transfer_<section>_<name>, but without "counters" */
    const char *help;
    enum convoy_xfer_sample_type type;
    const char *label; /* NULL = none; else of this sample among those of one name */
    const char *value;
    uint64_t number;
    const struct convoy_latency *histogram;
};

typedef void (*convoy_xfer_sample_fn)(void *user, const struct convoy_xfer_sample *sample);

/* [engine's lock] */
void convoy_xfer_snapshot_take(struct convoy_xfer *engine, struct convoy_xfer_snapshot *snapshot_out);
void convoy_xfer_snapshot_walk(const struct convoy_xfer_snapshot *snapshot, convoy_xfer_sample_fn sample, void *user);

/* "lend", "push", ...; "none" for 0. */
const char *convoy_xfer_path_name(uint32_t path);
const char *convoy_xfer_peer_state_name(uint32_t state);

#endif
