/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a replay as a host: its three groups and the two calls of a step, each logged before and after.
 *
 *   world          all ranks, with the row
 *   tp-dD-cC       ranks that differ in tp only: level 1 of the reduce
 *   cp-dD-tT       ranks that differ in cp only: level 2
 */
#ifndef CONVOY_CLI_RANK_H
#define CONVOY_CLI_RANK_H

#include "cli/board.h"
#include "cli/run_fault.h"
#include "cli/run_log.h"
#include "cli/run_swap.h"
#include "cli/scheduler.h"
#include "cli/serving_host.h"
#include "cli/swapper.h"

#define CONVOY_RANK_PORTS_MAX (1u + 2u * CONVOY_SHAPE_RANKS_MAX)

#define CONVOY_RANK_VOTE_EMPTY 1u /* AND: nobody has work left */
#define CONVOY_RANK_VOTE_STOP 2u  /* OR: someone wants to stop */

struct convoy_rank_setup {
    struct convoy_shape shape;
    const struct convoy_trace *trace;
    const char *plugin;
    const char *log_directory;
    uint64_t log_limit_bytes;
    uint64_t seed;
    uint64_t timeout_ns;
    double speed; /* 0 = as fast as it goes */
    struct convoy_run_fault fault;
    struct convoy_run_swap swap;
    uint16_t ports[CONVOY_RANK_PORTS_MAX]; /* one per group of more than one member, see convoy_rank_port_count */
    struct convoy_board *board;
};

struct convoy_rank {
    const struct convoy_rank_setup *setup;
    uint32_t rank;
    struct convoy_board_rank *board; /* this rank's part */
    struct convoy_serving_host host;
    convoy_host_group *world;
    convoy_host_group *tp;
    convoy_host_group *cp;
    struct convoy_swapper swapper;
    uint32_t swaps_begun;
    struct convoy_run_log log;
    struct convoy_error error;
    struct convoy_report report; /* of the last call that failed */
    struct convoy_member_report members[CONVOY_SHAPE_RANKS_MAX];
    uint64_t ids[CONVOY_SCHEDULER_QUEUE_MAX];
    uint8_t states[CONVOY_SCHEDULER_QUEUE_MAX];
    uint8_t agreed[CONVOY_SCHEDULER_QUEUE_MAX];
};

/* What one gather takes and gives, beside the tables that only the log sees. */
struct convoy_rank_gather {
    uint64_t step; /* executed steps before this one; the tag is step + 1 */
    uint64_t trace_step;
    uint64_t tag;
    uint32_t votes;
    int64_t row[CONVOY_SCHEDULER_COLUMNS];
    uint32_t votes_and; /* out */
    uint32_t votes_or;  /* out */
};

uint32_t convoy_rank_port_count(const struct convoy_shape *shape);

/* Opens log, plugin and groups. On failure: fini, and the error is in rank->error. */
int32_t convoy_rank_init(struct convoy_rank *rank, const struct convoy_rank_setup *setup, uint32_t index);
void convoy_rank_fini(struct convoy_rank *rank);

int32_t convoy_rank_gather(struct convoy_rank *rank, struct convoy_rank_gather *gather);

/* Two-level reduce of rank->ids and rank->states into rank->agreed. */
int32_t convoy_rank_reduce(struct convoy_rank *rank, uint64_t step, uint32_t count);

/* Before a step: begins a swap that is due, and notes one that is over. */
int32_t convoy_rank_swap(struct convoy_rank *rank, uint64_t step);

/* Puts the failure of `call` on the board, gives the open operation up when every rank has decided. */
void convoy_rank_fail(struct convoy_rank *rank, const char *call, int32_t status);

#endif
