/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_report.h"

#include "cli/transfer_host.h"
#include "core/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#define HOP_BYTES 32u
#define PATHS_BYTES 96u

const char *convoy_pipeline_report_bytes(char text_out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(text_out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text_out;
}

static const char *report_hop(uint32_t hop, char text_out[HOP_BYTES])
{
    (void)snprintf(text_out, HOP_BYTES, "%s -> %s", convoy_pipeline_role_name((enum convoy_pipeline_role)hop),
                   convoy_pipeline_role_name((enum convoy_pipeline_role)(hop + 1)));
    return text_out;
}

/* The paths that were taken; with how many each, when there were several. */
static const char *report_paths(const struct convoy_pipeline_figures *figures, char text_out[PATHS_BYTES])
{
    size_t length = 0;
    text_out[0] = '\0';
    for (uint32_t i = 0; i < CONVOY_PIPELINE_PATHS; i++) {
        if (figures->paths[i] == 0 || length >= PATHS_BYTES - 1) {
            continue;
        }
        const char *name = convoy_pipeline_path_name(i);
        const char *comma = length != 0 ? ", " : "";
        int more = figures->paths[i] == figures->requests
                       ? snprintf(text_out + length, PATHS_BYTES - length, "%s%s", comma, name)
                       : snprintf(text_out + length, PATHS_BYTES - length, "%s%s %u", comma, name, figures->paths[i]);
        length += more > 0 ? (size_t)more : 0;
    }
    return length != 0 ? text_out : "-";
}

static void report_traffic(FILE *out, uint32_t hop, const struct convoy_pipeline_figures *figures)
{
    char name[HOP_BYTES];
    char asked[32];
    char moved[32];
    char speed[32] = "-";
    char paths[PATHS_BYTES];
    if (figures->busy_ns != 0) {
        (void)snprintf(speed, sizeof speed, "%.2f", (double)figures->asked_bytes / (double)figures->busy_ns);
    }
    (void)fprintf(out, "  %-20s %9u %10s %10s %7s %8" PRIu64 " %9" PRIu64 "  %s\n", report_hop(hop, name),
                  figures->requests, convoy_pipeline_report_bytes(asked, figures->asked_bytes),
                  convoy_pipeline_report_bytes(moved, figures->moved_bytes), speed, figures->retries,
                  figures->refusals, report_paths(figures, paths));
}

static void report_stretches(FILE *out, uint32_t hop, const struct convoy_pipeline_figures *figures)
{
    char name[HOP_BYTES];
    (void)fprintf(out, "  %-20s", report_hop(hop, name));
    for (uint32_t i = 0; i < CONVOY_PIPELINE_STRETCHES; i++) {
        const struct convoy_pipeline_quantiles *quantiles = &figures->stretches[i];
        char text[32] = "-";
        if (quantiles->count != 0) {
            (void)snprintf(text, sizeof text, "%.0f/%.0f", (double)quantiles->median_ns / 1e3,
                           (double)quantiles->p99_ns / 1e3);
        }
        (void)fprintf(out, " %13s", text);
    }
    (void)fputc('\n', out);
}

static void report_tables(FILE *out, const struct convoy_pipeline_figures figures[CONVOY_PIPELINE_HOPS])
{
    (void)fprintf(out, "  %-20s %9s %10s %10s %7s %8s %9s  %s\n", "hop", "requests", "asked", "moved", "GB/s", "retries",
                  "refusals", "path");
    for (uint32_t hop = 0; hop < CONVOY_PIPELINE_HOPS; hop++) {
        report_traffic(out, hop, &figures[hop]);
    }
    (void)fprintf(out, "  %-20s", "p50/p99 in us");
    for (uint32_t i = 0; i < CONVOY_PIPELINE_STRETCHES; i++) {
        (void)fprintf(out, " %13s", convoy_pipeline_stretch_name((enum convoy_pipeline_stretch)i));
    }
    (void)fputc('\n', out);
    for (uint32_t hop = 0; hop < CONVOY_PIPELINE_HOPS; hop++) {
        report_stretches(out, hop, &figures[hop]);
    }
}

uint64_t convoy_pipeline_report_leaks(const struct convoy_pipeline_board *board, uint32_t *unseen_out)
{
    uint64_t leaks = 0;
    uint32_t unseen = 0;
    for (uint32_t i = 0; i < convoy_pipeline_shape_members(&board->setup.shape); i++) {
        const struct convoy_engine_figures *figures = &board->members[i].figures;
        leaks += convoy_transfer_host_leaks(figures);
        unseen += figures->struct_size == 0;
    }
    if (unseen_out != NULL) {
        *unseen_out = unseen;
    }
    return leaks;
}

static void report_leaks(FILE *out, const struct convoy_pipeline_board *board)
{
    uint32_t count = convoy_pipeline_shape_members(&board->setup.shape);
    uint32_t unseen = 0;
    uint64_t quarantined = 0;
    uint64_t repeats = 0;
    uint64_t refused = 0;
    uint64_t leaks = convoy_pipeline_report_leaks(board, &unseen);
    for (uint32_t i = 0; i < count; i++) {
        quarantined += board->members[i].figures.quarantined;
        repeats += board->members[i].repeats;
        refused += board->members[i].refusals;
    }
    (void)fprintf(out, "  leaks: %" PRIu64 " in %u pools at the end (%" PRIu64 " bytes quarantined)", leaks,
                  count - unseen, quarantined);
    if (unseen != 0) {
        (void)fprintf(out, ", not known of %u pools", unseen);
    }
    (void)fprintf(out, "; loads refused %" PRIu64 ", repeated requests dropped %" PRIu64 "\n", refused, repeats);
}

int32_t convoy_pipeline_report(FILE *out, struct convoy_pipeline_board *board, struct convoy_error *error)
{
    struct convoy_pipeline_figures figures[CONVOY_PIPELINE_HOPS];
    for (uint32_t hop = 0; hop < CONVOY_PIPELINE_HOPS; hop++) {
        int32_t status = convoy_pipeline_figures_make(board, hop, &figures[hop], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    report_tables(out, figures);
    report_leaks(out, board);
    return CONVOY_OK;
}

/* -- failures ------------------------------------------------------------------------------------------------------- */

static void report_failure(FILE *out, const struct convoy_pipeline_board *board, const struct convoy_crew *crew,
                           uint32_t member)
{
    const struct convoy_pipeline_member *self = &board->members[member];
    char name[CONVOY_PIPELINE_NAME_BYTES];
    (void)convoy_pipeline_shape_name(&board->setup.shape, member, name);
    uint32_t done = atomic_load(&self->done);
    if (self->outcome == CONVOY_PIPELINE_FAILED) {
        (void)fprintf(out, "%s: failed after %u requests, %s: %s\n", name, done, convoy_status_name(self->error.status),
                      self->error.text);
    } else if (self->outcome == CONVOY_PIPELINE_STOPPED) {
        bool was_hurt = self->error.status != CONVOY_CANCELED;
        (void)fprintf(out, "%s: stopped after %u requests%s%s\n", name, done, was_hurt ? ": " : "",
                      was_hurt ? self->error.text : "");
    } else if (member < crew->count && crew->has_ended[member] && WIFSIGNALED(crew->wait_status[member])) {
        (void)fprintf(out, "%s: killed by SIG%s after %u requests\n", name,
                      sigabbrev_np(WTERMSIG(crew->wait_status[member])), done);
    } else {
        (void)fprintf(out, "%s: ended without a word after %u requests\n", name, done);
    }
}

void convoy_pipeline_report_failures(FILE *out, const struct convoy_pipeline_board *board,
                                     const struct convoy_crew *crew)
{
    for (uint32_t i = 0; i < convoy_pipeline_shape_members(&board->setup.shape); i++) {
        if (board->members[i].outcome != CONVOY_PIPELINE_FINISHED) {
            report_failure(out, board, crew, i);
        }
    }
}
