/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real round engines of one group in one process, opened as a host opens them (by threads, which meet by an
 * all-gather). Then the caller drives them from one thread, in any order, or from several. Each "process" is a
 * descriptor that neighbours_kill makes readable. A round's result is the sum of its first payload bytes.
 */
#ifndef CONVOY_TESTS_LIB_NEIGHBOURS_H
#define CONVOY_TESTS_LIB_NEIGHBOURS_H

#include "round/engine_internal.h"
#include "tests/lib/allgather.h"

#define NEIGHBOURS_MAX 12u
#define NEIGHBOURS_EPOCH 40u
#define NEIGHBOURS_BLOB_BYTES 16384u
#define NEIGHBOURS_LONG_NS (20 * CONVOY_NS_PER_S) /* a deadline that is not meant to pass */

struct neighbour {
    struct neighbours *all;
    struct convoy_runtime *runtime;
    struct convoy_engine *engine;
    struct convoy_group_options options;
    struct test_allgather_member gather;
    int life;
    struct convoy_contribution contribution; /* of its next rounds; merge and state are filled */
    convoy_operation operation;
    uint32_t sum;
    uint32_t absent;
    int32_t refuse; /* what merging a payload returns */
    struct convoy_round_summary summary;
    struct convoy_error error;
    struct convoy_report report;
    struct convoy_member_report rows[NEIGHBOURS_MAX];
};

struct neighbours {
    uint32_t count;
    int32_t ids[NEIGHBOURS_MAX]; /* 10, 11, ... */
    const char *settings;
    struct test_allgather *meeting;
    struct neighbour members[NEIGHBOURS_MAX];
};

/* settings: JSON, or NULL. critical_flags: of the group. gives (neighbours_destroy) */
struct neighbours *neighbours_create(uint32_t count, const char *settings, uint32_t critical_flags);
void neighbours_destroy(struct neighbours *all);

/* Says goodbye for this member alone. */
void neighbours_close(struct neighbours *all, uint32_t index);
void neighbours_kill(struct neighbours *all, uint32_t index);

/* Starts a round with a number; returns publish's status. */
int32_t neighbours_start(struct neighbours *all, uint32_t index, uint8_t number);
int32_t neighbours_test(struct neighbours *all, uint32_t index);
int32_t neighbours_wait(struct neighbours *all, uint32_t index, uint64_t timeout_ns);

/* A round of the members from `first` on: all start, then all see the sum. */
void neighbours_expect_round(struct neighbours *all, uint32_t first, uint32_t count);

/* The engine's report, and its row of a member; fails when there is none. */
void neighbours_report(struct neighbours *all, uint32_t index);
const struct convoy_member_report *neighbours_row(struct neighbours *all, uint32_t index, uint32_t member);

#endif
