/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types of tensors: one table with what each is called by hosts (torch and numpy) and in safetensors files.
 *
 * The ids are on the wire and in the ABI: a number is never changed or reused, new types are appended. 0 means opaque:
 * a type that has no row here, carried as bytes with its name beside it. The names of hosts are exact; torch's short
 * names (half, float, double, short, int, long, cfloat) are understood, and "torch." may stand in front of any of them.
 * Packed types below 8 bits have no name that all hosts mean alike (a byte holds one element in numpy and two in
 * torch), so there the name of safetensors stands for both.
 */
#ifndef CONVOY_WIRE_DTYPE_H
#define CONVOY_WIRE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#define CONVOY_DTYPE_OPAQUE 0u
#define CONVOY_DTYPE_BOOL 1u
#define CONVOY_DTYPE_UINT8 2u
#define CONVOY_DTYPE_INT8 3u
#define CONVOY_DTYPE_UINT16 4u
#define CONVOY_DTYPE_INT16 5u
#define CONVOY_DTYPE_UINT32 6u
#define CONVOY_DTYPE_INT32 7u
#define CONVOY_DTYPE_UINT64 8u
#define CONVOY_DTYPE_INT64 9u
#define CONVOY_DTYPE_FLOAT16 10u
#define CONVOY_DTYPE_BFLOAT16 11u
#define CONVOY_DTYPE_FLOAT32 12u
#define CONVOY_DTYPE_FLOAT64 13u
#define CONVOY_DTYPE_FLOAT8_E4M3FN 14u
#define CONVOY_DTYPE_FLOAT8_E5M2 15u
#define CONVOY_DTYPE_FLOAT8_E8M0FNU 16u
#define CONVOY_DTYPE_COMPLEX64 17u
#define CONVOY_DTYPE_F4 18u
#define CONVOY_DTYPE_F6_E2M3 19u
#define CONVOY_DTYPE_F6_E3M2 20u
#define CONVOY_DTYPE_MAX 20u /* the highest id that has a row */

struct convoy_dtype {
    uint32_t id;
    uint32_t bits; /* of one element */
    const char *name;
    const char *safetensors;
};

enum convoy_dtype_status {
    CONVOY_DTYPE_OK = 0,
    CONVOY_DTYPE_OVERFLOW, /* more than 2^64 - 1 bytes */
    CONVOY_DTYPE_PARTIAL,  /* the bits fill no whole number of bytes */
};

/* NULL: opaque, or no type of this release. */
const struct convoy_dtype *convoy_dtype_by_id(uint32_t id);

/* By a host's name; NULL when it is none of ours. */
const struct convoy_dtype *convoy_dtype_by_name(const char *name, size_t length);

const struct convoy_dtype *convoy_dtype_by_safetensors(const char *name, size_t length);

/* bytes_out is written on OK only. */
enum convoy_dtype_status convoy_dtype_bytes(const struct convoy_dtype *dtype, uint64_t elements, uint64_t *bytes_out);

#endif
