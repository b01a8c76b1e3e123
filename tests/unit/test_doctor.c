/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy doctor` as a command: its words, its exit codes, and what it finds in a plugin file. */
#include "cli/doctor.h"
#include "tests/lib/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "plugin_files.h"

#include <cmocka.h>

static struct cli_output output;

#define DOCTOR(...) CLI_RUN(&output, convoy_cli_doctor, __VA_ARGS__)

static const char *text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void test_doctor_help_and_wrong_words(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        const char *err;
    } cases[] = {
        {"--xml", "convoy doctor: unknown option --xml (see convoy doctor --help)\n"},
        {"--plugin", "convoy doctor: --plugin needs a FILE (see convoy doctor --help)\n"},
        {"--peer=", "convoy doctor: --peer is empty: needs a HOST (see convoy doctor --help)\n"},
        {"now", "convoy doctor: \"now\" is one word too many (see convoy doctor --help)\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DOCTOR(cases[i].word);
        assert_int_equal(output.code, 2);
        assert_string_equal(output.out, "");
        assert_string_equal(output.err, cases[i].err);
    }
    DOCTOR("--help");
    assert_int_equal(output.code, 0);
    assert_int_equal(strncmp(output.out, "usage: convoy doctor [--plugin FILE] [--peer HOST] [--json]\n", 60), 0);
    assert_non_null(strstr(output.out, "  --peer HOST              also show the interface"));
}

static void test_doctor_json_has_the_promised_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"plugin",     "shared_memory", "process_vm", "limits",
                                       "namespaces", "processor",     "device",     "peer"};
    DOCTOR("--json", "--plugin", plugin_path());
    assert_int_equal(output.code, 0);
    json_t *all = json_loads(output.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(all);
    assert_int_equal(json_object_size(all), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_non_null(json_object_get(all, keys[i]));
    }
    assert_true(json_is_null(json_object_get(all, "peer"))); /* nobody asked for one */
    const json_t *plugin = json_object_get(all, "plugin");
    assert_string_equal(text(plugin, "release"), CONVOY_RELEASE);
    assert_int_equal(strlen(text(plugin, "build_id")), 40);
    assert_true(json_is_null(json_object_get(plugin, "error")));
    assert_non_null(text(json_object_get(plugin, "ucx"), "supported"));
    json_decref(all);
}

/* The doctor turns one setting on, to have UCX looked at; all others are as they would be. */
static void test_doctor_settings_have_value_and_source(void **state)
{
    (void)state;
    const char *name = NULL;
    json_t *setting = NULL;
    json_t *plugin = convoy_doctor_plugin(plugin_path());
    json_t *settings = json_object_get(plugin, "settings");
    assert_true(json_object_size(settings) > 5);
    json_object_foreach(settings, name, setting)
    {
        assert_non_null(json_object_get(setting, "value"));
        assert_non_null(text(setting, "source"));
    }
    assert_int_equal(json_integer_value(json_object_get(json_object_get(settings, "ucx_probe"), "value")), 1);
    json_decref(plugin);
}

static void test_doctor_page_is_printed_with_a_peer(void **state)
{
    (void)state;
    DOCTOR("--peer=127.0.0.1", "--plugin", plugin_path());
    assert_int_equal(output.code, 0);
    assert_int_equal(strncmp(output.out, "plugin\n  file                       /", 37), 0);
    assert_non_null(strstr(output.out, "\npeer\n  host                       127.0.0.1 (127.0.0.1)\n"
                                       "  interface                  lo, from 127.0.0.1\n"));
    assert_non_null(strstr(output.out, "\nsettings (value, source)\n"));
}

/* The rest of the page is there; the reason is on stderr too, and the code says that there is one. */
static void test_doctor_without_a_usable_plugin_prints_the_page_and_fails(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        const char *text;
    } cases[] = {
        {"missing", "missing.so"},
        {"no_entry", "convoy_query"},
        {"refuses", "changed its mind"},
        {"too_new", "core"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PLUGIN_FILE_PATH_BYTES];
        plugin_file(cases[i].kind, path);
        DOCTOR("--plugin", path);
        assert_int_equal(output.code, 1);
        assert_int_equal(strncmp(output.err, "convoy doctor: ", 15), 0);
        assert_non_null(strstr(output.err, cases[i].text));
        assert_non_null(strstr(output.out, "\n  not usable                 "));
        assert_non_null(strstr(output.out, "\nprocess\n"));
        assert_null(strstr(output.out, "\nucx"));
        DOCTOR("--json", "--plugin", path);
        json_t *all = json_loads(output.out, 0, NULL);
        assert_int_equal(output.code, 1);
        assert_non_null(strstr(text(json_object_get(all, "plugin"), "error"), cases[i].text));
        json_decref(all);
    }
}

/* A plugin that opens but has no topics to give: the sections are null, and the file's own words are there. */
static void test_doctor_plugin_that_describes_nothing(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file("good", path);
    json_t *plugin = convoy_doctor_plugin(path);
    assert_non_null(strstr(text(plugin, "file"), "good.so"));
    assert_string_equal(text(plugin, "release"), "1.0.0");
    assert_true(json_is_null(json_object_get(plugin, "ucx")));
    assert_true(json_is_null(json_object_get(plugin, "settings")));
    assert_true(json_is_null(json_object_get(plugin, "error")));
    json_decref(plugin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_help_and_wrong_words),
        cmocka_unit_test(test_doctor_json_has_the_promised_keys),
        cmocka_unit_test(test_doctor_settings_have_value_and_source),
        cmocka_unit_test(test_doctor_page_is_printed_with_a_peer),
        cmocka_unit_test(test_doctor_without_a_usable_plugin_prints_the_page_and_fails),
        cmocka_unit_test(test_doctor_plugin_that_describes_nothing),
    };
    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
