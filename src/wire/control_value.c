/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/control_value.h"

#include "core/error.h"

#include <inttypes.h>
#include <string.h>

static const void *value_at(const struct convoy_control *message, const struct convoy_control_field *field)
{
    return (const char *)message + field->offset;
}

struct convoy_span convoy_control_span(const struct convoy_control *message, const struct convoy_control_field *field)
{
    struct convoy_span span;
    memcpy(&span, value_at(message, field), sizeof span);
    return span;
}

int64_t convoy_control_integer(const struct convoy_control *message, const struct convoy_control_field *field)
{
    int64_t value;
    memcpy(&value, value_at(message, field), sizeof value);
    return value;
}

uint64_t convoy_control_large(const struct convoy_control *message, const struct convoy_control_field *field)
{
    uint64_t value;
    memcpy(&value, value_at(message, field), sizeof value);
    return value;
}

bool convoy_control_bool(const struct convoy_control *message, const struct convoy_control_field *field)
{
    bool value;
    memcpy(&value, value_at(message, field), sizeof value);
    return value;
}

const char *convoy_control_empty(enum convoy_control_kind kind)
{
    return kind == CONVOY_CONTROL_KIND_OBJECT ? "{}" : kind == CONVOY_CONTROL_KIND_LIST ? "[]" : "";
}

static bool is_empty(struct convoy_span span, const char *empty)
{
    return span.bytes == 0 || (span.bytes == strlen(empty) && memcmp(span.text, empty, span.bytes) == 0);
}

bool convoy_control_is_default(const struct convoy_control *message, const struct convoy_control_field *field)
{
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_SIGNED:
        return convoy_control_integer(message, field) == 0;
    case CONVOY_CONTROL_KIND_LARGE:
        return convoy_control_large(message, field) == 0;
    case CONVOY_CONTROL_KIND_BOOL:
        return !convoy_control_bool(message, field);
    case CONVOY_CONTROL_KIND_MAYBE:
        return convoy_control_span(message, field).text == NULL;
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
    default:
        return is_empty(convoy_control_span(message, field), convoy_control_empty(field->kind));
    }
}

static int32_t check_integer(const struct convoy_control *message, const struct convoy_control_field *field,
                             int32_t wrong, struct convoy_error *error)
{
    int64_t value = convoy_control_integer(message, field);
    int64_t least = field->kind == CONVOY_CONTROL_KIND_SIGNED ? INT32_MIN : 0;
    if (value < least || value > (int64_t)field->max) {
        return convoy_error_set(error, wrong, "%s.%s is %" PRId64 ", allowed are %" PRId64 " to %" PRIu64,
                                convoy_control_name(message->type), field->key, value, least, field->max);
    }
    return CONVOY_OK;
}

static int32_t check_span(const struct convoy_control *message, const struct convoy_control_field *field, int32_t wrong,
                          struct convoy_error *error)
{
    struct convoy_span span = convoy_control_span(message, field);
    if (span.bytes > field->max) {
        return convoy_error_set(error, CONVOY_LIMIT, "%s.%s has %zu bytes, allowed are %" PRIu64,
                                convoy_control_name(message->type), field->key, span.bytes, field->max);
    }
    if (field->kind == CONVOY_CONTROL_KIND_ID && span.bytes == 0) {
        return convoy_error_set(error, wrong, "%s.%s is missing or empty, allowed are 1 to %" PRIu64 " bytes",
                                convoy_control_name(message->type), field->key, field->max);
    }
    return CONVOY_OK;
}

int32_t convoy_control_check(const struct convoy_control *message, const struct convoy_control_field *field,
                             int32_t wrong, struct convoy_error *error)
{
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_SIGNED:
        return check_integer(message, field, wrong, error);
    case CONVOY_CONTROL_KIND_LARGE:
    case CONVOY_CONTROL_KIND_BOOL:
        return CONVOY_OK;
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
    case CONVOY_CONTROL_KIND_MAYBE:
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
    default:
        return check_span(message, field, wrong, error);
    }
}
