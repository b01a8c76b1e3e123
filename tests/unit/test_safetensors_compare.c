/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/safetensors.h"
#include "safetensors_file.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TENSOR(name, dtype, shape, begin, end)                                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

#define KINDS CONVOY_SAFETENSORS_KINDS

struct expected {
    size_t count;
    const char *first;
};

/* Of left with right; the byte at `flip` of right's data is another one (SIZE_MAX: none is). */
static void compare(const char *left, const char *right, size_t data_bytes, size_t flip,
                    const struct expected expected[KINDS])
{
    size_t lengths[2];
    uint8_t *bytes[2] = {safetensors_file(left, data_bytes, &lengths[0]),
                         safetensors_file(right, data_bytes, &lengths[1])};
    struct convoy_safetensors files[2] = {0};
    struct convoy_safetensors_difference differences[KINDS];
    if (flip != SIZE_MAX) {
        bytes[1][8 + strlen(right) + flip] ^= 0x80;
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(convoy_safetensors_parse(&files[i], "x", bytes[i], lengths[i], NULL), CONVOY_OK);
    }
    bool is_equal = convoy_safetensors_compare(&files[0], &files[1], differences);
    size_t sum = 0;
    for (size_t kind = 0; kind < KINDS; kind++) {
        assert_int_equal(differences[kind].count, expected[kind].count);
        assert_string_equal(differences[kind].first, expected[kind].first != NULL ? expected[kind].first : "");
        sum += expected[kind].count;
    }
    assert_int_equal(is_equal, sum == 0);
    for (size_t i = 0; i < 2; i++) {
        convoy_safetensors_fini(&files[i]);
        free(bytes[i]);
    }
}

#define A TENSOR("a", "F32", "[1,2]", 0, 8)
#define B TENSOR("b", "U8", "[4]", 8, 12)
#define E TENSOR("e", "U8", "[0]", 8, 8)

static void test_compare_order_and_metadata_do_not_matter(void **state)
{
    (void)state;
    const struct expected none[KINDS] = {0};
    compare("{" A "," B "," E "}", "{" A "," B "," E "}", 12, SIZE_MAX, none);
    compare("{" A "," B "," E "}", "{" E "," B ",\"__metadata__\":{\"k\":\"v\"}," A "}", 12, SIZE_MAX, none);
    compare("{}", "{}", 0, SIZE_MAX, none);
}

static void test_compare_each_kind_is_told_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *left;
        const char *right;
        size_t flip;
        struct expected expected[KINDS];
    } cases[] = {
        {"{" A "," B "}", "{" A "," TENSOR("c", "U8", "[4]", 8, 12) "}", SIZE_MAX,
         {[CONVOY_SAFETENSORS_MISSING] = {1, "tensor \"b\": expected, not found"},
          [CONVOY_SAFETENSORS_UNEXPECTED] = {1, "tensor \"c\": found, not expected"}}},
        {"{" A "," B "}", "{" TENSOR("a", "I64", "[1]", 0, 8) "," B "}", SIZE_MAX,
         {[CONVOY_SAFETENSORS_DTYPE] = {1, "tensor \"a\": dtype F32 expected, I64 found"},
          [CONVOY_SAFETENSORS_SHAPE] = {1, "tensor \"a\": shape [1,2] expected, [1] found"}}},
        {"{" A "," B "}", "{" TENSOR("a", "F32", "[2,1]", 0, 8) "," TENSOR("b", "U8", "[2,2]", 8, 12) "}", SIZE_MAX,
         {[CONVOY_SAFETENSORS_SHAPE] = {2, "tensor \"a\": shape [1,2] expected, [2,1] found"}}},
        {"{" TENSOR("x", "Q", "[]", 0, 8) "," B "}",
         "{" TENSOR("x", "Q", "[]", 0, 7) "," TENSOR("b", "U8", "[5]", 7, 12) "}", SIZE_MAX,
         {[CONVOY_SAFETENSORS_SHAPE] = {1, "tensor \"b\": shape [4] expected, [5] found"},
          [CONVOY_SAFETENSORS_LENGTH] = {2, "tensor \"x\": 8 bytes expected, 7 found"}}},
        {"{" A "," B "}", "{" A "," B "}", 0,
         {[CONVOY_SAFETENSORS_BYTES] = {1, "tensor \"a\": byte 0 of 8: 0x00 expected, 0x80 found"}}},
        {"{" A "," B "}", "{" A "," B "}", 11,
         {[CONVOY_SAFETENSORS_BYTES] = {1, "tensor \"b\": byte 3 of 4: 0x0b expected, 0x8b found"}}},
        {"{" E "," A "," B "}", "{" TENSOR("x", "Q", "[]", 0, 12) "}", SIZE_MAX,
         {[CONVOY_SAFETENSORS_MISSING] = {3, "tensor \"e\": expected, not found"},
          [CONVOY_SAFETENSORS_UNEXPECTED] = {1, "tensor \"x\": found, not expected"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare(cases[i].left, cases[i].right, 12, cases[i].flip, cases[i].expected);
    }
}

/* Two tensors of two bytes that lie in the other order are other bytes, by name. */
static void test_compare_goes_by_name_not_by_place(void **state)
{
    (void)state;
    compare("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("b", "U8", "[2]", 2, 4) "}",
            "{" TENSOR("a", "U8", "[2]", 2, 4) "," TENSOR("b", "U8", "[2]", 0, 2) "}", 4, SIZE_MAX,
            (struct expected[KINDS]){
                [CONVOY_SAFETENSORS_BYTES] = {2, "tensor \"a\": byte 0 of 2: 0x00 expected, 0x02 found"}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare_order_and_metadata_do_not_matter),
        cmocka_unit_test(test_compare_each_kind_is_told_by_name),
        cmocka_unit_test(test_compare_goes_by_name_not_by_place),
    };
    return cmocka_run_group_tests_name("safetensors_compare", tests, NULL, NULL);
}
