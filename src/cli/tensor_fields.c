/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tensor_fields.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define NO_INDEX (-1)

/*
 * Each name makes a mark under what stands before its last dot, with its number if it has one, and one without a number
 * under its whole self. Sorted, the marks of a field lie side by side, those without a number first: a field is a list
 * when its first mark has one.
 */
struct mark {
    const char *field;
    size_t bytes;
    size_t tensor;
    int64_t index; /* NO_INDEX: whatever this is, the field is no list */
    bool is_whole; /* the field is the tensor's name */
};

/* "0", or digits of which the first is no 0, below the longest list. */
static int64_t parse_index(const char *text)
{
    int64_t index = 0;
    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0')) {
        return NO_INDEX;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return NO_INDEX;
        }
        index = index * 10 + (*text - '0');
        if (index >= CONVOY_TENSOR_LIST_LENGTH_MAX) {
            return NO_INDEX;
        }
    }
    return index;
}

/* Returns how many marks it made, 1 or 2. */
static size_t mark_name(struct mark *marks, const char *name, size_t tensor)
{
    const char *dot = strrchr(name, '.');
    marks[0] = (struct mark){name, strlen(name), tensor, NO_INDEX, true};
    if (dot == NULL || dot == name) {
        return 1;
    }
    marks[1] = (struct mark){name, (size_t)(dot - name), tensor, parse_index(dot + 1), false};
    return 2;
}

static int compare_fields(const struct mark *a, const struct mark *b)
{
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->field, b->field, shorter);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_marks(const void *left, const void *right)
{
    const struct mark *a = left;
    const struct mark *b = right;
    int order = compare_fields(a, b);
    if (order != 0) {
        return order;
    }
    if (a->index != b->index) {
        return a->index < b->index ? -1 : 1;
    }
    if (a->is_whole != b->is_whole) {
        return a->is_whole ? -1 : 1;
    }
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static size_t run_length(const struct mark *marks, size_t count)
{
    size_t length = 1;
    while (length < count && compare_fields(&marks[0], &marks[length]) == 0) {
        length++;
    }
    return length;
}

/* One field, of all marks of a list or of one that is the whole name. */
static void add_field(struct convoy_tensor_fields *fields, size_t *entry_count, const struct mark *marks, size_t count)
{
    struct convoy_tensor_field *field = &fields->fields[fields->count++];
    *field = (struct convoy_tensor_field){
        .name = marks[0].field,
        .name_bytes = marks[0].bytes,
        .is_list = marks[0].index != NO_INDEX,
        .length = marks[0].index != NO_INDEX ? (uint32_t)marks[count - 1].index + 1 : 1,
        .first = *entry_count,
        .count = count,
    };
    for (size_t i = 0; i < count; i++) {
        uint32_t index = field->is_list ? (uint32_t)marks[i].index : 0;
        fields->entries[(*entry_count)++] = (struct convoy_tensor_entry){marks[i].tensor, index};
    }
}

/* A list takes its tensors away, so that their whole names make no fields: is_taken, by tensor. */
static void add_lists(struct convoy_tensor_fields *fields, size_t *entry_count, bool *is_taken,
                      const struct mark *marks, size_t count)
{
    for (size_t at = 0; at < count;) {
        size_t length = run_length(&marks[at], count - at);
        if (marks[at].index != NO_INDEX) {
            add_field(fields, entry_count, &marks[at], length);
            for (size_t i = at; i < at + length; i++) {
                is_taken[marks[i].tensor] = true;
            }
        }
        at += length;
    }
}

static int32_t check_twice(const struct mark *marks, size_t count, struct convoy_error *error)
{
    for (size_t i = 1; i < count; i++) {
        if (marks[i - 1].is_whole && marks[i].is_whole && compare_fields(&marks[i - 1], &marks[i]) == 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "tensors %zu and %zu are both named \"%.60s\"",
                                    marks[i - 1].tensor, marks[i].tensor, marks[i].field);
        }
    }
    return CONVOY_OK;
}

/* The array of names may say 2 before 0; the field stands where the first of them does. */
static size_t first_tensor(const struct convoy_tensor_fields *fields, const struct convoy_tensor_field *field)
{
    size_t first = fields->entries[field->first].tensor;
    for (size_t i = 1; i < field->count; i++) {
        size_t tensor = fields->entries[field->first + i].tensor;
        first = tensor < first ? tensor : first;
    }
    return first;
}

/* field_of: room for one of each tensor; NULL name = none starts there. */
static void put_in_order(struct convoy_tensor_fields *fields, struct convoy_tensor_field *field_of, size_t tensors)
{
    for (size_t i = 0; i < fields->count; i++) {
        field_of[first_tensor(fields, &fields->fields[i])] = fields->fields[i];
    }
    size_t count = 0;
    for (size_t i = 0; i < tensors; i++) {
        if (field_of[i].name != NULL) {
            fields->fields[count++] = field_of[i];
        }
    }
}

/* Memory that is needed meanwhile. */
struct workspace {
    struct mark *marks;
    bool *is_taken;
    struct convoy_tensor_field *field_of;
};

static int32_t group(struct convoy_tensor_fields *fields, const struct workspace *work,
                     const struct convoy_safetensor *tensors, size_t count, struct convoy_error *error)
{
    size_t mark_count = 0;
    size_t entry_count = 0;
    for (size_t i = 0; i < count; i++) {
        mark_count += mark_name(&work->marks[mark_count], tensors[i].name, i);
    }
    qsort(work->marks, mark_count, sizeof *work->marks, compare_marks);
    int32_t status = check_twice(work->marks, mark_count, error);
    if (status != CONVOY_OK) {
        return status;
    }
    add_lists(fields, &entry_count, work->is_taken, work->marks, mark_count);
    for (size_t i = 0; i < mark_count; i++) {
        if (work->marks[i].is_whole && !work->is_taken[work->marks[i].tensor]) {
            add_field(fields, &entry_count, &work->marks[i], 1);
        }
    }
    put_in_order(fields, work->field_of, count);
    return CONVOY_OK;
}

int32_t convoy_tensor_fields_make(struct convoy_tensor_fields *out, const struct convoy_safetensor *tensors,
                                  size_t count, struct convoy_error *error)
{
    struct convoy_tensor_fields fields = {
        .fields = convoy_memory_array(count, sizeof *fields.fields),
        .entries = convoy_memory_array(count, sizeof *fields.entries),
    };
    struct workspace work = {
        .marks = convoy_memory_array(count, 2 * sizeof *work.marks),
        .is_taken = convoy_memory_array(count, sizeof *work.is_taken),
        .field_of = convoy_memory_array(count, sizeof *work.field_of),
    };
    bool has_memory = fields.fields != NULL && fields.entries != NULL && work.marks != NULL &&
                      work.is_taken != NULL && work.field_of != NULL;
    int32_t status = has_memory ? group(&fields, &work, tensors, count, error)
                                : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to group %zu tensors", count);
    convoy_memory_free(work.marks);
    convoy_memory_free(work.is_taken);
    convoy_memory_free(work.field_of);
    if (status != CONVOY_OK) {
        convoy_tensor_fields_fini(&fields);
        return status;
    }
    *out = fields;
    return CONVOY_OK;
}

void convoy_tensor_fields_fini(struct convoy_tensor_fields *fields)
{
    convoy_memory_free(fields->fields);
    convoy_memory_free(fields->entries);
    *fields = (struct convoy_tensor_fields){0};
}
