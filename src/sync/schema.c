/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/schema.h"

#include "core/error.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte forms are little-endian as they lie in memory");

#define COLUMN_FLAGS (CONVOY_COLUMN_HAS_IGNORED | CONVOY_COLUMN_OPTIONAL)
#define MODE_IDLE 4 /* forward mode of a rank without a batch */

#define COLUMN(text, way, value)                                                                                       \
    {.name = (text), .name_length = sizeof(text) - 1, .reduction = (way), .fallback = (value)}

/* The DP row of SGLang. The first seven are its first release with this gather; the eighth came later, so a group of
 * both kinds goes on with seven. Hosts also read the tokens as a list (the first-member table); MAX is what a padded
 * size starts from. */
static const struct convoy_schema schema_sglang = {
    .count = 8,
    .columns = {
        COLUMN("tokens", CONVOY_REDUCE_MAX, 0),
        COLUMN("logprob_tokens", CONVOY_REDUCE_MAX, 0),
        COLUMN("decode_graph", CONVOY_REDUCE_MIN, 1),
        COLUMN("extend", CONVOY_REDUCE_MAX, 0),
        COLUMN("two_batch", CONVOY_REDUCE_MIN, 1),
        {.name = "mode",
         .name_length = 4,
         .reduction = CONVOY_REDUCE_ALL_EQUAL,
         .flags = CONVOY_COLUMN_HAS_IGNORED,
         .fallback = MODE_IDLE,
         .ignored = MODE_IDLE},
        COLUMN("prefill_graph", CONVOY_REDUCE_MIN, 0),
        {.name = "max_prefix",
         .name_length = 10,
         .reduction = CONVOY_REDUCE_MAX,
         .flags = CONVOY_COLUMN_OPTIONAL},
    },
};

static int32_t schema_load_builtin(struct convoy_schema *schema_out, const struct convoy_sync_schema *given,
                                   struct convoy_error *error)
{
    static const char stem[] = "sglang-";
    size_t length = given->builtin_length;
    if (given->column_count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "schema: builtin and %zu own columns are given, allowed is one of both",
                                given->column_count);
    }
    if (length == sizeof stem && memcmp(given->builtin, stem, sizeof stem - 1) == 0 &&
        (given->builtin[length - 1] == '7' || given->builtin[length - 1] == '8')) {
        *schema_out = schema_sglang;
        schema_out->count = (uint32_t)(given->builtin[length - 1] - '0');
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                            "schema.builtin is \"%.*s\", allowed are \"sglang-7\" and \"sglang-8\"",
                            length < 64 ? (int)length : 64, given->builtin);
}

/* The same rules for what a caller gives and what a peer sends; NULL when the column is right. */
static const char *schema_column_fault(const struct convoy_schema_column *column)
{
    if (column->name_length == 0 || column->name_length > CONVOY_SCHEMA_NAME_MAX ||
        memchr(column->name, '\0', column->name_length) != NULL) {
        return "name must have 1 to 31 bytes, none of them zero";
    }
    if (column->reduction > CONVOY_REDUCE_ALL_EQUAL) {
        return "reduction must be 0 to 4";
    }
    if ((column->flags & CONVOY_COLUMN_HAS_IGNORED) != 0 && column->reduction != CONVOY_REDUCE_ALL_EQUAL) {
        return "an ignored value needs reduction ALL_EQUAL (4)";
    }
    return NULL;
}

static int32_t schema_load_column(struct convoy_schema *schema, size_t index, const struct convoy_sync_column *given,
                                  struct convoy_error *error)
{
    struct convoy_schema_column *column = &schema->columns[index];
    memset(column, 0, sizeof *column);
    size_t length = given->name_length;
    bool fits = given->name != NULL && length <= CONVOY_SCHEMA_NAME_MAX;
    if (fits) {
        memcpy(column->name, given->name, length);
    }
    column->name_length = fits ? (uint32_t)length : 0;
    column->reduction = given->reduction;
    column->flags = given->flags;
    column->fallback = given->fallback;
    column->ignored = (given->flags & CONVOY_COLUMN_HAS_IGNORED) != 0 ? given->ignored : 0;
    const char *fault = schema_column_fault(column);
    if (fault != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "schema.columns[%zu]: name of %zu bytes, reduction %u, flags 0x%x: %s", index, length,
                                given->reduction, given->flags, fault);
    }
    if ((given->flags & ~COLUMN_FLAGS) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "schema.columns[%zu].flags is 0x%x, allowed are 0x%x",
                                index, given->flags, COLUMN_FLAGS);
    }
    uint32_t twin = convoy_schema_find(schema, column);
    if (twin != schema->count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "schema.columns[%u] and [%zu] are both named \"%s\"",
                                twin, index, column->name);
    }
    schema->count++;
    return CONVOY_OK;
}

int32_t convoy_schema_load(struct convoy_schema *schema_out, const struct convoy_sync_schema *given,
                           struct convoy_error *error)
{
    if (given->builtin != NULL) {
        return schema_load_builtin(schema_out, given, error);
    }
    if (given->columns == NULL || given->column_count == 0 || given->column_count > CONVOY_SYNC_COLUMNS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "schema.column_count is %zu, allowed are 1 to %d%s",
                                given->column_count, CONVOY_SYNC_COLUMNS_MAX,
                                given->columns == NULL ? " (columns is NULL)" : "");
    }
    if (given->column_stride < sizeof(struct convoy_sync_column)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "schema.column_stride is %zu, at least %zu is allowed",
                                given->column_stride, sizeof(struct convoy_sync_column));
    }
    schema_out->count = 0;
    for (size_t i = 0; i < given->column_count; i++) {
        struct convoy_sync_column column;
        memcpy(&column, (const char *)given->columns + i * given->column_stride, sizeof column);
        int32_t status = schema_load_column(schema_out, i, &column, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

uint32_t convoy_schema_find(const struct convoy_schema *schema, const struct convoy_schema_column *column)
{
    uint32_t i = 0;
    while (i < schema->count && (schema->columns[i].name_length != column->name_length ||
                                 memcmp(schema->columns[i].name, column->name, column->name_length) != 0)) {
        i++;
    }
    return i;
}

const char *convoy_schema_difference(const struct convoy_schema_column *left, const struct convoy_schema_column *right)
{
    if (left->fallback != right->fallback) {
        return "fallback";
    }
    if (left->reduction != right->reduction) {
        return "reduction";
    }
    if (((left->flags ^ right->flags) & CONVOY_COLUMN_HAS_IGNORED) != 0 || left->ignored != right->ignored) {
        return "ignored value";
    }
    return NULL;
}

/* One column as bytes; only the flags in `flags` are taken over. */
static size_t schema_put(const struct convoy_schema_column *column, uint32_t flags, uint8_t *out)
{
    out[0] = (uint8_t)column->name_length;
    out[1] = (uint8_t)column->reduction;
    out[2] = (uint8_t)(column->flags & flags);
    out[3] = 0;
    memcpy(out + 4, &column->fallback, 8);
    memcpy(out + 12, &column->ignored, 8);
    memcpy(out + 20, column->name, column->name_length);
    return 20u + column->name_length;
}

uint64_t convoy_schema_hash(const struct convoy_schema *schema, uint32_t inner, uint32_t slots)
{
    uint8_t bytes[8 + CONVOY_SCHEMA_BYTES_MAX];
    memcpy(bytes, &inner, 4);
    memcpy(bytes + 4, &slots, 4);
    size_t length = 8;
    for (uint32_t i = 0; i < schema->count; i++) {
        length += schema_put(&schema->columns[i], CONVOY_COLUMN_HAS_IGNORED, bytes + length);
    }
    uint64_t hash = XXH3_64bits(bytes, length);
    return hash != 0 ? hash : 1;
}

size_t convoy_schema_encode(const struct convoy_schema *schema, uint8_t *out, size_t capacity)
{
    size_t need = 4;
    for (uint32_t i = 0; i < schema->count; i++) {
        need += 20u + schema->columns[i].name_length;
    }
    if (capacity < need) {
        return 0;
    }
    memcpy(out, &schema->count, 4);
    size_t length = 4;
    for (uint32_t i = 0; i < schema->count; i++) {
        length += schema_put(&schema->columns[i], COLUMN_FLAGS, out + length);
    }
    return length;
}

/* Bytes that one column took, or 0 when they are not a column. */
static size_t schema_take(struct convoy_schema_column *column, const uint8_t *bytes, size_t length)
{
    if (length < 20 || bytes[0] > CONVOY_SCHEMA_NAME_MAX || length - 20 < bytes[0]) {
        return 0;
    }
    memset(column, 0, sizeof *column);
    column->name_length = bytes[0];
    column->reduction = bytes[1];
    column->flags = bytes[2] & COLUMN_FLAGS;
    memcpy(&column->fallback, bytes + 4, 8);
    memcpy(&column->ignored, bytes + 12, 8);
    memcpy(column->name, bytes + 20, column->name_length);
    return schema_column_fault(column) == NULL ? 20u + column->name_length : 0;
}

int32_t convoy_schema_decode(struct convoy_schema *schema_out, const uint8_t *bytes, size_t length)
{
    uint32_t count = 0;
    if (length >= 4) {
        memcpy(&count, bytes, 4);
    }
    if (count == 0 || count > CONVOY_SYNC_COLUMNS_MAX) {
        return CONVOY_MALFORMED;
    }
    size_t at = 4;
    schema_out->count = 0;
    while (schema_out->count < count) {
        struct convoy_schema_column *column = &schema_out->columns[schema_out->count];
        size_t taken = schema_take(column, bytes + at, length - at);
        if (taken == 0 || convoy_schema_find(schema_out, column) != schema_out->count) {
            return CONVOY_MALFORMED;
        }
        at += taken;
        schema_out->count++;
    }
    return at == length ? CONVOY_OK : CONVOY_MALFORMED;
}
