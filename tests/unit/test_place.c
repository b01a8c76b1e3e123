/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_place_beside_is_in_the_folder_of_this_program(void **state)
{
    (void)state;
    char path[CONVOY_PLACE_PATH_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_place_beside(path, "test_place", &error), CONVOY_OK);
    assert_int_equal(path[0], '/');
    assert_int_equal(access(path, X_OK), 0);
}

static void test_place_folders_are_made_with_those_above_them(void **state)
{
    (void)state;
    char root[] = "/tmp/convoy_place_XXXXXX";
    char path[128];
    struct stat what;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_non_null(mkdtemp(root));
    (void)snprintf(path, sizeof path, "%s/a/b", root);
    assert_int_equal(convoy_place_make_folder(path, &error), CONVOY_OK);
    assert_int_equal(convoy_place_make_folder(path, &error), CONVOY_OK); /* it may be there already */
    assert_int_equal(stat(path, &what), 0);
    assert_true(S_ISDIR(what.st_mode));
    assert_int_equal(rmdir(path), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(root), 0);
}

static void test_place_folder_below_a_file_is_refused_by_name(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_place_make_folder("/proc/self/exe/logs", &error), CONVOY_SYSTEM);
    assert_non_null(strstr(error.text, "/proc/self/exe"));
}

static void test_place_free_ports_are_all_different(void **state)
{
    (void)state;
    uint16_t ports[129];
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_place_free_ports(ports, 129, &error), CONVOY_OK);
    for (uint32_t i = 0; i < 129; i++) {
        assert_int_not_equal(ports[i], 0);
        for (uint32_t k = 0; k < i; k++) {
            assert_int_not_equal(ports[i], ports[k]);
        }
    }
}

static void test_place_names_that_are_too_long_are_refused(void **state)
{
    (void)state;
    static char name[CONVOY_PLACE_PATH_BYTES + 1];
    char path[CONVOY_PLACE_PATH_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    memset(name, 'a', sizeof name - 1);
    assert_int_equal(convoy_place_make_folder(name, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "a folder's name has 4096 bytes: must be below 4096");
    assert_int_equal(convoy_place_beside(path, name, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "the path of this command is too long");
}

/* The ports that were bound before the failure are free again: the descriptors are. */
static void test_place_ports_without_descriptors_are_refused(void **state)
{
    (void)state;
    uint16_t ports[129];
    struct rlimit before;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int first_free = dup(0);
    assert_int_equal(close(first_free), 0);
    const struct rlimit few = {.rlim_cur = (rlim_t)first_free + 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int32_t status = convoy_place_free_ports(ports, 129, &error);
    int free_again = dup(0);
    (void)setrlimit(RLIMIT_NOFILE, &before);
    (void)close(free_again);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_int_equal(strncmp(error.text, "finding a free port on 127.0.0.1", 32), 0);
    assert_int_equal(error.sys_errno, 24); /* EMFILE */
    assert_int_equal(free_again, first_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_beside_is_in_the_folder_of_this_program),
        cmocka_unit_test(test_place_folders_are_made_with_those_above_them),
        cmocka_unit_test(test_place_folder_below_a_file_is_refused_by_name),
        cmocka_unit_test(test_place_free_ports_are_all_different),
        cmocka_unit_test(test_place_names_that_are_too_long_are_refused),
        cmocka_unit_test(test_place_ports_without_descriptors_are_refused),
    };
    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
