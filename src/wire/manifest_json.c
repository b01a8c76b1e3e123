/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/manifest_json.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/utf8.h"
#include "wire/dtype.h"
#include "wire/name.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 160u

/* What a first pass over the fields counts, so that one allocation holds them. */
struct json_counts {
    size_t tensors;
    size_t lists;
    size_t text_bytes;
};

/* Where reading is. */
struct json_input {
    const json_t *lengths; /* NULL: no list lengths were given */
    struct convoy_manifest *manifest;
    char *text;
    uint32_t tensors; /* read so far */
    uint32_t lists;
    struct convoy_error *error;
};

/* One entry: its field and position, for paths. */
struct json_entry {
    const json_t *object;
    const char *field;
    size_t field_length;
    size_t position;
};

/* -- refusals ------------------------------------------------------------------------------------------------------ */

static void field_path(const char *field, size_t length, char path_out[CONVOY_MANIFEST_PATH_BYTES])
{
    const struct convoy_tensor as_tensor = {.name = field, .name_length = (uint32_t)length, .list_index = -1};
    convoy_manifest_path(&as_tensor, path_out);
}

static int32_t refuse_field(const char *field, size_t length, const char *what, struct convoy_error *error)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    field_path(field, length, path);
    return convoy_error_set(error, CONVOY_MALFORMED, "%s %s", path, what);
}

static void entry_path(const struct json_entry *entry, char path_out[PATH_BYTES])
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    field_path(entry->field, entry->field_length, path);
    (void)snprintf(path_out, PATH_BYTES, "%s[%zu]", path, entry->position);
}

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {"an object", "an array", "a text", "an integer",
                                        "a real number", "true",     "false",  "null"};
    return value == NULL ? "missing" : kinds[json_typeof(value)];
}

/* An integer of 0 to max at path.key, or another status. */
static int32_t read_number(const struct json_entry *entry, const char *key, const json_t *value, uint64_t max,
                           uint64_t *number_out, struct convoy_error *error)
{
    char path[PATH_BYTES];
    if (!json_is_integer(value)) {
        entry_path(entry, path);
        return convoy_error_set(error, CONVOY_MALFORMED, "%s.%s is %s, allowed are integers of 0 to %" PRIu64, path,
                                key, kind_of(value), max);
    }
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number > max) {
        entry_path(entry, path);
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "%s.%s is %" JSON_INTEGER_FORMAT ", allowed are integers of 0 to %" PRIu64, path, key,
                                number, max);
    }
    *number_out = (uint64_t)number;
    return CONVOY_OK;
}

/* -- decode: the first pass ---------------------------------------------------------------------------------------- */

static int32_t check_key(const char *key, size_t length, size_t position, const char *where,
                         struct convoy_error *error)
{
    if (length == 0 || length > CONVOY_MANIFEST_NAME_MAX || !convoy_utf8_is_clean(key, length)) {
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "%s: the name of field %zu (from 0) has %zu bytes; allowed are 1 to %u of UTF-8 without "
                                "control characters",
                                where, position, length, CONVOY_MANIFEST_NAME_MAX);
    }
    return CONVOY_OK;
}

static int32_t find_lengths(const json_t *extra, const json_t **lengths_out, struct convoy_error *error)
{
    const json_t *lengths = NULL;
    if (extra != NULL && !json_is_object(extra)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest extra is %s, allowed is an object", kind_of(extra));
    }
    if (extra != NULL && (lengths = json_object_get(extra, "list_lengths")) != NULL && !json_is_object(lengths)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "list_lengths is %s, allowed is an object", kind_of(lengths));
    }
    *lengths_out = lengths;
    return CONVOY_OK;
}

/* Entries with an index make a field a list, and so does having none, or a length. */
static bool is_list(const json_t *lengths, const char *field, size_t length, const json_t *entries)
{
    size_t i = 0;
    const json_t *entry = NULL;
    json_array_foreach(entries, i, entry) {
        if (json_object_get(entry, "list_index") != NULL) {
            return true;
        }
    }
    return json_array_size(entries) == 0 || json_object_getn(lengths, field, length) != NULL;
}

static int32_t count_entries(const char *field, size_t length, const json_t *entries, struct json_counts *counts,
                             struct convoy_error *error)
{
    size_t i = 0;
    const json_t *object = NULL;
    if (!json_is_array(entries)) {
        return refuse_field(field, length, "is no list of entries", error);
    }
    json_array_foreach(entries, i, object) {
        const struct json_entry entry = {object, field, length, i};
        const json_t *dtype = json_object_get(object, "dtype");
        size_t dtype_length = json_string_length(dtype);
        char path[PATH_BYTES];
        if (json_is_object(object) && json_is_string(dtype) && dtype_length != 0 &&
            dtype_length <= CONVOY_MANIFEST_DTYPE_NAME_MAX) {
            counts->text_bytes += dtype_length;
            continue;
        }
        entry_path(&entry, path);
        if (!json_is_object(object)) {
            return convoy_error_set(error, CONVOY_MALFORMED, "%s is %s, allowed is an object", path, kind_of(object));
        }
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "%s.dtype is %s of %zu bytes, allowed is a text of 1 to %u", path, kind_of(dtype),
                                dtype_length, CONVOY_MANIFEST_DTYPE_NAME_MAX);
    }
    counts->tensors += json_array_size(entries);
    return CONVOY_OK;
}

static int32_t count_fields(const json_t *fields, const json_t *lengths, struct json_counts *counts,
                            struct convoy_error *error)
{
    const char *key = NULL;
    size_t length = 0;
    size_t position = 0;
    json_t *value = NULL;
    /* jansson's loops take objects that are not const and leave them alone */
    json_object_keylen_foreach((json_t *)(uintptr_t)fields, key, length, value) {
        int32_t status = check_key(key, length, position++, "manifest", error);
        if (status == CONVOY_OK) {
            status = count_entries(key, length, value, counts, error);
        }
        if (status != CONVOY_OK) {
            return status;
        }
        counts->lists += is_list(lengths, key, length, value);
        counts->text_bytes += length;
    }
    position = 0;
    json_object_keylen_foreach((json_t *)(uintptr_t)lengths, key, length, value) {
        int32_t status = check_key(key, length, position++, "list_lengths", error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (json_object_getn(fields, key, length) == NULL) {
            counts->lists++;
            counts->text_bytes += length;
        }
    }
    return convoy_manifest_limits(counts->tensors, counts->lists, error);
}

/* -- decode: the second pass --------------------------------------------------------------------------------------- */

static const char *keep_text(struct json_input *input, const char *text, size_t length)
{
    char *kept = input->text;
    memcpy(kept, text, length);
    input->text += length;
    return kept;
}

static int32_t read_shape(const struct json_entry *entry, struct convoy_tensor *tensor, struct convoy_error *error)
{
    const json_t *shape = json_object_get(entry->object, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > CONVOY_MANIFEST_RANK_MAX) {
        char path[PATH_BYTES];
        entry_path(entry, path);
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "%s.shape is %s of %zu dimensions, allowed is an array of up to %u", path,
                                kind_of(shape), json_array_size(shape), CONVOY_MANIFEST_RANK_MAX);
    }
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        char key[24];
        (void)snprintf(key, sizeof key, "shape[%u]", i);
        int32_t status = read_number(entry, key, json_array_get(shape, i), CONVOY_MANIFEST_NUMBER_MAX,
                                     &tensor->shape[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* The type, and the bytes: from the shape, or for an opaque type from "nbytes". */
static int32_t read_bytes(struct json_input *input, const struct json_entry *entry, struct convoy_tensor *tensor)
{
    const json_t *name = json_object_get(entry->object, "dtype");
    const json_t *nbytes = json_object_get(entry->object, "nbytes");
    const struct convoy_dtype *dtype = convoy_dtype_by_name(json_string_value(name), json_string_length(name));
    uint64_t given = 0;
    if (dtype == NULL) {
        tensor->dtype_name_length = (uint32_t)json_string_length(name);
        tensor->dtype_name = keep_text(input, json_string_value(name), tensor->dtype_name_length);
    } else {
        tensor->dtype = dtype->id;
    }
    if (dtype == NULL || nbytes != NULL) {
        int32_t status = read_number(entry, "nbytes", nbytes, CONVOY_MANIFEST_NUMBER_MAX, &given, input->error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    tensor->bytes = given;
    int32_t status = convoy_manifest_tensor_bytes(tensor, &tensor->bytes, CONVOY_MALFORMED, input->error);
    if (status == CONVOY_OK && nbytes != NULL && given != tensor->bytes) {
        char path[PATH_BYTES];
        entry_path(entry, path);
        return convoy_error_set(input->error, CONVOY_MALFORMED,
                                "%s.nbytes is %" PRIu64 ", shape and dtype make %" PRIu64, path, given, tensor->bytes);
    }
    return status;
}

static int32_t read_entry(struct json_input *input, const struct json_entry *entry, const char *name,
                          struct convoy_tensor *tensor)
{
    const json_t *index = json_object_get(entry->object, "list_index");
    uint64_t number = 0;
    tensor->name = name;
    tensor->name_length = (uint32_t)entry->field_length;
    tensor->list_index = -1;
    if (index != NULL) {
        int32_t status = read_number(entry, "list_index", index, CONVOY_MANIFEST_LENGTH_MAX - 1, &number, input->error);
        if (status != CONVOY_OK) {
            return status;
        }
        tensor->list_index = (int32_t)number;
    }
    int32_t status = read_number(entry, "offset", json_object_get(entry->object, "offset"), CONVOY_MANIFEST_NUMBER_MAX,
                                 &tensor->offset, input->error);
    if (status == CONVOY_OK) {
        status = read_shape(entry, tensor, input->error);
    }
    return status == CONVOY_OK ? read_bytes(input, entry, tensor) : status;
}

/* A length that is given is used as it is: the checks compare it with the indexes. */
static int32_t read_list(struct json_input *input, const char *name, size_t length, uint32_t least)
{
    const json_t *given = json_object_getn(input->lengths, name, length);
    json_int_t number = json_is_integer(given) ? json_integer_value(given) : -1;
    struct convoy_tensor_list *list = &input->manifest->lists[input->lists++];
    *list = (struct convoy_tensor_list){.name = name, .name_length = (uint32_t)length, .length = least};
    if (given == NULL) {
        return CONVOY_OK;
    }
    if (number < 0 || number > (json_int_t)CONVOY_MANIFEST_LENGTH_MAX) {
        char path[CONVOY_MANIFEST_PATH_BYTES];
        field_path(name, length, path);
        return convoy_error_set(input->error, number < 0 ? CONVOY_MALFORMED : CONVOY_LIMIT,
                                "list_lengths of %s is %s outside of 0 to %u", path, kind_of(given),
                                CONVOY_MANIFEST_LENGTH_MAX);
    }
    list->length = CONVOY_MUTATED(last_holes_lost) ? least : (uint32_t)number;
    return CONVOY_OK;
}

static int32_t read_field(struct json_input *input, const char *field, size_t length, const json_t *entries)
{
    const char *name = keep_text(input, field, length);
    uint32_t least = 0; /* highest index + 1 */
    size_t i = 0;
    const json_t *object = NULL;
    json_array_foreach(entries, i, object) {
        struct convoy_tensor *tensor = &input->manifest->tensors[input->tensors++];
        const struct json_entry entry = {object, name, length, i};
        int32_t status = read_entry(input, &entry, name, tensor);
        if (status != CONVOY_OK) {
            return status;
        }
        uint32_t next = (uint32_t)(tensor->list_index + 1);
        least = next > least ? next : least;
    }
    return is_list(input->lengths, field, length, entries) ? read_list(input, name, length, least) : CONVOY_OK;
}

static int32_t read_all(struct json_input *input, const json_t *fields)
{
    const char *key = NULL;
    size_t length = 0;
    json_t *value = NULL;
    int32_t status = CONVOY_OK;
    json_object_keylen_foreach((json_t *)(uintptr_t)fields, key, length, value) {
        if ((status = read_field(input, key, length, value)) != CONVOY_OK) {
            return status;
        }
    }
    json_object_keylen_foreach((json_t *)(uintptr_t)input->lengths, key, length, value) {
        if (json_object_getn(fields, key, length) != NULL) {
            continue;
        }
        if ((status = read_list(input, keep_text(input, key, length), length, 0)) != CONVOY_OK) {
            return status;
        }
    }
    input->manifest->payload_bytes = convoy_manifest_end(input->manifest);
    return convoy_manifest_check(input->manifest, 1, CONVOY_MALFORMED, input->error);
}

int32_t convoy_manifest_json_decode(const json_t *fields, const json_t *extra, struct convoy_manifest **manifest_out,
                                    struct convoy_error *error)
{
    struct json_input input = {.error = error};
    struct json_counts counts = {0};
    if (!json_is_object(fields)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest is %s, allowed is an object", kind_of(fields));
    }
    int32_t status = find_lengths(extra, &input.lengths, error);
    if (status == CONVOY_OK) {
        status = count_fields(fields, input.lengths, &counts, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    input.manifest = convoy_manifest_create((uint32_t)counts.tensors, (uint32_t)counts.lists, counts.text_bytes,
                                            &input.text);
    if (input.manifest == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "manifest: no memory for %zu tensors", counts.tensors);
    }
    status = read_all(&input, fields);
    if (status != CONVOY_OK) {
        convoy_manifest_destroy(input.manifest);
        return status;
    }
    *manifest_out = input.manifest;
    return CONVOY_OK;
}

/* -- encode -------------------------------------------------------------------------------------------------------- */

static json_t *shape_json(const struct convoy_tensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape;
}

/* An opaque type that has a row here (its sender had none) becomes that type. */
static json_t *entry_json(const struct convoy_tensor *tensor)
{
    const struct convoy_dtype *dtype = tensor->dtype != CONVOY_DTYPE_OPAQUE
                                           ? convoy_dtype_by_id(tensor->dtype)
                                           : convoy_dtype_by_name(tensor->dtype_name, tensor->dtype_name_length);
    json_t *entry = json_object();
    int failed = json_object_set_new(entry, "offset", json_integer((json_int_t)tensor->offset));
    failed |= json_object_set_new(entry, "shape", shape_json(tensor));
    failed |= json_object_set_new(entry, "dtype",
                                  dtype != NULL ? json_string(dtype->name)
                                                : json_stringn(tensor->dtype_name, tensor->dtype_name_length));
    if (tensor->list_index >= 0) {
        failed |= json_object_set_new(entry, "list_index", json_integer(tensor->list_index));
    }
    if (dtype == NULL) {
        failed |= json_object_set_new(entry, "nbytes", json_integer((json_int_t)tensor->bytes));
    }
    if (failed != 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static bool add_tensor(json_t *fields, const struct convoy_tensor *tensor)
{
    json_t *entries = json_object_getn(fields, tensor->name, tensor->name_length);
    if (entries == NULL) {
        entries = json_array();
        if (json_object_setn_new(fields, tensor->name, tensor->name_length, entries) != 0) {
            return false;
        }
    }
    return json_array_append_new(entries, entry_json(tensor)) == 0;
}

static bool add_length(json_t *fields, json_t *extra, const struct convoy_tensor_list *list)
{
    const json_t *entries = json_object_getn(fields, list->name, list->name_length);
    json_int_t least = 0;
    size_t i = 0;
    const json_t *entry = NULL;
    json_array_foreach(entries, i, entry) {
        json_int_t next = json_integer_value(json_object_get(entry, "list_index")) + 1;
        least = next > least ? next : least;
    }
    if (entries != NULL && least == (json_int_t)list->length) {
        return true;
    }
    json_t *lengths = json_object_get(extra, "list_lengths");
    if (lengths == NULL) {
        lengths = json_object();
        if (json_object_set_new(extra, "list_lengths", lengths) != 0) {
            return false;
        }
    }
    return json_object_setn_new(lengths, list->name, list->name_length, json_integer(list->length)) == 0;
}

int32_t convoy_manifest_json_encode(const struct convoy_manifest *manifest, json_t **fields_out, json_t **extra_out,
                                    struct convoy_error *error)
{
    int32_t status = convoy_manifest_check(manifest, 1, CONVOY_INVALID_ARGUMENT, error);
    if (status != CONVOY_OK) {
        return status;
    }
    json_t *fields = json_object();
    json_t *extra = json_object();
    bool is_done = fields != NULL && extra != NULL;
    for (uint32_t i = 0; i < manifest->count && is_done; i++) {
        is_done = add_tensor(fields, &manifest->tensors[i]);
    }
    for (uint32_t i = 0; i < manifest->list_count && is_done; i++) {
        is_done = add_length(fields, extra, &manifest->lists[i]);
    }
    if (!is_done) {
        json_decref(fields);
        json_decref(extra);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "manifest: no memory for its JSON");
    }
    *fields_out = fields;
    *extra_out = extra;
    return CONVOY_OK;
}
