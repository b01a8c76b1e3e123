/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer.h"

#include "cli/crew.h"
#include "cli/perf_transfer_report.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/status.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRANSFER_GRACE_NS (5 * CONVOY_NS_PER_S)

struct transfer {
    struct convoy_perf_transfer_load load;
    struct convoy_perf_transfer_board *board;
    uint64_t board_bytes;
    struct convoy_crew crew;
};

static const char *const transfer_sides[] = {"sender", "receiver"};

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

/* One kind: two new processes, and what they leave on the board. */
static int32_t transfer_run_kind(struct transfer *transfer, enum convoy_perf_transfer_kind kind,
                                 struct convoy_error *error)
{
    struct convoy_perf_transfer_board *board = transfer->board;
    int32_t status = CONVOY_OK;
    board->kind = kind;
    atomic_store(&board->is_open, 0);
    atomic_store(&board->waiting, 0);
    atomic_store(&board->ended, 0);
    convoy_crew_init(&transfer->crew);
    for (uint32_t i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = convoy_crew_fork(&transfer->crew, transfer_child, transfer, error);
    }
    if (status == CONVOY_OK) {
        status = transfer_wait(transfer, error);
    }
    convoy_crew_fini(&transfer->crew);
    if (status == CONVOY_OK) {
        status = transfer_outcome(transfer, error);
    }
    return status == CONVOY_OK ? convoy_perf_transfer_load_check_path(
                                     &transfer->load, convoy_perf_transfer_report_path(board, kind), error)
                               : status;
}

static int32_t transfer_run(struct transfer *transfer, struct convoy_error *error)
{
    int32_t status = transfer_prepare(transfer, error);
    if (status == CONVOY_OK && convoy_perf_transfer_load_has_views(&transfer->load)) {
        status = transfer_run_kind(transfer, CONVOY_PERF_TRANSFER_VIEW, error);
    }
    if (status == CONVOY_OK && convoy_perf_transfer_load_has_copies(&transfer->load)) {
        status = transfer_run_kind(transfer, CONVOY_PERF_TRANSFER_COPY, error);
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
    int32_t status = transfer_run(&transfer, &error);
    if (status == CONVOY_OK) {
        status = convoy_perf_transfer_report(stdout, &transfer.load, transfer.board, &error);
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy perf transfer: %s\n", error.text);
    }
    if (transfer.board != NULL) {
        (void)munmap(transfer.board, transfer.board_bytes);
    }
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}
