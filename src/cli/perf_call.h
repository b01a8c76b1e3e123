/* SPDX-License-Identifier: Apache-2.0 */
/* The call that `convoy perf` measures: a group and its preallocated arguments. */
#ifndef CONVOY_CLI_PERF_CALL_H
#define CONVOY_CLI_PERF_CALL_H

#include "cli/perf_rank.h"

struct convoy_perf_call {
    struct convoy_plain_host *host;      /* borrows */
    const struct convoy_perf_load *load; /* borrows */
    uint32_t rank;
    convoy_group *group;
    struct convoy_poll_call poll;
    struct convoy_poll_list lists[CONVOY_POLL_LISTS_MAX];
    struct convoy_poll_result poll_result;
    struct convoy_poll_list_result list_results[CONVOY_POLL_LISTS_MAX];
    uint8_t *states; /* [lists][entries], also the results behind them */
    uint64_t *keys;  /* [entries], shared by the lists */
    struct convoy_sync_call sync;
    struct convoy_sync_result sync_result;
    int64_t row[8];
    int64_t *table; /* [ranks][8] */
};

/* Opens the group, which waits for the other ranks. call_out: gives (convoy_perf_call_destroy) */
int32_t convoy_perf_call_create(struct convoy_plain_host *host, const struct convoy_perf_load *load,
                                const struct convoy_perf_place *place, struct convoy_perf_call **call_out,
                                struct convoy_error *error);
void convoy_perf_call_destroy(struct convoy_perf_call *call);

/* Changes the input of the next round, outside the measured time. */
void convoy_perf_call_prepare(struct convoy_perf_call *call, uint64_t round);

int32_t convoy_perf_call_make(struct convoy_perf_call *call, struct convoy_error *error);

#endif
