/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a group, canceling, reopening, abandoning. */
#include "group.h"

#include "core/error.h"
#include "report_in.h"
#include "sized.h"
#include "text.h"

/* OK when the handle may be looked at from any thread; every phase but the last of a move is fine. */
static int32_t group_check_look(const struct convoy_group *group, struct convoy_error *error)
{
    if (group == NULL || convoy_handle_is_forked(group->alive)) {
        return convoy_group_refuse((struct convoy_group *)(uintptr_t)group, error);
    }
    return CONVOY_OK;
}

/* Under the lock: a group that another build has is to be asked about there. */
static int32_t group_check_here(struct convoy_group *group, struct convoy_error *error)
{
    return atomic_load(&group->phase) == CONVOY_PHASE_RETIRED ? convoy_group_refuse(group, error) : CONVOY_OK;
}

int32_t convoy_group_cancel(convoy_group *group, const char *reason, size_t reason_length, struct convoy_error *error)
{
    int32_t status = group_check_look(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (reason == NULL && reason_length != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reason is NULL with reason_length %zu", reason_length);
    }
    (void)pthread_mutex_lock(&group->lock);
    uint32_t phase = atomic_load(&group->phase);
    if (phase == CONVOY_PHASE_CLOSING || phase == CONVOY_PHASE_CLOSED || phase == CONVOY_PHASE_FROZEN ||
        phase == CONVOY_PHASE_RETIRED) {
        status = convoy_group_refuse(group, error);
    } else if (convoy_group_has_engine(group)) {
        convoy_poll_cancel(group->poll, reason, reason_length);
        convoy_stats_event(group->record.stats, CONVOY_EVENT_CANCEL);
    } else if (group->bootstrap != NULL) {
        convoy_bootstrap_cancel(group->bootstrap);
    }
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

int32_t convoy_group_reopen(convoy_group *group, uint64_t timeout_ns, struct convoy_reopen_result *result_out,
                            struct convoy_error *error)
{
    struct convoy_reopen_result result = {0};
    int32_t status = convoy_group_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_record_settle(&group->record);
    status = result_out != NULL ? convoy_sized_out_begin(&result, &CONVOY_SHAPE(reopen_result), result_out, error)
                                : CONVOY_OK;
    if (status == CONVOY_OK) {
        status = convoy_engine_reopen(group->engine, timeout_ns, &result, error);
    }
    if (status == CONVOY_OK) {
        convoy_stats_event(group->record.stats, CONVOY_EVENT_REOPEN);
        group->record.is_broken = false;
    }
    if (status == CONVOY_OK && result_out != NULL) {
        convoy_sized_out_end(result_out, &CONVOY_SHAPE(reopen_result), &result);
    }
    status = convoy_group_status(group, status, error);
    convoy_group_leave(group);
    return status;
}

int32_t convoy_group_abandon(convoy_group *group, convoy_operation operation, struct convoy_error *error)
{
    int32_t status = convoy_group_enter_open(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_stats_event(group->record.stats, CONVOY_EVENT_ABANDON);
    if (convoy_poll_owns(group->poll, operation)) {
        status = convoy_poll_abandon(group->poll, operation, error);
    } else {
        status = convoy_engine_abandon(group->engine, operation, error);
        const struct convoy_record_sync round = {.status = status, .width = group->schema.count};
        if (status != CONVOY_OK) { /* OK: the round has ended well, and whoever tests it records that */
            convoy_record_sync(&group->record, &round);
        }
    }
    status = convoy_group_status(group, status, error);
    convoy_group_leave(group);
    return status;
}

int32_t convoy_group_report(convoy_group *group, struct convoy_report *report_out, struct convoy_error *error)
{
    struct convoy_report report;
    int32_t status = group_check_look(group, error);
    if (status == CONVOY_OK) {
        status = convoy_report_in(&report, report_out, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&group->lock);
    status = group_check_here(group, error);
    if (convoy_group_has_engine(group)) {
        convoy_engine_report(group->engine, &report);
    }
    (void)pthread_mutex_unlock(&group->lock);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_sized_out_end(report_out, &CONVOY_SHAPE(report), &report);
    return CONVOY_OK;
}

/* State of a group that has no engine to ask. */
static uint32_t group_phase_state(const struct convoy_group *group)
{
    switch ((enum convoy_group_phase)atomic_load(&group->phase)) {
    case CONVOY_PHASE_OPENING:
        return CONVOY_GROUP_OPENING;
    case CONVOY_PHASE_FAILED:
        return CONVOY_GROUP_FAILED;
    case CONVOY_PHASE_CLOSING:
        return CONVOY_GROUP_CLOSING;
    case CONVOY_PHASE_CLOSED:
        return CONVOY_GROUP_CLOSED;
    case CONVOY_PHASE_OPEN:
    case CONVOY_PHASE_HALTED:
    case CONVOY_PHASE_FROZEN:
    case CONVOY_PHASE_RETIRED:
        break;
    }
    return CONVOY_GROUP_READY;
}

void convoy_group_keep_info(struct convoy_group *group)
{
    convoy_engine_info(group->engine, &group->last);
    group->last.segment_bytes = 0; /* what the group holds ends with the engine */
    group->last.operation = 0;
}

int32_t convoy_group_info(convoy_group *group, struct convoy_group_info *info_out, struct convoy_error *error)
{
    struct convoy_group_info info;
    int32_t status = group_check_look(group, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(&info, &CONVOY_SHAPE(group_info), info_out, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&group->lock);
    status = group_check_here(group, error);
    if (convoy_group_has_engine(group)) {
        convoy_engine_info(group->engine, &info);
    } else {
        info = group->last;
        info.state = group_phase_state(group);
    }
    (void)pthread_mutex_unlock(&group->lock);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_sized_out_end(info_out, &CONVOY_SHAPE(group_info), &info);
    return CONVOY_OK;
}
