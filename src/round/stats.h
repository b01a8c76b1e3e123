/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group has done since it was opened: fixed memory, always on. The thread inside the group's calls writes
 * (convoy_stats_round, once per round); any thread reads, while a round hangs too. As JSON, and as Prometheus text.
 */
#ifndef CONVOY_ROUND_STATS_H
#define CONVOY_ROUND_STATS_H

#include "core/latency.h"

#include "convoy/base.h"

#include <jansson.h>
#include <stdatomic.h>

/* How a round was waited for: the most expensive thing that was done. */
enum convoy_wait_kind {
    CONVOY_WAIT_NONE = 0, /* every peer had published already */
    CONVOY_WAIT_SPIN,
    CONVOY_WAIT_YIELD,
    CONVOY_WAIT_SLEEP,
    CONVOY_WAIT_NETWORK,
    CONVOY_WAIT_KINDS
};

#define CONVOY_STATS_OPERATIONS 3u /* CONVOY_OPERATION_POLL, _POLL_KEYED, _SYNC */
#define CONVOY_STATS_OUTCOME_OK 0u
#define CONVOY_STATS_OUTCOMES 13u  /* the statuses that rounds end with, and one for all others; see stats.c */

/* One finished round, or one that a call gave up to wait for (TIMED_OUT and CANCELED: the same round may end later). */
struct convoy_stats_sample {
    uint32_t operation; /* CONVOY_OPERATION_* */
    int32_t status;
    enum convoy_wait_kind wait_kind;
    uint64_t call_ns; /* whole call, or start to end in the split form; 0 = this round was not timed */
    uint64_t wait_ns; /* part of it that was waiting; 0 = not timed, or none */
    uint64_t yields;
    uint64_t sleeps;
    uint64_t wakes; /* sleepers that this member woke */
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t entries; /* states or rows of this member */
    uint64_t unknown_states;
    uint64_t foreign_stamps;
    uint64_t demoted;
    uint64_t injected;
};

struct convoy_operation_stats {
    _Atomic uint64_t bytes_sent; /* from here to the first outcome: what every round counts */
    _Atomic uint64_t bytes_received;
    _Atomic uint64_t entries;
    _Atomic uint64_t waits[CONVOY_WAIT_KINDS];
    _Atomic uint64_t outcomes[CONVOY_STATS_OUTCOMES];
    _Atomic uint64_t yields;
    _Atomic uint64_t sleeps;
    _Atomic uint64_t wakes;
    _Atomic uint64_t unknown_states;
    _Atomic uint64_t foreign_stamps;
    _Atomic uint64_t demoted;
    _Atomic uint64_t injected;
    struct convoy_latency call_ns;
    struct convoy_latency wait_ns;
};

/* Events outside of rounds; any thread counts them. */
enum convoy_stats_event {
    CONVOY_EVENT_STALL = 0, /* an interval of rounds without progress */
    CONVOY_EVENT_ABANDON,
    CONVOY_EVENT_CANCEL,
    CONVOY_EVENT_REOPEN,
    CONVOY_EVENT_MEMBER_LOST,
    CONVOY_EVENT_SUCCESSION, /* this member took over as leader of its host */
    CONVOY_EVENT_STALE_EPOCH,
    CONVOY_EVENT_STRANGER, /* a connection or message that is none of a member's */
    CONVOY_STATS_EVENTS
};

/* All zero is a fresh one. */
struct convoy_group_stats {
    struct convoy_operation_stats operations[CONVOY_STATS_OPERATIONS];
    _Atomic uint64_t events[CONVOY_STATS_EVENTS];
    _Atomic uint64_t rewires; /* ways to members on other hosts that were made anew: one end has moved to another build */
    _Atomic uint64_t rewire_down_ns_max; /* the longest that one was down for that */
};

/* Whose they are, for the reader. */
struct convoy_stats_source {
    const struct convoy_group_stats *stats;
    const char *group;
    size_t group_length;
    int32_t rank;
};

/* An unknown operation counts as nothing. [serialized per group; never blocks; never allocates] */
void convoy_stats_round(struct convoy_group_stats *stats, const struct convoy_stats_sample *sample);

/* One writer: no locked instruction. */
static inline void convoy_stats_add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

/* How the round that was counted last was waited for: moves it from "none" to that kind. wait_kind NONE counts bytes
 * only. [serialized per group; never blocks; never allocates] */
struct convoy_stats_wait {
    enum convoy_wait_kind kind;
    uint32_t yields;
    uint32_t sleeps;
    uint32_t wakes;
    uint64_t wait_ns;
    uint64_t bytes_received;
};
void convoy_stats_waited(struct convoy_group_stats *stats, uint32_t operation, const struct convoy_stats_wait *wait);

/* convoy_stats_round and convoy_stats_waited for the usual round: it ended OK, and nothing beside these is to be
 * counted. */
static inline void convoy_stats_round_ok(struct convoy_group_stats *stats, uint32_t operation, uint64_t entries,
                                         uint64_t bytes_sent, const struct convoy_stats_wait *wait, uint64_t call_ns)
{
    struct convoy_operation_stats *counters = &stats->operations[operation - CONVOY_OPERATION_POLL];
    convoy_stats_add(&counters->outcomes[CONVOY_STATS_OUTCOME_OK], 1);
    convoy_stats_add(&counters->entries, entries);
    convoy_stats_add(&counters->bytes_sent, bytes_sent);
    if (__builtin_expect(call_ns != 0, 0)) {
        convoy_latency_record(&counters->call_ns, call_ns);
    }
    if (__builtin_expect(wait->kind <= CONVOY_WAIT_SPIN && wait->wakes == 0, 1)) {
        convoy_stats_add(&counters->waits[wait->kind], 1);
        convoy_stats_add(&counters->bytes_received, wait->bytes_received);
        return;
    }
    convoy_stats_add(&counters->waits[CONVOY_WAIT_NONE], 1);
    convoy_stats_waited(stats, operation, wait);
}

/* [any thread; never blocks] */
void convoy_stats_event(struct convoy_group_stats *stats, enum convoy_stats_event event);

/* JSON object of one group; NULL = out of memory. gives [any thread] */
json_t *convoy_stats_json(const struct convoy_stats_source *source);

/*
 * Prometheus text of several groups: one HELP and TYPE line per metric, labels group and rank. Writes at most
 * capacity - 1 bytes and a zero, and returns the whole length, so a first call with capacity 0 tells what is needed;
 * counters that move in between may need a few bytes more. Never allocates. [any thread]
 */
size_t convoy_stats_prometheus(const struct convoy_stats_source *sources, size_t count, char *text, size_t capacity);

#endif
