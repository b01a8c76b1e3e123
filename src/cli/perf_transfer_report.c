/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer_report.h"

#include "cli/pipeline_figures.h"
#include "cli/pipeline_report.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define REPORT_CELL_BYTES 32u

/* One kind as it is printed; path 0: it was not measured. */
struct report_kind {
    uint32_t path;
    struct convoy_perf_transfer_phase whole; /* the hand-over, of the measured rounds */
    const struct convoy_perf_transfer_phase *phases;
    uint64_t asked_bytes; /* of the tensors */
    uint64_t moved_bytes; /* copied by both sides, with what lies between tensors */
    double gb_per_s;
};

struct report {
    FILE *out;
    const struct convoy_perf_transfer_load *load;
    const struct convoy_perf_transfer_board *board;
    struct report_kind kinds[CONVOY_PERF_TRANSFER_KINDS];
};

static const char *const report_kinds[CONVOY_PERF_TRANSFER_KINDS] = {"view", "copy"};

uint32_t convoy_perf_transfer_report_path(const struct convoy_perf_transfer_board *board,
                                          enum convoy_perf_transfer_kind kind)
{
    const uint32_t *paths = board->accounts[kind].paths;
    return convoy_pipeline_path_taken(paths[0], paths[1]);
}

/* -- figures -------------------------------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static int32_t kind_whole(const struct convoy_perf_transfer_sample *samples, uint64_t count,
                          struct convoy_perf_transfer_phase *whole_out, struct convoy_error *error)
{
    uint64_t *numbers = convoy_memory_array(count, sizeof *numbers);
    if (numbers == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the figures of %" PRIu64 " rounds", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        numbers[i] = samples[i].loaded_ns - samples[i].started_ns;
    }
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    *whole_out = (struct convoy_perf_transfer_phase){
        .count = count, .p50_ns = numbers[count / 2], .p99_ns = numbers[count - 1 - count / 100]};
    convoy_memory_free(numbers);
    return CONVOY_OK;
}

static int32_t kind_make(const struct report *report, enum convoy_perf_transfer_kind kind, struct report_kind *out,
                         struct convoy_error *error)
{
    uint64_t rounds = report->load->rounds;
    const struct convoy_perf_transfer_account *account = &report->board->accounts[kind];
    uint32_t path = convoy_perf_transfer_report_path(report->board, kind);
    if (path == 0) {
        return CONVOY_OK;
    }
    *out = (struct report_kind){
        .path = path,
        .phases = account->phases,
        .asked_bytes = report->load->bytes * rounds,
        .moved_bytes = account->moved_bytes[0] + account->moved_bytes[1],
    };
    int32_t status = kind_whole(&report->board->samples[kind * rounds], rounds, &out->whole, error);
    if (out->whole.p50_ns != 0) {
        out->gb_per_s = (double)report->load->bytes / (double)out->whole.p50_ns;
    }
    return status;
}

/* -- JSON ----------------------------------------------------------------------------------------------------------- */

static json_t *json_phases(const struct convoy_perf_transfer_phase *phases)
{
    json_t *out = json_object();
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_PHASES; i++) {
        json_t *one = phases[i].count == 0
                          ? json_null()
                          : json_pack("{s:I, s:I, s:I}", "count", (json_int_t)phases[i].count, "median",
                                      (json_int_t)phases[i].p50_ns, "p99", (json_int_t)phases[i].p99_ns);
        (void)json_object_set_new(out, convoy_perf_transfer_phase_name(i), one);
    }
    return out;
}

static json_t *json_kind(const struct report_kind *kind)
{
    if (kind->path == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:I, s:I, s:f, s:{s:I, s:I}, s:o}", "path", convoy_pipeline_path_name(kind->path),
                     "asked_bytes", (json_int_t)kind->asked_bytes, "moved_bytes", (json_int_t)kind->moved_bytes, "gb_per_s",
                     kind->gb_per_s, "hand_over_ns", "median", (json_int_t)kind->whole.p50_ns, "p99",
                     (json_int_t)kind->whole.p99_ns, "phases_ns", json_phases(kind->phases));
}

static void print_json(const struct report *report)
{
    const struct convoy_perf_transfer_load *load = report->load;
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:o, s:o, s:{s:s, s:s}}", "what", "transfer", "bytes",
        (json_int_t)load->bytes, "tensors", (json_int_t)load->tensors, "n", (json_int_t)load->rounds, "warm",
        (json_int_t)CONVOY_PERF_TRANSFER_WARM, "path", load->path_word, "net", load->net, "mem", load->memory_word, "view",
        json_kind(&report->kinds[CONVOY_PERF_TRANSFER_VIEW]), "copy", json_kind(&report->kinds[CONVOY_PERF_TRANSFER_COPY]),
        "plugin", "release", report->board->release, "build_id", report->board->build_id);
    if (object != NULL) {
        (void)json_dumpf(object, report->out, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        (void)fputc('\n', report->out);
        json_decref(object);
    }
}

/* -- text ----------------------------------------------------------------------------------------------------------- */

static void print_head(const struct report *report)
{
    (void)fprintf(report->out, "  %-9s", "");
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_KINDS; i++) {
        char cell[REPORT_CELL_BYTES];
        if (report->kinds[i].path != 0) {
            (void)snprintf(cell, sizeof cell, "%s p50, us", report_kinds[i]);
            (void)fprintf(report->out, "%14s %10s", cell, "p99, us");
        }
    }
    (void)fputc('\n', report->out);
}

/* phase: one of the engines', or CONVOY_PERF_TRANSFER_PHASES for the hand-over as a whole. */
static void print_times(const struct report *report, uint32_t phase)
{
    bool is_whole = phase == CONVOY_PERF_TRANSFER_PHASES;
    (void)fprintf(report->out, "  %-9s", is_whole ? "hand-over" : convoy_perf_transfer_phase_name(phase));
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_KINDS; i++) {
        const struct report_kind *kind = &report->kinds[i];
        if (kind->path == 0) {
            continue;
        }
        const struct convoy_perf_transfer_phase *times = is_whole ? &kind->whole : &kind->phases[phase];
        if (times->count != 0) {
            (void)fprintf(report->out, "%14.1f %10.1f", (double)times->p50_ns / 1e3, (double)times->p99_ns / 1e3);
        } else {
            (void)fprintf(report->out, "%14s %10s", "-", "-");
        }
    }
    (void)fprintf(report->out, "   %s\n",
                  is_whole ? "the sender begins -> the receiver has it" : convoy_perf_transfer_phase_about(phase));
}

static void print_kind(const struct report *report, enum convoy_perf_transfer_kind number)
{
    const struct report_kind *kind = &report->kinds[number];
    char asked[REPORT_CELL_BYTES];
    char moved[REPORT_CELL_BYTES];
    if (kind->path != 0) {
        (void)fprintf(report->out, "  %s: %.2f GB/s by %s; %s asked, %s moved (copied by both sides)\n",
                      report_kinds[number], kind->gb_per_s, convoy_pipeline_path_name(kind->path),
                      convoy_pipeline_report_bytes(asked, kind->asked_bytes),
                      convoy_pipeline_report_bytes(moved, kind->moved_bytes));
    }
}

static void print_text(const struct report *report)
{
    const struct convoy_perf_transfer_load *load = report->load;
    char bytes[REPORT_CELL_BYTES];
    (void)fprintf(report->out,
                  "transfer of %s as %" PRIu64 " tensor%s, path %s, net %s, memory %s, %" PRIu64 " round%s of each kind\n",
                  convoy_pipeline_report_bytes(bytes, load->bytes), load->tensors, load->tensors == 1 ? "" : "s",
                  load->path_word, load->net, load->memory_word, load->rounds, load->rounds == 1 ? "" : "s");
    print_head(report);
    print_times(report, CONVOY_PERF_TRANSFER_PHASES);
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_PHASES; i++) {
        print_times(report, i);
    }
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_KINDS; i++) {
        print_kind(report, (enum convoy_perf_transfer_kind)i);
    }
    (void)fprintf(report->out,
                  "  below hand-over: the engines' own statistics, at most 19 %% high; the first %u rounds are in them\n",
                  CONVOY_PERF_TRANSFER_WARM);
    (void)fprintf(report->out, "  plugin release %s, build id %s\n", report->board->release, report->board->build_id);
}

int32_t convoy_perf_transfer_report(FILE *out, const struct convoy_perf_transfer_load *load,
                                    const struct convoy_perf_transfer_board *board, struct convoy_error *error)
{
    struct report report = {.out = out, .load = load, .board = board};
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_KINDS && status == CONVOY_OK; i++) {
        status = kind_make(&report, (enum convoy_perf_transfer_kind)i, &report.kinds[i], error);
    }
    if (status == CONVOY_OK && load->is_json) {
        print_json(&report);
    } else if (status == CONVOY_OK) {
        print_text(&report);
    }
    return status;
}
