/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run.h"

#include "cli/crew.h"
#include "cli/pipeline.h"
#include "cli/place.h"
#include "cli/progress.h"
#include "cli/rank.h"
#include "cli/replay.h"
#include "cli/report.h"
#include "cli/report_swap.h"
#include "cli/run_check.h"
#include "cli/run_options.h"
#include "cli/safetensors.h"
#include "core/clock.h"
#include "core/error.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_STOP_GRACE_NS (10 * CONVOY_NS_PER_S)

struct run {
    struct convoy_run_options options;
    struct convoy_trace trace;
    struct convoy_rank_setup setup;
    struct convoy_crew crew;
    uint64_t started_ns;
    uint64_t deadline_ns;
    uint64_t first_end_ns; /* when the first rank had ended, 0 = none has */
    uint64_t stop_ns;      /* when the ranks were asked to stop, 0 = not */
    bool is_overdue;
};

/* -- before any process starts ------------------------------------------------------------------------------------ */

/* The pipeline comes last: what is wrong with its file is said before the replay and not behind it. */
static int32_t run_check_tensors(const struct convoy_run_options *options, struct convoy_error *error)
{
    struct convoy_safetensors file = {0};
    if (options->tensors == NULL || options->requests == 0) {
        return CONVOY_OK;
    }
    int32_t status = convoy_safetensors_read(&file, options->tensors, error);
    convoy_safetensors_fini(&file);
    return status;
}

static int32_t run_prepare(struct run *run, struct convoy_error *error)
{
    struct convoy_rank_setup *setup = &run->setup;
    uint32_t ranks = convoy_shape_ranks(&run->options.shape);
    int32_t status = convoy_trace_load(&run->trace, run->options.trace, error);
    if (status == CONVOY_OK && access(run->options.plugin, R_OK) != 0) {
        status = convoy_error_set(error, CONVOY_NOT_FOUND, "cannot read the plugin %.200s", run->options.plugin);
    }
    if (status == CONVOY_OK && run->options.swap_text != NULL && access(run->options.swap.path, R_OK) != 0) {
        status = convoy_error_set(error, CONVOY_NOT_FOUND, "cannot read the plugin to swap to, %.190s",
                                  run->options.swap.path);
    }
    if (status == CONVOY_OK) {
        status = run_check_tensors(&run->options, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_place_make_folder(run->options.out, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_place_free_ports(setup->ports, convoy_rank_port_count(&run->options.shape), error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    setup->board = convoy_board_create(ranks);
    if (setup->board == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to share with the ranks");
    }
    setup->trace = &run->trace;
    setup->shape = run->options.shape;
    setup->fault = run->options.fault;
    setup->swap = run->options.swap;
    setup->plugin = run->options.plugin;
    setup->log_directory = run->options.out;
    setup->log_limit_bytes = run->options.log_mib << 20;
    setup->seed = run->options.seed;
    setup->speed = run->options.speed;
    setup->timeout_ns = run->options.timeout_ms * CONVOY_NS_PER_MS;
    return CONVOY_OK;
}

/* Logs of an earlier, larger replay would look like a part of this one. */
static void run_remove_logs(const struct run *run)
{
    for (uint32_t rank = 0; rank < CONVOY_SHAPE_RANKS_MAX; rank++) {
        char path[CONVOY_PLACE_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/rank-%u.log", run->options.out, rank);
        (void)unlink(path);
    }
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
    (void)printf("replaying %s requests of %s on %u process%s (dp %u x tp %u x cp %u), seed %" PRIu64 "\n",
                 convoy_progress_number(number, run->trace.count), run->options.trace, convoy_shape_ranks(shape),
                 convoy_shape_ranks(shape) == 1 ? "" : "es", shape->dp, shape->tp, shape->cp, run->options.seed);
    if (run->setup.fault.kind != CONVOY_RUN_FAULT_NONE) {
        (void)printf("injecting %s\n", run->options.fault_text);
    }
    if (run->options.swap_text != NULL) {
        (void)printf("swapping to %s\n", run->options.swap_text);
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

/* Ranks end together. One that is still there long after another has ended hangs, and would hang for ever. */
static bool run_is_stuck(struct run *run, uint64_t now_ns)
{
    bool has_ended = convoy_board_count(run->setup.board, CONVOY_BOARD_ENDED) != 0 ||
                     run->crew.alive < run->crew.count;
    if (!has_ended) {
        return false;
    }
    run->first_end_ns = run->first_end_ns != 0 ? run->first_end_ns : now_ns;
    uint64_t patience_ns = 2 * run->setup.timeout_ns + run->setup.fault.stall_ms * CONVOY_NS_PER_MS + RUN_STOP_GRACE_NS;
    return now_ns - run->first_end_ns > patience_ns;
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
        if ((run->stop_ns != 0 && now_ns - run->stop_ns > RUN_STOP_GRACE_NS) || run_is_stuck(run, now_ns)) {
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

static struct convoy_swap_line run_swap_line(const struct run *run, uint32_t rank, char name[32])
{
    (void)snprintf(name, 32, "rank %u", rank);
    return (struct convoy_swap_line){.name = name,
                                     .wanted = convoy_run_swap_count(&run->setup.swap, rank),
                                     .tally = &run->setup.board->ranks[rank].swaps};
}

static void run_report_swaps(const struct run *run)
{
    char name[32];
    convoy_report_swaps_head(stdout, "step");
    for (uint32_t rank = 0; rank < run->setup.board->rank_count; rank++) {
        const struct convoy_swap_line line = run_swap_line(run, rank, name);
        convoy_report_swap(stdout, &line);
    }
}

static bool run_swaps_are_right(const struct run *run, char *why_out, size_t capacity)
{
    char name[32];
    for (uint32_t rank = 0; rank < run->setup.board->rank_count; rank++) {
        const struct convoy_swap_line line = run_swap_line(run, rank, name);
        if (!convoy_report_swap_is_right(&line, why_out, capacity)) {
            return false;
        }
    }
    return true;
}

/* The last line: what this replay was worth, in one sentence. */
static int run_verdict(const struct run *run, bool is_finished, bool is_equal)
{
    const struct convoy_run_options *options = &run->options;
    char why[160];
    if (run->is_overdue) {
        (void)snprintf(why, sizeof why, "its deadline passed (raise --deadline)");
    } else if (run->stop_ns != 0) {
        (void)snprintf(why, sizeof why, "it was interrupted");
    } else if (run_all_ended_as(run, CONVOY_BOARD_STOPPED)) {
        (void)snprintf(why, sizeof why, "a log is full (raise --log-mib)");
    } else if (run_fault_was_reached(run)) {
        (void)snprintf(why, sizeof why, "the fault %.60s was injected", options->fault_text);
    } else {
        (void)snprintf(why, sizeof why, "a rank failed");
    }
    const char *checked = is_equal ? "every result equals the reference" : "NOT every result equals the reference";
    if (!is_finished) {
        (void)printf("replay ended early: %s; up to there %s\n", why, checked);
        return CONVOY_EXIT_FAILURE;
    }
    if (options->fault_text != NULL && !run_fault_was_reached(run)) {
        (void)printf("replay finished, but the fault %.60s was never reached; %s\n", options->fault_text, checked);
        return CONVOY_EXIT_FAILURE;
    }
    if (!run_swaps_are_right(run, why, sizeof why)) {
        (void)printf("replay finished, but %s; %s\n", why, checked);
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
    if (run->options.swap_text != NULL) {
        run_report_swaps(run);
    }
    bool is_finished = run_all_ended_as(run, CONVOY_BOARD_FINISHED);
    if (!is_finished) {
        (void)fputc('\n', stdout);
        convoy_report_failures(stdout, &report);
    }
    bool has_stopped = run_all_ended_as(run, CONVOY_BOARD_STOPPED);
    struct convoy_run_check check = {.log_directory = run->options.out,
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
    struct convoy_progress progress = {.out = stdout,
                                       .is_terminal = convoy_progress_is_terminal(stdout),
                                       .board = run->setup.board,
                                       .trace = &run->trace,
                                       .shape = run->setup.shape,
                                       .started_ns = convoy_now_ns(),
                                       .shown_ns = convoy_now_ns()};
    int code = CONVOY_EXIT_FAILURE;
    run_announce(run);
    run_remove_logs(run);
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

/* Only behind a replay that was right: of the two, the last line is the one that is read. */
static int run_pipeline(const struct run *run)
{
    const struct convoy_run_options *options = &run->options;
    const struct convoy_pipeline_options pipeline = {
        .shape = options->roles,
        .requests = options->requests,
        .hosts = options->hosts,
        .tensors = options->tensors,
        .trace_out = options->trace_out,
        .plugin = options->plugin,
        .swap = options->swap_text != NULL ? options->swap.path : NULL,
        .must_swap_back = options->swap.back != CONVOY_RUN_SWAP_NEVER,
        .out = options->out,
        .trace = &run->trace,
        .speed = options->speed,
        .timeout_ns = run->setup.timeout_ns,
        .deadline_s = options->deadline_s,
    };
    return options->requests != 0 ? convoy_pipeline_run(&pipeline) : CONVOY_EXIT_OK;
}

int convoy_cli_run(int argc, char **argv)
{
    struct run run = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool wants_help = false;
    if (convoy_run_options_parse(&run.options, argc, argv, &wants_help, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "convoy run: %s (see convoy run --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    if (wants_help) {
        return CONVOY_EXIT_OK;
    }
    int code = run_all(&run);
    if (code == CONVOY_EXIT_OK) {
        code = run_pipeline(&run);
    }
    convoy_board_destroy(run.setup.board);
    convoy_trace_fini(&run.trace);
    return code;
}
