/* SPDX-License-Identifier: Apache-2.0 */
/* A few poll members on one pretended engine, and calls of one or two lists with room for their results. */
#ifndef CONVOY_TESTS_POLL_RANKS_H
#define CONVOY_TESTS_POLL_RANKS_H

#include "poll/poll.h"
#include "tests/lib/fake_engine.h"

#define POLL_RANKS_MAX 8u
#define POLL_ENTRIES_MAX 4200u

/* One member's call and result. */
struct poll_rank {
    struct convoy_poll *poll;
    struct convoy_poll_list lists[CONVOY_POLL_LISTS_MAX];
    struct convoy_poll_call call;
    struct convoy_poll_list_result list_results[CONVOY_POLL_LISTS_MAX];
    struct convoy_poll_result result;
    struct convoy_report report;
    struct convoy_error error;
    convoy_operation operation;
    uint8_t states[CONVOY_POLL_LISTS_MAX][POLL_ENTRIES_MAX];
    struct convoy_poll_outcome outcomes[CONVOY_POLL_LISTS_MAX][64];
};

struct poll_ranks {
    struct fake_group *group;
    uint32_t count;
    struct poll_rank rank[POLL_RANKS_MAX];
};

/* blob_bytes 0 = 16 KiB. faults may be NULL. gives (poll_ranks_destroy) */
struct poll_ranks *poll_ranks_create(uint32_t count, uint32_t blob_bytes, const struct convoy_poll_faults *faults);
void poll_ranks_destroy(struct poll_ranks *ranks);

/* Empties the call; outputs are filled with 0xa5. */
void poll_rank_reset(struct poll_rank *rank);

/* Appends a list of bytes; keys NULL = positional. */
struct convoy_poll_list *poll_rank_add(struct poll_rank *rank, const uint8_t *states, const uint64_t *keys,
                                       size_t count);

/* Asserts that every rank starts, then ends with the status. */
void poll_ranks_run(struct poll_ranks *ranks, int32_t status);

#endif
