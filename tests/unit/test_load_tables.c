/* SPDX-License-Identifier: Apache-2.0 */
/* The loader's own tables over a plugin's table of each length: what an older minor lacks is UNSUPPORTED, and says since when. */
#include "load/tables.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MINOR_0_BYTES ((uint32_t)offsetof(struct convoy_transfer_table, admission_set))

static int32_t set_none(convoy_transfer_engine *engine, const struct convoy_admission *admission, struct convoy_error *error)
{
    (void)engine;
    (void)admission;
    (void)error;
    return CONVOY_OK;
}

static int32_t release_none(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_error *error)
{
    (void)engine;
    (void)transfer;
    (void)error;
    return CONVOY_CLOSED;
}

/* A table of that many bytes; both functions lie in the memory behind it, whatever its size says. */
static struct convoy_host_tables tables_of(uint32_t bytes)
{
    struct convoy_host_tables tables;
    const struct convoy_transfer_table table = {
        .header = {bytes, CONVOY_TRANSFER_MAJOR, 0}, .release = release_none, .admission_set = set_none};
    convoy_host_tables_init(&tables);
    convoy_host_tables_take(&tables, "transfer", &table.header);
    return tables;
}

static void test_load_tables_of_minor_0_lack_what_1_1_added_and_say_so(void **state)
{
    (void)state;
    const uint32_t sizes[] = {MINOR_0_BYTES, MINOR_0_BYTES + sizeof(void (*)(void)) - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct convoy_host_tables tables = tables_of(sizes[i]);
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(tables.transfer.release(NULL, 0, NULL), CONVOY_CLOSED);
        assert_int_equal(tables.transfer.admission_set(NULL, NULL, &error), CONVOY_UNSUPPORTED);
        assert_int_equal(error.status, CONVOY_UNSUPPORTED);
        assert_non_null(strstr(error.text, "transfer admission_set is of transfer 1.1"));
        assert_int_equal(tables.transfer.admission_set(NULL, NULL, NULL), CONVOY_UNSUPPORTED);
    }
}

static void test_load_tables_of_minor_1_have_it(void **state)
{
    (void)state;
    struct convoy_host_tables tables = tables_of(MINOR_0_BYTES + sizeof(void (*)(void)));
    assert_int_equal(tables.transfer.admission_set(NULL, NULL, NULL), CONVOY_OK);
}

/* What was there from the first needs no version: no build is too old for it. */
static void test_load_tables_without_the_family_name_the_slot(void **state)
{
    (void)state;
    struct convoy_host_tables tables;
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_host_tables_init(&tables);
    convoy_host_tables_take(&tables, "transfer", NULL);
    assert_int_equal(tables.transfer.release(NULL, 0, &error), CONVOY_UNSUPPORTED);
    assert_string_equal(error.text, "transfer release: the plugin that is loaded does not offer it");
    assert_int_equal(tables.transfer.admission_set(NULL, NULL, &error), CONVOY_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_tables_of_minor_0_lack_what_1_1_added_and_say_so),
        cmocka_unit_test(test_load_tables_of_minor_1_have_it),
        cmocka_unit_test(test_load_tables_without_the_family_name_the_slot),
    };
    return cmocka_run_group_tests_name("load_tables", tests, NULL, NULL);
}
