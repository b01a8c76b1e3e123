/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that cross the ABI have the size their caller was compiled with. These helpers turn a foreign size into the
 * current one on the way in and back on the way out, so that nothing below plugin/ ever sees a foreign size.
 *
 *   IN   shorter: the missing tail is zero; longer: accepted when the tail is all zero, else TOO_NEW with the offset
 *   OUT  any length from the first released one on: min(both sizes) is written, and written_bytes says how much
 *
 * A table function reads:
 *
 *     struct convoy_poll_call full;
 *     int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(poll_call), call, error);
 *     ...
 *     struct convoy_poll_result result;
 *     status = convoy_sized_out_begin(&result, &CONVOY_SHAPE(poll_result), result_out, error);
 *     ... fill result; pointers that were bent to own arrays are set back ...
 *     convoy_sized_out_end(result_out, &CONVOY_SHAPE(poll_result), &result);
 *
 * Pure code: no allocation, no lock, no system call. Only plugin/ may include this.
 */
#ifndef CONVOY_PLUGIN_SIZED_H
#define CONVOY_PLUGIN_SIZED_H

#include "core/error.h"

#include <string.h>

/* The longest struct and stride that is taken, far beyond what any release will have. More is a size that nobody has
 * set, and looking for the end of such a struct would run off the caller's memory. */
#define CONVOY_SIZED_BYTES_MAX 65536u

/* How long a struct is. first_bytes: its size in release 1.0, the least that is accepted. */
struct convoy_shape {
    const char *name; /* for error texts: the struct's tag without the prefix */
    uint32_t full_bytes;
    uint32_t first_bytes;
};

/* Shape of `struct convoy_<tag>` that has not grown since 1.0; one that has takes CONVOY_SHAPE_SINCE. */
#define CONVOY_SHAPE_SINCE(tag, first)                                                                                 \
    ((const struct convoy_shape){.name = #tag,                                                                         \
                                 .full_bytes = (uint32_t)sizeof(struct convoy_##tag),                                  \
                                 .first_bytes = (uint32_t)(first)})
#define CONVOY_SHAPE(tag) CONVOY_SHAPE_SINCE(tag, sizeof(struct convoy_##tag))

/* An array of structs as the caller gave it: elements lie `stride` bytes apart, and each is `stride` bytes long. */
struct convoy_sized_array {
    const void *base;
    size_t stride;
    size_t count;
};

/* The parts of convoy_sized_in and convoy_sized_out_begin that take any size; the inline ones handle the usual case. */
int32_t convoy_sized_in_foreign(void *full, const struct convoy_shape *shape, const void *caller,
                                struct convoy_error *error);
int32_t convoy_sized_out_begin_foreign(void *full, const struct convoy_shape *shape, const void *caller,
                                       struct convoy_error *error);

/* struct_size of a caller's struct, which is its first field. */
static inline uint32_t convoy_sized_bytes(const void *caller)
{
    uint32_t bytes;
    memcpy(&bytes, caller, sizeof bytes);
    return bytes;
}

/*
 * Copies an IN struct into `full`; full's struct_size becomes the current one.
 * INVALID_ARGUMENT: caller is NULL, or longer than CONVOY_SIZED_BYTES_MAX. TOO_OLD: shorter than in 1.0. TOO_NEW: a
 * byte past the current size is not zero.
 */
static inline int32_t convoy_sized_in(void *full, const struct convoy_shape *shape, const void *caller,
                                      struct convoy_error *error)
{
    if (caller != NULL && convoy_sized_bytes(caller) == shape->full_bytes) {
        memcpy(full, caller, shape->full_bytes);
        return CONVOY_OK;
    }
    return convoy_sized_in_foreign(full, shape, caller, error);
}

/*
 * Copies the caller's part of an OUT struct (array pointers, capacities) into `full`, the rest is zero. What a longer
 * struct has past the current size is never read. INVALID_ARGUMENT, TOO_OLD: as convoy_sized_in.
 */
static inline int32_t convoy_sized_out_begin(void *full, const struct convoy_shape *shape, const void *caller,
                                             struct convoy_error *error)
{
    if (caller != NULL && convoy_sized_bytes(caller) == shape->full_bytes) {
        memcpy(full, caller, shape->full_bytes);
        return CONVOY_OK;
    }
    return convoy_sized_out_begin_foreign(full, shape, caller, error);
}

/* Writes `full` back: min(both sizes), struct_size untouched, written_bytes (the second field) set. caller: one that
 * convoy_sized_out_begin has accepted. */
static inline void convoy_sized_out_end(void *caller, const struct convoy_shape *shape, const void *full)
{
    uint32_t room = convoy_sized_bytes(caller);
    uint32_t bytes = room < shape->full_bytes ? room : shape->full_bytes;
    size_t head = 2 * sizeof bytes; /* struct_size, written_bytes */
    memcpy((char *)caller + sizeof bytes, &bytes, sizeof bytes);
    memcpy((char *)caller + head, (const char *)full + head, bytes - head);
}

/*
 * Checks an IN array whose elements have no struct_size: the stride stands for it. Count 0 is legal with any base and
 * stride. INVALID_ARGUMENT: base is NULL, stride is longer than CONVOY_SIZED_BYTES_MAX, or count x stride overflows.
 * TOO_OLD, TOO_NEW: as convoy_sized_in; the text names element and offset.
 */
int32_t convoy_sized_array_check_in(const struct convoy_sized_array *array, const struct convoy_shape *shape,
                                    struct convoy_error *error);

/* The same for an OUT array: tails are not looked at. */
int32_t convoy_sized_array_check_out(const struct convoy_sized_array *array, const struct convoy_shape *shape,
                                     struct convoy_error *error);

/* Copies element `index` of a checked array into `full`, the missing tail zero. */
void convoy_sized_array_read(void *full, const struct convoy_sized_array *array, const struct convoy_shape *shape,
                             size_t index);

/* Writes `full` to element `index` of a checked OUT array: min(both sizes). */
void convoy_sized_array_write(const struct convoy_sized_array *array, const struct convoy_shape *shape, size_t index,
                              const void *full);

#endif
