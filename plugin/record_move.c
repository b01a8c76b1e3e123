/* SPDX-License-Identifier: Apache-2.0 */
#include "record_move.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

/* Items. Numbers are never used again. */
#define ITEM_OPERATION 2u /* items, for each CONVOY_OPERATION_* */
#define ITEM_EVENTS 3u    /* counts */
#define ITEM_OUTPUT 4u    /* of the last poll round */
#define ITEM_CALL 5u      /* of the call log, oldest first: a header, then input and output */

/* In OPERATION. Counts are pairs (number of the counter, its value), of those that are not 0. */
#define ITEM_NUMBER 2u /* CONVOY_OPERATION_*; the first item */
#define ITEM_WAITS 3u
#define ITEM_OUTCOMES 4u
#define ITEM_CALL_NS 5u /* buckets of the histogram; numbers of buckets are the same in all releases */
#define ITEM_WAIT_NS 6u
#define ITEM_CALL_SUM 7u /* sum, max */
#define ITEM_WAIT_SUM 8u

static const struct convoy_bundle_field record_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_record, calls),
    CONVOY_BUNDLE_FIELD(2, struct convoy_record, stalls),
    CONVOY_BUNDLE_FIELD(3, struct convoy_record, stall.still),
    CONVOY_BUNDLE_FIELD(4, struct convoy_record, stall.since_notice),
    CONVOY_BUNDLE_FIELD(5, struct convoy_record, is_broken),
    CONVOY_BUNDLE_FIELD(6, struct convoy_record, list_count),
    CONVOY_BUNDLE_FIELD(7, struct convoy_record, output_bytes),
    CONVOY_BUNDLE_FIELD(8, struct convoy_record, digest),
    CONVOY_BUNDLE_FIELD(9, struct convoy_record, poll_operation),
    CONVOY_BUNDLE_FIELD(10, struct convoy_record, timed_out),
};

static const struct convoy_bundle_field operation_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_operation_stats, bytes_sent),
    CONVOY_BUNDLE_FIELD(2, struct convoy_operation_stats, bytes_received),
    CONVOY_BUNDLE_FIELD(3, struct convoy_operation_stats, entries),
    CONVOY_BUNDLE_FIELD(4, struct convoy_operation_stats, yields),
    CONVOY_BUNDLE_FIELD(5, struct convoy_operation_stats, sleeps),
    CONVOY_BUNDLE_FIELD(6, struct convoy_operation_stats, wakes),
    CONVOY_BUNDLE_FIELD(7, struct convoy_operation_stats, unknown_states),
    CONVOY_BUNDLE_FIELD(8, struct convoy_operation_stats, foreign_stamps),
    CONVOY_BUNDLE_FIELD(9, struct convoy_operation_stats, demoted),
    CONVOY_BUNDLE_FIELD(10, struct convoy_operation_stats, injected),
};

#define SHAPE_OF(list) .fields = (list), .count = sizeof(list) / sizeof((list)[0])

static const struct convoy_bundle_shape record_shape = {.name = "the record of a group", SHAPE_OF(record_field_list)};
static const struct convoy_bundle_shape operation_shape = {.name = "counters of rounds", SHAPE_OF(operation_field_list)};

/* -- counters ------------------------------------------------------------------------------------------------------ */

static void save_counts(struct convoy_bundle_writer *writer, uint16_t tag, const _Atomic uint64_t *counts, uint32_t count)
{
    size_t opened = convoy_bundle_open(writer, tag, 0);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t pair[2] = {i, atomic_load_explicit(&counts[i], memory_order_relaxed)};
        if (pair[1] != 0) {
            convoy_bundle_add(writer, pair, sizeof pair);
        }
    }
    convoy_bundle_shut(writer, opened);
}

static void read_counts(const struct convoy_bundle_item *item, _Atomic uint64_t *counts, uint32_t count)
{
    for (size_t at = 0; at + 16 <= item->bytes; at += 16) {
        uint64_t pair[2];
        memcpy(pair, item->data + at, sizeof pair);
        if (pair[0] < count) {
            atomic_store_explicit(&counts[pair[0]], pair[1], memory_order_relaxed);
        }
    }
}

static void save_sum(struct convoy_bundle_writer *writer, uint16_t tag, const struct convoy_latency *histogram)
{
    const uint64_t pair[2] = {atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed),
                              atomic_load_explicit(&histogram->max_ns, memory_order_relaxed)};
    convoy_bundle_put(writer, tag, 0, pair, sizeof pair);
}

static void read_sum(const struct convoy_bundle_item *item, struct convoy_latency *histogram)
{
    uint64_t pair[2] = {0};
    memcpy(pair, item->data, item->bytes < sizeof pair ? item->bytes : sizeof pair);
    atomic_store_explicit(&histogram->sum_ns, pair[0], memory_order_relaxed);
    atomic_store_explicit(&histogram->max_ns, pair[1], memory_order_relaxed);
}

static void save_operation(const struct convoy_operation_stats *stats, uint32_t operation,
                           struct convoy_bundle_writer *writer)
{
    size_t opened = convoy_bundle_open(writer, ITEM_OPERATION, 0);
    convoy_bundle_put_u64(writer, ITEM_NUMBER, operation);
    convoy_bundle_put_fields(writer, &operation_shape, stats);
    save_counts(writer, ITEM_WAITS, stats->waits, CONVOY_WAIT_KINDS);
    save_counts(writer, ITEM_OUTCOMES, stats->outcomes, CONVOY_STATS_OUTCOMES);
    save_counts(writer, ITEM_CALL_NS, stats->call_ns.buckets, CONVOY_LATENCY_BUCKETS);
    save_counts(writer, ITEM_WAIT_NS, stats->wait_ns.buckets, CONVOY_LATENCY_BUCKETS);
    save_sum(writer, ITEM_CALL_SUM, &stats->call_ns);
    save_sum(writer, ITEM_WAIT_SUM, &stats->wait_ns);
    convoy_bundle_shut(writer, opened);
}

static int32_t read_operation_item(struct convoy_operation_stats *stats, const struct convoy_bundle_item *item,
                                   struct convoy_error *error)
{
    switch (item->tag) {
    case CONVOY_BUNDLE_FIELDS:
        return convoy_bundle_get_fields(item, &operation_shape, stats, error);
    case ITEM_WAITS:
        read_counts(item, stats->waits, CONVOY_WAIT_KINDS);
        return CONVOY_OK;
    case ITEM_OUTCOMES:
        read_counts(item, stats->outcomes, CONVOY_STATS_OUTCOMES);
        return CONVOY_OK;
    case ITEM_CALL_NS:
        read_counts(item, stats->call_ns.buckets, CONVOY_LATENCY_BUCKETS);
        return CONVOY_OK;
    case ITEM_WAIT_NS:
        read_counts(item, stats->wait_ns.buckets, CONVOY_LATENCY_BUCKETS);
        return CONVOY_OK;
    case ITEM_CALL_SUM:
        read_sum(item, &stats->call_ns);
        return CONVOY_OK;
    case ITEM_WAIT_SUM:
        read_sum(item, &stats->wait_ns);
        return CONVOY_OK;
    default:
        return convoy_bundle_unknown(item, operation_shape.name, error);
    }
}

static int32_t read_operation(struct convoy_group_stats *stats, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    struct convoy_operation_stats *operation = NULL;
    while (convoy_bundle_next(&reader, &one)) {
        if (one.tag == ITEM_NUMBER) {
            uint64_t number = convoy_bundle_u64(&one) - CONVOY_OPERATION_POLL;
            operation = number < CONVOY_STATS_OPERATIONS ? &stats->operations[number] : NULL;
            continue;
        }
        int32_t status = operation != NULL ? read_operation_item(operation, &one, error) : CONVOY_OK;
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return convoy_bundle_done(&reader, operation_shape.name, error);
}

/* -- the call log -------------------------------------------------------------------------------------------------- */

/* Of a header with so many lists: those behind are not written. */
static size_t header_bytes(uint32_t list_count)
{
    uint32_t lists = list_count < CONVOY_CALL_LISTS_MAX ? list_count : CONVOY_CALL_LISTS_MAX;
    return offsetof(struct convoy_call_header, lists) + lists * sizeof(struct convoy_call_list);
}

static void save_calls(const struct convoy_call_log *log, struct convoy_bundle_writer *writer)
{
    struct convoy_call_header header;
    uint8_t bytes[CONVOY_RECORD_ENTRY_BYTES];
    uint64_t count = convoy_call_log_count(log);
    uint64_t kept = convoy_call_log_entries(log);
    for (uint64_t number = count > kept ? count - kept + 1 : 1; number <= count; number++) {
        if (!convoy_call_log_read(log, number, &header, bytes)) {
            continue;
        }
        size_t output = convoy_call_log_output_at(log, &header);
        size_t used = output + header.output_bytes < sizeof bytes ? output + header.output_bytes : sizeof bytes;
        size_t opened = convoy_bundle_open(writer, ITEM_CALL, 0);
        convoy_bundle_add(writer, &header, header_bytes(header.list_count));
        convoy_bundle_add(writer, bytes, used);
        convoy_bundle_shut(writer, opened);
    }
}

/* Drops one that this build's log cannot hold as it was. */
static void read_call(struct convoy_call_log *log, const struct convoy_bundle_item *item)
{
    struct convoy_call_header header = {0};
    uint8_t bytes[CONVOY_RECORD_ENTRY_BYTES] = {0};
    size_t head = header_bytes(0);
    memcpy(&header, item->data, item->bytes < head ? 0 : head);
    head = header_bytes(header.list_count);
    if (item->bytes < head || item->bytes - head > sizeof bytes) {
        return;
    }
    memcpy(&header, item->data, head);
    memcpy(bytes, item->data + head, item->bytes - head);
    size_t output = convoy_call_log_output_at(log, &header);
    if (header.list_count > CONVOY_CALL_LISTS_MAX || header.number <= convoy_call_log_count(log) ||
        output > sizeof bytes) {
        return;
    }
    struct convoy_call_end end = {
        .status = header.status,
        .votes_and = header.votes_and,
        .votes_or = header.votes_or,
        .duration_ns = header.duration_ns,
        .output = bytes + output,
        .output_bytes = header.output_bytes,
    };
    for (uint32_t i = 0; i < header.list_count; i++) {
        header.lists[i].name[CONVOY_CALL_NAME_BYTES - 1] = '\0';
        end.output_counts[i] = header.lists[i].output_count;
    }
    convoy_call_log_skip(log, header.number);
    convoy_call_log_put(log, &header, bytes, &end);
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

void convoy_record_save(const struct convoy_record *record, struct convoy_bundle_writer *writer)
{
    convoy_bundle_put_fields(writer, &record_shape, record);
    convoy_bundle_put(writer, ITEM_OUTPUT, 0, record->output, record->output_bytes);
    for (uint32_t i = 0; i < CONVOY_STATS_OPERATIONS; i++) {
        save_operation(&record->stats->operations[i], CONVOY_OPERATION_POLL + i, writer);
    }
    save_counts(writer, ITEM_EVENTS, record->stats->events, CONVOY_STATS_EVENTS);
    save_calls(record->log, writer);
}

static int32_t read_item(struct convoy_record *record, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    switch (item->tag) {
    case CONVOY_BUNDLE_FIELDS:
        return convoy_bundle_get_fields(item, &record_shape, record, error);
    case ITEM_OUTPUT:
        memcpy(record->output, item->data, item->bytes < sizeof record->output ? item->bytes : sizeof record->output);
        return CONVOY_OK;
    case ITEM_OPERATION:
        return read_operation(record->stats, item, error);
    case ITEM_EVENTS:
        read_counts(item, record->stats->events, CONVOY_STATS_EVENTS);
        return CONVOY_OK;
    case ITEM_CALL:
        read_call(record->log, item);
        return CONVOY_OK;
    default:
        return convoy_bundle_unknown(item, record_shape.name, error);
    }
}

/* What recording relies on. */
static void make_sound(struct convoy_record *record)
{
    uint8_t is_broken;
    memcpy(&is_broken, &record->is_broken, sizeof is_broken); /* no bool yet: it was read as a byte */
    record->is_broken = is_broken != 0;
    if (record->output_bytes > sizeof record->output) {
        record->output_bytes = 0;
    }
    if (record->poll_operation - CONVOY_OPERATION_POLL >= CONVOY_STATS_OPERATIONS) {
        record->poll_operation = CONVOY_OPERATION_POLL;
    }
}

int32_t convoy_record_restore(struct convoy_record *record, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = read_item(record, &one, error);
    }
    make_sound(record);
    return status == CONVOY_OK ? convoy_bundle_done(&reader, record_shape.name, error) : status;
}
