/* SPDX-License-Identifier: Apache-2.0 */
/* One field of a message: where it lies, and whether its value is right. Reading and writing both come here. */
#ifndef CONVOY_WIRE_CONTROL_VALUE_H
#define CONVOY_WIRE_CONTROL_VALUE_H

#include "wire/control_schema.h"

static inline void *convoy_control_at(struct convoy_control *message, const struct convoy_control_field *field)
{
    return (char *)message + field->offset;
}

/* The value of a kind that is a span, an int64_t, a uint64_t, a bool. */
struct convoy_span convoy_control_span(const struct convoy_control *message, const struct convoy_control_field *field);
int64_t convoy_control_integer(const struct convoy_control *message, const struct convoy_control_field *field);
uint64_t convoy_control_large(const struct convoy_control *message, const struct convoy_control_field *field);
bool convoy_control_bool(const struct convoy_control *message, const struct convoy_control_field *field);

/* What a default list or object is written as; "" for other kinds. */
const char *convoy_control_empty(enum convoy_control_kind kind);

bool convoy_control_is_default(const struct convoy_control *message, const struct convoy_control_field *field);

/* Bounds of a value, and that an id is not empty. Not UTF-8, nor JSON. LIMIT: too many bytes; else `wrong`. */
int32_t convoy_control_check(const struct convoy_control *message, const struct convoy_control_field *field,
                             int32_t wrong, struct convoy_error *error);

#endif
