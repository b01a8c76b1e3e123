/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fields and messages, for what reads, writes, checks and prints them. */
#ifndef CONVOY_WIRE_CONTROL_SCHEMA_H
#define CONVOY_WIRE_CONTROL_SCHEMA_H

#include "wire/control.h"

enum convoy_control_kind {
    CONVOY_CONTROL_KIND_ID,
    CONVOY_CONTROL_KIND_TEXT,
    CONVOY_CONTROL_KIND_MAYBE,
    CONVOY_CONTROL_KIND_INTEGER,
    CONVOY_CONTROL_KIND_SIGNED,
    CONVOY_CONTROL_KIND_LARGE,
    CONVOY_CONTROL_KIND_BOOL,
    CONVOY_CONTROL_KIND_OBJECT,
    CONVOY_CONTROL_KIND_LIST,
};

/* When a field is written though it is at its default. */
enum convoy_control_when {
    CONVOY_CONTROL_ALWAYS = 0,
    CONVOY_CONTROL_NEVER,
    CONVOY_CONTROL_STAGED_ONLY, /* transfer_done: staged_for_decoder is set */
    CONVOY_CONTROL_PLAIN_ONLY,  /* transfer_done: it is not */
};

struct convoy_control_field {
    const char *key;
    const char *meaning;
    size_t offset; /* in struct convoy_control */
    enum convoy_control_kind kind;
    uint64_t max; /* of the value, or of its bytes */
};

struct convoy_control_entry {
    const struct convoy_control_field *field;
    enum convoy_control_when when;
};

#define CONVOY_CONTROL_ENTRIES_MAX 20u

struct convoy_control_row {
    const char *name;
    const char *route;
    struct convoy_control_entry entries[CONVOY_CONTROL_ENTRIES_MAX]; /* in the order of writing; then field == NULL */
};

/* All there are, from 0; NULL: no more. */
const struct convoy_control_field *convoy_control_field(size_t index);

/* NULL: there is no such type. */
const struct convoy_control_row *convoy_control_row(enum convoy_control_type type);

/* NONE: no type has this name. */
enum convoy_control_type convoy_control_type_of(struct convoy_span name);

#endif
