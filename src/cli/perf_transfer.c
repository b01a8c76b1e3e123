/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer.h"

#include "cli/crew.h"
#include "cli/perf_transfer_side.h"
#include "cli/pipeline_figures.h"
#include "cli/pipeline_report.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/status.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRANSFER_GRACE_NS (5 * CONVOY_NS_PER_S)

struct transfer {
    struct convoy_perf_transfer_load load;
    struct convoy_perf_transfer_board *board;
    uint64_t board_bytes;
    struct convoy_crew crew;
};

/* What is printed of one kind; count 0: it was not measured. */
struct transfer_figures {
    struct convoy_pipeline_quantiles stage;
    struct convoy_pipeline_quantiles load;
    struct convoy_pipeline_quantiles whole;
};

static const char *const transfer_sides[] = {"sender", "receiver"};
static const char *const transfer_kinds[CONVOY_PERF_TRANSFER_KINDS] = {"view", "copy"};

/* -- running -------------------------------------------------------------------------------------------------------- */

static int32_t transfer_prepare(struct transfer *transfer, struct convoy_error *error)
{
    const struct convoy_perf_transfer_load *load = &transfer->load;
    if (access(load->plugin, R_OK) != 0) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "cannot read the plugin %.200s", load->plugin);
    }
    transfer->board_bytes = sizeof *transfer->board +
                            CONVOY_PERF_TRANSFER_KINDS * load->rounds * sizeof(struct convoy_perf_transfer_sample);
    void *memory =
        mmap(NULL, transfer->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_NO_MEMORY, errno, "memory to share with the two sides");
    }
    transfer->board = memory;
    transfer->board->deadline_ns = convoy_now_ns() + load->deadline_s * CONVOY_NS_PER_S;
    return CONVOY_OK;
}

static int transfer_child(void *user, uint32_t side)
{
    struct transfer *transfer = user;
    return convoy_perf_transfer_side(&transfer->load, transfer->board, side);
}

/* The sides have the deadline themselves; this one is for a side that hangs. */
static int32_t transfer_wait(struct transfer *transfer, struct convoy_error *error)
{
    while (transfer->crew.alive != 0) {
        enum convoy_crew_event event = convoy_crew_wait(&transfer->crew, 100);
        if (event == CONVOY_CREW_INTERRUPT) {
            return convoy_error_set(error, CONVOY_CANCELED, "interrupted");
        }
        if (convoy_now_ns() > transfer->board->deadline_ns + TRANSFER_GRACE_NS) {
            return convoy_error_set(error, CONVOY_TIMED_OUT, "a side hangs beyond --deadline %" PRIu64,
                                    transfer->load.deadline_s);
        }
        for (uint32_t i = 0; i < transfer->crew.count; i++) {
            if (transfer->crew.has_ended[i] && transfer->crew.wait_status[i] != 0) {
                atomic_store(&transfer->board->is_stop_wanted, 1); /* it may have been killed, without a word */
            }
        }
    }
    return CONVOY_OK;
}

/* The first cause: the other side fails for want of this one, or only stops. */
static int32_t transfer_outcome(const struct transfer *transfer, struct convoy_error *error)
{
    uint32_t first = atomic_load(&transfer->board->first_failed);
    if (first != 0) {
        const struct convoy_error *other = &transfer->board->errors[first - 1];
        return convoy_error_set(error, other->status, "%s: %s: %.200s", transfer_sides[first - 1],
                                convoy_status_name(other->status), other->text);
    }
    for (uint32_t i = 0; i < transfer->crew.count; i++) {
        if (transfer->crew.wait_status[i] != 0) {
            return convoy_error_set(error, CONVOY_PEER_LOST, "%s: died without a word", transfer_sides[i]);
        }
    }
    return CONVOY_OK;
}

static uint32_t transfer_path(const struct transfer *transfer, enum convoy_perf_transfer_kind kind)
{
    return convoy_pipeline_path_taken(transfer->board->paths[0][kind], transfer->board->paths[1][kind]);
}

static int32_t transfer_run(struct transfer *transfer, struct convoy_error *error)
{
    int32_t status = transfer_prepare(transfer, error);
    for (uint32_t i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = convoy_crew_fork(&transfer->crew, transfer_child, transfer, error);
    }
    if (status == CONVOY_OK) {
        status = transfer_wait(transfer, error);
    }
    return status == CONVOY_OK ? transfer_outcome(transfer, error) : status;
}

/* -- figures -------------------------------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static struct convoy_pipeline_quantiles quantiles_of(uint64_t *numbers, uint64_t count)
{
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    return (struct convoy_pipeline_quantiles){
        .count = (uint32_t)count, .median_ns = numbers[count / 2], .p99_ns = numbers[count - 1 - count / 100]};
}

static int32_t transfer_figures(const struct transfer *transfer, enum convoy_perf_transfer_kind kind,
                                struct transfer_figures *figures_out, struct convoy_error *error)
{
    uint64_t count = transfer->load.rounds;
    const struct convoy_perf_transfer_sample *samples = &transfer->board->samples[kind * count];
    if (transfer_path(transfer, kind) == 0) {
        return CONVOY_OK;
    }
    uint64_t *numbers = convoy_memory_array(3 * count, sizeof *numbers);
    if (numbers == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the figures of %" PRIu64 " rounds", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        numbers[i] = samples[i].stage_ns;
        numbers[count + i] = samples[i].load_ns;
        numbers[2 * count + i] = samples[i].loaded_ns - samples[i].started_ns;
    }
    figures_out->stage = quantiles_of(numbers, count);
    figures_out->load = quantiles_of(numbers + count, count);
    figures_out->whole = quantiles_of(numbers + 2 * count, count);
    convoy_memory_free(numbers);
    return CONVOY_OK;
}

static double gb_per_s(uint64_t bytes, uint64_t ns)
{
    return ns != 0 ? (double)bytes / (double)ns : 0;
}

/* -- printing ------------------------------------------------------------------------------------------------------- */

static json_t *json_quantiles(const struct convoy_pipeline_quantiles *quantiles)
{
    return json_pack("{s:I, s:I}", "median", (json_int_t)quantiles->median_ns, "p99", (json_int_t)quantiles->p99_ns);
}

static json_t *json_kind(const struct transfer *transfer, enum convoy_perf_transfer_kind kind,
                         const struct transfer_figures *figures)
{
    if (transfer_path(transfer, kind) == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:f}", "path", convoy_pipeline_path_name(transfer_path(transfer, kind)),
                     "stage_ns", json_quantiles(&figures->stage), "load_ns", json_quantiles(&figures->load),
                     "hand_over_ns", json_quantiles(&figures->whole), "gb_per_s",
                     gb_per_s(transfer->load.bytes, figures->whole.median_ns));
}

static void print_json(const struct transfer *transfer,
                       const struct transfer_figures figures[CONVOY_PERF_TRANSFER_KINDS])
{
    const struct convoy_perf_transfer_load *load = &transfer->load;
    json_t *report = json_pack(
        "{s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:o, s:o, s:{s:s, s:s}}", "what", "transfer", "bytes",
        (json_int_t)load->bytes, "tensors", (json_int_t)load->tensors, "n", (json_int_t)load->rounds, "path",
        load->path_word, "net", load->net, "mem", load->memory_word, "view",
        json_kind(transfer, CONVOY_PERF_TRANSFER_VIEW, &figures[0]), "copy",
        json_kind(transfer, CONVOY_PERF_TRANSFER_COPY, &figures[1]), "plugin", "release", transfer->board->release,
        "build_id", transfer->board->build_id);
    if (report != NULL) {
        (void)json_dumpf(report, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        (void)fputc('\n', stdout);
        json_decref(report);
    }
}

static void print_row(const char *name, const char *kind, const struct convoy_pipeline_quantiles *quantiles)
{
    (void)printf("  %-9s %-4s   median %10.1f us   p99 %10.1f us", name, kind, (double)quantiles->median_ns / 1e3,
                 (double)quantiles->p99_ns / 1e3);
}

static void print_kind(const struct transfer *transfer, enum convoy_perf_transfer_kind kind,
                       const struct transfer_figures *figures)
{
    uint32_t path = transfer_path(transfer, kind);
    if (path == 0) {
        return;
    }
    print_row("stage", transfer_kinds[kind], &figures->stage);
    (void)fputc('\n', stdout);
    print_row("load", transfer_kinds[kind], &figures->load);
    (void)fputc('\n', stdout);
    print_row("hand-over", transfer_kinds[kind], &figures->whole);
    (void)printf("   %.2f GB/s by %s\n", gb_per_s(transfer->load.bytes, figures->whole.median_ns),
                 convoy_pipeline_path_name(path));
}

static void print_text(const struct transfer *transfer,
                       const struct transfer_figures figures[CONVOY_PERF_TRANSFER_KINDS])
{
    const struct convoy_perf_transfer_load *load = &transfer->load;
    char bytes[32];
    (void)printf("transfer of %s as %" PRIu64 " tensor%s, path %s, net %s, memory %s, %" PRIu64 " rounds of each kind\n",
                 convoy_pipeline_report_bytes(bytes, load->bytes), load->tensors, load->tensors == 1 ? "" : "s",
                 load->path_word, load->net, load->memory_word, load->rounds);
    for (uint32_t kind = 0; kind < CONVOY_PERF_TRANSFER_KINDS; kind++) {
        print_kind(transfer, (enum convoy_perf_transfer_kind)kind, &figures[kind]);
    }
    (void)printf("  plugin release %s, build id %s\n", transfer->board->release, transfer->board->build_id);
}

static int32_t transfer_print(const struct transfer *transfer, struct convoy_error *error)
{
    struct transfer_figures figures[CONVOY_PERF_TRANSFER_KINDS] = {0};
    int32_t status = CONVOY_OK;
    for (uint32_t kind = 0; kind < CONVOY_PERF_TRANSFER_KINDS && status == CONVOY_OK; kind++) {
        status = transfer_figures(transfer, (enum convoy_perf_transfer_kind)kind, &figures[kind], error);
    }
    if (status == CONVOY_OK && transfer->load.is_json) {
        print_json(transfer, figures);
    } else if (status == CONVOY_OK) {
        print_text(transfer, figures);
    }
    return status;
}

int convoy_cli_perf_transfer(int argc, char **argv)
{
    struct transfer transfer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool wants_help = false;
    if (convoy_perf_transfer_load_parse(&transfer.load, argc, argv, &wants_help, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "convoy perf transfer: %s (see convoy perf transfer --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    if (wants_help) {
        return CONVOY_EXIT_OK;
    }
    convoy_crew_init(&transfer.crew);
    int32_t status = transfer_run(&transfer, &error);
    convoy_crew_fini(&transfer.crew);
    if (status == CONVOY_OK) {
        status = transfer_print(&transfer, &error);
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy perf transfer: %s\n", error.text);
    }
    if (transfer.board != NULL) {
        (void)munmap(transfer.board, transfer.board_bytes);
    }
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}
