/* SPDX-License-Identifier: Apache-2.0 */
/* What the user of `convoy run` asked for, checked and with defaults filled in. */
#ifndef CONVOY_CLI_RUN_OPTIONS_H
#define CONVOY_CLI_RUN_OPTIONS_H

#include "cli/options.h"
#include "cli/place.h"
#include "cli/pipeline_shape.h"
#include "cli/run_fault.h"
#include "cli/run_swap.h"
#include "cli/shape.h"

#include <stdbool.h>

struct convoy_run_options {
    struct convoy_shape shape;
    struct convoy_run_fault fault;
    const char *fault_text; /* as it was given; NULL = none */
    struct convoy_run_swap swap;
    const char *swap_text; /* as it was given; NULL = none */
    const char *trace;
    const char *plugin;
    const char *out;
    uint64_t seed;
    double speed; /* 0 = as fast as it goes */
    uint64_t timeout_ms;
    uint64_t deadline_s; /* 0 = by the length of the trace */
    uint64_t log_mib;
    struct convoy_pipeline_shape roles; /* of the pipeline; the rest is about it too */
    uint64_t requests;                  /* 0 = no pipeline */
    uint64_t hosts;
    const char *tensors;   /* NULL = the default ones */
    const char *trace_out; /* NULL = none */
    char trace_default[CONVOY_PLACE_PATH_BYTES];
    char plugin_default[CONVOY_PLACE_PATH_BYTES];
};

/* Texts borrow from argv and from the struct itself, which must stay where it is. With --help the text is printed and
 * wants_help_out set. INVALID_ARGUMENT: the text has option, value and what is allowed. */
int32_t convoy_run_options_parse(struct convoy_run_options *options, int argc, char **argv, bool *wants_help_out,
                                 struct convoy_error *error);

#endif
