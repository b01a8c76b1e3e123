/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_role.h"

#include "cli/inbox.h"
#include "cli/options.h"
#include "cli/outbox.h"
#include "cli/two_hosts.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROLE_WAIT_NS CONVOY_NS_PER_MS

struct role {
    struct convoy_pipeline_board *board;
    uint32_t member;
    enum convoy_pipeline_role kind;
    struct convoy_pipeline_member *self;
    struct convoy_transfer_host host;
    struct convoy_safetensors file; /* encoder, decoder */
    struct convoy_parcel parcel;
    struct convoy_inbox inbox;   /* all but the encoder */
    struct convoy_outbox outbox; /* all but the decoder */
    uint64_t started_ns;
    struct convoy_error error;
};

static bool is_sender(const struct role *role)
{
    return role->kind != CONVOY_PIPELINE_DECODER;
}

/* -- opening -------------------------------------------------------------------------------------------------------- */

static int32_t role_open_engine(struct role *role)
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

static int32_t role_read_file(struct role *role)
{
    int32_t status = convoy_safetensors_read(&role->file, role->board->setup.tensors, &role->error);
    return status == CONVOY_OK ? convoy_parcel_init(&role->parcel, &role->file, &role->error) : status;
}

/* Waits until all members have come to a phase. CANCELED: it shall stop. */
static int32_t role_await(struct role *role, enum convoy_pipeline_phase phase)
{
    const struct timespec pause = {.tv_nsec = ROLE_WAIT_NS};
    struct convoy_pipeline_board *board = role->board;
    while (convoy_pipeline_board_count(board, phase) < convoy_pipeline_shape_members(&board->setup.shape)) {
        if (atomic_load(&board->is_stop_wanted) != 0) {
            return convoy_error_set(&role->error, CONVOY_CANCELED, "stopped");
        }
        if (convoy_now_ns() >= board->setup.deadline_ns) {
            return convoy_error_set(&role->error, CONVOY_TIMED_OUT, "the others were not there in time");
        }
        (void)nanosleep(&pause, NULL);
    }
    return CONVOY_OK;
}

static void role_phase(struct role *role, enum convoy_pipeline_phase phase)
{
    atomic_store_explicit(&role->self->phase, (uint32_t)phase, memory_order_release);
}

static int32_t role_open(struct role *role)
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
    status = role_await(role, CONVOY_PIPELINE_LISTENING);
    if (status == CONVOY_OK && is_sender(role)) {
        status = convoy_outbox_connect(&role->outbox, &role->error);
    }
    return status;
}

/* -- working -------------------------------------------------------------------------------------------------------- */

/* One turn of every loop: what is under way goes on, and nothing goes on for ever. */
static int32_t role_turn(struct role *role)
{
    if (atomic_load_explicit(&role->board->is_stop_wanted, memory_order_relaxed) != 0) {
        return convoy_error_set(&role->error, CONVOY_CANCELED, "stopped");
    }
    if (convoy_now_ns() >= role->board->setup.deadline_ns) {
        return convoy_error_set(&role->error, CONVOY_TIMED_OUT, "not done in time: %u requests through, %u under way",
                                atomic_load(&role->self->done), convoy_outbox_count(&role->outbox));
    }
    return is_sender(role) ? convoy_outbox_work(&role->outbox, &role->error) : CONVOY_OK;
}

/* Puts a request into the outbox, as soon as there is room. With nothing under way no room will come of itself, so that
 * is waited for no longer than any other call. */
static int32_t role_send(struct role *role, uint32_t request, const struct convoy_stage *stage,
                         convoy_transfer upstream)
{
    uint64_t stuck_ns = 0;
    int32_t status = CONVOY_BUSY;
    while ((status = convoy_outbox_add(&role->outbox, request, stage, upstream, &role->error)) == CONVOY_BUSY) {
        uint64_t now_ns = convoy_now_ns();
        stuck_ns = convoy_outbox_count(&role->outbox) != 0 ? 0 : stuck_ns != 0 ? stuck_ns : now_ns;
        if (stuck_ns != 0 && now_ns - stuck_ns > role->board->setup.timeout_ns) {
            return CONVOY_BUSY;
        }
        convoy_outbox_wait(&role->outbox);
        status = role_turn(role);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return status;
}

static int32_t role_flush(struct role *role)
{
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_outbox_count(&role->outbox) != 0) {
        convoy_outbox_wait(&role->outbox);
        status = role_turn(role);
    }
    return status;
}

/* With a speed: waits for the request's moment. */
static int32_t role_pace(struct role *role, uint32_t request)
{
    const struct timespec pause = {.tv_nsec = ROLE_WAIT_NS};
    double speed = role->board->setup.speed;
    uint64_t first_ms = convoy_pipeline_board_request(role->board, 0)->timestamp_ms;
    uint64_t wait_ms = convoy_pipeline_board_request(role->board, request)->timestamp_ms - first_ms;
    uint64_t moment_ns =
        speed > 0 ? role->started_ns + (uint64_t)((double)(wait_ms * CONVOY_NS_PER_MS) / speed) : role->started_ns;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_now_ns() < moment_ns) {
        (void)nanosleep(&pause, NULL);
        status = role_turn(role);
    }
    return status;
}

static int32_t role_encode(struct role *role)
{
    const struct convoy_pipeline_setup *setup = &role->board->setup;
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < setup->request_count && status == CONVOY_OK; i++) {
        if (convoy_pipeline_shape_member(&setup->shape, role->kind, i) != role->member) {
            continue;
        }
        status = role_pace(role, i);
        if (status == CONVOY_OK) {
            convoy_parcel_set(&role->parcel, i, convoy_pipeline_board_request(role->board, i));
            const struct convoy_stage stage = convoy_parcel_stage(&role->parcel);
            status = role_send(role, i, &stage, 0);
        }
        atomic_fetch_add(&role->self->done, status == CONVOY_OK);
    }
    return status == CONVOY_OK ? role_flush(role) : status;
}

/* The next request that comes; what is under way goes on meanwhile. */
static int32_t role_receive(struct role *role, uint32_t *request_out, convoy_transfer *load_out)
{
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) {
        status = role_turn(role);
        if (status != CONVOY_OK) {
            return status;
        }
        /* While something is under way that too may be what happens next. */
        bool is_idle = !is_sender(role) || convoy_outbox_count(&role->outbox) == 0;
        status = convoy_inbox_take(&role->inbox, is_idle ? ROLE_WAIT_NS : 0, request_out, load_out, &role->error);
        if (status == CONVOY_IN_PROGRESS && !is_idle) {
            convoy_outbox_wait(&role->outbox);
        }
    }
    return status;
}

static int32_t role_denoise_one(struct role *role)
{
    uint32_t request = 0;
    convoy_transfer load = 0;
    struct convoy_stage stage;
    int32_t status = role_receive(role, &request, &load);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_arrival_stage(&role->inbox.arrival, &stage, &role->error);
    if (status == CONVOY_OK) {
        status = role_send(role, request, &stage, load);
    }
    if (status != CONVOY_OK) {
        convoy_inbox_release(&role->inbox, request, load); /* the outbox did not take it */
    }
    return status;
}

static int32_t role_decode_one(struct role *role)
{
    uint32_t request = 0;
    convoy_transfer load = 0;
    int32_t status = role_receive(role, &request, &load);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_parcel_set(&role->parcel, request, convoy_pipeline_board_request(role->board, request));
    status = convoy_arrival_check(&role->inbox.arrival, &role->parcel, &role->error);
    if (status == CONVOY_OK && request == 0) {
        char path[CONVOY_PLACE_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/" CONVOY_PIPELINE_OUTPUT, role->board->setup.folder);
        status = convoy_arrival_write(&role->inbox.arrival, path, &role->error);
    }
    convoy_inbox_release(&role->inbox, request, load);
    return status == CONVOY_OK ? status : convoy_error_prefix(&role->error, status, "request %u", request);
}

static int32_t role_work(struct role *role)
{
    role->started_ns = convoy_now_ns();
    role_phase(role, CONVOY_PIPELINE_WORKING);
    if (role->kind == CONVOY_PIPELINE_ENCODER) {
        return role_encode(role);
    }
    const struct convoy_pipeline_setup *setup = &role->board->setup;
    uint32_t share = convoy_pipeline_shape_share(&setup->shape, role->member, setup->request_count);
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < share && status == CONVOY_OK; i++) {
        status = role->kind == CONVOY_PIPELINE_DENOISER ? role_denoise_one(role) : role_decode_one(role);
        atomic_fetch_add(&role->self->done, status == CONVOY_OK);
    }
    return status == CONVOY_OK && is_sender(role) ? role_flush(role) : status;
}

/* -- ending --------------------------------------------------------------------------------------------------------- */

const char *convoy_pipeline_role_trace_path(const struct convoy_pipeline_board *board, uint32_t member,
                                            char path_out[CONVOY_PLACE_PATH_BYTES + 48])
{
    (void)snprintf(path_out, CONVOY_PLACE_PATH_BYTES + 48, "%s/transfer-%u.trace.json", board->setup.folder, member);
    return path_out;
}

static int32_t role_write_trace(struct role *role)
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
static int32_t role_drain(struct role *role)
{
    uint64_t timeout_ns = role->board->setup.timeout_ns;
    int32_t status = convoy_transfer_host_drain(&role->host, timeout_ns, &role->self->figures, &role->error);
    if (status == CONVOY_OK && role->board->setup.is_traced != 0) {
        status = role_write_trace(role);
    }
    if (status == CONVOY_OK) {
        role_phase(role, CONVOY_PIPELINE_DRAINED);
        status = role_await(role, CONVOY_PIPELINE_DRAINED);
    }
    return status;
}

/* The file goes last: until the engine is closed a stage may still read it. */
static int32_t role_close(struct role *role, struct convoy_error *error)
{
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
static void role_end(struct role *role, int32_t status)
{
    bool is_first = status != CONVOY_OK && atomic_exchange(&role->board->is_stop_wanted, 1) == 0;
    role->self->error = role->error;
    role->self->error.status = status;
    role->self->outcome = status == CONVOY_OK ? CONVOY_PIPELINE_FINISHED
                          : is_first          ? CONVOY_PIPELINE_FAILED
                                              : CONVOY_PIPELINE_STOPPED;
}

static int32_t role_run(struct role *role)
{
    int32_t status = role_open(role);
    if (status == CONVOY_OK) {
        status = role_work(role);
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
    struct role role = {
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
