/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run.h"

#include "cli/crew.h"
#include "cli/options.h"
#include "cli/place.h"
#include "cli/progress.h"
#include "cli/rank.h"
#include "cli/replay.h"
#include "cli/report.h"
#include "cli/run_check.h"
#include "core/clock.h"
#include "core/error.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_STOP_GRACE_NS (10 * CONVOY_NS_PER_S)

/* What the user asked for. */
struct run_options {
    uint64_t dp;
    uint64_t tp;
    uint64_t cp;
    const char *trace;
    const char *plugin;
    const char *out;
    const char *fault;
    uint64_t seed;
    double speed;
    uint64_t timeout_ms;
    uint64_t deadline_s;
    uint64_t log_mib;
};

struct run {
    struct run_options options;
    struct convoy_trace trace;
    struct convoy_rank_setup setup;
    struct convoy_crew crew;
    uint64_t started_ns;
    uint64_t deadline_ns;
    uint64_t stop_ns; /* when the ranks were asked to stop, 0 = not */
    bool is_overdue;
    char trace_path[CONVOY_PLACE_PATH_BYTES];
    char plugin_path[CONVOY_PLACE_PATH_BYTES];
    char out_path[CONVOY_PLACE_PATH_BYTES];
};

/* -- what the user asked for -------------------------------------------------------------------------------------- */

#define RUN_OPTION_COUNT 12u

static void run_option_table(struct run_options *options, struct convoy_option table[RUN_OPTION_COUNT])
{
    const struct convoy_option rows[RUN_OPTION_COUNT] = {
        {"dp", CONVOY_OPTION_NUMBER, &options->dp, 1, CONVOY_SHAPE_RANKS_MAX, "N", "data-parallel ranks (default 2)"},
        {"tp", CONVOY_OPTION_NUMBER, &options->tp, 1, CONVOY_SHAPE_RANKS_MAX, "N", "tensor-parallel ranks (default 2)"},
        {"cp", CONVOY_OPTION_NUMBER, &options->cp, 1, CONVOY_SHAPE_RANKS_MAX, "N",
         "context-parallel ranks (default 1); at most 64 processes in all"},
        {"trace", CONVOY_OPTION_TEXT, &options->trace, 0, 0, "FILE",
         "lines {\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens}"},
        {"speed", CONVOY_OPTION_REAL, &options->speed, 0, 1000000, "X",
         "1 = real time, 2 = twice that; 0 = as fast as it goes (default)"},
        {"seed", CONVOY_OPTION_NUMBER, &options->seed, 0, UINT64_MAX, "N", "of the states' times (default 1)"},
        {"fault", CONVOY_OPTION_TEXT, &options->fault, 0, 0, "WHAT",
         "kill:RANK@STEP, stall:RANK@STEP:MS or diverge:RANK@STEP; steps count from 0, skipped ones do not count"},
        {"timeout-ms", CONVOY_OPTION_NUMBER, &options->timeout_ms, 1, 600000, "MS",
         "deadline of every call (default 5000)"},
        {"deadline", CONVOY_OPTION_NUMBER, &options->deadline_s, 1, 1000000, "S",
         "ends the whole replay (default 600, with --speed 600 beyond the trace)"},
        {"plugin", CONVOY_OPTION_TEXT, &options->plugin, 0, 0, "FILE", "default: libconvoy.so.1 beside this command"},
        {"out", CONVOY_OPTION_TEXT, &options->out, 0, 0, "DIR", "of the logs rank-N.log (default: run beside this command)"},
        {"log-mib", CONVOY_OPTION_NUMBER, &options->log_mib, 1, 65536, "MIB",
         "bound of each rank's log; the replay stops there (default 512)"},
    };
    memcpy(table, rows, sizeof rows);
}

static void run_help(const struct convoy_option *table)
{
    (void)printf("usage: convoy run [options]\n\n"
                 "Starts dp x tp x cp host processes that each load the plugin, replays a serving trace through DP sync\n"
                 "gather and the two-level poll reduce in steps of %u ms of trace time, and checks every result against\n"
                 "an independent reference. Exit code 0: all equal; 1: not, or it ended early; 2: usage.\n\n",
                 CONVOY_TRACE_STEP_MS);
    convoy_options_help(stdout, table, RUN_OPTION_COUNT);
}

static int32_t run_default_path(char path[CONVOY_PLACE_PATH_BYTES], const char *given, const char *name,
                                struct convoy_error *error)
{
    if (given == NULL) {
        return convoy_place_beside(path, name, error);
    }
    if (strlen(given) >= CONVOY_PLACE_PATH_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a path has %zu bytes: must be below %u", strlen(given),
                                CONVOY_PLACE_PATH_BYTES);
    }
    (void)strcpy(path, given);
    return CONVOY_OK;
}

static int32_t run_check_options(struct run *run, struct convoy_error *error)
{
    const struct run_options *options = &run->options;
    struct convoy_rank_setup *setup = &run->setup;
    setup->shape = (struct convoy_shape){
        .dp = (uint32_t)options->dp, .tp = (uint32_t)options->tp, .cp = (uint32_t)options->cp};
    uint32_t ranks = convoy_shape_ranks(&setup->shape);
    if (ranks > CONVOY_SHAPE_RANKS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--dp x --tp x --cp is %u processes: must be 1 to %u",
                                ranks, CONVOY_SHAPE_RANKS_MAX);
    }
    int32_t status = options->fault != NULL ? convoy_run_fault_parse(&setup->fault, options->fault, ranks, error)
                                            : CONVOY_OK;
    if (status == CONVOY_OK) {
        status = run_default_path(run->trace_path, options->trace, "trace/default.jsonl", error);
    }
    if (status == CONVOY_OK) {
        status = run_default_path(run->plugin_path, options->plugin, "libconvoy.so.1", error);
    }
    return status == CONVOY_OK ? run_default_path(run->out_path, options->out, "run", error) : status;
}

/* -- before any process starts ------------------------------------------------------------------------------------ */

static int32_t run_prepare(struct run *run, struct convoy_error *error)
{
    struct convoy_rank_setup *setup = &run->setup;
    int32_t status = convoy_trace_load(&run->trace, run->trace_path, error);
    if (status == CONVOY_OK && access(run->plugin_path, R_OK) != 0) {
        status = convoy_error_set(error, CONVOY_NOT_FOUND, "cannot read the plugin %.200s", run->plugin_path);
    }
    if (status == CONVOY_OK) {
        status = convoy_place_make_folder(run->out_path, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_place_free_ports(setup->ports, convoy_rank_port_count(&setup->shape), error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    setup->board = convoy_board_create(convoy_shape_ranks(&setup->shape));
    if (setup->board == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to share with the ranks");
    }
    setup->trace = &run->trace;
    setup->plugin = run->plugin_path;
    setup->log_directory = run->out_path;
    setup->log_limit_bytes = run->options.log_mib << 20;
    setup->seed = run->options.seed;
    setup->speed = run->options.speed;
    setup->timeout_ns = run->options.timeout_ms * CONVOY_NS_PER_MS;
    return CONVOY_OK;
}

static uint64_t run_deadline(const struct run *run)
{
    uint64_t seconds = run->options.deadline_s;
    if (seconds == 0) {
        const struct convoy_trace_request *requests = run->trace.requests;
        uint64_t trace_ms = requests[run->trace.count - 1].timestamp_ms - requests[0].timestamp_ms;
        double paced_s = run->options.speed > 0 ? (double)trace_ms / 1000 / run->options.speed : 0;
        seconds = 600 + (uint64_t)paced_s;
    }
    return run->started_ns + seconds * CONVOY_NS_PER_S;
}

static void run_announce(const struct run *run)
{
    const struct convoy_shape *shape = &run->setup.shape;
    char number[32];
    (void)printf("replaying %s requests of %s on %u processes (dp %u x tp %u x cp %u), seed %" PRIu64 "\n",
                 convoy_progress_number(number, run->trace.count), run->trace_path, convoy_shape_ranks(shape), shape->dp,
                 shape->tp, shape->cp, run->options.seed);
    if (run->setup.fault.kind != CONVOY_RUN_FAULT_NONE) {
        (void)printf("injecting %s\n", run->options.fault);
    }
}

/* -- while it runs ------------------------------------------------------------------------------------------------ */

static int run_child(void *user, uint32_t index)
{
    struct run *run = user;
    return convoy_replay_rank(&run->setup, index);
}

/* The first Ctrl-C asks the ranks to stop at the next step; the second, or no answer, ends them. */
static void run_stop(struct run *run, uint64_t now_ns)
{
    if (run->stop_ns != 0) {
        convoy_crew_kill(&run->crew);
        return;
    }
    run->stop_ns = now_ns;
    atomic_store(&run->setup.board->is_stop_wanted, 1);
}

static void run_watch(struct run *run, struct convoy_progress *progress)
{
    while (run->crew.alive != 0) {
        enum convoy_crew_event event = convoy_crew_wait(&run->crew, 100);
        uint64_t now_ns = convoy_now_ns();
        if (event == CONVOY_CREW_INTERRUPT) {
            run_stop(run, now_ns);
        }
        if (now_ns >= run->deadline_ns && !run->is_overdue) {
            run->is_overdue = true;
            run_stop(run, now_ns);
        }
        if (run->stop_ns != 0 && now_ns - run->stop_ns > RUN_STOP_GRACE_NS) {
            convoy_crew_kill(&run->crew);
        }
        convoy_progress_show(progress, now_ns);
    }
    convoy_progress_end(progress);
}

static int32_t run_start(struct run *run, struct convoy_error *error)
{
    run->started_ns = convoy_now_ns();
    run->deadline_ns = run_deadline(run);
    for (uint32_t i = 0; i < run->setup.board->rank_count; i++) {
        int32_t status = convoy_crew_fork(&run->crew, run_child, run, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* -- after it ended ----------------------------------------------------------------------------------------------- */

static bool run_all_ended_as(const struct run *run, enum convoy_board_outcome outcome)
{
    for (uint32_t i = 0; i < run->setup.board->rank_count; i++) {
        if (run->setup.board->ranks[i].outcome != (uint32_t)outcome || run->crew.wait_status[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool run_fault_was_reached(const struct run *run)
{
    const struct convoy_run_fault *fault = &run->setup.fault;
    return fault->kind != CONVOY_RUN_FAULT_NONE &&
           atomic_load(&run->setup.board->ranks[fault->rank].steps) >= fault->step;
}

/* The last line: what this replay was worth, in one sentence. */
static int run_verdict(const struct run *run, bool is_finished, bool is_equal)
{
    const struct run_options *options = &run->options;
    char why[160];
    if (run->is_overdue) {
        (void)snprintf(why, sizeof why, "its deadline passed (raise --deadline)");
    } else if (run->stop_ns != 0) {
        (void)snprintf(why, sizeof why, "it was interrupted");
    } else if (run_all_ended_as(run, CONVOY_BOARD_STOPPED)) {
        (void)snprintf(why, sizeof why, "a log is full (raise --log-mib)");
    } else if (run_fault_was_reached(run)) {
        (void)snprintf(why, sizeof why, "the fault %.60s was injected", options->fault);
    } else {
        (void)snprintf(why, sizeof why, "a rank failed");
    }
    const char *checked = is_equal ? "every result equals the reference" : "NOT every result equals the reference";
    if (!is_finished) {
        (void)printf("replay ended early: %s; up to there %s\n", why, checked);
        return CONVOY_EXIT_FAILURE;
    }
    if (options->fault != NULL && !run_fault_was_reached(run)) {
        (void)printf("replay finished, but the fault %.60s was never reached; %s\n", options->fault, checked);
        return CONVOY_EXIT_FAILURE;
    }
    (void)printf("replay %s: %s\n", is_equal ? "passed" : "FAILED", checked);
    return is_equal ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}

static int run_finish(const struct run *run)
{
    struct convoy_run_report report = {
        .board = run->setup.board,
        .crew = &run->crew,
        .shape = run->setup.shape,
        .wall_ns = convoy_now_ns() - run->started_ns,
    };
    convoy_report_table(stdout, &report);
    bool is_finished = run_all_ended_as(run, CONVOY_BOARD_FINISHED);
    if (!is_finished) {
        (void)fputc('\n', stdout);
        convoy_report_failures(stdout, &report);
    }
    bool has_stopped = run_all_ended_as(run, CONVOY_BOARD_STOPPED);
    struct convoy_run_check check = {.log_directory = run->out_path,
                                     .rank_count = run->setup.board->rank_count,
                                     .may_end_early = !is_finished && !has_stopped};
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_equal = convoy_run_check(&check, &error) == CONVOY_OK;
    if (error.status != CONVOY_OK) {
        (void)fflush(stdout);
        (void)fprintf(stderr, "convoy run: %s\n", error.text);
    }
    return run_verdict(run, is_finished, is_equal);
}

static int run_all(struct run *run)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (run_prepare(run, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "convoy run: %s\n", error.text);
        return CONVOY_EXIT_FAILURE;
    }
    struct convoy_progress progress = {.out = stdout, .is_terminal = convoy_progress_is_terminal(stdout),
                                       .board = run->setup.board, .trace = &run->trace, .shape = run->setup.shape,
                                       .started_ns = convoy_now_ns(), .shown_ns = convoy_now_ns()};
    int code = CONVOY_EXIT_FAILURE;
    run_announce(run);
    convoy_crew_init(&run->crew);
    if (run_start(run, &error) == CONVOY_OK) {
        run_watch(run, &progress);
        code = run_finish(run);
    } else {
        (void)fprintf(stderr, "convoy run: %s\n", error.text);
    }
    convoy_crew_fini(&run->crew);
    return code;
}

int convoy_cli_run(int argc, char **argv)
{
    struct run run = {.options = {.dp = 2, .tp = 2, .cp = 1, .seed = 1, .timeout_ms = 5000, .log_mib = 512}};
    struct convoy_option table[RUN_OPTION_COUNT];
    struct convoy_command_line line = {.options = table, .option_count = RUN_OPTION_COUNT};
    struct convoy_error error = CONVOY_ERROR_INIT;
    run_option_table(&run.options, table);
    int32_t status = convoy_options_parse(&line, argc, argv, &error);
    if (status == CONVOY_OK && line.wants_help) {
        run_help(table);
        return CONVOY_EXIT_OK;
    }
    if (status == CONVOY_OK) {
        status = run_check_options(&run, &error);
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy run: %s (see convoy run --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    int code = run_all(&run);
    convoy_board_destroy(run.setup.board);
    convoy_trace_fini(&run.trace);
    return code;
}
