/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy version` as text and as JSON: the same figures, those of the headers. */
#include "cli/inspect.h"
#include "convoy/convoy.h"
#include "core/version.h"

#include <jansson.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"

#include <cmocka.h>

static struct cli_output output;

static void test_version_text_has_release_families_wire_and_ucx(void **state)
{
    (void)state;
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted,
                   "convoy %s\nfamilies  core %d.%d  poll %d.%d  sync %d.%d  transfer %d.%d  move %d.%d\n"
                   "wire      %d to %d\nucx       %s\n",
                   CONVOY_RELEASE, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR,
                   CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR, CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR,
                   CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR, CONVOY_WIRE_MIN, CONVOY_WIRE_MAX, CONVOY_UCX_SUPPORTED);
    cli_run(&output, convoy_cli_version, (const char *const[]){"version", NULL});
    assert_int_equal(output.code, 0);
    assert_string_equal(output.out, wanted);
    assert_string_equal(output.err, "");
}

static void test_version_json_has_the_same(void **state)
{
    (void)state;
    const char *release = NULL;
    const char *families[5] = {NULL};
    const char *ucx = NULL;
    int wire[2] = {0};
    char core[16];
    char transfer[16];
    char move[16];
    CLI_RUN(&output, convoy_cli_version, "--json");
    assert_int_equal(output.code, 0);
    json_t *all = json_loads(output.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(all);
    /* The "!" refuses keys that are not named here. */
    assert_int_equal(json_unpack(all, "{s:s, s:{s:s, s:s, s:s, s:s, s:s !}, s:{s:i, s:i !}, s:s !}", "release", &release,
                                 "families", "core", &families[0], "poll", &families[1], "sync", &families[2], "transfer",
                                 &families[3], "move", &families[4], "wire", "min", &wire[0], "max", &wire[1], "ucx", &ucx),
                     0);
    (void)snprintf(core, sizeof core, "%d.%d", CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR);
    assert_string_equal(release, CONVOY_RELEASE);
    assert_string_equal(families[0], core);
    (void)snprintf(transfer, sizeof transfer, "%d.%d", CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR);
    assert_string_equal(families[3], transfer);
    (void)snprintf(move, sizeof move, "%d.%d", CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR);
    assert_string_equal(families[4], move);
    assert_int_equal(wire[0], CONVOY_WIRE_MIN);
    assert_int_equal(wire[1], CONVOY_WIRE_MAX);
    assert_string_equal(ucx, CONVOY_UCX_SUPPORTED);
    json_decref(all);
}

static void test_version_help_and_wrong_words(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int code;
        const char *out;
        const char *err;
    } cases[] = {
        {"--help", 0, "usage: convoy version [--json]", ""},
        {"--xml", 2, "", "convoy version: unknown option --xml (see convoy version --help)\n"},
        {"now", 2, "", "convoy version: \"now\" is one word too many (see convoy version --help)\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLI_RUN(&output, convoy_cli_version, cases[i].word);
        assert_int_equal(output.code, cases[i].code);
        assert_int_equal(strncmp(output.out, cases[i].out, strlen(cases[i].out)), 0);
        assert_string_equal(output.err, cases[i].err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_text_has_release_families_wire_and_ucx),
        cmocka_unit_test(test_version_json_has_the_same),
        cmocka_unit_test(test_version_help_and_wrong_words),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
