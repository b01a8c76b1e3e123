/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dtype_names.h"

#include <string.h>

static const struct {
    const char *host;
    const char *file;
} dtype_names[] = {
    {"bool", "BOOL"},
    {"uint8", "U8"},
    {"int8", "I8"},
    {"uint16", "U16"},
    {"int16", "I16"},
    {"uint32", "U32"},
    {"int32", "I32"},
    {"uint64", "U64"},
    {"int64", "I64"},
    {"float16", "F16"},
    {"bfloat16", "BF16"},
    {"float32", "F32"},
    {"float64", "F64"},
    {"float8_e4m3fn", "F8_E4M3"},
    {"float8_e5m2", "F8_E5M2"},
    {"float8_e8m0fnu", "F8_E8M0"},
    {"complex64", "C64"},
};

const char *convoy_dtype_file_name(const char *name, size_t length, size_t *length_out)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++) {
        if (strlen(dtype_names[i].host) == length && memcmp(dtype_names[i].host, name, length) == 0) {
            *length_out = strlen(dtype_names[i].file);
            return dtype_names[i].file;
        }
    }
    *length_out = length;
    return name;
}
