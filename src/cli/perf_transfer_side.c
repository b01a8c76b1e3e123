/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer_side.h"

#include "cli/perf_memory.h"
#include "cli/plan.h"
#include "cli/transfer_host.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SIDE_GRACE_NS (2 * CONVOY_NS_PER_S)

struct side {
    const struct convoy_perf_transfer_load *load;
    struct convoy_perf_transfer_board *board;
    struct convoy_transfer_host host;
    struct convoy_perf_memory memory;
    uint8_t *expected; /* what is carried, in memory of the host */
    struct convoy_tensor_source *tensors;
    uint64_t *shapes;
    convoy_peer peer; /* sender */
    struct convoy_error *error;
};

/* -- opening -------------------------------------------------------------------------------------------------------- */

static int32_t side_payload(struct side *side)
{
    const struct convoy_perf_transfer_load *load = side->load;
    side->expected = convoy_memory_zalloc(load->bytes + sizeof(uint64_t));
    side->tensors = convoy_memory_array(load->tensors, sizeof *side->tensors);
    side->shapes = convoy_memory_array(load->tensors, sizeof *side->shapes);
    if (side->expected == NULL || side->tensors == NULL || side->shapes == NULL) {
        return convoy_error_set(side->error, CONVOY_NO_MEMORY, "no memory for %" PRIu64 " bytes to send", load->bytes);
    }
    for (uint64_t at = 0; at < load->bytes; at += sizeof at) {
        convoy_bytes_put_u64(side->expected + at, convoy_plan_mix(at));
    }
    return CONVOY_OK;
}

static void side_tensors(struct side *side, const uint8_t *source)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < side->load->tensors; i++) {
        uint64_t bytes = convoy_perf_transfer_load_part(side->load, i);
        side->shapes[i] = bytes;
        side->tensors[i] = (struct convoy_tensor_source){
            .name = "parts",
            .name_length = 5,
            .dtype = "U8",
            .dtype_length = 2,
            .data = source + at,
            .shape = &side->shapes[i],
            .rank = 1,
            .flags = CONVOY_TENSOR_LISTED,
            .list_index = (uint32_t)i,
        };
        at += bytes;
    }
}

static int32_t side_open(struct side *side)
{
    char settings[64];
    uint64_t pool_bytes = convoy_perf_transfer_load_pool_bytes(side->load);
    (void)snprintf(settings, sizeof settings, "{\"net\":\"%.8s\"}", side->load->net);
    int32_t status = convoy_perf_memory_open(&side->memory, side->load->memory, pool_bytes, side->error);
    if (status == CONVOY_OK) {
        status = side_payload(side);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_transfer_host_options options = {
        .plugin = side->load->plugin,
        .settings = settings,
        .engine = {.pool_kind = side->load->memory,
                   .pool_memory = side->memory.pool,
                   .pool_bytes = pool_bytes,
                   .device = side->load->memory == CONVOY_MEMORY_DEVICE ? CONVOY_DEVICE_CUDA : CONVOY_DEVICE_NONE},
    };
    return convoy_transfer_host_open(&side->host, &options, side->error);
}

/* -- waiting for each other ----------------------------------------------------------------------------------------- */

static int32_t side_is_over(struct side *side)
{
    if (atomic_load_explicit(&side->board->is_stop_wanted, memory_order_relaxed) != 0) {
        return convoy_error_set(side->error, CONVOY_CANCELED, "the other side failed");
    }
    if (convoy_now_ns() >= side->board->deadline_ns) {
        return convoy_error_set(side->error, CONVOY_TIMED_OUT, "not done after %" PRIu64 " s (raise --deadline)",
                                side->load->deadline_s);
    }
    return CONVOY_OK;
}

static int32_t side_await_open(struct side *side)
{
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && atomic_load_explicit(&side->board->is_open, memory_order_acquire) == 0) {
        (void)sched_yield();
        status = side_is_over(side);
    }
    return status;
}

static int32_t side_await_receiver(struct side *side, uint64_t round)
{
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && atomic_load_explicit(&side->board->waiting, memory_order_acquire) <= round) {
        (void)sched_yield();
        status = side_is_over(side);
    }
    return status;
}

static int32_t side_await_end(struct side *side)
{
    int32_t status = CONVOY_OK;
    (void)atomic_fetch_add(&side->board->ended, 1);
    while (status == CONVOY_OK && atomic_load(&side->board->ended) < 2) {
        (void)sched_yield();
        status = side_is_over(side);
    }
    return status;
}

/* A little longer than there is, so that the words are those of the deadline and not of the call that was under way. */
static uint64_t side_left_ns(const struct side *side)
{
    return convoy_deadline_left(convoy_now_ns(), side->board->deadline_ns) + SIDE_GRACE_NS;
}

/* -- rounds --------------------------------------------------------------------------------------------------------- */

/* sample: NULL for a round that only warms up. */
typedef int32_t (*round_fn)(struct side *side, uint64_t round, struct convoy_perf_transfer_sample *sample);

static int32_t side_rounds(struct side *side, round_fn make)
{
    uint64_t rounds = side->load->rounds;
    struct convoy_perf_transfer_sample *samples = &side->board->samples[side->board->kind * rounds];
    int32_t status = CONVOY_OK;
    for (uint64_t i = 0; i < CONVOY_PERF_TRANSFER_WARM + rounds && status == CONVOY_OK; i++) {
        status = make(side, i, i >= CONVOY_PERF_TRANSFER_WARM ? &samples[i - CONVOY_PERF_TRANSFER_WARM] : NULL);
    }
    return status;
}

static struct convoy_perf_transfer_account *side_account(struct side *side)
{
    return &side->board->accounts[side->board->kind];
}

static int32_t send_round(struct side *side, uint64_t round, struct convoy_perf_transfer_sample *sample)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    convoy_transfer transfer = 0;
    char request[32];
    int length = snprintf(request, sizeof request, "round-%" PRIu64, round);
    int32_t status = side_await_receiver(side, round);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_stage stage = {
        .struct_size = sizeof stage,
        .request = request,
        .request_length = (size_t)length,
        .tensors = side->tensors,
        .tensor_stride = sizeof side->tensors[0],
        .tensor_count = side->load->tensors,
        .timeout_ns = side_left_ns(side),
    };
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = side->load->path,
                                     .peer = side->peer,
                                     .timeout_ns = side_left_ns(side)};
    status = convoy_host_transfer_send(side->host.engine, &stage, &send, &transfer, side->error);
    if (status == CONVOY_OK) {
        status = convoy_host_transfer_test(side->host.engine, transfer, &result, side->error);
        side_account(side)->paths[0] = result.path;
        if (sample != NULL) {
            sample->started_ns = result.times_ns[CONVOY_TIME_STARTED];
            side_account(side)->moved_bytes[0] += result.moved_bytes;
        }
    }
    if (transfer != 0) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_host_transfer_release(side->host.engine, transfer, &error);
    }
    return status;
}

/* Every byte of a round, wherever the pool lies; views are memory of the host. */
static int32_t compare_payload(struct side *side, convoy_transfer transfer)
{
    const struct convoy_perf_memory here = {.kind = CONVOY_MEMORY_SHARED};
    const struct convoy_perf_memory *memory = side->board->kind == CONVOY_PERF_TRANSFER_VIEW ? &here : &side->memory;
    uint64_t count = side->load->tensors;
    struct convoy_tensor_view *views = convoy_memory_array(count, sizeof *views);
    struct convoy_payload payload = {.struct_size = sizeof payload,
                                     .tensors = views,
                                     .tensor_stride = sizeof *views,
                                     .tensor_capacity = count};
    int32_t status = views == NULL ? convoy_error_set(side->error, CONVOY_NO_MEMORY, "no memory for %" PRIu64 " views", count)
                                   : convoy_host_transfer_payload(side->host.engine, transfer, &payload, side->error);
    uint64_t at = 0;
    for (uint64_t i = 0; i < count && status == CONVOY_OK; i++) {
        uint64_t bytes = convoy_perf_transfer_load_part(side->load, i);
        if (payload.tensor_count != count || views[i].bytes != bytes ||
            !convoy_perf_memory_equals(memory, views[i].data, side->expected + at, bytes)) {
            status = convoy_error_set(side->error, CONVOY_INVARIANT, "tensor %" PRIu64 " did not come as it was sent", i);
        }
        at += bytes;
    }
    convoy_memory_free(views);
    return status;
}

static void receive_note(struct side *side, const struct convoy_transfer_result *result,
                         struct convoy_perf_transfer_sample *sample)
{
    side_account(side)->paths[1] = result->path;
    if (sample != NULL) {
        sample->loaded_ns = result->times_ns[CONVOY_TIME_LOADED];
        side_account(side)->moved_bytes[1] += result->moved_bytes;
    }
}

static int32_t receive_round(struct side *side, uint64_t round, struct convoy_perf_transfer_sample *sample)
{
    bool is_view = side->board->kind == CONVOY_PERF_TRANSFER_VIEW;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    convoy_transfer transfer = 0;
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = is_view ? CONVOY_LOAD_VIEW : CONVOY_LOAD_COPY,
                                     .path = side->load->path == CONVOY_PATH_PUSH ? 0 : side->load->path,
                                     .timeout_ns = side_left_ns(side)};
    int32_t status = convoy_host_accept_start(side->host.engine, &load, &transfer, side->error);
    if (status != CONVOY_OK) {
        return status;
    }
    atomic_store_explicit(&side->board->waiting, round + 1, memory_order_release);
    do { /* in slices, so that a sender that failed is noticed */
        status = side_is_over(side);
        if (status == CONVOY_OK) {
            status = convoy_host_transfer_wait(side->host.engine, transfer, 100 * CONVOY_NS_PER_MS, &result, side->error);
        }
    } while (status == CONVOY_IN_PROGRESS);
    if (status == CONVOY_OK) {
        status = round == 0 ? compare_payload(side, transfer) : CONVOY_OK;
        receive_note(side, &result, sample);
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)convoy_host_transfer_release(side->host.engine, transfer, &error);
    return status;
}

/* -- the two sides -------------------------------------------------------------------------------------------------- */

static int32_t send_all(struct side *side)
{
    const uint8_t *source = NULL;
    int32_t status = convoy_perf_memory_source(&side->memory, side->expected, side->load->bytes, &source, side->error);
    if (status == CONVOY_OK) {
        side_tensors(side, source);
        status = side_await_open(side);
    }
    if (status == CONVOY_OK) {
        const char *session = side->board->session;
        status = convoy_host_peer_connect(side->host.engine, session, strlen(session), side_left_ns(side),
                                                   &side->peer, side->error);
    }
    return status == CONVOY_OK ? side_rounds(side, send_round) : status;
}

static int32_t receive_all(struct side *side)
{
    struct convoy_perf_transfer_board *board = side->board;
    const struct convoy_file_info *file = &convoy_loader_info(side->host.loader)->file;
    (void)snprintf(board->release, sizeof board->release, "%s", file->release);
    (void)snprintf(board->build_id, sizeof board->build_id, "%.63s", file->build_id);
    int32_t status = convoy_transfer_host_session(&side->host, board->session, side->error);
    if (status != CONVOY_OK) {
        return status;
    }
    atomic_store_explicit(&board->is_open, 1, memory_order_release);
    return side_rounds(side, receive_round);
}

static int32_t side_run(struct side *side, uint32_t number)
{
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    int32_t status = side_open(side);
    if (status == CONVOY_OK) {
        status = number == 0 ? send_all(side) : receive_all(side);
    }
    if (status == CONVOY_OK) { /* the last one was given back, and that is measured too */
        status = convoy_transfer_host_drain(&side->host, CONVOY_NS_PER_S, &figures, side->error);
    }
    if (status == CONVOY_OK) {
        status = convoy_perf_transfer_phases_read(&side->host, number, side_account(side)->phases, side->error);
    }
    return status == CONVOY_OK ? side_await_end(side) : status;
}

int convoy_perf_transfer_side(const struct convoy_perf_transfer_load *load, struct convoy_perf_transfer_board *board,
                              uint32_t side_number)
{
    struct side side = {.load = load, .board = board, .error = &board->errors[side_number]};
    struct convoy_error closing = CONVOY_ERROR_INIT;
    *side.error = (struct convoy_error)CONVOY_ERROR_INIT;
    int32_t status = side_run(&side, side_number);
    side.error->status = status;
    if (status != CONVOY_OK) {
        uint32_t nobody = 0;
        (void)atomic_compare_exchange_strong(&board->first_failed, &nobody, side_number + 1);
        atomic_store(&board->is_stop_wanted, 1);
    }
    (void)convoy_transfer_host_close(&side.host, CONVOY_NS_PER_S, &closing);
    convoy_perf_memory_close(&side.memory);
    convoy_memory_free(side.shapes);
    convoy_memory_free(side.tensors);
    convoy_memory_free(side.expected);
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}
