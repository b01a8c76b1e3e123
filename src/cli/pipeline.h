/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three-role pipeline of `convoy run`, as its parent sees it: it sets up what the processes share, starts them,
 * watches them, and says what came of it. Everything was right only if every process finished, every byte was compared,
 * every pool is empty again, and the file that the last role wrote equals the one that the first one read.
 */
#ifndef CONVOY_CLI_PIPELINE_H
#define CONVOY_CLI_PIPELINE_H

#include "cli/pipeline_shape.h"
#include "cli/trace.h"

#include <stdbool.h>

#define CONVOY_PIPELINE_REQUESTS_MAX 100000u

struct convoy_pipeline_options {
    struct convoy_pipeline_shape shape;
    uint64_t requests; /* at most so many of the trace's; 0 = no pipeline */
    uint64_t hosts;    /* 1, or 2 network namespaces */
    const char *tensors;   /* safetensors file; NULL = one that is made in `out` */
    const char *trace_out; /* where trace events go; NULL = nowhere */
    const char *plugin;
    const char *swap;    /* another build that members go to in the middle; NULL = none */
    bool must_swap_back; /* and from there to the plugin again */
    const char *out; /* folder, is there */
    const struct convoy_trace *trace;
    double speed;
    uint64_t timeout_ns; /* of every call */
    uint64_t deadline_s; /* of everything; 0 = 120 s beyond what the speed makes of the trace */
};

/* Prints the report on stdout, refusals on stderr. Returns the exit code. */
int convoy_pipeline_run(const struct convoy_pipeline_options *options);

#endif
