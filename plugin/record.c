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

/* Sum over what came out, eight bytes at a time: good enough to see whether anything moves. */
static uint64_t record_digest(uint64_t digest, const uint8_t *bytes, uint32_t count)
{
    uint64_t word = 0;
    for (; count >= sizeof word; count -= (uint32_t)sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    word = count;
    memcpy(&word, bytes, count);
    return (digest ^ word ^ count) * UINT64_C(0x9e3779b97f4a7c15);
}

/* The lists' bytes as one range: as they are when there is one list, else copied one after the other. */
struct record_bytes {
    uint8_t room[CONVOY_RECORD_ENTRY_BYTES];
    const uint8_t *bytes;
    uint32_t length;
};

static void record_gather(const struct convoy_poll_record *round, bool is_output, struct record_bytes *out)
{
    out->length = 0;
    out->bytes = out->room;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        const uint8_t *from = is_output ? list->output : list->input;
        uint32_t room = CONVOY_RECORD_ENTRY_BYTES - out->length;
        uint32_t length = from == NULL ? 0 : list->count < room ? list->count : room;
        if (round->list_count == 1) {
            out->bytes = from;
        } else if (length != 0) {
            memcpy(out->room + out->length, from, length);
        }
        out->length += length;
    }
}

static void record_list(struct convoy_call_list *to, const struct convoy_poll_record_list *list)
{
    size_t length = list->name_length < CONVOY_CALL_NAME_BYTES - 1 ? list->name_length : CONVOY_CALL_NAME_BYTES - 1;
    to->input_count = list->count;
    to->value_bytes = 1;
    to->width = 0;
    if (length != 0) {
        memcpy(to->name, list->name, length);
    }
    to->name[length] = '\0';
}

static void record_log_poll(struct convoy_record *record, const struct convoy_poll_record *round, uint32_t operation,
                            uint64_t duration_ns)
{
    struct record_bytes input;
    struct record_bytes output;
    struct convoy_call_header header; /* what put takes from elsewhere, and unused lists, are not set */
    struct convoy_call_end end;
    header.round = round->round;
    header.epoch = round->epoch;
    header.tag = round->tag;
    header.operation = operation;
    header.votes = 0;
    header.list_count = round->list_count;
    header.input_bytes = 0;
    for (uint32_t i = 0; i < round->list_count; i++) {
        record_list(&header.lists[i], &round->lists[i]);
        header.input_bytes += round->lists[i].count;
        end.output_counts[i] = round->lists[i].output != NULL ? round->lists[i].count : 0;
    }
    record_gather(round, false, &input);
    record_gather(round, true, &output);
    end.status = round->status;
    end.votes_and = 0;
    end.votes_or = 0;
    end.duration_ns = duration_ns;
    end.output = output.bytes;
    end.output_bytes = output.length;
    convoy_call_log_put(record->log, &header, input.bytes, &end);
}

void convoy_record_poll(void *user, const struct convoy_poll_record *round)
{
    struct convoy_record *record = user;
    struct convoy_stats_sample sample = {.operation = CONVOY_OPERATION_POLL, .status = round->status};
    uint64_t digest = round->list_count;
    record->list_count = round->list_count;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        sample.entries += list->count;
        if ((list->flags & CONVOY_POLL_KEYED) != 0) {
            sample.operation = CONVOY_OPERATION_POLL_KEYED;
        }
        digest = list->output != NULL ? record_digest(digest, list->output, list->count) : digest;
    }
    sample.bytes_sent = sample.entries;
    record_take_time(record, &sample);
    convoy_stats_round(record->stats, &sample);
    record_log_poll(record, round, sample.operation, sample.call_ns);
    bool has_moved = sample.entries == 0 || digest != record->digest;
    record->digest = digest;
    if (convoy_stall_round(&record->stall, has_moved)) {
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
    for (size_t i = 0; i < result->list_capacity && i < record->list_count; i++) {
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
    int64_t row[CONVOY_SYNC_COLUMNS_MAX];
    uint32_t width = round->width < CONVOY_SYNC_COLUMNS_MAX ? round->width : CONVOY_SYNC_COLUMNS_MAX;
    bool has_row = round->call != NULL && round->call->row != NULL;
    for (uint32_t i = 0; has_row && i < width; i++) {
        size_t stride = round->call->row_stride != 0 ? round->call->row_stride : sizeof row[0];
        memcpy(&row[i], (const uint8_t *)round->call->row + i * stride, sizeof row[0]);
    }
    struct convoy_call_header header;
    struct convoy_call_end end = {.status = round->status, .duration_ns = sample.call_ns};
    memset(&header, 0, offsetof(struct convoy_call_header, lists));
    header.tag = round->call != NULL ? round->call->tag : 0;
    header.votes = round->call != NULL ? round->call->votes : 0;
    header.operation = CONVOY_OPERATION_SYNC;
    header.list_count = 1;
    header.input_bytes = has_row ? width * 8 : 0;
    header.lists[0].input_count = has_row ? width : 0;
    header.lists[0].value_bytes = 8;
    header.lists[0].width = width;
    header.lists[0].name[0] = '\0';
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
    convoy_call_log_put(record->log, &header, row, &end);
}
