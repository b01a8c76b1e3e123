/* SPDX-License-Identifier: Apache-2.0 */
/* From the bytes of a file to its tensors: length, JSON, each entry, and how the entries cover the data. */
#include "cli/safetensors.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"
#define LENGTH_BYTES 8u

struct parser {
    const char *path;
    const char *header;
    size_t header_bytes;
    const uint8_t *data;
    uint64_t data_bytes;
    struct convoy_safetensors *file;
    struct convoy_error *error;
};

/* tensor: NULL when it is about the file. */
__attribute__((format(printf, 3, 4))) static int32_t refuse(const struct parser *parser, const char *tensor,
                                                            const char *format, ...)
{
    char why[CONVOY_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return tensor != NULL ? convoy_error_set(parser->error, CONVOY_MALFORMED, "%.80s: tensor \"%.60s\": %s",
                                             parser->path, tensor, why)
                          : convoy_error_set(parser->error, CONVOY_MALFORMED, "%.80s: %s", parser->path, why);
}

static int32_t no_memory(const struct parser *parser)
{
    return convoy_error_set(parser->error, CONVOY_NO_MEMORY, "no memory for the header of %.80s", parser->path);
}

/* -- the header as JSON -------------------------------------------------------------------------------------------- */

size_t convoy_safetensors_values(const char *text, size_t length)
{
    size_t count = 0;
    bool is_in_string = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"') {
            is_in_string = !is_in_string;
        } else if (is_in_string) {
            i += text[i] == '\\'; /* what comes after ends no string */
        } else if (text[i] == '{' || text[i] == '[' || text[i] == ',' || text[i] == ':') {
            count++; /* each value comes after one of these */
        }
    }
    return count;
}

static int32_t split(struct parser *parser, const uint8_t *bytes, size_t length)
{
    if (length < LENGTH_BYTES) {
        return refuse(parser, NULL, "has %zu bytes, not even the %u of the header's length", length, LENGTH_BYTES);
    }
    uint64_t header_bytes = convoy_bytes_u64(bytes);
    if (header_bytes > CONVOY_SAFETENSORS_HEADER_BYTES_MAX) {
        return refuse(parser, NULL, "header length is %" PRIu64 " (must be up to %u)", header_bytes,
                      CONVOY_SAFETENSORS_HEADER_BYTES_MAX);
    }
    if (header_bytes > length - LENGTH_BYTES) {
        return refuse(parser, NULL, "header length is %" PRIu64 ", the file has %zu bytes after it", header_bytes,
                      length - LENGTH_BYTES);
    }
    parser->header = (const char *)bytes + LENGTH_BYTES;
    parser->header_bytes = (size_t)header_bytes;
    parser->data = bytes + LENGTH_BYTES + header_bytes;
    parser->data_bytes = length - LENGTH_BYTES - header_bytes;
    return CONVOY_OK;
}

static int32_t load(const struct parser *parser, json_t **root_out)
{
    if (parser->header_bytes == 0 || parser->header[0] != '{') {
        return refuse(parser, NULL, "header of %zu bytes does not start with '{'", parser->header_bytes);
    }
    size_t values = convoy_safetensors_values(parser->header, parser->header_bytes);
    if (values > CONVOY_SAFETENSORS_VALUES_MAX) {
        return refuse(parser, NULL, "header has %zu values (must be up to %u)", values, CONVOY_SAFETENSORS_VALUES_MAX);
    }
    json_error_t problem;
    json_t *root = json_loadb(parser->header, parser->header_bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        return json_error_code(&problem) == json_error_out_of_memory
                   ? no_memory(parser)
                   : refuse(parser, NULL, "header is not JSON: %.120s (byte %d)", problem.text, problem.position);
    }
    *root_out = root; /* an object, as it starts with '{' */
    return CONVOY_OK;
}

static int32_t read_metadata(const struct parser *parser, json_t *value)
{
    if (!json_is_object(value)) {
        return refuse(parser, NULL, "\"" METADATA "\" is no object of strings");
    }
    struct convoy_safetensors *file = parser->file;
    file->metadata = convoy_memory_array(json_object_size(value), sizeof *file->metadata);
    if (file->metadata == NULL) {
        return no_memory(parser);
    }
    const char *key = NULL;
    json_t *text = NULL;
    json_object_foreach(value, key, text) {
        if (!json_is_string(text)) {
            return refuse(parser, NULL, "\"" METADATA "\": \"%.60s\" is no string", key);
        }
        file->metadata[file->metadata_count++] = (struct convoy_safetensors_text){key, json_string_value(text)};
    }
    return CONVOY_OK;
}

/* -- one tensor ---------------------------------------------------------------------------------------------------- */

static int32_t read_number(const struct parser *parser, const char *name, const char *field, const json_t *value,
                           uint64_t *number_out)
{
    if (!json_is_integer(value)) {
        return json_is_real(value)
                   ? refuse(parser, name, "%s has the float %g (must be an integer)", field, json_real_value(value))
                   : refuse(parser, name, "%s has what is no number", field);
    }
    if (json_integer_value(value) < 0) {
        return refuse(parser, name, "%s has %" JSON_INTEGER_FORMAT " (must not be negative)", field,
                      json_integer_value(value));
    }
    *number_out = (uint64_t)json_integer_value(value);
    return CONVOY_OK;
}

/* An array of at most `max` numbers, which numbers_out has room for. */
static int32_t read_numbers(const struct parser *parser, const char *name, const char *field, const json_t *value,
                            size_t max, uint64_t *numbers_out, size_t *count_out)
{
    if (!json_is_array(value)) {
        return refuse(parser, name, "%s is %s", field, value == NULL ? "missing" : "no array");
    }
    size_t count = json_array_size(value);
    if (count > max) {
        return refuse(parser, name, "%s has %zu numbers (must be up to %zu)", field, count, max);
    }
    for (size_t i = 0; i < count; i++) {
        int32_t status = read_number(parser, name, field, json_array_get(value, i), &numbers_out[i]);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    *count_out = count;
    return CONVOY_OK;
}

static int32_t read_dtype(const struct parser *parser, struct convoy_safetensor *tensor, const json_t *value)
{
    if (!json_is_string(value)) {
        return refuse(parser, tensor->name, "dtype is %s", value == NULL ? "missing" : "no string");
    }
    size_t length = json_string_length(value);
    if (length == 0 || length > CONVOY_SAFETENSORS_DTYPE_BYTES_MAX) {
        return refuse(parser, tensor->name, "dtype has %zu bytes (must be 1 to %u)", length,
                      CONVOY_SAFETENSORS_DTYPE_BYTES_MAX);
    }
    memcpy(tensor->dtype, json_string_value(value), length);
    return CONVOY_OK;
}

static int32_t read_offsets(const struct parser *parser, struct convoy_safetensor *tensor, const json_t *value)
{
    uint64_t offsets[2];
    size_t count = 0;
    int32_t status = read_numbers(parser, tensor->name, "data_offsets", value, 2, offsets, &count);
    if (status != CONVOY_OK) {
        return status;
    }
    if (count != 2) {
        return refuse(parser, tensor->name, "data_offsets has %zu numbers (must be 2)", count);
    }
    if (offsets[0] > offsets[1]) {
        return refuse(parser, tensor->name, "begins at %" PRIu64 " and ends before, at %" PRIu64, offsets[0],
                      offsets[1]);
    }
    if (offsets[1] > parser->data_bytes) {
        return refuse(parser, tensor->name, "ends at %" PRIu64 ", the data at %" PRIu64, offsets[1],
                      parser->data_bytes);
    }
    tensor->data = parser->data + offsets[0];
    tensor->bytes = offsets[1] - offsets[0];
    return CONVOY_OK;
}

static int32_t read_tensor(const struct parser *parser, struct convoy_safetensor *tensor, const json_t *entry)
{
    if (!json_is_object(entry)) {
        return refuse(parser, tensor->name, "is no object");
    }
    size_t dim_count = 0;
    int32_t status = read_dtype(parser, tensor, json_object_get(entry, "dtype"));
    if (status == CONVOY_OK) {
        status = read_numbers(parser, tensor->name, "shape", json_object_get(entry, "shape"),
                              CONVOY_SAFETENSORS_DIMS_MAX, tensor->shape, &dim_count);
        tensor->dim_count = (uint32_t)dim_count;
    }
    if (status == CONVOY_OK) {
        status = read_offsets(parser, tensor, json_object_get(entry, "data_offsets"));
    }
    char why[160];
    if (status == CONVOY_OK && convoy_safetensors_is_wrong(tensor, why, sizeof why)) {
        return refuse(parser, tensor->name, "%s", why);
    }
    return status;
}

static int32_t read_entries(const struct parser *parser, json_t *root)
{
    struct convoy_safetensors *file = parser->file;
    size_t entries = json_object_size(root);
    file->tensors = convoy_memory_array(entries, sizeof *file->tensors);
    file->by_name = convoy_memory_array(entries, sizeof(struct convoy_safetensor *));
    if (file->tensors == NULL || file->by_name == NULL) {
        return no_memory(parser);
    }
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(root, name, entry) {
        int32_t status = CONVOY_OK;
        if (strcmp(name, METADATA) == 0) {
            status = read_metadata(parser, entry);
        } else {
            file->tensors[file->count].name = name;
            status = read_tensor(parser, &file->tensors[file->count], entry);
            file->count++;
        }
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* -- all of them --------------------------------------------------------------------------------------------------- */

/* By begin, empty ones before what begins there too. */
static int compare_places(const void *left, const void *right)
{
    const struct convoy_safetensor *a = *(const struct convoy_safetensor *const *)left;
    const struct convoy_safetensor *b = *(const struct convoy_safetensor *const *)right;
    if (a->data != b->data) {
        return a->data < b->data ? -1 : 1;
    }
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(const struct convoy_safetensor *const *)left)->name,
                  (*(const struct convoy_safetensor *const *)right)->name);
}

/* Each begins where the one before ends, the first at 0, and the last ends with the data. */
static int32_t check_cover(const struct parser *parser)
{
    const struct convoy_safetensors *file = parser->file;
    uint64_t covered = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct convoy_safetensor *tensor = file->by_name[i];
        uint64_t begin = (uint64_t)(tensor->data - parser->data);
        if (begin < covered) {
            return refuse(parser, tensor->name, "begins at %" PRIu64 ", inside \"%.30s\", which ends at %" PRIu64, begin,
                          file->by_name[i - 1]->name, covered);
        }
        if (begin > covered) {
            return refuse(parser, tensor->name, "begins at %" PRIu64 ", a hole of %" PRIu64 " bytes is before it",
                          begin, begin - covered);
        }
        covered += tensor->bytes;
    }
    if (covered != parser->data_bytes) {
        return refuse(parser, NULL, "tensors end at %" PRIu64 ", %" PRIu64 " bytes are behind them", covered,
                      parser->data_bytes - covered);
    }
    return CONVOY_OK;
}

static int32_t arrange(const struct parser *parser)
{
    struct convoy_safetensors *file = parser->file;
    for (size_t i = 0; i < file->count; i++) {
        file->by_name[i] = &file->tensors[i];
    }
    qsort(file->by_name, file->count, sizeof(struct convoy_safetensor *), compare_places);
    int32_t status = check_cover(parser);
    qsort(file->by_name, file->count, sizeof(struct convoy_safetensor *), compare_names);
    return status;
}

int32_t convoy_safetensors_parse(struct convoy_safetensors *out, const char *path, const uint8_t *bytes, size_t length,
                                 struct convoy_error *error)
{
    struct convoy_safetensors file = {0};
    struct parser parser = {.path = path, .file = &file, .error = error};
    json_t *root = NULL;
    int32_t status = split(&parser, bytes, length);
    if (status == CONVOY_OK) {
        status = load(&parser, &root);
        file.document = root;
    }
    if (status == CONVOY_OK) {
        status = read_entries(&parser, root);
    }
    if (status == CONVOY_OK) {
        status = arrange(&parser);
    }
    if (status != CONVOY_OK) {
        convoy_safetensors_fini(&file);
        return status;
    }
    *out = file;
    return CONVOY_OK;
}
