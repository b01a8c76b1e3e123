/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the parent of a replay shares with its ranks: live counters, and what each rank says when it ends. Plain
 * shared memory, so that nothing a rank wrote is lost when it is killed. Counters have one writer, the rank; what is
 * not atomic is written before `phase` says ended.
 */
#ifndef CONVOY_CLI_BOARD_H
#define CONVOY_CLI_BOARD_H

#include "cli/histogram.h"
#include "cli/plain_host.h"
#include "cli/shape.h"
#include "cli/swapper.h"

#include <stdatomic.h>
#include <stdbool.h>

enum convoy_board_phase {
    CONVOY_BOARD_OPENING,
    CONVOY_BOARD_RUNNING,
    CONVOY_BOARD_DECIDED, /* has its outcome, keeps its groups open until the others have theirs */
    CONVOY_BOARD_ENDED,
};

enum convoy_board_outcome {
    CONVOY_BOARD_NONE, /* it never got that far: killed */
    CONVOY_BOARD_FINISHED,
    CONVOY_BOARD_STOPPED, /* all ranks agreed to stop */
    CONVOY_BOARD_FAILED,
};

/* The failure a rank ended with. */
struct convoy_board_failure {
    char call[16]; /* "open", "gather", "reduce", "swap" */
    struct convoy_error error;
    int32_t abandon_status; /* what giving the open operation up said; OK when nothing was open */
    bool was_abandoned;
    uint32_t field;
    uint32_t member_count;
    uint64_t elapsed_ns;
    struct convoy_member_report members[CONVOY_SHAPE_RANKS_MAX];
};

struct convoy_board_rank {
    _Atomic uint32_t phase;
    _Atomic uint64_t steps;
    _Atomic uint64_t trace_step;
    _Atomic uint64_t rounds;
    _Atomic uint64_t committed;
    _Atomic uint64_t dropped;
    uint32_t outcome;
    bool is_log_full;
    uint64_t wall_ns; /* from the first step to the last */
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES];
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
    struct convoy_histogram gather;
    struct convoy_histogram reduce;
    struct convoy_board_failure failure;
    struct convoy_swap_tally swaps;
};

struct convoy_board {
    _Atomic uint32_t is_stop_wanted; /* ranks vote to stop at a step boundary */
    uint32_t rank_count;
    struct convoy_board_rank ranks[CONVOY_SHAPE_RANKS_MAX];
};

/* Shared with all later children; NULL: no memory. gives (convoy_board_destroy) */
struct convoy_board *convoy_board_create(uint32_t rank_count);
void convoy_board_destroy(struct convoy_board *board);

/* Ranks that have reached a phase. */
uint32_t convoy_board_count(const struct convoy_board *board, enum convoy_board_phase phase);

#endif
