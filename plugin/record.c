/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

int32_t convoy_record_open(struct convoy_record *record, uint32_t log_entries, struct convoy_error *error)
{
    record->stats = convoy_memory_zalloc(sizeof *record->stats);
    convoy_stall_init(&record->stall, CONVOY_RECORD_STALL_ROUNDS);
    if (record->stats == NULL ||
        convoy_call_log_create(log_entries, CONVOY_RECORD_ENTRY_BYTES, &record->log) != CONVOY_OK) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a call log of %u rounds", log_entries);
    }
    return CONVOY_OK;
}

void convoy_record_close(struct convoy_record *record)
{
    convoy_call_log_destroy(record->log);
    convoy_memory_free(record->stats);
    record->log = NULL;
    record->stats = NULL;
}

static void record_take_time(struct convoy_record *record, struct convoy_stats_sample *sample)
{
    if (record->started_ns != 0) {
        sample->call_ns = convoy_now_ns() - record->started_ns;
        record->started_ns = 0;
    }
}

/* Whether anything is different from the last round: sum of what came out, cheap and good enough to see movement. */
static bool record_has_moved(struct convoy_record *record, const struct convoy_poll_record *round)
{
    uint64_t digest = round->list_count;
    bool has_entries = false;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        has_entries = has_entries || list->count != 0;
        digest = digest * 31 + list->count;
        for (uint32_t j = 0; list->output != NULL && j < list->count; j++) {
            digest = digest * 31 + list->output[j];
        }
    }
    bool has_moved = !has_entries || digest != record->digest;
    record->digest = digest;
    return has_moved;
}

/* Copies the lists' bytes one after the other, as far as an entry keeps them. */
static uint32_t record_gather(const struct convoy_poll_record *round, bool is_output, uint8_t *bytes)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        const uint8_t *from = is_output ? list->output : list->input;
        uint32_t room = CONVOY_RECORD_ENTRY_BYTES - used;
        uint32_t length = from == NULL ? 0 : list->count < room ? list->count : room;
        if (length != 0) {
            memcpy(bytes + used, from, length);
        }
        used += length;
    }
    return used;
}

static void record_log_poll(struct convoy_record *record, const struct convoy_poll_record *round, uint32_t operation,
                            uint64_t duration_ns)
{
    uint8_t bytes[CONVOY_RECORD_ENTRY_BYTES];
    struct convoy_call_header header;
    struct convoy_call_end end = {.status = round->status, .duration_ns = duration_ns};
    memset(&header, 0, offsetof(struct convoy_call_header, lists));
    header.round = round->round;
    header.epoch = round->epoch;
    header.tag = round->tag;
    header.operation = operation;
    header.list_count = round->list_count;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        size_t length = list->name_length < CONVOY_CALL_NAME_BYTES - 1 ? list->name_length : CONVOY_CALL_NAME_BYTES - 1;
        struct convoy_call_list *to = &header.lists[i];
        *to = (struct convoy_call_list){.input_count = list->count, .value_bytes = 1};
        if (length != 0) {
            memcpy(to->name, list->name, length);
        }
        header.input_bytes += list->count;
        end.output_counts[i] = list->output != NULL ? list->count : 0;
    }
    (void)record_gather(round, false, bytes);
    convoy_call_log_start(record->log, &header, bytes);
    end.output_bytes = record_gather(round, true, bytes);
    end.output = end.output_bytes != 0 ? bytes : NULL;
    convoy_call_log_end(record->log, &end);
}

void convoy_record_poll(void *user, const struct convoy_poll_record *round)
{
    struct convoy_record *record = user;
    struct convoy_stats_sample sample = {.operation = CONVOY_OPERATION_POLL, .status = round->status};
    for (uint32_t i = 0; i < round->list_count; i++) {
        sample.entries += round->lists[i].count;
        if ((round->lists[i].flags & CONVOY_POLL_KEYED) != 0) {
            sample.operation = CONVOY_OPERATION_POLL_KEYED;
        }
    }
    sample.bytes_sent = sample.entries;
    record_take_time(record, &sample);
    convoy_stats_round(record->stats, &sample);
    record_log_poll(record, round, sample.operation, sample.call_ns);
    if (convoy_stall_round(&record->stall, record_has_moved(record, round))) {
        convoy_stats_event(record->stats, CONVOY_EVENT_STALL);
        record->stalls++;
    }
}

void convoy_record_poll_counts(struct convoy_record *record, const struct convoy_poll_result *result)
{
    struct convoy_operation_stats *stats = &record->stats->operations[CONVOY_OPERATION_POLL - 1];
    uint64_t unknown = 0;
    uint64_t foreign = 0;
    uint64_t demoted = 0;
    uint64_t injected = 0;
    for (size_t i = 0; i < result->list_capacity; i++) {
        unknown += result->lists[i].unknown_count;
        foreign += result->lists[i].foreign_count;
        demoted += result->lists[i].demoted_count;
        injected += result->lists[i].injected_count;
    }
    if ((unknown | foreign | demoted | injected) != 0) {
        (void)atomic_fetch_add_explicit(&stats->unknown_states, unknown, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->foreign_stamps, foreign, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->demoted, demoted, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->injected, injected, memory_order_relaxed);
    }
}

void convoy_record_sync(struct convoy_record *record, const struct convoy_record_sync *round)
{
    struct convoy_stats_sample sample = {
        .operation = CONVOY_OPERATION_SYNC,
        .status = round->status,
        .entries = 1,
        .bytes_sent = round->width * 8u,
    };
    record_take_time(record, &sample);
    convoy_stats_round(record->stats, &sample);
    int64_t row[CONVOY_SYNC_COLUMNS_MAX] = {0};
    uint32_t width = round->width < CONVOY_SYNC_COLUMNS_MAX ? round->width : CONVOY_SYNC_COLUMNS_MAX;
    bool has_row = round->call != NULL && round->call->row != NULL;
    for (uint32_t i = 0; has_row && i < width; i++) {
        size_t stride = round->call->row_stride != 0 ? round->call->row_stride : sizeof row[0];
        memcpy(&row[i], (const uint8_t *)round->call->row + i * stride, sizeof row[0]);
    }
    struct convoy_call_header header;
    memset(&header, 0, offsetof(struct convoy_call_header, lists));
    header.tag = round->call != NULL ? round->call->tag : 0;
    header.votes = round->call != NULL ? round->call->votes : 0;
    header.operation = CONVOY_OPERATION_SYNC;
    header.list_count = 1;
    header.input_bytes = has_row ? width * 8 : 0;
    header.lists[0] = (struct convoy_call_list){
        .name = "row", .input_count = has_row ? width : 0, .value_bytes = 8, .width = width};
    struct convoy_call_end end = {.status = round->status, .duration_ns = sample.call_ns};
    if (round->status == CONVOY_OK) {
        header.round = round->result->round;
        header.epoch = round->result->epoch;
        end.votes_and = round->result->votes_and;
        end.votes_or = round->result->votes_or;
        size_t values = round->result->table != NULL ? (size_t)round->cells * width : 0;
        end.output_counts[0] = (uint32_t)values;
        end.output = round->result->table;
        end.output_bytes = (uint32_t)(values * 8);
    }
    convoy_call_log_start(record->log, &header, row);
    convoy_call_log_end(record->log, &end);
}
