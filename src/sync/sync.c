/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/sync_parts.h"

#include "core/error.h"
#include "core/memory.h"
#include "sync/deliver.h"
#include "sync/intake.h"
#include "sync/quick.h"

#include <string.h>

int32_t convoy_sync_check_row(uint32_t width, uint32_t member_count, uint32_t blob_bytes_max,
                              struct convoy_error *error)
{
    const struct convoy_row_form form = {.width = width, .member_count = member_count};
    size_t bytes = convoy_row_bytes_max(&form);
    if (bytes > blob_bytes_max) {
        return convoy_error_set(error, CONVOY_LIMIT,
                                "a row of %u columns and a mask of %u members takes up to %zu bytes, blob_bytes_max is "
                                "%u; raise it",
                                width, member_count, bytes, blob_bytes_max);
    }
    return CONVOY_OK;
}

int32_t convoy_sync_open(const struct convoy_sync_options *options, struct convoy_sync **sync_out,
                         struct convoy_error *error)
{
    const struct convoy_grid *grid = options->grid;
    const struct convoy_row_form form = {.width = grid->width, .member_count = grid->member_count};
    int32_t status = convoy_sync_check_row(grid->width, grid->member_count, options->blob_bytes_max, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_sync *sync = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *sync);
    if (sync == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "sync gather: no memory for %zu bytes", sizeof *sync);
    }
    sync->engine = options->engine;
    sync->member_ids = options->member_ids;
    sync->own_index = options->own_index;
    sync->grid = *grid;
    sync->header = (struct convoy_round_header){
        .operation = CONVOY_OPERATION_SYNC, .counts = grid->width, .schema = grid->hash};
    status = convoy_gather_init(&sync->gather, grid, error);
    if (status == CONVOY_OK) {
        status = convoy_placement_init(&sync->placement, grid, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_alone_init(&sync->alone, convoy_row_bytes_max(&form), options->salt, error);
    }
    if (status != CONVOY_OK) {
        convoy_sync_close(sync);
        return status;
    }
    sync->width = grid->width;
    sync->rows = sync->gather.rows;
    sync->own_row = sync->rows + (size_t)sync->own_index * grid->width;
    *sync_out = sync;
    return CONVOY_OK;
}

void convoy_sync_close(struct convoy_sync *sync)
{
    if (sync != NULL) {
        convoy_alone_fini(&sync->alone);
        convoy_placement_fini(&sync->placement);
        convoy_gather_fini(&sync->gather);
        convoy_memory_free(sync);
    }
}

static int32_t sync_start_alone(struct convoy_sync *sync, const struct convoy_sync_call *call, bool is_error,
                                convoy_operation *operation_out)
{
    convoy_gather_prepare(&sync->gather, false);
    size_t bytes = is_error ? 0 : convoy_intake_encode(&sync->grid, call, sync->own_index, sync->alone.payload);
    sync->operation = convoy_alone_start(&sync->alone, &sync->gather, call, bytes, is_error);
    *operation_out = sync->operation;
    return CONVOY_OK;
}

/* Contributes a checked call, or an error row of one that was refused. */
static int32_t sync_publish(struct convoy_sync *sync, const struct convoy_sync_call *call, bool is_error,
                            convoy_operation *operation_out, struct convoy_error *error)
{
    if (convoy_alone_applies(&sync->grid, call)) {
        return sync_start_alone(sync, call, is_error, operation_out);
    }
    uint8_t *payload;
    sync->quick.generation = 0;
    int32_t status = convoy_engine_begin(sync->engine, &payload, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t policy = call->policy & (CONVOY_SYNC_ERRORS_AS_PRESENCE | CONVOY_SYNC_WORLD);
    struct convoy_contribution contribution; /* all fields are set here */
    contribution.header = sync->header;
    contribution.header.policy = policy;
    contribution.votes = call->votes;
    contribution.payload_bytes = 0;
    contribution.tag = call->tag;
    contribution.is_error = is_error;
    contribution.errors_as_presence = (policy & CONVOY_SYNC_ERRORS_AS_PRESENCE) != 0;
    contribution.error_reason = is_error ? call->error_reason : 0;
    contribution.merge = &convoy_gather_ops;
    contribution.merge_state = &sync->gather;
    convoy_gather_prepare(&sync->gather, (policy & CONVOY_SYNC_WORLD) != 0);
    if (!is_error) {
        contribution.payload_bytes =
            (uint32_t)convoy_intake_encode(&sync->grid, call, sync->own_index, payload);
    }
    status = convoy_engine_publish(sync->engine, &contribution, operation_out, error);
    sync->operation = status == CONVOY_OK ? *operation_out : 0;
    return status;
}

int32_t convoy_sync_start(struct convoy_sync *sync, const struct convoy_sync_call *call,
                          convoy_operation *operation_out, struct convoy_error *error)
{
    int32_t status = convoy_intake_check(&sync->grid, call, error);
    if (status == CONVOY_OK) {
        return sync_publish(sync, call, (call->critical_flags & CONVOY_CALL_ERROR_ROW) != 0, operation_out, error);
    }
    if ((call->hint_flags & CONVOY_CALL_POST_ERROR) != 0) {
        *operation_out = 0; /* the caller's own error is the first cause, so a failure here says nothing more */
        (void)sync_publish(sync, call, true, operation_out, NULL);
    }
    return status;
}

static bool sync_has_report(int32_t status)
{
    return status == CONVOY_DIVERGED || status == CONVOY_TIMED_OUT || status == CONVOY_PEER_LOST ||
           status == CONVOY_PEER_ERROR || status == CONVOY_BROKEN || status == CONVOY_CANCELED;
}

/* What the report of a conflict has beside its members. */
static void sync_report(const struct convoy_sync *sync, convoy_operation operation, uint64_t round,
                        const struct convoy_conflict *conflict, struct convoy_report *report_out)
{
    struct convoy_member_report row = {
        .host = UINT32_MAX,
        .behind = -1,
        .operation = CONVOY_OPERATION_SYNC,
        .round = round,
        .counts = sync->grid.width,
        .schema = sync->grid.hash,
    };
    report_out->own_rank = sync->member_ids[sync->own_index];
    report_out->field = CONVOY_FIELD_NONE;
    report_out->round = round;
    report_out->elapsed_ns = 0;
    report_out->operation = operation;
    convoy_deliver_report(conflict, &sync->gather, sync->member_ids, &row, report_out);
}

/* A round that every member contributed to: places and writes it, or finds that the members disagree. */
static int32_t sync_finish(struct convoy_sync *sync, convoy_operation operation,
                           const struct convoy_round_summary *summary, struct convoy_sync_result *result_out,
                           struct convoy_error *error)
{
    struct convoy_conflict conflict;
    if (!convoy_placement_compute(&sync->placement, &sync->gather, &conflict)) {
        if (result_out->report != NULL) {
            sync_report(sync, operation, summary->round, &conflict, result_out->report);
        }
        return convoy_deliver_conflict(&conflict, &sync->gather, sync->member_ids, summary->round, error);
    }
    convoy_deliver_write(&sync->grid, &sync->gather, &sync->placement, result_out);
    result_out->votes_and = summary->votes_and;
    result_out->votes_or = summary->votes_or;
    result_out->round = summary->round;
    result_out->epoch = summary->epoch;
    return CONVOY_OK;
}

int32_t convoy_sync_end(struct convoy_sync *sync, convoy_operation operation, int32_t status,
                        const struct convoy_round_summary *summary, struct convoy_sync_result *result_out,
                        struct convoy_error *error)
{
    if (status == CONVOY_OK) {
        convoy_sync_quick_note(sync);
        return sync_finish(sync, operation, summary, result_out, error);
    }
    if (result_out->report != NULL && sync_has_report(status)) {
        convoy_engine_report(sync->engine, result_out->report);
    }
    return status;
}

int32_t convoy_sync_check_room_any(struct convoy_sync *sync, const struct convoy_sync_result *result,
                                   struct convoy_error *error)
{
    int32_t status = convoy_deliver_check(&sync->grid, result, error);
    if (status == CONVOY_OK) {
        memcpy(sync->checked, (const char *)result + offsetof(struct convoy_sync_result, table), sizeof sync->checked);
    }
    return status;
}

static inline int32_t sync_check_room(struct convoy_sync *sync, const struct convoy_sync_result *result,
                                      struct convoy_error *error)
{
    return convoy_sync_has_room(sync, result) ? CONVOY_OK : convoy_sync_check_room_any(sync, result, error);
}

/* Before the engine is asked: the operation is a gather's, and its result has room. */
static int32_t sync_check(struct convoy_sync *sync, convoy_operation operation,
                          const struct convoy_sync_result *result, struct convoy_error *error)
{
    if (operation != sync->operation || operation == 0) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %llu is no gather of this group, or is stale",
                                (unsigned long long)operation);
    }
    return sync_check_room(sync, result, error);
}

/* The end of a local gather, which was over when it started. */
static int32_t sync_end_alone(struct convoy_sync *sync, struct convoy_sync_result *result_out,
                              struct convoy_error *error)
{
    struct convoy_group_info info = {.struct_size = (uint32_t)sizeof info};
    if (sync->alone.status == CONVOY_PEER_ERROR) {
        return convoy_error_set_peer(error, CONVOY_PEER_ERROR, sync->member_ids[sync->own_index], 0,
                                     "rank %d contributed no row, reason %d", sync->member_ids[sync->own_index],
                                     sync->alone.error_reason);
    }
    if (sync->alone.status != CONVOY_OK) {
        return convoy_error_set(error, sync->alone.status, "this member's own row was refused");
    }
    convoy_engine_info(sync->engine, &info);
    sync->alone.summary.epoch = info.epoch;
    return sync_finish(sync, sync->operation, &sync->alone.summary, result_out, error);
}

int32_t convoy_sync_test(struct convoy_sync *sync, convoy_operation operation, struct convoy_sync_result *result_out,
                         struct convoy_error *error)
{
    struct convoy_round_summary summary;
    int32_t status = sync_check(sync, operation, result_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (convoy_alone_owns(operation)) {
        return sync_end_alone(sync, result_out, error);
    }
    status = convoy_engine_test(sync->engine, operation, &summary, error);
    return convoy_sync_end(sync, operation, status, &summary, result_out, error);
}

int32_t convoy_sync_wait(struct convoy_sync *sync, convoy_operation operation, uint64_t timeout_ns,
                         struct convoy_sync_result *result_out, struct convoy_error *error)
{
    struct convoy_round_summary summary;
    int32_t status = sync_check(sync, operation, result_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (convoy_alone_owns(operation)) {
        return sync_end_alone(sync, result_out, error);
    }
    status = convoy_engine_wait(sync->engine, operation, timeout_ns, &summary, error);
    return convoy_sync_end(sync, operation, status, &summary, result_out, error);
}

int32_t convoy_sync_gather(struct convoy_sync *sync, const struct convoy_sync_call *call, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error)
{
    convoy_operation operation = 0;
    struct convoy_round_summary summary;
    int32_t status = sync_check_room(sync, result_out, error);
    if (status != CONVOY_OK) {
        if ((call->hint_flags & CONVOY_CALL_POST_ERROR) != 0) {
            (void)sync_publish(sync, call, true, &operation, NULL);
        }
    } else {
        status = convoy_sync_start(sync, call, &operation, error);
    }
    if (status == CONVOY_OK && convoy_alone_owns(operation)) {
        return sync_end_alone(sync, result_out, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_engine_wait(sync->engine, operation, timeout_ns, &summary, error);
        return convoy_sync_end(sync, operation, status, &summary, result_out, error);
    }
    if (operation != 0 && !convoy_alone_owns(operation)) {
        (void)convoy_engine_wait(sync->engine, operation, timeout_ns, &summary, NULL);
    }
    return status;
}
