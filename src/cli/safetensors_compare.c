/* SPDX-License-Identifier: Apache-2.0 */
/* Where two files differ: the check at the end of a run, so it trusts nothing but the bytes. */
#include "cli/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    struct convoy_safetensors_difference *differences;
    const char *name; /* of the tensor */
};

/* Counts a difference; the first of its kind is told. */
__attribute__((format(printf, 3, 4))) static void note(const struct comparison *comparison,
                                                       enum convoy_safetensors_kind kind, const char *format, ...)
{
    struct convoy_safetensors_difference *difference = &comparison->differences[kind];
    if (difference->count++ != 0) {
        return;
    }
    int length = snprintf(difference->first, sizeof difference->first, "tensor \"%.60s\": ", comparison->name);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(difference->first + length, sizeof difference->first - (size_t)length, format, args);
    va_end(args);
}

static bool has_same_shape(const struct convoy_safetensor *left, const struct convoy_safetensor *right)
{
    return left->dim_count == right->dim_count &&
           memcmp(left->shape, right->shape, left->dim_count * sizeof left->shape[0]) == 0;
}

/* Both have the same length, and differ. */
static uint64_t first_difference(const struct convoy_safetensor *left, const struct convoy_safetensor *right)
{
    uint64_t at = 0;
    while (left->data[at] == right->data[at]) {
        at++;
    }
    return at;
}

static void compare_data(const struct comparison *comparison, const struct convoy_safetensor *expected,
                         const struct convoy_safetensor *found)
{
    if (expected->bytes != found->bytes) {
        note(comparison, CONVOY_SAFETENSORS_LENGTH, "%" PRIu64 " bytes expected, %" PRIu64 " found", expected->bytes,
             found->bytes);
    } else if (expected->bytes != 0 && memcmp(expected->data, found->data, (size_t)expected->bytes) != 0) {
        uint64_t at = first_difference(expected, found);
        note(comparison, CONVOY_SAFETENSORS_BYTES, "byte %" PRIu64 " of %" PRIu64 ": 0x%02x expected, 0x%02x found", at,
             expected->bytes, expected->data[at], found->data[at]);
    }
}

static void compare_tensors(const struct comparison *comparison, const struct convoy_safetensor *expected,
                            const struct convoy_safetensor *found)
{
    char shapes[2][CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES];
    if (strcmp(expected->dtype, found->dtype) != 0) {
        note(comparison, CONVOY_SAFETENSORS_DTYPE, "dtype %s expected, %s found", expected->dtype, found->dtype);
    }
    if (!has_same_shape(expected, found)) {
        note(comparison, CONVOY_SAFETENSORS_SHAPE, "shape %.70s expected, %.70s found",
             convoy_safetensors_shape_text(expected, shapes[0]), convoy_safetensors_shape_text(found, shapes[1]));
    }
    compare_data(comparison, expected, found);
}

bool convoy_safetensors_compare(const struct convoy_safetensors *expected, const struct convoy_safetensors *found,
                                struct convoy_safetensors_difference differences_out[CONVOY_SAFETENSORS_KINDS])
{
    memset(differences_out, 0, CONVOY_SAFETENSORS_KINDS * sizeof *differences_out);
    struct comparison comparison = {.differences = differences_out};
    for (size_t i = 0; i < expected->count; i++) {
        comparison.name = expected->tensors[i].name;
        const struct convoy_safetensor *other = convoy_safetensors_find(found, comparison.name);
        if (other == NULL) {
            note(&comparison, CONVOY_SAFETENSORS_MISSING, "expected, not found");
        } else {
            compare_tensors(&comparison, &expected->tensors[i], other);
        }
    }
    for (size_t i = 0; i < found->count; i++) {
        comparison.name = found->tensors[i].name;
        if (convoy_safetensors_find(expected, comparison.name) == NULL) {
            note(&comparison, CONVOY_SAFETENSORS_UNEXPECTED, "found, not expected");
        }
    }
    bool is_equal = true;
    for (size_t kind = 0; kind < CONVOY_SAFETENSORS_KINDS; kind++) {
        is_equal = is_equal && differences_out[kind].count == 0;
    }
    return is_equal;
}
