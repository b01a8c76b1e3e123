/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what stats count, for its writers of JSON and Prometheus text. */
#ifndef CONVOY_ROUND_STATS_NAMES_H
#define CONVOY_ROUND_STATS_NAMES_H

#include "round/stats.h"

#define CONVOY_STATS_FIELDS 10u

/* A plain counter of an operation. */
struct convoy_stats_field {
    const char *name;
    const char *help;
    size_t offset;
};

extern const struct convoy_stats_field convoy_stats_fields[CONVOY_STATS_FIELDS];

const _Atomic uint64_t *convoy_stats_field_of(const struct convoy_operation_stats *operation, uint32_t field);

/* "OK", "TIMED_OUT", ...; the last is "OTHER". */
const char *convoy_stats_outcome_name(uint32_t outcome);

/* Of CONVOY_OPERATION_*; "none" for any other. */
const char *convoy_stats_operation_name(uint32_t operation);
const char *convoy_stats_wait_name(uint32_t kind);
const char *convoy_stats_event_name(uint32_t event);

uint64_t convoy_stats_load(const _Atomic uint64_t *counter);

#endif
