/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "wire/control_value.h"
#include "wire/json.h"
#include "wire/writer.h"

#include <string.h>

/* -- checks -------------------------------------------------------------------------------------------------------- */

static int32_t check_utf8(const struct convoy_control *message, const struct convoy_control_field *field,
                          struct convoy_error *error)
{
    struct convoy_span span = convoy_control_span(message, field);
    for (size_t at = 0; at < span.bytes;) {
        size_t length = convoy_utf8_bytes(span.text + at, span.bytes - at);
        if (length == 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s.%s: byte %zu is not UTF-8",
                                    convoy_control_name(message->type), field->key, at);
        }
        at += length;
    }
    return CONVOY_OK;
}

/* In a message the value lies one level deeper than alone, so one level less is allowed. */
static int32_t check_json(const struct convoy_control *message, const struct convoy_control_field *field,
                          struct convoy_error *error)
{
    struct convoy_span span = convoy_control_span(message, field);
    struct convoy_json json;
    struct convoy_json_item item;
    enum convoy_json_step step = span.bytes != 0 ? CONVOY_JSON_ITEM : CONVOY_JSON_END;
    convoy_json_open(&json, span, field->kind == CONVOY_CONTROL_KIND_OBJECT);
    json.depth_max--;
    while (step == CONVOY_JSON_ITEM) {
        step = convoy_json_next(&json, &item);
    }
    if (step == CONVOY_JSON_FAULT) {
        return convoy_error_set(error, json.is_too_deep ? CONVOY_LIMIT : CONVOY_INVALID_ARGUMENT,
                                "%s.%s: byte %zu: %s", convoy_control_name(message->type), field->key,
                                (size_t)(json.at - json.start), json.fault);
    }
    return CONVOY_OK;
}

static int32_t check_field(const struct convoy_control *message, const struct convoy_control_field *field,
                           struct convoy_error *error)
{
    int32_t status = convoy_control_check(message, field, CONVOY_INVALID_ARGUMENT, error);
    if (status != CONVOY_OK) {
        return status;
    }
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
        return check_utf8(message, field, error);
    case CONVOY_CONTROL_KIND_MAYBE:
        return convoy_control_is_default(message, field) ? CONVOY_OK : check_utf8(message, field, error);
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
        return check_json(message, field, error);
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_SIGNED:
    case CONVOY_CONTROL_KIND_LARGE:
    case CONVOY_CONTROL_KIND_BOOL:
    default:
        return CONVOY_OK;
    }
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static void put_carried(struct convoy_writer *writer, struct convoy_span span, const char *empty)
{
    if (span.bytes == 0) {
        convoy_writer_text(writer, empty);
    } else {
        convoy_writer_put(writer, span.text, span.bytes);
    }
}

static void put_value(struct convoy_writer *writer, const struct convoy_control *message,
                      const struct convoy_control_field *field)
{
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_SIGNED:
        convoy_writer_number(writer, convoy_control_integer(message, field));
        break;
    case CONVOY_CONTROL_KIND_LARGE:
        convoy_writer_text(writer, "\"");
        convoy_writer_large(writer, convoy_control_large(message, field));
        convoy_writer_text(writer, "\"");
        break;
    case CONVOY_CONTROL_KIND_BOOL:
        convoy_writer_text(writer, convoy_control_bool(message, field) ? "true" : "false");
        break;
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
        put_carried(writer, convoy_control_span(message, field), convoy_control_empty(field->kind));
        break;
    case CONVOY_CONTROL_KIND_MAYBE:
        if (convoy_control_is_default(message, field)) {
            convoy_writer_text(writer, "null");
            break;
        }
        __attribute__((fallthrough));
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
    default:
        convoy_writer_string(writer, convoy_control_span(message, field));
        break;
    }
}

static bool is_written(const struct convoy_control *message, const struct convoy_control_entry *entry)
{
    bool is_forced = entry->when == CONVOY_CONTROL_ALWAYS ||
                     entry->when == (message->staged_for_decoder ? CONVOY_CONTROL_STAGED_ONLY
                                                                 : CONVOY_CONTROL_PLAIN_ONLY);
    return is_forced || !convoy_control_is_default(message, entry->field);
}

static void put_message(struct convoy_writer *writer, const struct convoy_control *message,
                        const struct convoy_control_row *row)
{
    convoy_writer_text(writer, "{\"msg_type\":\"");
    convoy_writer_text(writer, row->name);
    convoy_writer_text(writer, "\"");
    for (const struct convoy_control_entry *entry = row->entries; entry->field != NULL; entry++) {
        if (is_written(message, entry)) {
            convoy_writer_text(writer, ",\"");
            convoy_writer_text(writer, entry->field->key);
            convoy_writer_text(writer, "\":");
            put_value(writer, message, entry->field);
        }
    }
    convoy_writer_text(writer, "}");
}

int32_t convoy_control_encode(const struct convoy_control *message, char **text_out, size_t *bytes_out,
                              struct convoy_error *error)
{
    const struct convoy_control_row *row = convoy_control_row(message->type);
    if (row == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "message.type is %d, allowed are 1 to %d",
                                (int)message->type, CONVOY_CONTROL_TYPES - 1);
    }
    for (const struct convoy_control_entry *entry = row->entries; entry->field != NULL; entry++) {
        int32_t status = check_field(message, entry->field, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    struct convoy_writer writer = {.out = NULL};
    put_message(&writer, message, row);
    if (writer.bytes > CONVOY_CONTROL_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "%s: %zu bytes of JSON, allowed are %u", row->name, writer.bytes,
                                CONVOY_CONTROL_BYTES_MAX);
    }
    writer.out = convoy_memory_zalloc(writer.bytes + 1);
    if (writer.out == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "%s: no memory for %zu bytes", row->name, writer.bytes);
    }
    writer.bytes = 0;
    put_message(&writer, message, row);
    *text_out = writer.out;
    *bytes_out = writer.bytes;
    return CONVOY_OK;
}
