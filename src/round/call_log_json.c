/* SPDX-License-Identifier: Apache-2.0 */
#include "round/call_log.h"

#include "core/memory.h"
#include "core/status.h"
#include "round/stats_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The part of an entry's bytes that a list is read from. */
struct span {
    const uint8_t *bytes;
    size_t left;
};

static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

/* Values above 2^53 are texts: many readers of JSON would round them. */
static int set_large(json_t *object, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return set(object, name, json_string(text));
}

static json_t *value_json(const uint8_t *bytes, uint32_t value_bytes)
{
    if (value_bytes == 1) {
        return json_integer(*bytes);
    }
    int64_t value = 0;
    memcpy(&value, bytes, sizeof value);
    return json_integer(value);
}

/* Up to `count` values, fewer when the entry did not keep them all. */
static json_t *values_json(struct span *span, uint32_t count, uint32_t value_bytes)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && span->left >= value_bytes; i++) {
        if (json_array_append_new(array, value_json(span->bytes, value_bytes)) != 0) {
            json_decref(array);
            return NULL;
        }
        span->bytes += value_bytes;
        span->left -= value_bytes;
    }
    return array;
}

static json_t *rows_json(struct span *span, uint32_t count, const struct convoy_call_list *list)
{
    uint32_t value_bytes = list->value_bytes == 8 ? 8 : 1;
    if (list->width == 0) {
        return values_json(span, count, value_bytes);
    }
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count / list->width && span->left >= value_bytes; i++) {
        if (json_array_append_new(rows, values_json(span, list->width, value_bytes)) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

static json_t *list_json(const struct convoy_call_list *list, struct span *input, struct span *output)
{
    json_t *object = json_object();
    json_t *name = json_stringn(list->name, strnlen(list->name, sizeof list->name));
    int failed = set(object, "name", name != NULL ? name : json_string("(not UTF-8)"));
    failed |= set(object, "count", json_integer(list->input_count));
    failed |= set(object, "input", rows_json(input, list->input_count, list));
    failed |= set(object, "output", rows_json(output, list->output_count, list));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *lists_json(const struct convoy_call_log *log, const struct convoy_call_header *header,
                          const uint8_t *bytes)
{
    size_t entry_bytes = convoy_call_log_entry_bytes(log);
    size_t output_at = convoy_call_log_output_at(log, header);
    struct span input = {bytes, header->input_bytes < entry_bytes ? header->input_bytes : entry_bytes};
    size_t room = entry_bytes - output_at;
    struct span output = {bytes + output_at, header->output_bytes < room ? header->output_bytes : room};
    json_t *lists = json_array();
    for (uint32_t i = 0; i < header->list_count && i < CONVOY_CALL_LISTS_MAX; i++) {
        if (json_array_append_new(lists, list_json(&header->lists[i], &input, &output)) != 0) {
            json_decref(lists);
            return NULL;
        }
    }
    return lists;
}

static bool is_cut(const struct convoy_call_log *log, const struct convoy_call_header *header)
{
    size_t entry_bytes = convoy_call_log_entry_bytes(log);
    return header->input_bytes > entry_bytes ||
           header->output_bytes > entry_bytes - convoy_call_log_output_at(log, header);
}

static json_t *call_json(const struct convoy_call_log *log, const struct convoy_call_header *header,
                         const uint8_t *bytes)
{
    json_t *object = json_object();
    int failed = set(object, "operation", json_string(convoy_stats_operation_name(header->operation)));
    failed |= set(object, "round", json_integer((json_int_t)header->round));
    failed |= set_large(object, "epoch", header->epoch);
    failed |= set_large(object, "tag", header->tag);
    failed |= set(object, "status", json_string(convoy_status_name(header->status)));
    failed |= set(object, "duration_ns", json_integer((json_int_t)header->duration_ns));
    failed |= set(object, "votes", json_integer(header->votes));
    failed |= set(object, "votes_and", json_integer(header->votes_and));
    failed |= set(object, "votes_or", json_integer(header->votes_or));
    failed |= set(object, "input_bytes", json_integer(header->input_bytes));
    failed |= set(object, "output_bytes", json_integer(header->output_bytes));
    failed |= set(object, "cut", json_boolean(is_cut(log, header)));
    failed |= set(object, "lists", lists_json(log, header, bytes));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *convoy_call_log_json(const struct convoy_call_log *log)
{
    uint8_t *bytes = convoy_memory_zalloc(convoy_call_log_entry_bytes(log));
    json_t *calls = bytes != NULL ? json_array() : NULL;
    uint64_t count = convoy_call_log_count(log);
    uint64_t kept = convoy_call_log_entries(log);
    for (uint64_t number = count > kept ? count - kept + 1 : 1; calls != NULL && number <= count; number++) {
        struct convoy_call_header header;
        if (!convoy_call_log_read(log, number, &header, bytes)) {
            continue; /* overwritten while we went on */
        }
        if (json_array_append_new(calls, call_json(log, &header, bytes)) != 0) {
            json_decref(calls);
            calls = NULL;
        }
    }
    convoy_memory_free(bytes);
    return calls;
}
