/* SPDX-License-Identifier: Apache-2.0 */
/* What the records of poll and of sync rounds do alike. Inside of record*.c only. */
#ifndef CONVOY_PLUGIN_RECORD_PARTS_H
#define CONVOY_PLUGIN_RECORD_PARTS_H

#include "record.h"

/* How long the call took, 0 when it is not timed. */
static inline uint64_t record_take_time(struct convoy_record *record)
{
    uint64_t started_ns = record->started_ns;
    record->started_ns = 0;
    return started_ns != 0 ? convoy_now_ns() - started_ns : 0;
}

static inline void record_count_ok(struct convoy_record *record, uint32_t operation, uint64_t entries,
                                   uint64_t bytes_sent, uint64_t call_ns)
{
    convoy_stats_round_ok(record->stats, operation, entries, bytes_sent, record->waited, call_ns);
}

static inline void record_count(struct convoy_record *record, uint32_t operation, int32_t status, uint64_t entries,
                         uint64_t bytes_sent, uint64_t call_ns)
{
    if (status == CONVOY_OK) {
        record_count_ok(record, operation, entries, bytes_sent, call_ns);
        return;
    }
    const struct convoy_stats_sample sample = {
        .operation = operation,
        .status = status,
        .call_ns = call_ns,
        .entries = entries,
        .bytes_sent = bytes_sent,
    };
    convoy_stats_round(record->stats, &sample);
    convoy_stats_waited(record->stats, operation, record->waited);
}

static inline bool record_is_loss(int32_t status)
{
    return status == CONVOY_BROKEN || status == CONVOY_PEER_LOST;
}

/* A short round: kept, to be written later. */
static inline void record_late(struct convoy_record *record, enum convoy_record_late kind)
{
    record->late_ns = record_take_time(record);
    record->is_broken = false;
    atomic_store_explicit(&record->late, (uint32_t)kind, memory_order_release);
}

#endif
