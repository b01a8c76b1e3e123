/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a hand-over, as the engines of both sides measured them: read out of their statistics (CONVOY_TOPIC_STATS),
 * by the names that are used there.
 */
#ifndef CONVOY_CLI_PERF_TRANSFER_PHASES_H
#define CONVOY_CLI_PERF_TRANSFER_PHASES_H

#include "cli/transfer_host.h"

#define CONVOY_PERF_TRANSFER_PHASES 7u

/* count 0: there was none on the path that was taken. */
struct convoy_perf_transfer_phase {
    uint64_t count;
    uint64_t p50_ns;
    uint64_t p99_ns;
};

const char *convoy_perf_transfer_phase_name(uint32_t phase);

/* From when to when, and on which side. */
const char *convoy_perf_transfer_phase_about(uint32_t phase);

/* What one side's engine measured of its own phases (side: 0 sends, 1 receives); leaves those of the other side alone.
 * MALFORMED: the statistics are not JSON. */
int32_t convoy_perf_transfer_phases_read(const struct convoy_transfer_host *host, uint32_t side,
                                         struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES],
                                         struct convoy_error *error);

/* The same from the text of the statistics. */
int32_t convoy_perf_transfer_phases_parse(const char *text, uint32_t side,
                                          struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES],
                                          struct convoy_error *error);

#endif
