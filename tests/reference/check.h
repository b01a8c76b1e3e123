/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks through the logs of all ranks in step and checks that nobody committed ahead, that the ranks of a shard
 * committed and dropped the same requests in the same step, that every result equals the local computation, that every
 * round is on all ranks, and at the end that every request was decided exactly once.
 */
#ifndef REFERENCE_CHECK_H
#define REFERENCE_CHECK_H

#include "reference/log.h"

struct reference_check {
    struct reference_log *logs; /* one per rank, in rank order; all of one shape */
    uint32_t ranks;
    int may_end_early;   /* a rank failed: what the last step lacks is no error, but nothing may be right without it */
    uint64_t steps;      /* out */
    uint64_t reductions; /* out: rounds of a whole shard */
    uint64_t committed;  /* out */
    uint64_t dropped;    /* out */
    int has_ended_early; /* out */
};

/* 0, or -1 with a line on stderr. */
int reference_check_run(struct reference_check *check);

#endif
