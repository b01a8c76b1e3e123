/* SPDX-License-Identifier: Apache-2.0 */
/* The poll table: brings the caller's structs to full size and back, and passes the gate of the handles. */
#include "handle.h"
#include "report_in.h"
#include "sized.h"
#include "tables.h"

#include "core/hot.h"
#include "poll/consensus.h"
#include "poll/two_level.h"

/* A call with all its lists at full size. `full` is the caller's own memory when that has the current size already:
 * copying it would cost as much as the fastest round takes. */
struct poll_call {
    const struct convoy_poll_call *full;
    struct convoy_poll_call call;
    struct convoy_poll_list lists[CONVOY_POLL_LISTS_MAX];
};

/* A result with all its lists and its report at full size; `full` as in poll_call (the core writes it only on OK). */
struct poll_result {
    struct convoy_poll_result *full;
    struct convoy_poll_result result;
    struct convoy_poll_list_result lists[CONVOY_POLL_LISTS_MAX];
    struct convoy_report report;
    struct convoy_sized_array caller_lists;
    struct convoy_report *caller_report;
};

static bool poll_call_is_current(const struct convoy_poll_call *call)
{
    return call != NULL && call->struct_size == sizeof *call && call->list_count <= CONVOY_POLL_LISTS_MAX &&
           (call->list_count == 0 || (call->lists != NULL && call->list_stride == sizeof *call->lists));
}

static int32_t poll_call_in(struct poll_call *full, const struct convoy_poll_call *call, struct convoy_error *error)
{
    if (poll_call_is_current(call)) {
        full->full = call;
        return CONVOY_OK;
    }
    full->full = &full->call;
    int32_t status = convoy_sized_in(&full->call, &CONVOY_SHAPE(poll_call), call, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (full->call.list_count > CONVOY_POLL_LISTS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.list_count: %zu is not in 0..%u",
                                full->call.list_count, (unsigned)CONVOY_POLL_LISTS_MAX);
    }
    const struct convoy_sized_array lists = {full->call.lists, full->call.list_stride, full->call.list_count};
    status = convoy_sized_array_check_in(&lists, &CONVOY_SHAPE(poll_list), error);
    for (size_t i = 0; i < full->call.list_count && status == CONVOY_OK; i++) {
        convoy_sized_array_read(&full->lists[i], &lists, &CONVOY_SHAPE(poll_list), i);
    }
    full->call.lists = full->lists;
    full->call.list_stride = sizeof full->lists[0];
    return status;
}

static bool poll_result_is_current(const struct convoy_poll_result *result)
{
    return result != NULL && result->struct_size == sizeof *result && result->report == NULL &&
           (result->list_capacity == 0 ||
            (result->lists != NULL && result->list_stride == sizeof *result->lists));
}

static int32_t poll_result_begin(struct poll_result *full, struct convoy_poll_result *result,
                                 struct convoy_error *error)
{
    if (poll_result_is_current(result)) {
        full->full = result;
        full->caller_report = NULL;
        return CONVOY_OK;
    }
    full->full = &full->result;
    int32_t status = convoy_sized_out_begin(&full->result, &CONVOY_SHAPE(poll_result), result, error);
    if (status != CONVOY_OK) {
        return status;
    }
    size_t count = full->result.list_capacity < CONVOY_POLL_LISTS_MAX ? full->result.list_capacity
                                                                      : CONVOY_POLL_LISTS_MAX;
    full->caller_lists = (struct convoy_sized_array){full->result.lists, full->result.list_stride, count};
    full->caller_report = full->result.report;
    status = convoy_sized_array_check_out(&full->caller_lists, &CONVOY_SHAPE(poll_list_result), error);
    for (size_t i = 0; i < count && status == CONVOY_OK; i++) {
        convoy_sized_array_read(&full->lists[i], &full->caller_lists, &CONVOY_SHAPE(poll_list_result), i);
    }
    full->result.lists = full->lists;
    full->result.list_stride = sizeof full->lists[0];
    full->result.list_capacity = count;
    if (status == CONVOY_OK && full->caller_report != NULL) {
        status = convoy_report_in(&full->report, full->caller_report, error);
        full->result.report = &full->report;
    }
    return status;
}

/* Hands over what the status allows: the result on OK, the report otherwise. */
static void poll_result_end(struct poll_result *full, struct convoy_poll_result *result, int32_t status)
{
    if (full->full == result) {
        if (status == CONVOY_OK) {
            result->written_bytes = sizeof *result;
        }
        return;
    }
    if (status != CONVOY_OK) {
        if (status != CONVOY_IN_PROGRESS && full->caller_report != NULL && full->report.own_rank >= 0) {
            convoy_sized_out_end(full->caller_report, &CONVOY_SHAPE(report), &full->report);
        }
        return;
    }
    for (size_t i = 0; i < full->caller_lists.count; i++) {
        convoy_sized_array_write(&full->caller_lists, &CONVOY_SHAPE(poll_list_result), i, &full->lists[i]);
    }
    struct convoy_poll_result back = full->result;
    back.lists = result->lists;
    back.list_stride = result->list_stride;
    back.list_capacity = result->list_capacity;
    back.report = full->caller_report;
    convoy_sized_out_end(result, &CONVOY_SHAPE(poll_result), &back);
}

/* Marks the report as not filled, so that it is only handed over when the round did end in a way that has one. */
static void poll_report_mark(struct poll_result *full)
{
    full->report.own_rank = -1;
}

static int32_t table_reduce_start(convoy_group *group, const struct convoy_poll_call *call,
                                  convoy_operation *operation_out, struct convoy_error *error)
{
    struct poll_call full;
    int32_t status = convoy_group_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    full.call.hint_flags = 0; /* known only once the call was read */
    status = operation_out != NULL ? poll_call_in(&full, call, error)
                                   : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "operation_out is NULL");
    if (status == CONVOY_OK) {
        convoy_record_start(&group->record);
        status = convoy_poll_start(group->poll, full.full, operation_out, error);
    } else if ((full.call.hint_flags & CONVOY_CALL_POST_ERROR) != 0) {
        *operation_out = 0; /* lists that cannot even be read: no row was posted */
    }
    status = convoy_group_status(group, status, error);
    convoy_group_leave(group);
    return status;
}

/* Says that nothing has moved for an interval of rounds. */
__attribute__((noinline)) static void poll_tell_stall(struct convoy_group *group)
{
    struct convoy_log *log = &group->context->runtime->log;
    convoy_record_settle(&group->record); /* the host's callback may look at the group */
    convoy_log_line(log, CONVOY_LOG_INFO, "group %.*s rank %d stalled: no state has changed for %llu rounds",
                    (int)group->options.name_length, group->options.name, group->options.own_id,
                    (unsigned long long)group->record.stall.still);
    group->record.stalls = 0;
    convoy_log_flush(log);
}

static void poll_gave_up(struct convoy_group *group, int32_t status)
{
    convoy_record_gave_up(&group->record, group->record.poll_operation, convoy_engine_last(group->engine), status);
}

/* What reduce_test and reduce_wait, one and two levels, share. is_waiting false: timeout_ns does not count. */
struct poll_end {
    convoy_operation operation;
    uint64_t timeout_ns;
    bool is_waiting;
    bool is_two_level;
};

static int32_t poll_end_call(struct convoy_group *group, const struct poll_end *end, struct convoy_poll_result *result,
                             struct convoy_error *error)
{
    if (end->is_two_level) {
        return end->is_waiting
                   ? convoy_two_level_wait(group->poll, end->operation, end->timeout_ns, result, error)
                   : convoy_two_level_test(group->poll, end->operation, result, error);
    }
    return end->is_waiting ? convoy_poll_wait(group->poll, end->operation, end->timeout_ns, result, error)
                           : convoy_poll_test(group->poll, end->operation, result, error);
}

static int32_t poll_end(convoy_group *group, const struct poll_end *end, struct convoy_poll_result *result,
                        struct convoy_error *error)
{
    struct poll_result full;
    int32_t status = convoy_group_enter_open(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_group *second = end->is_two_level ? group->second : NULL;
    if (second != NULL) {
        status = convoy_group_enter_open(second, error);
        if (status != CONVOY_OK) {
            convoy_group_leave(group);
            return status;
        }
        convoy_record_settle(&second->record);
    }
    convoy_record_settle(&group->record); /* of two levels, both may have had short rounds of their own since the start */
    status = poll_result_begin(&full, result, error);
    if (status == CONVOY_OK) {
        poll_report_mark(&full);
        status = poll_end_call(group, end, full.full, error);
        poll_result_end(&full, result, status);
    }
    if (status == CONVOY_OK) {
        convoy_record_poll_counts(&group->record, full.full);
    } else {
        poll_gave_up(group, status);
    }
    if (group->record.stalls != 0) {
        poll_tell_stall(group);
    }
    status = convoy_group_status(group, status, error);
    if (second != NULL) {
        status = convoy_group_status(second, status, error); /* it is that one that is closed, perhaps */
        convoy_group_leave(second);
    }
    convoy_group_leave(group);
    return status;
}

static int32_t table_reduce_test(convoy_group *group, convoy_operation operation, struct convoy_poll_result *result_out,
                                 struct convoy_error *error)
{
    const struct poll_end end = {.operation = operation};
    return poll_end(group, &end, result_out, error);
}

static int32_t table_reduce_wait(convoy_group *group, convoy_operation operation, uint64_t timeout_ns,
                                 struct convoy_poll_result *result_out, struct convoy_error *error)
{
    const struct poll_end end = {.operation = operation, .timeout_ns = timeout_ns, .is_waiting = true};
    return poll_end(group, &end, result_out, error);
}

/* What is to be remembered of a reduce that ended OK. */
static inline void reduce_record(struct convoy_group *group, const struct convoy_poll_result *result)
{
    if (group->poll->quick.round.input != NULL) {
        convoy_record_poll_short(&group->record, group->poll);
    }
    if (group->poll->has_counts) {
        convoy_record_poll_counts(&group->record, result);
    }
}

/* A call whose structs have another size, or that asks for a report. */
__attribute__((noinline)) static int32_t reduce_foreign(struct convoy_group *group, const struct convoy_poll_call *call,
                                                        uint64_t timeout_ns, struct convoy_poll_result *result_out,
                                                        struct convoy_error *error)
{
    struct poll_call full;
    struct poll_result out;
    int32_t status = poll_call_in(&full, call, error);
    if (status == CONVOY_OK) {
        status = poll_result_begin(&out, result_out, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    poll_report_mark(&out);
    convoy_record_start(&group->record);
    status = convoy_poll_reduce(group->poll, full.full, timeout_ns, out.full, error);
    poll_result_end(&out, result_out, status);
    if (status == CONVOY_OK) {
        reduce_record(group, out.full);
    }
    return status;
}

CONVOY_HOT
static int32_t table_reduce(convoy_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                            struct convoy_poll_result *result_out, struct convoy_error *error)
{
    int32_t status = convoy_group_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!poll_call_is_current(call) || !poll_result_is_current(result_out)) {
        status = reduce_foreign(group, call, timeout_ns, result_out, error);
    } else {
        convoy_record_start_short(&group->record);
        status = convoy_poll_reduce(group->poll, call, timeout_ns, result_out, error);
        if (status == CONVOY_OK) {
            result_out->written_bytes = sizeof *result_out;
            reduce_record(group, result_out);
        }
    }
    if (status < CONVOY_OK) {
        poll_gave_up(group, status);
        status = convoy_group_status(group, status, error);
    } else if (group->record.stalls != 0) {
        poll_tell_stall(group);
    }
    convoy_group_leave(group);
    return status;
}

static int32_t table_reduce2_start(convoy_group *first, convoy_group *second, const struct convoy_poll_call *call,
                                   convoy_operation *operation_out, struct convoy_error *error)
{
    struct poll_call full;
    if (first == second && first != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "first and second are the same group");
    }
    int32_t status = convoy_group_enter(first, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_group_enter(second, error);
    if (status != CONVOY_OK) {
        convoy_group_leave(first);
        return status;
    }
    status = operation_out != NULL ? poll_call_in(&full, call, error)
                                   : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "operation_out is NULL");
    if (status == CONVOY_OK) {
        convoy_record_start(&first->record);
        convoy_record_start(&second->record);
        status = convoy_two_level_start(first->poll, second->poll, full.full, operation_out, error);
        first->second = status == CONVOY_OK ? second : first->second; /* refused: an open one keeps its own */
    }
    status = convoy_group_status(first, status, error);
    convoy_group_leave(second);
    convoy_group_leave(first);
    return status;
}

static int32_t table_reduce2_test(convoy_group *first, convoy_operation operation,
                                  struct convoy_poll_result *result_out, struct convoy_error *error)
{
    const struct poll_end end = {.operation = operation, .is_two_level = true};
    return poll_end(first, &end, result_out, error);
}

static int32_t table_reduce2_wait(convoy_group *first, convoy_operation operation, uint64_t timeout_ns,
                                  struct convoy_poll_result *result_out, struct convoy_error *error)
{
    const struct poll_end end = {
        .operation = operation, .timeout_ns = timeout_ns, .is_waiting = true, .is_two_level = true};
    return poll_end(first, &end, result_out, error);
}

static int32_t table_reduce2_abandon(convoy_group *first, convoy_operation operation, struct convoy_error *error)
{
    int32_t status = convoy_group_enter_open(first, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_group *second = first->second;
    status = second != NULL ? convoy_group_enter_open(second, error) : CONVOY_OK;
    if (status == CONVOY_OK) {
        status = convoy_two_level_abandon(first->poll, operation, error);
        if (second != NULL) {
            convoy_group_leave(second);
        }
    }
    status = convoy_group_status(first, status, error);
    convoy_group_leave(first);
    return status;
}

static int32_t table_consensus(const struct convoy_poll_consensus *input, uint8_t *states_out,
                               struct convoy_error *error)
{
    struct convoy_poll_consensus full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(poll_consensus), input, error);
    return status == CONVOY_OK ? convoy_consensus_states(&full, states_out, error) : status;
}

const struct convoy_poll_table convoy_poll_table_1_0 = {
    .header = {.table_size = (uint32_t)sizeof(struct convoy_poll_table),
               .major = CONVOY_POLL_MAJOR,
               .minor = CONVOY_POLL_MINOR},
    .reduce_start = table_reduce_start,
    .reduce_test = table_reduce_test,
    .reduce_wait = table_reduce_wait,
    .reduce = table_reduce,
    .reduce2_start = table_reduce2_start,
    .reduce2_test = table_reduce2_test,
    .reduce2_wait = table_reduce2_wait,
    .reduce2_abandon = table_reduce2_abandon,
    .consensus = table_consensus,
};
