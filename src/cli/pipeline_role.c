/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_role.h"

#include "cli/options.h"
#include "cli/pipeline_swap.h"
#include "cli/pipeline_work.h"
#include "cli/two_hosts.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROLE_WAIT_NS CONVOY_NS_PER_MS
#define ROLE_OPEN_NS (30 * CONVOY_NS_PER_S) /* for all to open their engines; one that hangs there is noticed by this */

static bool is_sender(const struct convoy_pipeline_worker *role)
{
    return role->kind != CONVOY_PIPELINE_DECODER;
}

/* -- opening -------------------------------------------------------------------------------------------------------- */

static int32_t role_open_engine(struct convoy_pipeline_worker *role)
{
    const struct convoy_pipeline_setup *setup = &role->board->setup;
    char address[64];
    (void)snprintf(address, sizeof address, "tcp://%s:0",
                   convoy_two_hosts_address(convoy_pipeline_shape_host(&setup->shape, role->member)));
    struct convoy_transfer_host_options options = {
        .plugin = setup->plugin,
        .engine = {.address = setup->hosts == 2 ? address : NULL, .pool_bytes = setup->pool_bytes},
    };
    int32_t status = convoy_transfer_host_open(&role->host, &options, &role->error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_file_info *file = &convoy_loader_info(role->host.loader)->file;
    (void)snprintf(role->self->release, sizeof role->self->release, "%s", file->release);
    (void)snprintf(role->self->build_id, sizeof role->self->build_id, "%.63s", file->build_id);
    return convoy_transfer_host_session(&role->host, role->self->session, &role->error);
}

static int32_t role_read_file(struct convoy_pipeline_worker *role)
{
    int32_t status = convoy_safetensors_read(&role->file, role->board->setup.tensors, &role->error);
    return status == CONVOY_OK ? convoy_parcel_init(&role->parcel, &role->file, &role->error) : status;
}

/* The first member that has not come to a phase; their number when all have. */
static uint32_t first_behind(const struct convoy_pipeline_board *board, enum convoy_pipeline_phase phase)
{
    uint32_t count = convoy_pipeline_shape_members(&board->setup.shape);
    uint32_t member = 0;
    while (member < count &&
           atomic_load_explicit(&board->members[member].phase, memory_order_acquire) >= (uint32_t)phase) {
        member++;
    }
    return member;
}

/* Waits until all members have come to a phase. CANCELED: it shall stop. TIMED_OUT: the text names who has not. */
static int32_t role_await(struct convoy_pipeline_worker *role, enum convoy_pipeline_phase phase, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = ROLE_WAIT_NS};
    const struct convoy_pipeline_setup *setup = &role->board->setup;
    uint32_t behind = 0;
    while ((behind = first_behind(role->board, phase)) < convoy_pipeline_shape_members(&setup->shape)) {
        if (atomic_load(&role->board->is_stop_wanted) != 0) {
            return convoy_error_set(&role->error, CONVOY_CANCELED, "stopped");
        }
        if (convoy_now_ns() >= deadline_ns) {
            char name[CONVOY_PIPELINE_NAME_BYTES];
            return convoy_error_set(&role->error, CONVOY_TIMED_OUT, "%s did not come to %s in time",
                                    convoy_pipeline_shape_name(&setup->shape, behind, name),
                                    phase == CONVOY_PIPELINE_LISTENING ? "listen" : "an end");
        }
        (void)nanosleep(&pause, NULL);
    }
    return CONVOY_OK;
}

static void role_phase(struct convoy_pipeline_worker *role, enum convoy_pipeline_phase phase)
{
    atomic_store_explicit(&role->self->phase, (uint32_t)phase, memory_order_release);
}

static int32_t role_open(struct convoy_pipeline_worker *role)
{
    int32_t status = role->kind != CONVOY_PIPELINE_DENOISER ? role_read_file(role) : CONVOY_OK;
    if (status == CONVOY_OK) {
        status = role_open_engine(role);
    }
    if (status == CONVOY_OK && role->kind != CONVOY_PIPELINE_ENCODER) {
        status = convoy_inbox_init(&role->inbox, &role->host, role->board, role->member, &role->error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_outbox_init(&role->outbox, &role->host, role->board, role->member);
    role_phase(role, CONVOY_PIPELINE_LISTENING);
    uint64_t opened_ns = convoy_now_ns() + ROLE_OPEN_NS;
    uint64_t deadline_ns = role->board->setup.deadline_ns;
    status = role_await(role, CONVOY_PIPELINE_LISTENING, opened_ns < deadline_ns ? opened_ns : deadline_ns);
    if (status == CONVOY_OK && is_sender(role)) {
        status = convoy_outbox_connect(&role->outbox, &role->error);
    }
    return status;
}

/* -- ending --------------------------------------------------------------------------------------------------------- */

const char *convoy_pipeline_role_trace_path(const struct convoy_pipeline_board *board, uint32_t member,
                                            char path_out[CONVOY_PLACE_PATH_BYTES + 48])
{
    (void)snprintf(path_out, CONVOY_PLACE_PATH_BYTES + 48, "%s/transfer-%u.trace.json", board->setup.folder, member);
    return path_out;
}

static int32_t role_write_trace(struct convoy_pipeline_worker *role)
{
    char path[CONVOY_PLACE_PATH_BYTES + 48];
    char *text = NULL;
    int32_t status = convoy_transfer_host_describe(&role->host, CONVOY_TOPIC_TRACE, &text, &role->error);
    if (status != CONVOY_OK) {
        return status;
    }
    FILE *file = fopen(convoy_pipeline_role_trace_path(role->board, role->member, path), "we");
    bool is_written = file != NULL && fputs(text, file) >= 0;
    is_written = (file == NULL || fclose(file) == 0) && is_written;
    convoy_memory_free(text);
    return is_written ? CONVOY_OK
                      : convoy_error_set(&role->error, CONVOY_SYSTEM, "cannot write the trace events to %.180s", path);
}

/* Nobody closes before all are done: a peer that goes would end what another one still counts. */
static int32_t role_drain(struct convoy_pipeline_worker *role)
{
    uint64_t timeout_ns = role->board->setup.timeout_ns;
    int32_t status = convoy_transfer_host_drain(&role->host, timeout_ns, &role->self->figures, &role->error);
    if (status == CONVOY_OK && role->board->setup.is_traced != 0) {
        status = role_write_trace(role);
    }
    if (status == CONVOY_OK) {
        role_phase(role, CONVOY_PIPELINE_DRAINED);
        status = role_await(role, CONVOY_PIPELINE_DRAINED, role->board->setup.deadline_ns);
    }
    return status;
}

/* The file goes last: until the engine is closed a stage may still read it. */
static int32_t role_close(struct convoy_pipeline_worker *role, struct convoy_error *error)
{
    (void)convoy_swapper_finish(&role->swapper, true);
    if (role->host.engine != NULL) {
        convoy_outbox_fini(&role->outbox);
        convoy_inbox_fini(&role->inbox);
    }
    int32_t status = convoy_transfer_host_close(&role->host, role->board->setup.timeout_ns, error);
    if (status == CONVOY_OK) { /* else a copy may still be under way, and the process ends soon anyway */
        convoy_parcel_fini(&role->parcel);
        convoy_safetensors_fini(&role->file);
    }
    return status;
}

/* Says how it ended, before its engine closes: what the others suffer from that shall not look like the cause. */
static void role_end(struct convoy_pipeline_worker *role, int32_t status)
{
    bool is_first = status != CONVOY_OK && atomic_exchange(&role->board->is_stop_wanted, 1) == 0;
    role->self->error = role->error;
    role->self->error.status = status;
    role->self->outcome = status == CONVOY_OK ? CONVOY_PIPELINE_FINISHED
                          : is_first          ? CONVOY_PIPELINE_FAILED
                                              : CONVOY_PIPELINE_STOPPED;
}

static int32_t role_run(struct convoy_pipeline_worker *role)
{
    int32_t status = role_open(role);
    if (status == CONVOY_OK) {
        convoy_swapper_init(&role->swapper, role->host.loader, role->board->setup.timeout_ns, &role->self->swaps);
        status = convoy_pipeline_work(role);
    }
    if (status == CONVOY_OK) {
        status = convoy_pipeline_swap_end(role);
    }
    if (status == CONVOY_OK) {
        status = role_drain(role);
    }
    role_end(role, status);
    struct convoy_error closing = CONVOY_ERROR_INIT;
    int32_t closed = role_close(role, &closing);
    if (status == CONVOY_OK && closed != CONVOY_OK) {
        (void)convoy_error_copy(&role->error, &closing);
        status = convoy_error_prefix(&role->error, closed, "closing");
        role_end(role, status);
    }
    return status;
}

int convoy_pipeline_role_run(struct convoy_pipeline_board *board, uint32_t member)
{
    struct convoy_pipeline_worker role = {
        .board = board,
        .member = member,
        .kind = convoy_pipeline_shape_role(&board->setup.shape, member),
        .self = &board->members[member],
        .error = CONVOY_ERROR_INIT,
    };
    int32_t status = role_run(&role);
    role_phase(&role, CONVOY_PIPELINE_ENDED);
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}

int convoy_cli_pipeline_role(int argc, char **argv)
{
    uint64_t file = UINT64_MAX;
    uint64_t member = 0;
    const struct convoy_option table[] = {
        {"board", CONVOY_OPTION_NUMBER, &file, 0, 1023, "FD", "memory that the parent shares"},
        {"member", CONVOY_OPTION_NUMBER, &member, 0, CONVOY_PIPELINE_MEMBERS_MAX - 1, "N", "which process this is"},
    };
    struct convoy_command_line line = {.options = table, .option_count = 2};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_pipeline_board *board = NULL;
    int32_t status = convoy_options_parse(&line, argc, argv, &error);
    if (status != CONVOY_OK || line.wants_help || file == UINT64_MAX) {
        (void)fprintf(stderr, "convoy pipeline-role is started by convoy run. %s\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    status = convoy_pipeline_board_map((int)file, &board, &error);
    if (status == CONVOY_OK && member >= convoy_pipeline_shape_members(&board->setup.shape)) {
        status = convoy_error_set(&error, CONVOY_INVALID_ARGUMENT, "--member is %u: must be below %u", (uint32_t)member,
                                  convoy_pipeline_shape_members(&board->setup.shape));
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy pipeline-role: %s\n", error.text);
        return CONVOY_EXIT_FAILURE;
    }
    return convoy_pipeline_role_run(board, (uint32_t)member);
}
