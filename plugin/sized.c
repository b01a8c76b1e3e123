/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/sized.h"

static size_t min_bytes(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Offset of the first byte in [from, to) that is not zero, or `to`. */
static size_t first_nonzero(const void *bytes, size_t from, size_t to)
{
    const unsigned char *byte = bytes;
    while (from < to && byte[from] == 0) {
        from++;
    }
    return from;
}

static int32_t check_presence(const struct convoy_shape *shape, const void *caller, struct convoy_error *error)
{
    if (caller == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s is NULL; it must be given", shape->name);
    }
    uint32_t bytes = convoy_sized_bytes(caller);
    if (bytes < shape->first_bytes) {
        return convoy_error_set(error, CONVOY_TOO_OLD, "%s: struct_size is %u, release 1.0 has %u; set it to sizeof",
                                shape->name, bytes, shape->first_bytes);
    }
    if (bytes > CONVOY_SIZED_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "%s: struct_size is %u, allowed are %u to %u; set it to sizeof", shape->name, bytes,
                                shape->first_bytes, CONVOY_SIZED_BYTES_MAX);
    }
    return CONVOY_OK;
}

static void copy_in(void *full, const struct convoy_shape *shape, const void *caller, size_t bytes)
{
    size_t known = min_bytes(bytes, shape->full_bytes);
    memcpy(full, caller, known);
    memset((char *)full + known, 0, shape->full_bytes - known);
}

int32_t convoy_sized_in_foreign(void *full, const struct convoy_shape *shape, const void *caller,
                                struct convoy_error *error)
{
    int32_t status = check_presence(shape, caller, error);
    if (status != CONVOY_OK) {
        return status;
    }
    size_t bytes = convoy_sized_bytes(caller);
    size_t unknown = first_nonzero(caller, shape->full_bytes, bytes);
    if (bytes > shape->full_bytes && unknown < bytes) {
        return convoy_error_set(error, CONVOY_TOO_NEW,
                                "%s: the byte at offset %zu is set, but this build knows only %u bytes", shape->name,
                                unknown, shape->full_bytes);
    }
    copy_in(full, shape, caller, bytes);
    memcpy(full, &shape->full_bytes, sizeof shape->full_bytes);
    return CONVOY_OK;
}

int32_t convoy_sized_out_begin_foreign(void *full, const struct convoy_shape *shape, const void *caller,
                                       struct convoy_error *error)
{
    int32_t status = check_presence(shape, caller, error);
    if (status != CONVOY_OK) {
        return status;
    }
    copy_in(full, shape, caller, convoy_sized_bytes(caller));
    memcpy(full, &shape->full_bytes, sizeof shape->full_bytes);
    return CONVOY_OK;
}

int32_t convoy_sized_array_check_out(const struct convoy_sized_array *array, const struct convoy_shape *shape,
                                     struct convoy_error *error)
{
    if (array->count == 0) {
        return CONVOY_OK;
    }
    if (array->base == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "array of %s is NULL, but its count is %zu",
                                shape->name, array->count);
    }
    if (array->stride < shape->first_bytes) {
        return convoy_error_set(error, CONVOY_TOO_OLD,
                                "array of %s: stride is %zu, release 1.0 has %u; set it to sizeof", shape->name,
                                array->stride, shape->first_bytes);
    }
    if (array->stride > CONVOY_SIZED_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "array of %s: stride is %zu, allowed are %u to %u; set it to sizeof", shape->name,
                                array->stride, shape->first_bytes, CONVOY_SIZED_BYTES_MAX);
    }
    if (array->count > SIZE_MAX / array->stride) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "array of %s: %zu elements of %zu bytes do not fit the address space", shape->name,
                                array->count, array->stride);
    }
    return CONVOY_OK;
}

int32_t convoy_sized_array_check_in(const struct convoy_sized_array *array, const struct convoy_shape *shape,
                                    struct convoy_error *error)
{
    int32_t status = convoy_sized_array_check_out(array, shape, error);
    if (status != CONVOY_OK || array->count == 0 || array->stride <= shape->full_bytes) {
        return status;
    }
    for (size_t i = 0; i < array->count; i++) {
        const char *element = (const char *)array->base + i * array->stride;
        size_t unknown = first_nonzero(element, shape->full_bytes, array->stride);
        if (unknown < array->stride) {
            return convoy_error_set(error, CONVOY_TOO_NEW,
                                    "array of %s, element %zu: the byte at offset %zu is set, but this build knows "
                                    "only %u bytes",
                                    shape->name, i, unknown, shape->full_bytes);
        }
    }
    return CONVOY_OK;
}

void convoy_sized_array_read(void *full, const struct convoy_sized_array *array, const struct convoy_shape *shape,
                             size_t index)
{
    copy_in(full, shape, (const char *)array->base + index * array->stride, array->stride);
}

void convoy_sized_array_write(const struct convoy_sized_array *array, const struct convoy_shape *shape, size_t index,
                              const void *full)
{
    /* The base was the caller's to write all along; const only because IN arrays share the type. */
    char *element = (char *)(uintptr_t)array->base + index * array->stride;
    memcpy(element, full, min_bytes(array->stride, shape->full_bytes));
}
