/* SPDX-License-Identifier: Apache-2.0 */
#include "convoy/loader.h"

#include "core/error.h"
#include "load/manifest.h"

#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <cmocka.h>

static struct convoy_file_info info;

static int32_t inspect_kind(const char *kind, struct convoy_error *error)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file(kind, path);
    return convoy_loader_inspect(path, &info, error);
}

static void test_inspect_good_plugin_says_all_that_is_in_it(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(inspect_kind("good", &error), CONVOY_OK);
    assert_int_equal(info.bits, 64);
    assert_string_equal(info.name, "tiny");
    assert_string_equal(info.release, "1.0.0");
    assert_string_equal(info.unload, "nodelete");
    assert_int_equal(strlen(info.build_id), 40);
    assert_int_equal(info.has_digest, 1);
    assert_int_equal(info.wire_min, 1);
    assert_int_equal(info.family_count, 2);
    assert_string_equal(info.families[1].name, "poll");
    assert_int_equal(info.families[0].major_max, 1);
    assert_int_equal(info.manifest_length, strlen(info.manifest));
}

static void test_inspect_of_a_file_that_is_no_plugin_says_what_is_missing(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(inspect_kind("no_note", &error), CONVOY_NO_ENTRY);
    assert_non_null(strstr(error.text, "no note of owner \"convoy\""));
    assert_int_equal(info.bits, 64); /* what is known is told all the same */
    assert_int_equal(inspect_kind("bad_json", &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "bad_json.so: the manifest is no JSON object"));
}

static void test_inspect_of_a_path_that_is_no_file_is_refused_with_its_name(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    folder_path(state, "missing", path);
    assert_int_equal(convoy_loader_inspect(path, &info, &error), CONVOY_NOT_FOUND);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(convoy_loader_inspect(*state, &info, &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "is a directory"));
    assert_int_equal(convoy_loader_inspect("/dev/null", &info, &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "is a device"));
    folder_path(state, "empty", path);
    file_write(path, "", 0);
    assert_int_equal(convoy_loader_inspect(path, &info, &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "is empty"));
}

/* Nobody ever writes to the pipe; an open that waited for a writer would run into the time limit of the test. */
static void test_inspect_of_a_pipe_does_not_block(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    folder_path(state, "pipe", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(convoy_loader_inspect(path, &info, &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "is a pipe"));
}

/* Root may read everything, so it looks as somebody else. */
static void test_inspect_of_an_unreadable_file_says_why(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    folder_path(state, "secret", path);
    file_write(path, "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() == 0) {
        assert_int_equal(setegid(65534) | seteuid(65534), 0);
        (void)chmod(*state, 0755);
    }
    int32_t status = convoy_loader_inspect(path, &info, &error);
    assert_int_equal(seteuid(getuid()) | setegid(getgid()), 0);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_non_null(strstr(error.text, "Permission denied"));
    assert_true(error.sys_errno != 0);
}

static void test_inspect_of_bad_arguments_is_refused(void **state)
{
    (void)state;
    char longer[2 * CONVOY_LOADER_PATH_BYTES];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(convoy_loader_inspect(NULL, &info, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect("", &info, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect(longer, &info, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect("x", NULL, NULL), CONVOY_INVALID_ARGUMENT);
}

/* A cut of the error's room takes from the name, not from the reason. */
static void test_inspect_of_a_long_path_keeps_the_reason(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    char name[240];
    struct convoy_error error = CONVOY_ERROR_INIT;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    folder_path(state, name, path);
    file_write(path, "plain text, longer than an ELF header so that it is looked at as a whole", 72);
    assert_int_equal(convoy_loader_inspect(path, &info, &error), CONVOY_BAD_FILE);
    assert_non_null(strstr(error.text, "nnn: not an ELF file"));
}

struct manifest_row {
    const char *text;
    int32_t status;
    const char *words;
};

#define MANIFEST(schema, release, families, wire)                                                                      \
    "{\"schema\":" schema ",\"name\":\"n\",\"release\":" release ",\"ucx\":\"u\",\"unload\":\"x\","                    \
    "\"families\":" families ",\"wire\":" wire "}"
#define CORE "[{\"name\":\"core\",\"min\":\"1.0\",\"max\":\"1.2\"}]"
#define WIRE "{\"min\":1,\"max\":2}"

static void test_inspect_manifest_with_an_odd_field_is_refused_by_its_name(void **state)
{
    (void)state;
    static const struct manifest_row rows[] = {
        {MANIFEST("1", "\"1\"", CORE, WIRE), CONVOY_OK, ""},
        {"[]", CONVOY_BAD_FILE, "no JSON object"},
        {"", CONVOY_BAD_FILE, "no JSON object"},
        {"{\"schema\":1,\"schema\":1}", CONVOY_BAD_FILE, "duplicate"},
        {MANIFEST("2", "\"1\"", CORE, WIRE), CONVOY_TOO_NEW, "manifest schema 2; this loader reads 1"},
        {MANIFEST("-1", "\"1\"", CORE, WIRE), CONVOY_BAD_FILE, "schema"},
        {MANIFEST("1", "7", CORE, WIRE), CONVOY_BAD_FILE, "release"},
        {MANIFEST("1", "\"\\u001b[31m\"", CORE, WIRE), CONVOY_BAD_FILE, "printable"},
        {MANIFEST("1", "\"1\"", "[]", WIRE), CONVOY_BAD_FILE, "families"},
        {MANIFEST("1", "\"1\"", "[7]", WIRE), CONVOY_BAD_FILE, "name"},
        {MANIFEST("1", "\"1\"", "[{\"name\":\"c\",\"min\":\"1.2\",\"max\":\"1.0\"}]", WIRE), CONVOY_BAD_FILE, "above"},
        {MANIFEST("1", "\"1\"", "[{\"name\":\"c\",\"min\":\"1\",\"max\":\"1.0\"}]", WIRE), CONVOY_BAD_FILE, "min"},
        {MANIFEST("1", "\"1\"", "[{\"name\":\"c\",\"min\":\"1.0\",\"max\":\"1.x\"}]", WIRE), CONVOY_BAD_FILE, "max"},
        {MANIFEST("1", "\"1\"", CORE, "7"), CONVOY_BAD_FILE, "min"},
        {MANIFEST("1", "\"1\"", CORE, "{\"min\":1,\"max\":65536}"), CONVOY_BAD_FILE, "max"},
        {MANIFEST("1", "\"1\"", "[{\"name\":\"c\",\"min\":\"1.99999\"}]", WIRE), CONVOY_BAD_FILE, "min"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        memset(&info, 0, sizeof info);
        info.manifest_length = strlen(rows[i].text);
        memcpy(info.manifest, rows[i].text, info.manifest_length);
        assert_int_equal(convoy_manifest_read(&info, &error), rows[i].status);
        if (strstr(error.text, rows[i].words) == NULL) {
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, error.text, rows[i].words);
        }
    }
}

/* As a frozen release keeps it. A state's formats may be missing: then there are none. */
static void test_inspect_manifest_alone_gives_its_part_of_the_info(void **state)
{
    (void)state;
    static const char plain[] = MANIFEST("1", "\"1.7\"", CORE, WIRE);
    static const char moving[] = MANIFEST("1", "\"1.8\"", CORE, WIRE ",\"state\":{\"min\":2,\"max\":3}");
    static const char odd[] = MANIFEST("1", "\"1.8\"", CORE, WIRE ",\"state\":{\"min\":2}");
    static char longer[9000];
    struct convoy_error error = CONVOY_ERROR_INIT;
    memset(&info, 0x5a, sizeof info);
    assert_int_equal(convoy_loader_inspect_manifest(plain, sizeof plain - 1, &info, &error), CONVOY_OK);
    assert_string_equal(info.release, "1.7");
    assert_int_equal(info.family_count, 1);
    assert_int_equal(info.state_max, 0);
    assert_string_equal(info.build_id, "");
    assert_int_equal(convoy_loader_inspect_manifest(moving, sizeof moving - 1, &info, &error), CONVOY_OK);
    assert_int_equal(info.state_min, 2);
    assert_int_equal(info.state_max, 3);
    assert_int_equal(convoy_loader_inspect_manifest(odd, sizeof odd - 1, &info, &error), CONVOY_BAD_FILE);
    assert_int_equal(convoy_loader_inspect_manifest(NULL, 5, &info, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect_manifest(plain, 0, &info, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect_manifest(longer, sizeof longer, &info, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_inspect_manifest(plain, sizeof plain - 1, NULL, &error), CONVOY_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect_good_plugin_says_all_that_is_in_it),
        cmocka_unit_test(test_inspect_of_a_file_that_is_no_plugin_says_what_is_missing),
        cmocka_unit_test(test_inspect_of_a_path_that_is_no_file_is_refused_with_its_name),
        cmocka_unit_test(test_inspect_of_a_pipe_does_not_block),
        cmocka_unit_test(test_inspect_of_an_unreadable_file_says_why),
        cmocka_unit_test(test_inspect_of_bad_arguments_is_refused),
        cmocka_unit_test(test_inspect_of_a_long_path_keeps_the_reason),
        cmocka_unit_test(test_inspect_manifest_alone_gives_its_part_of_the_info),
        cmocka_unit_test(test_inspect_manifest_with_an_odd_field_is_refused_by_its_name),
    };
    return cmocka_run_group_tests_name("inspect", tests, folder_setup, folder_teardown);
}
