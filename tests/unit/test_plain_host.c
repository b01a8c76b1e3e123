/* SPDX-License-Identifier: Apache-2.0 */
/* A plain host opens the plugin that was built, and refuses files that are none with the reason; see plugin_files.h. */
#include "cli/plain_host.h"
#include "core/error.h"
#include "tests/lib/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_files.h"

#include <cmocka.h>

static void test_plain_host_what_does_not_fit_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        int32_t status;
        const char *text;
    } cases[] = {
        {"missing", CONVOY_BAD_FILE, "cannot load the plugin: "},
        {"needs_gone", CONVOY_BAD_FILE, "libtiny_gone.so"},
        {"no_entry", CONVOY_NO_ENTRY, "no_entry.so is no convoy plugin: it has no convoy_query"},
        {"init_fails", CONVOY_INIT_FAILED, ""},
        {"refuses", CONVOY_TOO_OLD, "the plugin refuses family core: changed its mind"},
        {"no_table", CONVOY_UNSUPPORTED, "the plugin refuses family core: "},
        {"good", CONVOY_UNSUPPORTED, "the plugin refuses family sync: "}, /* it has no sync */
        {"short_table", CONVOY_TOO_OLD, "the table of family core has "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PLUGIN_FILE_PATH_BYTES];
        struct convoy_plain_host host;
        struct convoy_error error = CONVOY_ERROR_INIT;
        plugin_file(cases[i].kind, path);
        assert_int_equal(convoy_plain_host_open(&host, path, &error), cases[i].status);
        if (strstr(error.text, cases[i].text) == NULL) {
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].kind, error.text, cases[i].text);
        }
        assert_null(host.context);
        convoy_plain_host_close(&host, 0); /* half open is fine */
    }
}

static void test_plain_host_short_table_is_told_with_both_sizes(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    char wanted[80];
    struct convoy_plain_host host;
    struct convoy_error error = CONVOY_ERROR_INIT;
    plugin_file("short_table", path);
    assert_int_equal(convoy_plain_host_open(&host, path, &error), CONVOY_TOO_OLD);
    (void)snprintf(wanted, sizeof wanted, " bytes: must be at least %zu", sizeof(struct convoy_core_table));
    assert_non_null(strstr(error.text, wanted));
}

static void test_plain_host_knows_the_plugins_release_and_build(void **state)
{
    (void)state;
    struct convoy_plain_host host;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_plain_host_open(&host, plugin_path(), &error), CONVOY_OK);
    assert_non_null(host.context);
    assert_string_equal(host.release, CONVOY_RELEASE);
    assert_int_equal(strlen(host.build_id), 40);
    assert_int_equal(strspn(host.build_id, "0123456789abcdef"), 40);
    convoy_plain_host_close(&host, 0);
    assert_null(host.context);
    convoy_plain_host_close(&host, 0);
}

/* A group of one needs no listener; with a row it can gather, and gets its own row back. */
static void test_plain_host_group_of_one_gathers_its_own_row(void **state)
{
    (void)state;
    static const int32_t members[] = {5};
    static const int64_t row[8] = {1, 2, 3, 4, 5, 6, 7, -8};
    int64_t table[8] = {0};
    struct convoy_plain_host host;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_plain_group options = {.name = "one", .member_ids = members, .member_count = 1, .sync_inner = 1};
    const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
    struct convoy_sync_result result = {.struct_size = sizeof result, .table = table, .table_capacity = 8};
    convoy_group *group = NULL;
    assert_int_equal(convoy_plain_host_open(&host, plugin_path(), &error), CONVOY_OK);
    assert_int_equal(convoy_plain_host_group_open(&host, &options, &group, &error), CONVOY_OK);
    assert_int_equal(host.sync->gather(group, &call, 0, &result, &error), CONVOY_OK);
    assert_memory_equal(table, row, sizeof row);
    assert_int_equal(host.core->group_close(group, 0, &error), CONVOY_OK);
    convoy_plain_host_close(&host, 0);
}

/* Without sync_inner there is no row in the group, so a gather is refused. */
static void test_plain_host_group_without_a_row_does_not_gather(void **state)
{
    (void)state;
    static const int32_t members[] = {5};
    int64_t row[8] = {0};
    struct convoy_plain_host host;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_plain_group options = {.name = "poll", .member_ids = members, .member_count = 1};
    const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
    struct convoy_sync_result result = {.struct_size = sizeof result};
    convoy_group *group = NULL;
    assert_int_equal(convoy_plain_host_open(&host, plugin_path(), &error), CONVOY_OK);
    assert_int_equal(convoy_plain_host_group_open(&host, &options, &group, &error), CONVOY_OK);
    assert_true(host.sync->gather(group, &call, 0, &result, &error) < 0);
    assert_int_equal(host.core->group_close(group, 0, &error), CONVOY_OK);
    convoy_plain_host_close(&host, 0);
}

/* Member 1 of 2 dials the address and port that were given; nobody is there, and the text says where. */
static void test_plain_host_group_dials_the_given_place(void **state)
{
    (void)state;
    static const int32_t members[] = {0, 1};
    char place[48];
    uint16_t port = plugin_port();
    struct convoy_plain_host host;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_plain_group options = {.name = "pair",
                                               .member_ids = members,
                                               .member_count = 2,
                                               .own_index = 1,
                                               .address = "127.0.0.1",
                                               .port = port,
                                               .open_timeout_ns = 50000000};
    convoy_group *group = NULL;
    assert_int_equal(convoy_plain_host_open(&host, plugin_path(), &error), CONVOY_OK);
    assert_int_equal(convoy_plain_host_group_open(&host, &options, &group, &error), CONVOY_TIMED_OUT);
    (void)snprintf(place, sizeof place, "127.0.0.1:%u", port);
    if (strstr(error.text, place) == NULL) {
        fail_msg("\"%s\" lacks %s", error.text, place);
    }
    assert_null(group);
    convoy_plain_host_close(&host, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_host_what_does_not_fit_is_refused_with_the_reason),
        cmocka_unit_test(test_plain_host_short_table_is_told_with_both_sizes),
        cmocka_unit_test(test_plain_host_knows_the_plugins_release_and_build),
        cmocka_unit_test(test_plain_host_group_of_one_gathers_its_own_row),
        cmocka_unit_test(test_plain_host_group_without_a_row_does_not_gather),
        cmocka_unit_test(test_plain_host_group_dials_the_given_place),
    };
    return cmocka_run_group_tests_name("plain_host", tests, NULL, NULL);
}
