/* SPDX-License-Identifier: Apache-2.0 */
/* A host with a transfer engine: the plugin that was built, files that are none, and waiting for an empty pool. */
#include "cli/transfer_host.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/lib/fake_transfer.h"
#include "tests/lib/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_files.h"

#include <cmocka.h>

static struct convoy_error error;

static int32_t open_host(struct convoy_transfer_host *host, const struct convoy_transfer_host_options *options)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_transfer_host_open(host, options, &error);
}

static void test_transfer_host_opens_an_engine_and_closes_it(void **state)
{
    (void)state;
    const struct convoy_transfer_host_options options = {.plugin = plugin_path(), .engine = {.pool_bytes = 1u << 24}};
    struct convoy_transfer_host host;
    struct convoy_engine_figures figures = {0};
    char session[CONVOY_SESSION_BYTES];
    char *text = NULL;
    assert_int_equal(open_host(&host, &options), CONVOY_OK);
    assert_int_equal(convoy_transfer_host_session(&host, session, &error), CONVOY_OK);
    assert_int_equal(strncmp(session, "127.0.0.1:", 10), 0);
    assert_int_equal(convoy_transfer_host_drain(&host, 0, &figures, &error), CONVOY_OK);
    assert_int_equal(figures.capacity, 1u << 24);
    assert_int_equal(convoy_transfer_host_leaks(&figures), 0);
    assert_int_equal(convoy_transfer_host_describe(&host, CONVOY_TOPIC_TRACE, &text, &error), CONVOY_OK);
    assert_true(text[0] == '{' || text[0] == '[');
    convoy_memory_free(text);
    assert_int_equal(convoy_transfer_host_describe(&host, 9999, &text, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_transfer_host_close(&host, CONVOY_NS_PER_S, &error), CONVOY_OK);
    assert_int_equal(convoy_transfer_host_close(&host, CONVOY_NS_PER_S, &error), CONVOY_OK); /* nothing left */
}

static void test_transfer_host_refusals_are_the_librarys(void **state)
{
    (void)state;
    struct convoy_transfer_host host;
    struct convoy_transfer_host_options options = {.plugin = "/nowhere/it.so"};
    assert_int_equal(open_host(&host, &options), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_transfer_host_close(&host, 0, &error), CONVOY_OK);
    options.plugin = plugin_path();
    options.settings = "{\"net\":\"pigeon\"}";
    assert_int_equal(open_host(&host, &options), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "pigeon"));
    assert_null(host.context);
    assert_int_equal(convoy_transfer_host_close(&host, 0, &error), CONVOY_OK);
    options.settings = NULL;
    options.engine.pool_block_bytes = 3;
    assert_int_equal(open_host(&host, &options), CONVOY_INVALID_ARGUMENT);
    assert_null(host.engine);
    assert_int_equal(convoy_transfer_host_close(&host, CONVOY_NS_PER_S, &error), CONVOY_OK);
}

/* A plugin that is none, or that has no transfers, is refused before anything is opened. */
static void test_transfer_host_other_plugins_are_refused(void **state)
{
    (void)state;
    static const char *const kinds[] = {"no_entry", "good", "short_table", "init_fails"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char path[PLUGIN_FILE_PATH_BYTES];
        struct convoy_transfer_host host;
        plugin_file(kinds[i], path);
        const struct convoy_transfer_host_options options = {.plugin = path};
        assert_true(open_host(&host, &options) < 0);
        assert_string_not_equal(error.text, "");
        assert_null(host.context);
        (void)convoy_transfer_host_close(&host, 0, &error);
    }
}

static void test_transfer_host_drain_looks_until_nothing_is_taken(void **state)
{
    (void)state;
    struct convoy_engine_figures figures = {0};
    struct fake_transfer *fake = fake_transfer_reset();
    fake->figures_looks = 3;
    assert_int_equal(convoy_transfer_host_drain(&fake->host, 60 * CONVOY_NS_PER_S, &figures, &error), CONVOY_OK);
    assert_int_equal(fake->figures_looks, 0);
    assert_int_equal(convoy_transfer_host_leaks(&figures), 0);
    fake->figures_looks = 1000;
    assert_int_equal(convoy_transfer_host_drain(&fake->host, 0, &figures, &error), CONVOY_OK);
    assert_int_equal(figures.ready_count, 1);
    assert_int_equal(convoy_transfer_host_leaks(&figures), 1);
}

static void test_transfer_host_leaks_are_leases_and_references(void **state)
{
    (void)state;
    const struct convoy_engine_figures bytes_only = {.taken = 4096};
    const struct convoy_engine_figures all = {
        .taken = 4096, .taken_count = 1, .ready_count = 2, .quarantined_count = 3, .reader_count = 4};
    assert_int_equal(convoy_transfer_host_leaks(&bytes_only), 1);
    assert_int_equal(convoy_transfer_host_leaks(&all), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_host_opens_an_engine_and_closes_it),
        cmocka_unit_test(test_transfer_host_refusals_are_the_librarys),
        cmocka_unit_test(test_transfer_host_other_plugins_are_refused),
        cmocka_unit_test(test_transfer_host_drain_looks_until_nothing_is_taken),
        cmocka_unit_test(test_transfer_host_leaks_are_leases_and_references),
    };
    return cmocka_run_group_tests_name("transfer_host", tests, NULL, NULL);
}
