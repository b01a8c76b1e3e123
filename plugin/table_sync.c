/* SPDX-License-Identifier: Apache-2.0 */
/* The sync table: brings the caller's structs to full size and back, and passes the gate of the handles. */
#include "handle.h"
#include "report_in.h"
#include "sized.h"
#include "tables.h"

#include "core/hot.h"
#include "sync/padding.h"
#include "sync/quick.h"

/* A result and its report at full size; `full` is the caller's own memory when that has the current size already and
 * asks for no report (the core writes it only on OK). */
struct sync_result {
    struct convoy_sync_result *full;
    struct convoy_sync_result result;
    struct convoy_report report;
    struct convoy_report *caller_report;
};

static inline int32_t sync_entered(struct convoy_group *group, int32_t status, struct convoy_error *error)
{
    if (status == CONVOY_OK && group->sync == NULL) {
        status = convoy_error_set(error, CONVOY_UNSUPPORTED, "group %.*s was opened without a schema",
                                  (int)group->options.name_length, group->options.name);
        convoy_group_leave(group);
    }
    return status;
}

static inline int32_t sync_enter(struct convoy_group *group, struct convoy_error *error)
{
    return sync_entered(group, convoy_group_enter(group, error), error);
}

static inline int32_t sync_leave(struct convoy_group *group, int32_t status, struct convoy_error *error)
{
    if (status < CONVOY_OK) {
        status = convoy_group_status(group, status, error);
    }
    convoy_group_leave(group);
    return status;
}

static inline bool sync_result_is_current(const struct convoy_sync_result *result)
{
    return result != NULL && result->struct_size == sizeof *result && result->report == NULL;
}

static int32_t sync_result_begin(struct sync_result *full, struct convoy_sync_result *result,
                                 struct convoy_error *error)
{
    if (sync_result_is_current(result)) {
        full->full = result;
        return CONVOY_OK;
    }
    full->full = &full->result;
    int32_t status = convoy_sized_out_begin(&full->result, &CONVOY_SHAPE(sync_result), result, error);
    if (status != CONVOY_OK) {
        return status;
    }
    full->caller_report = full->result.report;
    if (full->caller_report != NULL) {
        status = convoy_report_in(&full->report, full->caller_report, error);
        full->report.own_rank = -1; /* not filled yet */
        full->result.report = &full->report;
    }
    return status;
}

static void sync_result_end(struct sync_result *full, struct convoy_sync_result *result, int32_t status)
{
    if (full->full == result) {
        if (status == CONVOY_OK) {
            result->written_bytes = sizeof *result;
        }
        return;
    }
    if (status == CONVOY_OK) {
        full->result.report = full->caller_report;
        convoy_sized_out_end(result, &CONVOY_SHAPE(sync_result), &full->result);
    } else if (status != CONVOY_IN_PROGRESS && full->caller_report != NULL && full->report.own_rank >= 0) {
        convoy_sized_out_end(full->caller_report, &CONVOY_SHAPE(report), &full->report);
    }
}

/* Ends of rounds of the poll family that nobody has read must not block this family. */
static int32_t sync_settle(struct convoy_group *group, struct convoy_error *error)
{
    return convoy_poll_settle(group->poll, 0, error);
}

static inline void sync_record(struct convoy_group *group, const struct convoy_sync_result *result, int32_t status)
{
    const struct convoy_record_sync round = {
        .result = result,
        .status = status,
        .width = group->schema.count,
        .cells = group->sync_cells,
        .round = convoy_engine_round(group->engine),
        .operation = status == CONVOY_TIMED_OUT ? convoy_engine_last(group->engine) : 0, /* read for time-outs only */
    };
    convoy_record_sync(&group->record, &round);
}

static int32_t table_gather_start(convoy_group *group, const struct convoy_sync_call *call,
                                  convoy_operation *operation_out, struct convoy_error *error)
{
    struct convoy_sync_call full;
    int32_t status = sync_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = operation_out != NULL ? convoy_sized_in(&full, &CONVOY_SHAPE(sync_call), call, error)
                                   : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "operation_out is NULL");
    if (status == CONVOY_OK) {
        status = sync_settle(group, error);
    }
    if (status == CONVOY_OK) {
        convoy_record_start(&group->record);
        convoy_record_sync_prepare(&group->record, &full, group->schema.count);
        status = convoy_sync_start(group->sync, &full, operation_out, error);
        convoy_record_sync_started(&group->record, status);
    }
    return sync_leave(group, status, error);
}

static int32_t table_gather_test(convoy_group *group, convoy_operation operation, struct convoy_sync_result *result_out,
                                 struct convoy_error *error)
{
    struct sync_result full;
    int32_t status = sync_entered(group, convoy_group_enter_open(group, error), error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = sync_result_begin(&full, result_out, error);
    if (status == CONVOY_OK) {
        status = convoy_sync_test(group->sync, operation, full.full, error);
        sync_record(group, full.full, status);
        sync_result_end(&full, result_out, status);
    }
    return sync_leave(group, status, error);
}

static int32_t table_gather_wait(convoy_group *group, convoy_operation operation, uint64_t timeout_ns,
                                 struct convoy_sync_result *result_out, struct convoy_error *error)
{
    struct sync_result full;
    int32_t status = sync_entered(group, convoy_group_enter_open(group, error), error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = sync_result_begin(&full, result_out, error);
    if (status == CONVOY_OK) {
        status = convoy_sync_wait(group->sync, operation, timeout_ns, full.full, error);
        sync_record(group, full.full, status);
        sync_result_end(&full, result_out, status);
    }
    return sync_leave(group, status, error);
}

/* A call whose structs have another size, or that asks for a report. */
__attribute__((noinline)) static int32_t gather_foreign(struct convoy_group *group, const struct convoy_sync_call *call,
                                                        uint64_t timeout_ns, struct convoy_sync_result *result_out,
                                                        struct convoy_error *error)
{
    struct convoy_sync_call full;
    struct sync_result out;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(sync_call), call, error);
    if (status == CONVOY_OK) {
        status = sync_result_begin(&out, result_out, error);
    }
    if (status == CONVOY_OK) {
        status = sync_settle(group, error);
    }
    if (status == CONVOY_OK) {
        convoy_record_start(&group->record);
        convoy_record_sync_prepare(&group->record, &full, group->schema.count);
        status = convoy_sync_gather(group->sync, &full, timeout_ns, out.full, error);
        convoy_record_sync_started(&group->record, status);
        sync_record(group, out.full, status);
        sync_result_end(&out, result_out, status);
    }
    return status;
}

/* What is left of gather after its round: the record. The result is not written before a round is OK, and the row may
 * lie where it goes, so the row was kept before. */
static int32_t gather_record(struct convoy_group *group, struct convoy_sync_result *result_out, int32_t status)
{
    convoy_record_sync_started(&group->record, status);
    sync_record(group, result_out, status);
    if (status == CONVOY_OK) {
        result_out->written_bytes = sizeof *result_out;
    }
    return status;
}

static inline int32_t gather_current(struct convoy_group *group, const struct convoy_sync_call *call,
                                     uint64_t timeout_ns, struct convoy_sync_result *result_out,
                                     struct convoy_error *error)
{
    int32_t status;
    struct convoy_sync_short round;
    const struct convoy_quick_call how = {timeout_ns, error, convoy_record_settle, convoy_record_keep,
                                          &group->record};
    convoy_record_start_short(&group->record);
    if (result_out->table != NULL && convoy_record_has_sync_form(&group->record)) {
        switch (convoy_sync_quick(group->sync, call, &how, result_out, &round, &status)) {
        case CONVOY_QUICK_OVER:
            convoy_record_sync_short(&group->record, &round);
            result_out->written_bytes = sizeof *result_out;
            return CONVOY_OK;
        case CONVOY_QUICK_ENDED:
            convoy_record_sync_prepare_row(&group->record, &round, group->schema.count);
            return gather_record(group, result_out, status);
        case CONVOY_QUICK_CLOSED:
            break;
        }
    }
    convoy_record_settle(&group->record);
    status = sync_settle(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_record_sync_prepare(&group->record, call, group->schema.count);
    return gather_record(group, result_out, convoy_sync_gather(group->sync, call, timeout_ns, result_out, error));
}

CONVOY_HOT
static int32_t table_gather(convoy_group *group, const struct convoy_sync_call *call, uint64_t timeout_ns,
                            struct convoy_sync_result *result_out, struct convoy_error *error)
{
    int32_t status = sync_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_current = call != NULL && call->struct_size == sizeof *call && sync_result_is_current(result_out);
    status = is_current ? gather_current(group, call, timeout_ns, result_out, error)
                        : gather_foreign(group, call, timeout_ns, result_out, error);
    return sync_leave(group, status, error);
}

static int32_t table_padded_size(const struct convoy_sync_padding *input, struct convoy_sync_padded *padded_out,
                                 struct convoy_error *error)
{
    struct convoy_sync_padding full;
    struct convoy_sync_padded padded;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(sync_padding), input, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(&padded, &CONVOY_SHAPE(sync_padded), padded_out, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_padding_size(&full, &padded, error);
    }
    if (status == CONVOY_OK) {
        convoy_sized_out_end(padded_out, &CONVOY_SHAPE(sync_padded), &padded);
    }
    return status;
}

static int32_t table_starts(const struct convoy_sync_padding *input, int64_t extent, int64_t *starts_out,
                            struct convoy_error *error)
{
    struct convoy_sync_padding full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(sync_padding), input, error);
    return status == CONVOY_OK ? convoy_padding_starts(&full, extent, starts_out, error) : status;
}

const struct convoy_sync_table convoy_sync_table_1_0 = {
    .header = {.table_size = (uint32_t)sizeof(struct convoy_sync_table),
               .major = CONVOY_SYNC_MAJOR,
               .minor = CONVOY_SYNC_MINOR},
    .gather_start = table_gather_start,
    .gather_test = table_gather_test,
    .gather_wait = table_gather_wait,
    .gather = table_gather,
    .padded_size = table_padded_size,
    .starts = table_starts,
};
