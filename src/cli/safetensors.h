/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tensors in the safetensors format: read, written, compared. Nothing in a file is believed before it was
 * checked; every refusal names file, tensor and figure.
 *
 *      0         8              8 + n                                    end
 *      +---------+--------------+----------+-------------------+---------+
 *      | n (u64) | JSON, spaces | tensor   | tensor            | ...     |    little-endian; offsets count from 8 + n
 *      +---------+--------------+----------+-------------------+---------+
 *
 *      {"__metadata__": {"key": "text"}, "name": {"dtype": "F16", "shape": [1, 77], "data_offsets": [begin, end]}, ...}
 *
 * The tensors cover the data exactly: no byte belongs to two of them or to none. Other keys of a tensor are ignored. A
 * dtype that is not in the table is carried as it is: its bytes cannot be checked against its shape.
 *
 * A file is read into memory, not mapped: when someone cuts a mapped file short, the next look at it kills the process.
 */
#ifndef CONVOY_CLI_SAFETENSORS_H
#define CONVOY_CLI_SAFETENSORS_H

#include "convoy/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_SAFETENSORS_DIMS_MAX 16u
#define CONVOY_SAFETENSORS_DTYPE_BYTES_MAX 63u
#define CONVOY_SAFETENSORS_HEADER_BYTES_MAX 100000000u
/* JSON values in a header, counted before any is read: what a value takes in memory is 50 times what it takes there. */
#define CONVOY_SAFETENSORS_VALUES_MAX (1u << 22)
#define CONVOY_SAFETENSORS_FILE_BYTES_MAX (UINT64_C(16) << 30)
#define CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES 340u /* "[", 16 numbers of up to 20 digits, commas, "]" */

struct convoy_safetensor {
    const char *name;                                   /* UTF-8 without a zero byte */
    char dtype[CONVOY_SAFETENSORS_DTYPE_BYTES_MAX + 1]; /* not empty */
    uint32_t dim_count;
    uint64_t shape[CONVOY_SAFETENSORS_DIMS_MAX];
    const uint8_t *data; /* at any alignment; NULL only when bytes is 0 */
    uint64_t bytes;
};

struct convoy_safetensors_text {
    const char *key;
    const char *value;
};

/* What a file holds. A caller that writes one fills the first four fields, with memory of its own, and keeps it. */
struct convoy_safetensors {
    struct convoy_safetensor *tensors; /* in the order of the header */
    size_t count;
    struct convoy_safetensors_text *metadata;
    size_t metadata_count;
    const struct convoy_safetensor **by_name; /* read: sorted; else NULL */
    uint8_t *file;                            /* read: all of it; parsed: NULL */
    void *document;                           /* read: owns names and metadata */
};

/* Bits of an element; 0: the name is not in the table. */
uint32_t convoy_safetensors_dtype_bits(const char *dtype);

/* Reads and checks a whole file. NOT_FOUND, SYSTEM: it cannot be read or is no regular file. LIMIT: larger than this
 * reads. TRUNCATED: it became shorter meanwhile. MALFORMED: what is in it. gives: fini */
int32_t convoy_safetensors_read(struct convoy_safetensors *out, const char *path, struct convoy_error *error);

/* The same for a file that lies in memory (borrows it until fini); path is only for the texts. */
int32_t convoy_safetensors_parse(struct convoy_safetensors *out, const char *path, const uint8_t *bytes, size_t length,
                                 struct convoy_error *error);

/* Accepts a zeroed one. Not for what a caller filled. */
void convoy_safetensors_fini(struct convoy_safetensors *file);

/* Of a file that was read; NULL: there is none of that name. */
const struct convoy_safetensor *convoy_safetensors_find(const struct convoy_safetensors *file, const char *name);

/* Why dtype, shape and bytes do not fit together, or false: they do. */
bool convoy_safetensors_is_wrong(const struct convoy_safetensor *tensor, char *why_out, size_t size);

/* "[1,77,768]". Returns text_out. */
const char *convoy_safetensors_shape_text(const struct convoy_safetensor *tensor,
                                          char text_out[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES]);

/* Counts of JSON values in a header as the reader bounds them. Exact for JSON, and never less than what a parser makes
 * of other text. */
size_t convoy_safetensors_values(const char *text, size_t length);

/* Everything before the data: its length is a multiple of 8. INVALID_ARGUMENT: what the reader would refuse. path is
 * only for the texts. gives: convoy_memory_free */
int32_t convoy_safetensors_encode(const struct convoy_safetensors *file, const char *path, uint8_t **head_out,
                                  size_t *length_out, struct convoy_error *error);

/* Writes tensors and their data in the order of the array. Readers of path see the old file, if there is one, or all of
 * the new: it is written beside its place, synced and renamed. Nothing is left behind on failure. INVALID_ARGUMENT as
 * encode; SYSTEM: path and errno. */
int32_t convoy_safetensors_write(const char *path, const struct convoy_safetensors *file, struct convoy_error *error);

enum convoy_safetensors_kind {
    CONVOY_SAFETENSORS_MISSING,    /* expected, not found */
    CONVOY_SAFETENSORS_UNEXPECTED, /* found, not expected */
    CONVOY_SAFETENSORS_DTYPE,
    CONVOY_SAFETENSORS_SHAPE,
    CONVOY_SAFETENSORS_LENGTH, /* in bytes */
    CONVOY_SAFETENSORS_BYTES,  /* same length, other bytes */
    CONVOY_SAFETENSORS_KINDS,
};

struct convoy_safetensors_difference {
    size_t count;
    char first[CONVOY_ERROR_TEXT_BYTES]; /* names the first tensor of this kind and both values; "" without any */
};

/* Compares two files that were read, tensor by tensor; metadata and order are not looked at. One tensor may differ in
 * dtype, shape, and one of length and bytes. true: no difference. */
bool convoy_safetensors_compare(const struct convoy_safetensors *expected, const struct convoy_safetensors *found,
                                struct convoy_safetensors_difference differences_out[CONVOY_SAFETENSORS_KINDS]);

#endif
