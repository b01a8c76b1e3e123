/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the records of a pipeline amount to, hop by hop. Pure: the two sides of a hop have one clock, so a phase may begin
 * on one and end on the other.
 *
 *   sender     started --- ready == stage ==> staged ---------- offered --------- loaded         returned
 *   receiver                                        == ready ==> offered == load ==> loaded ... released
 *                                                                                              == release ==> returned
 *   Pushed into the receiver's memory instead of lent:
 *              staged == reserve ==> offered == push ==> loaded (the receiver has it)
 */
#ifndef CONVOY_CLI_PIPELINE_FIGURES_H
#define CONVOY_CLI_PIPELINE_FIGURES_H

#include "cli/pipeline_board.h"

#define CONVOY_PIPELINE_PATHS (CONVOY_PATH_RMA + 1u)

enum convoy_pipeline_stretch {
    CONVOY_PIPELINE_STAGE,
    CONVOY_PIPELINE_RESERVE,
    CONVOY_PIPELINE_PUSH,
    CONVOY_PIPELINE_READY,
    CONVOY_PIPELINE_LOAD,
    CONVOY_PIPELINE_RELEASE,
    CONVOY_PIPELINE_WHOLE, /* from the sender's start, stage included, to the receiver's end */
    CONVOY_PIPELINE_STRETCHES,
};

struct convoy_pipeline_quantiles {
    uint32_t count; /* 0: this path has no such phase, or the library does not tell */
    uint64_t median_ns;
    uint64_t p99_ns;
};

struct convoy_pipeline_figures {
    uint32_t requests; /* that both sides are done with */
    uint64_t asked_bytes; /* of tensors, exact */
    uint64_t moved_bytes; /* copied, by both sides together */
    uint64_t busy_ns;     /* while at least one request was on this hop */
    uint32_t paths[CONVOY_PIPELINE_PATHS];
    uint64_t retries; /* messages, and sends, again */
    uint64_t refusals;
    struct convoy_pipeline_quantiles stretches[CONVOY_PIPELINE_STRETCHES];
};

/* Whether a record has this phase, and how long it was. */
bool convoy_pipeline_stretch_of(const struct convoy_pipeline_record *record, enum convoy_pipeline_stretch stretch,
                                uint64_t *ns_out);

/* Which way the bytes went: as the side says that had to do with it. A receiver only sees that it copied. */
uint32_t convoy_pipeline_path_taken(uint32_t sender_path, uint32_t receiver_path);

/* NO_MEMORY. */
int32_t convoy_pipeline_figures_make(struct convoy_pipeline_board *board, uint32_t hop,
                                     struct convoy_pipeline_figures *figures_out, struct convoy_error *error);

const char *convoy_pipeline_stretch_name(enum convoy_pipeline_stretch stretch);

/* "lend", "push", ...; a number that this command does not know is "other". */
const char *convoy_pipeline_path_name(uint32_t path);

#endif
