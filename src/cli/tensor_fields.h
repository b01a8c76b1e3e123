/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors of a file are lists. A field is what stands before the last dot of a name; it is a list when all its
 * names end in "." and a number (decimal, no leading zeros) and no tensor has the bare name. Else each of its names is
 * a field of its own.
 *
 *      latents                 field "latents"
 *      timesteps.2, .0         list "timesteps" of 3: 0, a hole, 2
 *      proj.0, proj.weight     fields "proj.0" and "proj.weight"
 *      x, x.0                  fields "x" and "x.0"
 *      y.01, .0, z.65536       fields of these names: a leading zero, nothing before the dot, no list is that long
 *
 * Pure, but for the memory of the result.
 */
#ifndef CONVOY_CLI_TENSOR_FIELDS_H
#define CONVOY_CLI_TENSOR_FIELDS_H

#include "cli/safetensors.h"

/* Holes take room where a list is made of them, so a number from here on is none of a list. */
#define CONVOY_TENSOR_LIST_LENGTH_MAX 65536u

struct convoy_tensor_entry {
    size_t tensor;  /* position in the array that was given */
    uint32_t index; /* in the list; 0 for a single tensor */
};

struct convoy_tensor_field {
    const char *name; /* name_bytes of the name of one of its tensors; no zero after them */
    size_t name_bytes;
    bool is_list;
    uint32_t length; /* of the list, holes counted: the highest index + 1; 1 for a single tensor */
    size_t first;    /* of its entries, which have ascending indexes */
    size_t count;
};

struct convoy_tensor_fields {
    struct convoy_tensor_field *fields; /* in the order in which each first appears */
    size_t count;
    struct convoy_tensor_entry *entries; /* one for each tensor */
};

/* Borrows the names. INVALID_ARGUMENT: a name is there twice. gives: fini. Takes time n log n. */
int32_t convoy_tensor_fields_make(struct convoy_tensor_fields *out, const struct convoy_safetensor *tensors,
                                  size_t count, struct convoy_error *error);

/* Accepts a zeroed one. */
void convoy_tensor_fields_fini(struct convoy_tensor_fields *fields);

#endif
