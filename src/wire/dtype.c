/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/dtype.h"

#include <stdbool.h>
#include <string.h>

#define ROW(number, width, host, file)                                                                                 \
    [number] = {.id = (number), .bits = (width), .name = (host), .safetensors = (file)}

static const struct convoy_dtype dtypes[CONVOY_DTYPE_MAX + 1] = {
    ROW(CONVOY_DTYPE_BOOL, 8, "bool", "BOOL"),
    ROW(CONVOY_DTYPE_UINT8, 8, "uint8", "U8"),
    ROW(CONVOY_DTYPE_INT8, 8, "int8", "I8"),
    ROW(CONVOY_DTYPE_UINT16, 16, "uint16", "U16"),
    ROW(CONVOY_DTYPE_INT16, 16, "int16", "I16"),
    ROW(CONVOY_DTYPE_UINT32, 32, "uint32", "U32"),
    ROW(CONVOY_DTYPE_INT32, 32, "int32", "I32"),
    ROW(CONVOY_DTYPE_UINT64, 64, "uint64", "U64"),
    ROW(CONVOY_DTYPE_INT64, 64, "int64", "I64"),
    ROW(CONVOY_DTYPE_FLOAT16, 16, "float16", "F16"),
    ROW(CONVOY_DTYPE_BFLOAT16, 16, "bfloat16", "BF16"),
    ROW(CONVOY_DTYPE_FLOAT32, 32, "float32", "F32"),
    ROW(CONVOY_DTYPE_FLOAT64, 64, "float64", "F64"),
    ROW(CONVOY_DTYPE_FLOAT8_E4M3FN, 8, "float8_e4m3fn", "F8_E4M3"),
    ROW(CONVOY_DTYPE_FLOAT8_E5M2, 8, "float8_e5m2", "F8_E5M2"),
    ROW(CONVOY_DTYPE_FLOAT8_E8M0FNU, 8, "float8_e8m0fnu", "F8_E8M0"),
    ROW(CONVOY_DTYPE_COMPLEX64, 64, "complex64", "C64"),
    ROW(CONVOY_DTYPE_F4, 4, "F4", "F4"),
    ROW(CONVOY_DTYPE_F6_E2M3, 6, "F6_E2M3", "F6_E2M3"),
    ROW(CONVOY_DTYPE_F6_E3M2, 6, "F6_E3M2", "F6_E3M2"),
};

static const struct {
    const char *name;
    uint32_t id;
} dtype_aliases[] = {
    {"half", CONVOY_DTYPE_FLOAT16},  {"float", CONVOY_DTYPE_FLOAT32}, {"double", CONVOY_DTYPE_FLOAT64},
    {"short", CONVOY_DTYPE_INT16},   {"int", CONVOY_DTYPE_INT32},     {"long", CONVOY_DTYPE_INT64},
    {"cfloat", CONVOY_DTYPE_COMPLEX64},
};

/* Most differ in the first character or the length, so these are looked at first. */
static bool is_text(const char *name, size_t length, const char *text)
{
    return length != 0 && name[0] == text[0] && strlen(text) == length && memcmp(name, text, length) == 0;
}

const struct convoy_dtype *convoy_dtype_by_id(uint32_t id)
{
    return id != CONVOY_DTYPE_OPAQUE && id <= CONVOY_DTYPE_MAX ? &dtypes[id] : NULL;
}

const struct convoy_dtype *convoy_dtype_by_name(const char *name, size_t length)
{
    static const char prefix[] = "torch.";
    if (length >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0) {
        name += sizeof prefix - 1;
        length -= sizeof prefix - 1;
    }
    for (uint32_t id = 1; id <= CONVOY_DTYPE_MAX; id++) {
        if (is_text(name, length, dtypes[id].name)) {
            return &dtypes[id];
        }
    }
    for (size_t i = 0; i < sizeof dtype_aliases / sizeof dtype_aliases[0]; i++) {
        if (is_text(name, length, dtype_aliases[i].name)) {
            return &dtypes[dtype_aliases[i].id];
        }
    }
    return NULL;
}

const struct convoy_dtype *convoy_dtype_by_safetensors(const char *name, size_t length)
{
    for (uint32_t id = 1; id <= CONVOY_DTYPE_MAX; id++) {
        if (is_text(name, length, dtypes[id].safetensors)) {
            return &dtypes[id];
        }
    }
    return NULL;
}

/* By eight elements, which fill `bits` bytes, so that the product of bits itself never overflows. */
enum convoy_dtype_status convoy_dtype_bytes(const struct convoy_dtype *dtype, uint64_t elements, uint64_t *bytes_out)
{
    uint64_t rest_bits = elements % 8 * dtype->bits;
    uint64_t bytes = 0;
    if (rest_bits % 8 != 0) {
        return CONVOY_DTYPE_PARTIAL;
    }
    if (__builtin_mul_overflow(elements / 8, (uint64_t)dtype->bits, &bytes) ||
        __builtin_add_overflow(bytes, rest_bits / 8, &bytes)) {
        return CONVOY_DTYPE_OVERFLOW;
    }
    *bytes_out = bytes;
    return CONVOY_DTYPE_OK;
}
