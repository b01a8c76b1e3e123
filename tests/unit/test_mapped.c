/* SPDX-License-Identifier: Apache-2.0 */
#include "load/mapped.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <cmocka.h>

static void test_mapped_at_of_a_library_finds_what_find_finds(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    char found[CONVOY_MAPPED_PATH_BYTES];
    plugin_file("good", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    struct convoy_build_id id = {0};
    uintptr_t base = 0;
    assert_true(convoy_mapped_at(dlsym(library, "convoy_query"), &id, &base));
    assert_int_equal(id.count, 20);
    assert_true(base != 0);
    assert_true(convoy_mapped_find(&id, found));
    assert_string_equal(found, path);
    assert_int_equal(dlclose(library), 0);
}

static void test_mapped_find_of_an_unknown_build_finds_nothing(void **state)
{
    (void)state;
    char found[CONVOY_MAPPED_PATH_BYTES];
    const struct convoy_build_id id = {.count = 20, .bytes = {1, 2, 3}};
    const struct convoy_build_id none = {.count = 0};
    assert_false(convoy_mapped_find(&id, found));
    assert_false(convoy_mapped_find(&none, found)); /* objects without an id are not all the same build */
}

static void test_mapped_at_of_an_address_outside_every_object_is_false(void **state)
{
    (void)state;
    struct convoy_build_id id;
    uintptr_t base;
    int on_the_stack = 0;
    assert_false(convoy_mapped_at(&on_the_stack, &id, &base));
}

static void test_mapped_build_ids_of_other_length_differ(void **state)
{
    (void)state;
    const struct convoy_build_id shorter = {.count = 8, .bytes = {1}};
    const struct convoy_build_id longer = {.count = 20, .bytes = {1}};
    assert_true(convoy_build_id_is_equal(&longer, &longer));
    assert_false(convoy_build_id_is_equal(&shorter, &longer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapped_at_of_a_library_finds_what_find_finds),
        cmocka_unit_test(test_mapped_find_of_an_unknown_build_finds_nothing),
        cmocka_unit_test(test_mapped_at_of_an_address_outside_every_object_is_false),
        cmocka_unit_test(test_mapped_build_ids_of_other_length_differ),
    };
    return cmocka_run_group_tests_name("mapped", tests, NULL, NULL);
}
