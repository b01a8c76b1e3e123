/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_work.h"

#include "cli/pipeline_role.h"
#include "cli/pipeline_swap.h"
#include "core/clock.h"
#include "core/error.h"

#include <stdio.h>
#include <time.h>

#define WORK_WAIT_NS CONVOY_NS_PER_MS

static bool is_sender(const struct convoy_pipeline_worker *worker)
{
    return worker->kind != CONVOY_PIPELINE_DECODER;
}

/* One turn of every loop: what is under way goes on, and nothing goes on for ever. */
static int32_t work_turn(struct convoy_pipeline_worker *worker)
{
    if (atomic_load_explicit(&worker->board->is_stop_wanted, memory_order_relaxed) != 0) {
        return convoy_error_set(&worker->error, CONVOY_CANCELED, "stopped");
    }
    if (convoy_now_ns() >= worker->board->setup.deadline_ns) {
        return convoy_error_set(&worker->error, CONVOY_TIMED_OUT, "not done in time: %u requests through, %u under way",
                                atomic_load(&worker->self->done), convoy_outbox_count(&worker->outbox));
    }
    int32_t status = convoy_pipeline_swap_turn(worker);
    return status == CONVOY_OK && is_sender(worker) ? convoy_outbox_work(&worker->outbox, &worker->error) : status;
}

/* Puts a request into the outbox, as soon as there is room. With nothing under way no room will come of itself, so that
 * is waited for no longer than any other call. */
static int32_t work_send(struct convoy_pipeline_worker *worker, uint32_t request, const struct convoy_stage *stage,
                         convoy_transfer upstream)
{
    uint64_t stuck_ns = 0;
    int32_t status = CONVOY_BUSY;
    while ((status = convoy_outbox_add(&worker->outbox, request, stage, upstream, &worker->error)) == CONVOY_BUSY) {
        uint64_t now_ns = convoy_now_ns();
        stuck_ns = convoy_outbox_count(&worker->outbox) != 0 ? 0 : stuck_ns != 0 ? stuck_ns : now_ns;
        if (stuck_ns != 0 && now_ns - stuck_ns > worker->board->setup.timeout_ns) {
            return CONVOY_BUSY;
        }
        convoy_outbox_wait(&worker->outbox);
        status = work_turn(worker);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return status;
}

static int32_t work_flush(struct convoy_pipeline_worker *worker)
{
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_outbox_count(&worker->outbox) != 0) {
        convoy_outbox_wait(&worker->outbox);
        status = work_turn(worker);
    }
    return status;
}

/* With a speed: waits for the request's moment. */
static int32_t work_pace(struct convoy_pipeline_worker *worker, uint32_t request)
{
    const struct timespec pause = {.tv_nsec = WORK_WAIT_NS};
    double speed = worker->board->setup.speed;
    uint64_t first_ms = convoy_pipeline_board_request(worker->board, 0)->timestamp_ms;
    uint64_t wait_ms = convoy_pipeline_board_request(worker->board, request)->timestamp_ms - first_ms;
    uint64_t moment_ns =
        speed > 0 ? worker->started_ns + (uint64_t)((double)(wait_ms * CONVOY_NS_PER_MS) / speed) : worker->started_ns;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_now_ns() < moment_ns) {
        (void)nanosleep(&pause, NULL);
        status = work_turn(worker);
    }
    return status;
}

static int32_t work_encode(struct convoy_pipeline_worker *worker)
{
    const struct convoy_pipeline_setup *setup = &worker->board->setup;
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < setup->request_count && status == CONVOY_OK; i++) {
        if (convoy_pipeline_shape_member(&setup->shape, worker->kind, i) != worker->member) {
            continue;
        }
        status = work_pace(worker, i);
        if (status == CONVOY_OK) {
            convoy_parcel_set(&worker->parcel, i, convoy_pipeline_board_request(worker->board, i));
            const struct convoy_stage stage = convoy_parcel_stage(&worker->parcel);
            status = work_send(worker, i, &stage, 0);
        }
        atomic_fetch_add(&worker->self->done, status == CONVOY_OK);
    }
    return status == CONVOY_OK ? work_flush(worker) : status;
}

/* The next request that comes; what is under way goes on meanwhile. */
static int32_t work_receive(struct convoy_pipeline_worker *worker, uint32_t *request_out, convoy_transfer *load_out)
{
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) {
        status = work_turn(worker);
        if (status != CONVOY_OK) {
            return status;
        }
        /* While something is under way that too may be what happens next. */
        bool is_idle = !is_sender(worker) || convoy_outbox_count(&worker->outbox) == 0;
        status = convoy_inbox_take(&worker->inbox, is_idle ? WORK_WAIT_NS : 0, request_out, load_out, &worker->error);
        if (status == CONVOY_IN_PROGRESS && !is_idle) {
            convoy_outbox_wait(&worker->outbox);
        }
    }
    return status;
}

static int32_t work_denoise_one(struct convoy_pipeline_worker *worker)
{
    uint32_t request = 0;
    convoy_transfer load = 0;
    struct convoy_stage stage;
    int32_t status = work_receive(worker, &request, &load);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_arrival_stage(&worker->inbox.arrival, &stage, &worker->error);
    if (status == CONVOY_OK) {
        status = work_send(worker, request, &stage, load);
    }
    if (status != CONVOY_OK) {
        convoy_inbox_release(&worker->inbox, request, load); /* the outbox did not take it */
    }
    return status;
}

static int32_t work_decode_one(struct convoy_pipeline_worker *worker)
{
    uint32_t request = 0;
    convoy_transfer load = 0;
    int32_t status = work_receive(worker, &request, &load);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_parcel_set(&worker->parcel, request, convoy_pipeline_board_request(worker->board, request));
    status = convoy_arrival_check(&worker->inbox.arrival, &worker->parcel, &worker->error);
    if (status == CONVOY_OK && request == 0) {
        char path[CONVOY_PLACE_PATH_BYTES + 32];
        (void)snprintf(path, sizeof path, "%s/" CONVOY_PIPELINE_OUTPUT, worker->board->setup.folder);
        status = convoy_arrival_write(&worker->inbox.arrival, path, &worker->error);
    }
    convoy_inbox_release(&worker->inbox, request, load);
    return status == CONVOY_OK ? status : convoy_error_prefix(&worker->error, status, "request %u", request);
}

int32_t convoy_pipeline_work(struct convoy_pipeline_worker *worker)
{
    worker->started_ns = convoy_now_ns();
    atomic_store_explicit(&worker->self->phase, (uint32_t)CONVOY_PIPELINE_WORKING, memory_order_release);
    if (worker->kind == CONVOY_PIPELINE_ENCODER) {
        return work_encode(worker);
    }
    const struct convoy_pipeline_setup *setup = &worker->board->setup;
    uint32_t share = convoy_pipeline_shape_share(&setup->shape, worker->member, setup->request_count);
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < share && status == CONVOY_OK; i++) {
        status = worker->kind == CONVOY_PIPELINE_DENOISER ? work_denoise_one(worker) : work_decode_one(worker);
        atomic_fetch_add(&worker->self->done, status == CONVOY_OK);
    }
    return status == CONVOY_OK && is_sender(worker) ? work_flush(worker) : status;
}
