/* SPDX-License-Identifier: Apache-2.0 */
/* Where a check stands in the logs of all ranks, and the reading of one call that some of the ranks make together. */
#ifndef REFERENCE_WALK_H
#define REFERENCE_WALK_H

#include "reference/check.h"

#define REFERENCE_STATE_FAILED 0u
#define REFERENCE_STATE_SUCCESS 4u

enum reference_verdict {
    REFERENCE_WRONG = -1,
    REFERENCE_GO_ON = 0,
    REFERENCE_ENDED = 1, /* and all is well */
};

struct reference_walk {
    struct reference_check *check;
    struct reference_record *inputs;  /* one per rank */
    struct reference_record *results; /* one per rank */
    uint8_t *is_decided;              /* one per request */
    uint64_t trace_step;
    uint64_t round;
};

/* Ranks first, first + 1, ... that make one call together. */
struct reference_span {
    uint32_t first;
    uint32_t count;
    uint8_t input_tag;
};

/* Prints step, rank and what is wrong. */
enum reference_verdict reference_walk_wrong(const struct reference_walk *walk, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum reference_verdict reference_walk_next(struct reference_walk *walk, uint32_t rank, struct reference_record *record);

/* Reads input and result of every rank of the span that made the call. missing_out: ranks that did not. */
enum reference_verdict reference_walk_call(struct reference_walk *walk, const struct reference_span *span,
                                           uint32_t *missing_out);

int reference_walk_is_ok(const struct reference_walk *walk, uint32_t rank);
uint32_t reference_walk_count_ok(const struct reference_walk *walk, const struct reference_span *span);

/* A call that not every rank made, or that did not end OK everywhere. */
enum reference_verdict reference_walk_incomplete(struct reference_walk *walk, const struct reference_span *span,
                                                 uint32_t missing);

#endif
