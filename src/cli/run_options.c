/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_options.h"

#include "cli/pipeline.h"
#include "cli/trace.h"
#include "core/error.h"

#include <string.h>

/* As wide as the parser writes them. */
struct run_shape {
    uint64_t dp;
    uint64_t tp;
    uint64_t cp;
    const char *roles;
};

#define RUN_OPTIONS 18u
#define RUN_ROLES "1:2:1"

static void run_options_table(struct convoy_run_options *options, struct run_shape *shape,
                              struct convoy_option table[RUN_OPTIONS])
{
    const struct convoy_option rows[RUN_OPTIONS] = {
        {"dp", CONVOY_OPTION_NUMBER, &shape->dp, 1, CONVOY_SHAPE_RANKS_MAX, "N", "data-parallel ranks (default 2)"},
        {"tp", CONVOY_OPTION_NUMBER, &shape->tp, 1, CONVOY_SHAPE_RANKS_MAX, "N", "tensor-parallel ranks (default 2)"},
        {"cp", CONVOY_OPTION_NUMBER, &shape->cp, 1, CONVOY_SHAPE_RANKS_MAX, "N",
         "context-parallel ranks (default 1); at most 64 processes in all"},
        {"trace", CONVOY_OPTION_TEXT, &options->trace, 0, 0, "FILE",
         "lines {\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens}"},
        {"speed", CONVOY_OPTION_REAL, &options->speed, 0, 1000000, "X",
         "1 = real time, 2 = twice that; 0 = as fast as it goes (default)"},
        {"seed", CONVOY_OPTION_NUMBER, &options->seed, 0, UINT64_MAX, "N", "of the states' times (default 1)"},
        {"fault", CONVOY_OPTION_TEXT, &options->fault_text, 0, 0, "WHAT",
         "kill:RANK@STEP, stall:RANK@STEP:MS, diverge:RANK@STEP; counts executed steps from 0"},
        {"swap", CONVOY_OPTION_TEXT, &options->swap_text, 0, 0, "FILE@STEP",
         "puts another build behind the running groups; :rank=N, :every=STEPS (one after another), :back=STEP"},
        {"timeout-ms", CONVOY_OPTION_NUMBER, &options->timeout_ms, 1, 600000, "MS",
         "deadline of every call (default 5000)"},
        {"deadline", CONVOY_OPTION_NUMBER, &options->deadline_s, 1, 1000000, "S",
         "ends the whole replay (default 600, with --speed 600 beyond the trace)"},
        {"plugin", CONVOY_OPTION_TEXT, &options->plugin, 0, 0, "FILE", "default: libconvoy.so.1 beside this command"},
        {"out", CONVOY_OPTION_TEXT, &options->out, 0, 0, "DIR",
         "of the logs rank-N.log (default: convoy-run in the current folder)"},
        {"log-mib", CONVOY_OPTION_NUMBER, &options->log_mib, 1, 65536, "MIB",
         "bound of each rank's log; the replay stops there (default 512)"},
        {"requests", CONVOY_OPTION_NUMBER, &options->requests, 0, CONVOY_PIPELINE_REQUESTS_MAX, "N",
         "requests of the trace that also go through the pipeline; 0 = no pipeline (default 100)"},
        {"roles", CONVOY_OPTION_TEXT, &shape->roles, 0, 0, "E:N:K",
         "encoders, denoisers and decoders of the pipeline (default " RUN_ROLES ")"},
        {"tensors", CONVOY_OPTION_TEXT, &options->tensors, 0, 0, "FILE",
         "safetensors file that each request carries (default: one that is made in the folder of --out)"},
        {"hosts", CONVOY_OPTION_NUMBER, &options->hosts, 1, 2, "N",
         "2: encoders and decoders in a network namespace each, denoisers in both (needs root)"},
        {"trace-out", CONVOY_OPTION_TEXT, &options->trace_out, 0, 0, "FILE",
         "the pipeline's phases as events for a trace viewer"},
    };
    memcpy(table, rows, sizeof rows);
}

static void run_options_help(const struct convoy_option *table)
{
    (void)printf("usage: convoy run [options]\n\n"
                 "Starts dp x tp x cp host processes that each load the plugin, replays a serving trace through DP\n"
                 "sync gather and the two-level poll reduce in steps of %u ms of trace time, and checks every\n"
                 "result against an independent reference. Then sends the tensors of requests from encoders to\n"
                 "denoisers to decoders and compares every byte. Exit code 0: all equal; 1: not, or it ended\n"
                 "early; 2: usage.\n\n",
                 CONVOY_TRACE_STEP_MS);
    convoy_options_help(stdout, table, RUN_OPTIONS);
}

static int32_t run_options_path(const char **path, char storage[CONVOY_PLACE_PATH_BYTES], const char *name,
                                struct convoy_error *error)
{
    if (*path != NULL) {
        return CONVOY_OK;
    }
    *path = storage;
    return convoy_place_beside(storage, name, error);
}

static int32_t run_options_check(struct convoy_run_options *options, const struct run_shape *shape,
                                 struct convoy_error *error)
{
    options->shape =
        (struct convoy_shape){.dp = (uint32_t)shape->dp, .tp = (uint32_t)shape->tp, .cp = (uint32_t)shape->cp};
    uint32_t ranks = convoy_shape_ranks(&options->shape);
    if (ranks > CONVOY_SHAPE_RANKS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--dp x --tp x --cp is %u processes: must be 1 to %u",
                                ranks, CONVOY_SHAPE_RANKS_MAX);
    }
    int32_t status = convoy_pipeline_shape_parse(&options->roles, shape->roles, error);
    if (status == CONVOY_OK && options->trace_out != NULL && options->requests == 0) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                  "--requests is 0: must be at least 1 with --trace-out, which is of the pipeline");
    }
    if (status == CONVOY_OK && options->fault_text != NULL) {
        status = convoy_run_fault_parse(&options->fault, options->fault_text, ranks, error);
    }
    if (status == CONVOY_OK && options->swap_text != NULL) {
        status = convoy_run_swap_parse(&options->swap, options->swap_text, ranks, error);
    }
    if (status == CONVOY_OK) {
        status = run_options_path(&options->trace, options->trace_default, "trace/default.jsonl", error);
    }
    if (status == CONVOY_OK) {
        status = run_options_path(&options->plugin, options->plugin_default, "libconvoy.so.1", error);
    }
    if (options->out == NULL) { /* not beside the command: that is no place for logs where it is installed */
        options->out = "convoy-run";
    }
    return status;
}

int32_t convoy_run_options_parse(struct convoy_run_options *options, int argc, char **argv, bool *wants_help_out,
                                 struct convoy_error *error)
{
    struct convoy_option table[RUN_OPTIONS];
    struct convoy_command_line line = {.options = table, .option_count = RUN_OPTIONS};
    struct run_shape shape = {.dp = 2, .tp = 2, .cp = 1, .roles = RUN_ROLES};
    *options = (struct convoy_run_options){
        .seed = 1, .timeout_ms = 5000, .log_mib = 512, .requests = 100, .hosts = 1};
    run_options_table(options, &shape, table);
    int32_t status = convoy_options_parse(&line, argc, argv, error);
    if (status == CONVOY_OK && line.wants_help) {
        run_options_help(table);
        *wants_help_out = true;
        return CONVOY_OK;
    }
    return status == CONVOY_OK ? run_options_check(options, &shape, error) : status;
}
