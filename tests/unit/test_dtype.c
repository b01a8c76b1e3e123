/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The ids are ABI: this table must never be changed, only grow. */
static void test_dtype_ids_names_and_bits_are_frozen(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        uint32_t bits;
        const char *name;
        const char *safetensors;
    } rows[] = {
        {1, 8, "bool", "BOOL"},          {2, 8, "uint8", "U8"},
        {3, 8, "int8", "I8"},            {4, 16, "uint16", "U16"},
        {5, 16, "int16", "I16"},         {6, 32, "uint32", "U32"},
        {7, 32, "int32", "I32"},         {8, 64, "uint64", "U64"},
        {9, 64, "int64", "I64"},         {10, 16, "float16", "F16"},
        {11, 16, "bfloat16", "BF16"},    {12, 32, "float32", "F32"},
        {13, 64, "float64", "F64"},      {14, 8, "float8_e4m3fn", "F8_E4M3"},
        {15, 8, "float8_e5m2", "F8_E5M2"}, {16, 8, "float8_e8m0fnu", "F8_E8M0"},
        {17, 64, "complex64", "C64"},    {18, 4, "F4", "F4"},
        {19, 6, "F6_E2M3", "F6_E2M3"},   {20, 6, "F6_E3M2", "F6_E3M2"},
    };
    assert_int_equal(CONVOY_DTYPE_MAX, COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct convoy_dtype *dtype = convoy_dtype_by_id(rows[i].id);
        assert_int_equal(dtype->id, i + 1);
        assert_int_equal(dtype->bits, rows[i].bits);
        assert_string_equal(dtype->name, rows[i].name);
        assert_string_equal(dtype->safetensors, rows[i].safetensors);
        assert_ptr_equal(convoy_dtype_by_name(rows[i].name, strlen(rows[i].name)), dtype);
        assert_ptr_equal(convoy_dtype_by_safetensors(rows[i].safetensors, strlen(rows[i].safetensors)), dtype);
    }
    assert_null(convoy_dtype_by_id(CONVOY_DTYPE_OPAQUE));
    assert_null(convoy_dtype_by_id(21));
    assert_null(convoy_dtype_by_id(UINT32_MAX));
}

static void test_dtype_short_names_of_torch(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t id;
    } rows[] = {
        {"half", CONVOY_DTYPE_FLOAT16},        {"torch.half", CONVOY_DTYPE_FLOAT16},
        {"float", CONVOY_DTYPE_FLOAT32},       {"torch.double", CONVOY_DTYPE_FLOAT64},
        {"short", CONVOY_DTYPE_INT16},         {"int", CONVOY_DTYPE_INT32},
        {"torch.long", CONVOY_DTYPE_INT64},    {"cfloat", CONVOY_DTYPE_COMPLEX64},
        {"torch.bfloat16", CONVOY_DTYPE_BFLOAT16},
        {"torch.float8_e4m3fn", CONVOY_DTYPE_FLOAT8_E4M3FN},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(convoy_dtype_by_name(rows[i].name, strlen(rows[i].name))->id, rows[i].id);
    }
    static const char *const unknown[] = {"",        "torch.",  "torch.torch.half", "Float16",  "float8",
                                          "float1",  "float166", "F16",             "torch.quint8", "byte "};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        assert_null(convoy_dtype_by_name(unknown[i], strlen(unknown[i])));
        assert_true(strcmp(unknown[i], "F16") == 0 || convoy_dtype_by_safetensors(unknown[i], strlen(unknown[i])) == NULL);
    }
}

static void test_dtype_bytes_of_elements(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        uint64_t elements;
        enum convoy_dtype_status status;
        uint64_t bytes;
    } rows[] = {
        {CONVOY_DTYPE_FLOAT32, 0, CONVOY_DTYPE_OK, 0},
        {CONVOY_DTYPE_FLOAT32, 3, CONVOY_DTYPE_OK, 12},
        {CONVOY_DTYPE_BOOL, UINT64_MAX, CONVOY_DTYPE_OK, UINT64_MAX},
        {CONVOY_DTYPE_FLOAT16, UINT64_MAX / 2, CONVOY_DTYPE_OK, UINT64_MAX - 1},
        {CONVOY_DTYPE_FLOAT16, UINT64_MAX / 2 + 1, CONVOY_DTYPE_OVERFLOW, 0},
        {CONVOY_DTYPE_FLOAT64, UINT64_MAX / 8 + 1, CONVOY_DTYPE_OVERFLOW, 0},
        {CONVOY_DTYPE_COMPLEX64, UINT64_MAX, CONVOY_DTYPE_OVERFLOW, 0},
        {CONVOY_DTYPE_F4, 2, CONVOY_DTYPE_OK, 1},
        {CONVOY_DTYPE_F4, 3, CONVOY_DTYPE_PARTIAL, 0},
        {CONVOY_DTYPE_F4, UINT64_MAX - 1, CONVOY_DTYPE_OK, UINT64_MAX / 2},
        {CONVOY_DTYPE_F6_E2M3, 4, CONVOY_DTYPE_OK, 3},
        {CONVOY_DTYPE_F6_E2M3, 12, CONVOY_DTYPE_OK, 9},
        {CONVOY_DTYPE_F6_E3M2, 6, CONVOY_DTYPE_PARTIAL, 0},
        {CONVOY_DTYPE_F6_E3M2, 1, CONVOY_DTYPE_PARTIAL, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t bytes = 77;
        assert_int_equal(convoy_dtype_bytes(convoy_dtype_by_id(rows[i].id), rows[i].elements, &bytes), rows[i].status);
        assert_true(bytes == (rows[i].status == CONVOY_DTYPE_OK ? rows[i].bytes : 77));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_ids_names_and_bits_are_frozen),
        cmocka_unit_test(test_dtype_short_names_of_torch),
        cmocka_unit_test(test_dtype_bytes_of_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
