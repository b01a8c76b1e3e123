/* SPDX-License-Identifier: Apache-2.0 */
/* The fault that `convoy run --fault` injects: kill:RANK@STEP, stall:RANK@STEP:MS, diverge:RANK@STEP. */
#ifndef CONVOY_CLI_RUN_FAULT_H
#define CONVOY_CLI_RUN_FAULT_H

#include "convoy/base.h"

enum convoy_run_fault_kind {
    CONVOY_RUN_FAULT_NONE,
    CONVOY_RUN_FAULT_KILL,    /* SIGKILL before the step's gather */
    CONVOY_RUN_FAULT_STALL,   /* sleeps before the step's gather */
    CONVOY_RUN_FAULT_DIVERGE, /* brings another step's tag to the gather */
};

struct convoy_run_fault {
    enum convoy_run_fault_kind kind;
    uint32_t rank;
    uint64_t step; /* counts executed steps from 0; steps that the replay skips do not count */
    uint64_t stall_ms;
};

/* INVALID_ARGUMENT: the text has the word and what is allowed. */
int32_t convoy_run_fault_parse(struct convoy_run_fault *fault_out, const char *text, uint32_t rank_count,
                               struct convoy_error *error);

#endif
