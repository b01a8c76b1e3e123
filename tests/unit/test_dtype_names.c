/* SPDX-License-Identifier: Apache-2.0 */
/* Names of element types of hosts and files; every type that files know has one, and others stay as they are. */
#include "cli/dtype_names.h"
#include "cli/safetensors.h"
#include "wire/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What the library makes of a file's name comes back as that name: the two tables are kept apart. */
static void test_dtype_names_agree_with_the_library(void **state)
{
    (void)state;
    for (uint32_t id = 1; id <= CONVOY_DTYPE_MAX; id++) {
        const struct convoy_dtype *dtype = convoy_dtype_by_id(id);
        size_t length = 0;
        const char *name = convoy_dtype_file_name(dtype->name, strlen(dtype->name), &length);
        assert_int_equal(length, strlen(dtype->safetensors));
        assert_memory_equal(name, dtype->safetensors, length);
        assert_int_equal(convoy_safetensors_dtype_bits(dtype->safetensors), dtype->bits);
    }
}

static void test_dtype_names_others_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"", "Q4_BLOCK32", "F16", "float1", "float160", "torch.float16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = 99;
        assert_ptr_equal(convoy_dtype_file_name(names[i], strlen(names[i]), &length), names[i]);
        assert_int_equal(length, strlen(names[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_names_agree_with_the_library),
        cmocka_unit_test(test_dtype_names_others_stay),
    };
    return cmocka_run_group_tests_name("dtype_names", tests, NULL, NULL);
}
