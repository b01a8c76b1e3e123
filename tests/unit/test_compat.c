/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy compat` over a folder of made-up frozen releases, and over the plugin that was built with this test. */
#include "cli/compat.h"
#include "tests/lib/plugin.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>

#include "cli_capture.h"
#include "plugin_files.h"

#include <cmocka.h>

#define HEAD(release)                                                                                                  \
    "{\"schema\":1,\"name\":\"convoy\",\"release\":\"" release "\",\"ucx\":\"u\",\"unload\":\"x\",\"families\":["
#define ROW(name, min, max) "{\"name\":\"" name "\",\"min\":\"" min "\",\"max\":\"" max "\"}"
#define TAIL(wire_min, wire_max, state) "],\"wire\":{\"min\":" wire_min ",\"max\":" wire_max "}" state "}"
#define STATE(min, max) ",\"state\":{\"min\":" min ",\"max\":" max "}"
#define SLOTS_1_0                                                                                                      \
    "struct convoy_core_table 24\n     0    8 struct convoy_table_header header\n     8    8 int32_t (*open)(void *)\n" \
    "struct convoy_poll_table 16\n     0    8 struct convoy_table_header header\n     8    8 int32_t (*reduce)(int)\n"
#define SLOTS_1_1 SLOTS_1_0 "    16    8 int32_t (*reduce3)(void *)\n    24    8 void (*reduce4)(void *)\n"

/* poll 1.2 of release 1.2 has no layout: nothing is known of what it adds. */
static const struct {
    const char *release;
    const char *manifest;
    const char *layout;
} releases[] = {
    {"v0.9", HEAD("0.9.0") ROW("core", "1.0", "1.0") TAIL("1", "1", ""), SLOTS_1_0},
    {"v1.0",
     HEAD("1.0.0") ROW("core", "1.0", "1.0") "," ROW("poll", "1.0", "1.0") "," ROW("move", "1.0", "1.0")
         TAIL("1", "1", STATE("1", "1")),
     SLOTS_1_0},
    {"v1.1",
     HEAD("1.1.0") ROW("core", "1.0", "1.0") "," ROW("poll", "1.0", "1.1") "," ROW("move", "1.0", "1.0")
         TAIL("1", "2", STATE("1", "2")),
     SLOTS_1_1},
    {"v1.2",
     HEAD("1.2.0") ROW("core", "1.0", "1.0") "," ROW("poll", "1.0", "1.2") "," ROW("move", "1.0", "1.0")
         TAIL("3", "4", STATE("3", "3")),
     NULL},
    {"v2.0",
     HEAD("2.0.0") ROW("core", "2.0", "2.0") "," ROW("poll", "1.0", "1.1") "," ROW("poll", "2.0", "2.0") ","
         ROW("move", "1.0", "1.0") TAIL("2", "5", STATE("1", "1")),
     SLOTS_1_1},
    {"v3.0", "{\"schema\":9}", NULL},
};

#define RELEASES (sizeof releases / sizeof releases[0])

static void path_of(const char *folder, size_t at, const char *name, char path_out[PLUGIN_FILE_PATH_BYTES])
{
    (void)snprintf(path_out, PLUGIN_FILE_PATH_BYTES, "%s/%s%s", folder, releases[at].release, name);
}

static int releases_setup(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    if (folder_setup(state) != 0) {
        return -1;
    }
    for (size_t i = 0; i < RELEASES; i++) {
        path_of(*state, i, "", path);
        if (mkdir(path, 0755) != 0) {
            return -1;
        }
        path_of(*state, i, "/manifest.json", path);
        file_write(path, releases[i].manifest, strlen(releases[i].manifest));
        path_of(*state, i, "/layout.txt", path);
        if (releases[i].layout != NULL) {
            file_write(path, releases[i].layout, strlen(releases[i].layout));
        }
    }
    return 0;
}

static int releases_teardown(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    for (size_t i = 0; i < RELEASES; i++) {
        path_of(*state, i, "/manifest.json", path);
        (void)unlink(path);
        path_of(*state, i, "/layout.txt", path);
        (void)unlink(path);
        path_of(*state, i, "", path);
        (void)rmdir(path);
    }
    return folder_teardown(state);
}

static struct cli_output output;

struct row {
    const char *a;
    const char *b;
    int code;
    const char *words;  /* in what is printed */
    const char *absent; /* NULL = nothing must be absent */
};

static const struct row rows[] = {
    /* host, plugin: all, a lower minor with its loss known, and unknown, either way round */
    {"host:1.0", "1.0", 0, "works: the host gets every family", "UNSUPPORTED"},
    {"host:1.0", "1.1", 0, "poll       1.0 to 1.0    1.0 to 1.1    1.0\n", "UNSUPPORTED"},
    {"host:1.1", "1.0", 0, "1.0; UNSUPPORTED: reduce3, reduce4\n", NULL},
    {"1.0", "host:1.1", 0, "1.0; UNSUPPORTED: reduce3, reduce4\n", NULL},
    {"host:1.2", "1.1", 0, "1.1; what 1.2 has beyond it is not known here", NULL},
    {"host:core=1.0-1.3", "1.0", 0, "1.0; what 1.3 has beyond it is not known here", NULL},
    {"host:core=1.0,poll=1.0-2.0", "1.1", 0, "poll       1.0 to 2.0    1.0 to 1.1    1.1; no function is lost", NULL},
    /* of several majors the highest common one, by the rule of the loader */
    {"host:core=2.0,poll=1.0-1.1", "2.0", 0, "poll       1.0 to 1.1    1.0 to 2.0    1.1\n", NULL},
    {"host:2.0", "2.0", 0, "poll       2.0 to 2.0    1.0 to 2.0    2.0\n", NULL},
    /* refused: core sinks the plugin, another family itself only */
    {"host:1.1", "2.0", 1, "core: host wants 1.0 to 1.0, plugin has 2.0 to 2.0: plugin is too new", NULL},
    {"host:1.1", "2.0", 1, "does not work: without core", NULL},
    {"host:1.0", "0.9", 1, "family poll: host wants 1.0 to 1.0, plugin has none", NULL},
    {"host:1.0", "0.9", 1, "works in part", "does not work"},
    {"host:core=1.4-1.5", "1.0", 1, "refused, TOO_OLD", NULL},
    /* plugin, plugin: wire and swap, and what each lacks */
    {"1.0", "1.0", 0, "wire: peers that run A and B talk at version 1\n", NULL},
    {"1.0", "1.1", 0, "swap: B takes over from A", NULL},
    {"1.0", "1.1", 0, "back: no, A does not read what B writes", NULL},
    {"1.1", "1.0", 1, "swap: refused, A writes state format 2 and B reads 1 to 1", "takes over"},
    {"1.1", "1.0", 1, "1.0; UNSUPPORTED: reduce3, reduce4", NULL},
    {"1.1", "1.2", 1, "wire: refused, A has 1 to 2 and B has 3 to 4", "talk at"},
    {"1.0", "0.9", 1, "swap: refused, B lacks 2 of the families that A serves", NULL},
    {"0.9", "1.0", 1, "swap: refused, A and B share no version of family move", "lacks"},
    {"1.1", "2.0", 1, "swap: refused, B lacks 1 of the families", NULL},
};

static void test_compat_verdicts_say_what_is_agreed_lost_and_refused(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        CLI_RUN(&output, convoy_cli_compat, row->a, row->b, "--abi", *state);
        if (output.code != row->code || strstr(output.out, row->words) == NULL ||
            (row->absent != NULL && strstr(output.out, row->absent) != NULL)) {
            fail_msg("%s with %s: exit code %d, wanted %d with \"%s\":\n%s%s", row->a, row->b, output.code, row->code,
                     row->words, output.out, output.err);
        }
    }
}

static void test_compat_usage_is_refused_with_what_is_needed(void **state)
{
    static const struct row wrong[] = {
        {"host", "host:1.0", 2, "two hosts", NULL},
        {"host:", "1.0", 2, "asks for no family", NULL},
        {"host:core", "1.0", 2, "\"core\" is no range of a host", NULL},
        {"host:core=1", "1.0", 2, "no range of a host", NULL},
        {"host:core=1.2-1.0", "1.0", 2, "no range of a host", NULL},
        {"host:core=1.70000", "1.0", 2, "no range of a host", NULL},
        {"host:core=1.0x", "1.0", 2, "no range of a host", NULL},
        {"host:a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0,a=1.0",
         "1.0", 2, "at most 16 families", NULL},
        {"1.0", "1.7", 1, "release 1.7 is not frozen in", NULL},
        {"1.0", "3.0", 1, "TOO_NEW: release 3.0: manifest schema 9", NULL},
        {"1.0", "no/such/file.so", 1, "NOT_FOUND", NULL},
        {"1.0", "/dev/null", 1, "is a device", NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CLI_RUN(&output, convoy_cli_compat, wrong[i].a, wrong[i].b, "--abi", *state);
        if (output.code != wrong[i].code || strstr(output.err, wrong[i].words) == NULL || output.out[0] != '\0') {
            fail_msg("%s with %s: exit code %d: %s", wrong[i].a, wrong[i].b, output.code, output.err);
        }
    }
    CLI_RUN(&output, convoy_cli_compat, "1.0", "--abi", *state);
    assert_int_equal(output.code, 2);
    CLI_RUN(&output, convoy_cli_compat, "1.0", "1.0", "--abi", "/no/such/folder");
    assert_int_equal(output.code, 2);
    assert_non_null(strstr(output.err, "--abi /no/such/folder is no folder"));
    CLI_RUN(&output, convoy_cli_compat, "--help");
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "host:core=1.0-1.1"));
}

static void test_compat_json_has_the_same_verdict(void **state)
{
    CLI_RUN(&output, convoy_cli_compat, "host:1.1", "1.0", "--json", "--abi", *state);
    assert_int_equal(output.code, 0);
    json_t *all = json_loads(output.out, JSON_REJECT_DUPLICATES, NULL);
    const json_t *poll = json_array_get(json_object_get(all, "families"), 1);
    assert_true(json_is_true(json_object_get(all, "works")));
    assert_true(json_is_null(json_object_get(all, "peers")));
    assert_string_equal(json_string_value(json_object_get(poll, "name")), "poll");
    assert_string_equal(json_string_value(json_array_get(json_object_get(poll, "lost"), 1)), "reduce4");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(poll, "agreed"), 1)), 0);
    json_decref(all);
    CLI_RUN(&output, convoy_cli_compat, "1.1", "1.2", "--json", "--abi", *state);
    assert_int_equal(output.code, 1);
    all = json_loads(output.out, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_false(json_object_get(all, "works")));
    assert_true(json_is_null(json_object_get(json_object_get(all, "peers"), "wire")));
    assert_true(json_is_true(json_object_get(json_object_get(all, "peers"), "move")));
    json_decref(all);
}

/* The release of this tree: its headers, its file, its draft of a layout beside the command. */
static void test_compat_of_this_build_works_with_its_own_host_and_with_itself(void **state)
{
    (void)state;
    char plugin[PLUGIN_FILE_PATH_BYTES];
    CLI_RUN(&output, convoy_cli_compat, "host", plugin_path());
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "works: the host gets every family"));
    assert_non_null(strstr(output.out, "\nmove "));
    CLI_RUN(&output, convoy_cli_compat, plugin_path(), plugin_path());
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "it is the same build"));
    plugin_file("good", plugin);
    CLI_RUN(&output, convoy_cli_compat, plugin, "host");
    assert_int_equal(output.code, 1); /* the tiny plugin has core and poll only */
    assert_non_null(strstr(output.out, "state none"));
    assert_non_null(strstr(output.out, "works in part"));
}

/* Which folder is taken when none is given: that of the tree this test was built in. */
static void test_compat_finds_the_folder_above_the_command(void **state)
{
    (void)state;
    char folder[CONVOY_COMPAT_PATH_BYTES];
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_version poll = {0, 0};
    struct convoy_compat_slots lost;
    assert_int_equal(convoy_compat_folder(NULL, folder, &error), CONVOY_OK);
    assert_true(convoy_compat_known("poll", &poll));
    assert_false(convoy_compat_known("pole", &poll));
    assert_true(convoy_compat_slots_lost(folder, "poll", poll, poll, &lost));
    assert_int_equal(lost.count, 0);
    assert_false(convoy_compat_slots_lost("", "poll", poll, poll, &lost));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_verdicts_say_what_is_agreed_lost_and_refused),
        cmocka_unit_test(test_compat_usage_is_refused_with_what_is_needed),
        cmocka_unit_test(test_compat_json_has_the_same_verdict),
        cmocka_unit_test(test_compat_of_this_build_works_with_its_own_host_and_with_itself),
        cmocka_unit_test(test_compat_finds_the_folder_above_the_command),
    };
    return cmocka_run_group_tests_name("compat", tests, releases_setup, releases_teardown);
}
