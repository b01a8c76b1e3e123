/* SPDX-License-Identifier: Apache-2.0 */
/* What a group remembers of its sync rounds. */
#include "record_parts.h"

#include "core/hot.h"

#include <string.h>

/* Statuses that the caller's call got and the round did not. */
static bool record_is_refusal(int32_t status)
{
    return status / 100 == CONVOY_INVALID_ARGUMENT / 100 || status == CONVOY_BUSY;
}

void convoy_record_gave_up(struct convoy_record *record, uint32_t operation, convoy_operation which, int32_t status)
{
    bool is_told = status == CONVOY_TIMED_OUT && record->timed_out == which && which != 0;
    if ((status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED) && !is_told) {
        record->timed_out = status == CONVOY_TIMED_OUT ? which : record->timed_out;
        const struct convoy_stats_sample sample = {.operation = operation, .status = status};
        convoy_stats_round(record->stats, &sample);
    }
}

void convoy_record_sync_prepare(struct convoy_record *record, const struct convoy_sync_call *call, uint32_t width)
{
    struct convoy_record_input *input = &record->inputs[record->input ^ 1];
    size_t stride = call->row_stride != 0 ? call->row_stride : sizeof input->row[0];
    bool has_row = call->row != NULL && (call->critical_flags & CONVOY_CALL_ERROR_ROW) == 0 &&
                   stride >= sizeof input->row[0];
    input->tag = call->tag;
    input->votes = call->votes;
    input->count = has_row ? width : 0;
    if (has_row && stride == sizeof input->row[0]) {
        memcpy(input->row, call->row, input->count * sizeof input->row[0]);
        return;
    }
    for (uint32_t i = 0; i < input->count; i++) {
        memcpy(&input->row[i], (const uint8_t *)call->row + i * stride, sizeof input->row[0]);
    }
}

void convoy_record_sync_prepare_row(struct convoy_record *record, const struct convoy_sync_short *round,
                                    uint32_t width)
{
    struct convoy_record_input *input = &record->inputs[record->input ^ 1];
    input->tag = round->tag;
    input->votes = round->votes;
    input->count = width;
    memcpy(input->row, round->row, width * sizeof input->row[0]);
}

void convoy_record_sync_started(struct convoy_record *record, int32_t status)
{
    if (status == CONVOY_OK || (!record_is_refusal(status) && !(record->is_broken && record_is_loss(status)))) {
        record->input ^= 1;
        record->is_gathering = true;
    }
}

static void record_log_sync(struct convoy_record *record, const struct convoy_record_sync *round, uint64_t duration_ns)
{
    const struct convoy_record_input *input = &record->inputs[record->input];
    struct convoy_call_header header;
    struct convoy_call_end end = {.status = round->status, .duration_ns = duration_ns};
    memset(&header, 0, offsetof(struct convoy_call_header, lists));
    header.round = round->round;
    header.tag = input->tag;
    header.votes = input->votes;
    header.operation = CONVOY_OPERATION_SYNC;
    header.list_count = 1;
    header.input_bytes = input->count * 8;
    header.lists[0].input_count = input->count;
    header.lists[0].value_bytes = 8;
    header.lists[0].width = round->width;
    header.lists[0].name[0] = '\0';
    if (round->status == CONVOY_OK) {
        header.epoch = round->result->epoch;
        end.votes_and = round->result->votes_and;
        end.votes_or = round->result->votes_or;
        size_t values = round->result->table != NULL ? (size_t)round->cells * round->width : 0;
        end.output_counts[0] = (uint32_t)values;
        end.output = round->result->table;
        end.output_bytes = (uint32_t)(values * 8);
    }
    convoy_call_log_put(record->log, &header, input->row, &end);
    if (round->status == CONVOY_OK && round->result->table != NULL) {
        bool has_row = input->count != 0;
        convoy_call_form_make(&record->sync_forms[has_row], record->log, &header, &end);
        record->has_sync_forms[has_row] = true;
        record->width = round->width;
    }
}

__attribute__((noinline)) static void record_sync_whole(struct convoy_record *record,
                                                        const struct convoy_record_sync *round)
{
    bool is_open = round->status == CONVOY_IN_PROGRESS || round->status == CONVOY_TIMED_OUT ||
                   round->status == CONVOY_CANCELED;
    convoy_record_gave_up(record, CONVOY_OPERATION_SYNC, round->operation, round->status);
    if (!record->is_gathering || is_open || record_is_refusal(round->status)) {
        return;
    }
    record->is_gathering = false;
    record->is_broken = record_is_loss(round->status);
    uint64_t call_ns = record_take_time(record);
    record_count(record, CONVOY_OPERATION_SYNC, round->status, 1, round->width * 8u, call_ns);
    record_log_sync(record, round, call_ns);
}

void convoy_record_sync(struct convoy_record *record, const struct convoy_record_sync *round)
{
    const struct convoy_record_input *input = &record->inputs[record->input];
    bool has_row = input->count != 0;
    convoy_record_settle(record); /* as convoy_record_poll */
    if (round->status != CONVOY_OK || !record->is_gathering || round->result->table == NULL ||
        !record->has_sync_forms[has_row]) {
        record_sync_whole(record, round);
        return;
    }
    struct convoy_call_values values; /* all fields are set here */
    values.round = round->result->round;
    values.epoch = round->result->epoch;
    values.tag = input->tag;
    uint64_t duration_ns = record_take_time(record);
    values.votes = input->votes;
    values.votes_and = round->result->votes_and;
    values.votes_or = round->result->votes_or;
    values.input = input->row;
    values.output = round->result->table;
    record->is_gathering = record->is_broken = false;
    convoy_call_log_put_form(record->log, &record->sync_forms[has_row], &values, duration_ns);
    record_count_ok(record, CONVOY_OPERATION_SYNC, 1, round->width * 8u, duration_ns);
}

CONVOY_HOT
void convoy_record_sync_short(struct convoy_record *record, const struct convoy_sync_short *round)
{
    record->late_input = round->row;
    record->late_output = round->table;
    record->late_tag = round->tag;
    record->late_votes = round->votes;
    record_late(record, CONVOY_RECORD_LATE_SYNC);
}
