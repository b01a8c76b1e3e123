/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a T x C grid on pretended engines: rank t * C + c is in a first group of T ranks (tensor parallel) and in a
 * second group of C ranks (context parallel). Every round that ends is logged as a host would see it: which group, what
 * went in, what came out.
 */
#ifndef CONVOY_TESTS_POLL_GRID_H
#define CONVOY_TESTS_POLL_GRID_H

#include "poll/two_level.h"
#include "tests/lib/poll_ranks.h"

#define POLL_GRID_LOG_MAX 256u
#define POLL_GRID_VECTOR_MAX 16u

/* One reduction (its operation is always MIN) of one list. */
struct poll_grid_reduction {
    uint32_t group; /* 1 or 2 */
    int32_t status;
    uint32_t count;
    uint8_t input[POLL_GRID_VECTOR_MAX];
    uint8_t output[POLL_GRID_VECTOR_MAX];
};

struct poll_grid_log {
    uint32_t count;
    struct poll_grid_reduction reductions[POLL_GRID_LOG_MAX]; /* those beyond are only counted */
};

/* What the record callback of one group of one rank needs. */
struct poll_grid_recorder {
    struct poll_grid_log *log;
    uint32_t group;
};

struct poll_grid {
    uint32_t t_count;
    uint32_t c_count;
    struct fake_group *first[4];
    struct fake_group *second[4];
    struct convoy_poll *second_poll[POLL_RANKS_MAX];
    struct poll_rank rank[POLL_RANKS_MAX]; /* its poll is the first group's */
    struct poll_grid_log log[POLL_RANKS_MAX];
    struct poll_grid_recorder recorders[POLL_RANKS_MAX][2];
};

/* At most 4 x 2. gives (poll_grid_destroy) */
struct poll_grid *poll_grid_create(uint32_t t_count, uint32_t c_count);
void poll_grid_destroy(struct poll_grid *grid);

/* Two-level calls of one rank. */
int32_t poll_grid_start(struct poll_grid *grid, uint32_t rank);
int32_t poll_grid_test(struct poll_grid *grid, uint32_t rank);

/* Everyone starts, then everyone looks twice: once for each level. */
void poll_grid_run(struct poll_grid *grid, int32_t status);

#endif
