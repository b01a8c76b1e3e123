/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline.h"

#include "cli/options.h"
#include "cli/pipeline_report.h"
#include "cli/pipeline_role.h"
#include "cli/pipeline_setup.h"
#include "cli/pipeline_trace.h"
#include "cli/report_swap.h"
#include "cli/safetensors.h"
#include "cli/two_hosts.h"
#include "core/clock.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPELINE_GRACE_NS (10 * CONVOY_NS_PER_S)

struct pipeline {
    const struct convoy_pipeline_options *options;
    struct convoy_pipeline_board *board;
    struct convoy_crew crew;
    struct convoy_two_hosts two_hosts;
    uint64_t first_end_ns; /* when the first member had ended, 0 = none has */
    uint64_t stop_ns;      /* when the members were asked to stop, 0 = not */
    const char *stop_reason; /* NULL: a member failed */
    char output[CONVOY_PLACE_PATH_BYTES + 32];
};

/* -- before any process starts -------------------------------------------------------------------------------------- */

static int32_t pipeline_prepare(struct pipeline *pipeline, struct convoy_error *error)
{
    const struct convoy_pipeline_options *options = pipeline->options;
    (void)snprintf(pipeline->output, sizeof pipeline->output, "%s/" CONVOY_PIPELINE_OUTPUT, options->out);
    (void)unlink(pipeline->output); /* that of an earlier run would look like this one's */
    int32_t status = convoy_pipeline_setup_make(options, &pipeline->board, error);
    return status == CONVOY_OK && options->hosts == 2 ? convoy_two_hosts_open(&pipeline->two_hosts, error) : status;
}

static void pipeline_announce(const struct pipeline *pipeline)
{
    const struct convoy_pipeline_setup *setup = &pipeline->board->setup;
    (void)printf("\npipeline: %u requests through %u encoder%s -> %u denoiser%s -> %u decoder%s on %u host%s, tensors of "
                 "%s\n",
                 setup->request_count, setup->shape.counts[0], setup->shape.counts[0] == 1 ? "" : "s",
                 setup->shape.counts[1], setup->shape.counts[1] == 1 ? "" : "s", setup->shape.counts[2],
                 setup->shape.counts[2] == 1 ? "" : "s", setup->hosts, setup->hosts == 1 ? "" : "s", setup->tensors);
}

/* -- while it runs -------------------------------------------------------------------------------------------------- */

/* In a child that shall be on another host: becomes the command again, inside the namespace. */
static int become_on_host(const struct pipeline *pipeline, uint32_t member)
{
    char program[CONVOY_PLACE_PATH_BYTES];
    char board[16];
    char number[16];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        uint32_t host = convoy_pipeline_shape_host(&pipeline->options->shape, member);
        program[length] = '\0';
        (void)snprintf(board, sizeof board, "%d", pipeline->board->file);
        (void)snprintf(number, sizeof number, "%u", member);
        char *const argv[] = {(char *)"ip", (char *)"netns", (char *)"exec", (char *)pipeline->two_hosts.names[host],
                              program, (char *)"pipeline-role", (char *)"--board", board, (char *)"--member", number,
                              NULL};
        (void)fcntl(pipeline->board->file, F_SETFD, 0);
        (void)execvp(argv[0], argv);
    }
    (void)fprintf(stderr, "convoy run: cannot start member %u: %s\n", member, strerror(errno));
    return CONVOY_EXIT_FAILURE;
}

static int pipeline_child(void *user, uint32_t member)
{
    struct pipeline *pipeline = user;
    return pipeline->options->hosts == 2 ? become_on_host(pipeline, member)
                                         : convoy_pipeline_role_run(pipeline->board, member);
}

static void pipeline_stop(struct pipeline *pipeline, const char *reason)
{
    if (pipeline->stop_ns == 0) {
        pipeline->stop_ns = convoy_now_ns();
        pipeline->stop_reason = reason;
        atomic_store(&pipeline->board->is_stop_wanted, 1);
    } else if (reason != NULL) {
        convoy_crew_kill(&pipeline->crew); /* asked a second time */
    }
}

/* One that ended otherwise than well keeps the others waiting for what will not come. */
static bool has_lost_one(const struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < pipeline->crew.count; i++) {
        if (pipeline->crew.has_ended[i] && pipeline->crew.wait_status[i] != 0) {
            return true;
        }
    }
    return false;
}

/* Members end together, when all are through. One that is still there long after another has ended hangs. */
static bool has_hanging_one(struct pipeline *pipeline, uint64_t now_ns)
{
    if (pipeline->crew.alive == pipeline->crew.count) {
        return false;
    }
    pipeline->first_end_ns = pipeline->first_end_ns != 0 ? pipeline->first_end_ns : now_ns;
    return now_ns - pipeline->first_end_ns > 2 * pipeline->options->timeout_ns + PIPELINE_GRACE_NS;
}

static void pipeline_watch(struct pipeline *pipeline)
{
    while (pipeline->crew.alive != 0) {
        enum convoy_crew_event event = convoy_crew_wait(&pipeline->crew, 100);
        uint64_t now_ns = convoy_now_ns();
        if (event == CONVOY_CREW_INTERRUPT) {
            pipeline_stop(pipeline, "it was interrupted");
        } else if (pipeline->stop_ns == 0 && now_ns >= pipeline->board->setup.deadline_ns) {
            pipeline_stop(pipeline, "its deadline passed (raise --deadline)");
        } else if (has_lost_one(pipeline)) {
            pipeline_stop(pipeline, NULL);
        }
        bool hangs = has_hanging_one(pipeline, now_ns);
        if (hangs && pipeline->stop_ns == 0) {
            pipeline_stop(pipeline, "a role does not end");
        }
        if (hangs || (pipeline->stop_ns != 0 && now_ns > pipeline->stop_ns + PIPELINE_GRACE_NS)) {
            convoy_crew_kill(&pipeline->crew);
        }
    }
}

static int32_t pipeline_start(struct pipeline *pipeline, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < convoy_pipeline_shape_members(&pipeline->options->shape) && status == CONVOY_OK; i++) {
        status = convoy_crew_fork(&pipeline->crew, pipeline_child, pipeline, error);
    }
    return status;
}

/* -- after it ended ------------------------------------------------------------------------------------------------- */

static bool have_all_finished(const struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < pipeline->crew.count; i++) {
        if (pipeline->board->members[i].outcome != CONVOY_PIPELINE_FINISHED || pipeline->crew.wait_status[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Reads both files anew. INVARIANT: the text has the first difference. */
static int32_t compare_files(const struct pipeline *pipeline, struct convoy_error *error)
{
    struct convoy_safetensors_difference differences[CONVOY_SAFETENSORS_KINDS];
    struct convoy_safetensors expected = {0};
    struct convoy_safetensors found = {0};
    int32_t status = convoy_safetensors_read(&expected, pipeline->board->setup.tensors, error);
    if (status == CONVOY_OK) {
        status = convoy_safetensors_read(&found, pipeline->output, error);
    }
    if (status == CONVOY_OK && !convoy_safetensors_compare(&expected, &found, differences)) {
        for (uint32_t i = 0; i < CONVOY_SAFETENSORS_KINDS && status == CONVOY_OK; i++) {
            if (differences[i].count != 0) {
                status = convoy_error_set(error, CONVOY_INVARIANT, "%.60s differs from what was sent: %.160s",
                                          CONVOY_PIPELINE_OUTPUT, differences[i].first);
            }
        }
    }
    convoy_safetensors_fini(&expected);
    convoy_safetensors_fini(&found);
    return status;
}

/* Why it ended early, in one sentence. */
static int32_t pipeline_cause(const struct pipeline *pipeline, struct convoy_error *error)
{
    char name[CONVOY_PIPELINE_NAME_BYTES];
    if (pipeline->stop_reason != NULL) {
        return convoy_error_set(error, CONVOY_CANCELED, "%s", pipeline->stop_reason);
    }
    for (uint32_t i = 0; i < pipeline->crew.count; i++) {
        const struct convoy_pipeline_member *member = &pipeline->board->members[i];
        (void)convoy_pipeline_shape_name(&pipeline->options->shape, i, name);
        if (member->outcome == CONVOY_PIPELINE_FAILED) {
            return convoy_error_set(error, member->error.status, "%s: %.200s", name, member->error.text);
        }
        if (member->outcome == CONVOY_PIPELINE_NONE) {
            (void)convoy_error_set(error, CONVOY_BROKEN, "%s ended without a word", name);
        }
    }
    return CONVOY_BROKEN;
}

static int32_t pipeline_check(struct pipeline *pipeline, struct convoy_error *error)
{
    if (!have_all_finished(pipeline)) {
        (void)fputc('\n', stdout);
        convoy_pipeline_report_failures(stdout, pipeline->board, &pipeline->crew);
        return pipeline_cause(pipeline, error);
    }
    uint64_t leaks = convoy_pipeline_report_leaks(pipeline->board, NULL);
    if (leaks != 0) {
        return convoy_error_set(error, CONVOY_INVARIANT, "%" PRIu64 " leases and references were never given back",
                                leaks);
    }
    return compare_files(pipeline, error);
}

static int32_t pipeline_trace(const struct pipeline *pipeline, struct convoy_error *error)
{
    size_t events = 0;
    const char *path = pipeline->options->trace_out;
    if (path == NULL || !have_all_finished(pipeline)) {
        return CONVOY_OK;
    }
    int32_t status = convoy_pipeline_trace_write(pipeline->board, path, &events, error);
    if (status == CONVOY_OK) {
        (void)printf("  %zu trace events in %s, of the last 256 transfers of each process\n", events, path);
    }
    return status;
}

/* Prints what became of the members' swaps. INVARIANT: not all that were to be made were. */
static int32_t pipeline_swaps(const struct pipeline *pipeline, struct convoy_error *error)
{
    const struct convoy_pipeline_board *board = pipeline->board;
    char why[160];
    int32_t status = CONVOY_OK;
    if (board->setup.swap_count == 0) {
        return CONVOY_OK;
    }
    convoy_report_swaps_head(stdout, "turn");
    for (uint32_t member = 0; member < convoy_pipeline_shape_members(&board->setup.shape); member++) {
        char name[CONVOY_PIPELINE_NAME_BYTES];
        const struct convoy_swap_line line = {.name = convoy_pipeline_shape_name(&board->setup.shape, member, name),
                                              .wanted = board->setup.swap_count,
                                              .tally = &board->members[member].swaps};
        convoy_report_swap(stdout, &line);
        if (status == CONVOY_OK && !convoy_report_swap_is_right(&line, why, sizeof why)) {
            status = convoy_error_set(error, CONVOY_INVARIANT, "%s", why);
        }
    }
    return status;
}

static int pipeline_finish(struct pipeline *pipeline)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_pipeline_setup *setup = &pipeline->board->setup;
    int32_t status = convoy_pipeline_report(stdout, pipeline->board, &error);
    if (status == CONVOY_OK) {
        status = pipeline_trace(pipeline, &error);
    }
    if (status == CONVOY_OK) {
        status = pipeline_check(pipeline, &error);
    }
    if (status == CONVOY_OK) {
        status = pipeline_swaps(pipeline, &error);
    }
    if (status != CONVOY_OK) {
        (void)printf("pipeline FAILED: %s\n", error.text);
        return CONVOY_EXIT_FAILURE;
    }
    (void)printf("pipeline passed: every tensor of %u requests equals %s, and so does %s\n", setup->request_count,
                 setup->tensors, pipeline->output);
    return CONVOY_EXIT_OK;
}

int convoy_pipeline_run(const struct convoy_pipeline_options *options)
{
    struct pipeline pipeline = {.options = options};
    struct convoy_error error = CONVOY_ERROR_INIT;
    int code = CONVOY_EXIT_FAILURE;
    convoy_crew_init(&pipeline.crew); /* from here on Ctrl-C is an event, so that namespaces are removed */
    int32_t status = pipeline_prepare(&pipeline, &error);
    if (status == CONVOY_OK) {
        pipeline_announce(&pipeline);
        status = pipeline_start(&pipeline, &error);
    }
    if (status == CONVOY_OK) {
        pipeline_watch(&pipeline);
        code = pipeline_finish(&pipeline);
    } else {
        (void)fprintf(stderr, "convoy run: %s\n", error.text);
    }
    convoy_crew_kill(&pipeline.crew);
    while (pipeline.crew.alive != 0) {
        (void)convoy_crew_wait(&pipeline.crew, 100);
    }
    convoy_two_hosts_close(&pipeline.two_hosts);
    convoy_crew_fini(&pipeline.crew);
    convoy_pipeline_board_destroy(pipeline.board);
    return code;
}
