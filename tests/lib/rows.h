/* SPDX-License-Identifier: Apache-2.0 */
/* One gather of "sglang-8" rows as a test makes it: call, result and report with room for everything. */
#ifndef TESTS_LIB_ROWS_H
#define TESTS_LIB_ROWS_H

#include "tests/lib/crowd.h"

#define ROWS_WIDTH 8u
#define ROWS_MEMBERS_MAX 16u

/* Columns of the row, as far as tests name them. */
#define ROWS_TOKENS 0u
#define ROWS_GRAPH 2u
#define ROWS_EXTEND 3u
#define ROWS_MODE 5u

#define ROWS_MODE_EXTEND 1
#define ROWS_MODE_DECODE 2
#define ROWS_MODE_IDLE 4

struct rows {
    int64_t row[ROWS_WIDTH];
    struct convoy_sync_call call;
    int64_t table[ROWS_MEMBERS_MAX][ROWS_WIDTH];
    int64_t first[ROWS_MEMBERS_MAX][ROWS_WIDTH];
    struct convoy_sync_reduced reduced[ROWS_WIDTH];
    uint8_t presence[ROWS_MEMBERS_MAX];
    struct convoy_sync_result result;
    struct convoy_report report;
    struct convoy_member_report rows[ROWS_MEMBERS_MAX];
};

/* This rank's member of a group of all with that schema, not opened yet; inner: members of a data-parallel rank.
 * gives (crowd_close) */
struct plugin_member *rows_create(const struct rank *rank, const struct crowd *crowd, const char *name, uint32_t inner);
/* The same, opened. */
struct plugin_member *rows_open(const struct rank *rank, const struct crowd *crowd, const char *name, uint32_t inner);

/* A row of no tokens that is an extend; outputs are filled with 0xa5. */
void rows_reset(struct rows *rows);

/* The whole call; returns its status. */
int32_t rows_gather(struct rows *rows, struct plugin_member *member, uint64_t timeout_ns);

/* The report's row of a rank; fails when there is none. */
const struct convoy_member_report *rows_report(const struct rows *rows, int32_t rank);

#endif
