/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a row means: names, fallbacks and reductions of its columns. Full-size copy of the caller's description, the
 * built-in rows, and their form as bytes. Pure: no I/O, clock, lock or heap.
 */
#ifndef CONVOY_SYNC_SCHEMA_H
#define CONVOY_SYNC_SCHEMA_H

#include "convoy/sync.h"

#include <stdbool.h>

#define CONVOY_SCHEMA_NAME_MAX 31u
#define CONVOY_SCHEMA_COLUMN_BYTES_MAX (20u + CONVOY_SCHEMA_NAME_MAX)
#define CONVOY_SCHEMA_BYTES_MAX (4u + CONVOY_SYNC_COLUMNS_MAX * CONVOY_SCHEMA_COLUMN_BYTES_MAX)

struct convoy_schema_column {
    char name[CONVOY_SCHEMA_NAME_MAX + 1]; /* ends in zeros */
    uint32_t name_length;
    uint32_t reduction; /* CONVOY_REDUCE_* */
    uint32_t flags;     /* CONVOY_COLUMN_* */
    int64_t fallback;
    int64_t ignored; /* 0 without HAS_IGNORED */
};

struct convoy_schema {
    uint32_t count;
    struct convoy_schema_column columns[CONVOY_SYNC_COLUMNS_MAX];
};

/*
 * Copies a description that is full-size, or the built-in row it names. INVALID_ARGUMENT: unknown built-in, both or
 * neither given, count outside 1..64, name empty, too long, with a zero byte or taken twice, unknown reduction or flag,
 * HAS_IGNORED without ALL_EQUAL, stride below an element. schema_out is undefined then.
 */
int32_t convoy_schema_load(struct convoy_schema *schema_out, const struct convoy_sync_schema *given,
                           struct convoy_error *error);

/* Position of a column, or schema->count when there is none of that name. */
uint32_t convoy_schema_find(const struct convoy_schema *schema, const struct convoy_schema_column *column);

/* The first thing in which two columns of one name differ ("fallback", "reduction", "ignored value"), or NULL. Whether
 * an older peer may lack the column is not part of what its values mean. */
const char *convoy_schema_difference(const struct convoy_schema_column *left,
                                     const struct convoy_schema_column *right);

/* Hash of what must agree in a round: columns in order (without OPTIONAL) and the grid of the table. Never 0. */
uint64_t convoy_schema_hash(const struct convoy_schema *schema, uint32_t inner, uint32_t slots);

/* The schema as bytes; the length, or 0 when the capacity does not do. */
size_t convoy_schema_encode(const struct convoy_schema *schema, uint8_t *out, size_t capacity);

/* Reads what encode made elsewhere, to the last byte. MALFORMED: anything that load would have refused, or a length
 * that does not fit. An unknown flag of a newer peer is dropped. */
int32_t convoy_schema_decode(struct convoy_schema *schema_out, const uint8_t *bytes, size_t length);

#endif
