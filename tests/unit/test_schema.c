/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define NAMED(text) .name = (text), .name_length = sizeof(text) - 1

static int32_t load_builtin(struct convoy_schema *schema, const char *name, struct convoy_error *error)
{
    struct convoy_sync_schema given = {.builtin = name, .builtin_length = strlen(name)};
    return convoy_schema_load(schema, &given, error);
}

static int32_t load(struct convoy_schema *schema, const struct convoy_sync_column *columns, size_t count,
                    struct convoy_error *error)
{
    struct convoy_sync_schema given = {
        .columns = columns, .column_stride = sizeof columns[0], .column_count = count};
    return convoy_schema_load(schema, &given, error);
}

/* What hosts expect of the DP row: fallbacks 0, 0, 1, 0, 1, IDLE (4), 0, 0. */
static void test_schema_builtin_has_the_hosts_columns(void **state)
{
    (void)state;
    const int64_t fallbacks[] = {0, 0, 1, 0, 1, 4, 0, 0};
    const uint32_t reductions[] = {CONVOY_REDUCE_MAX, CONVOY_REDUCE_MAX, CONVOY_REDUCE_MIN,       CONVOY_REDUCE_MAX,
                                   CONVOY_REDUCE_MIN, CONVOY_REDUCE_ALL_EQUAL, CONVOY_REDUCE_MIN, CONVOY_REDUCE_MAX};
    struct convoy_schema schema;
    assert_int_equal(load_builtin(&schema, "sglang-8", NULL), CONVOY_OK);
    assert_int_equal(schema.count, 8);
    for (uint32_t i = 0; i < schema.count; i++) {
        assert_int_equal(schema.columns[i].fallback, fallbacks[i]);
        assert_int_equal(schema.columns[i].reduction, reductions[i]);
        assert_int_equal((schema.columns[i].flags & CONVOY_COLUMN_OPTIONAL) != 0, i == 7);
    }
    assert_int_equal(schema.columns[5].ignored, 4);
    assert_int_equal(load_builtin(&schema, "sglang-7", NULL), CONVOY_OK);
    assert_int_equal(schema.count, 7);
}

static void test_schema_unknown_builtin_is_refused(void **state)
{
    (void)state;
    const char *names[] = {"sglang-6", "sglang-9", "sglang-", "sglang-88", "", "SGLANG-8"};
    struct convoy_schema schema;
    struct convoy_error error = {.struct_size = sizeof error};
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(load_builtin(&schema, names[i], &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "allowed are \"sglang-7\" and \"sglang-8\""));
    }
}

struct refusal {
    struct convoy_sync_column columns[2];
    size_t count;
    const char *text;
};

static const struct refusal refusals[] = {
    {{{NAMED("a")}, {NAMED("a")}}, 2, "columns[0] and [1] are both named \"a\""},
    {{{NAMED("")}}, 1, "columns[0]: name of 0 bytes"},
    {{{.name = NULL, .name_length = 3}}, 1, "columns[0]: name of 3 bytes"},
    {{{NAMED("a\0b")}}, 1, "none of them zero"},
    {{{NAMED("a234567890123456789012345678901x")}}, 1, "name of 32 bytes"},
    {{{NAMED("a"), .reduction = 5}}, 1, "reduction 5"},
    {{{NAMED("a"), .flags = 4}}, 1, "flags is 0x4, allowed are 0x3"},
    {{{NAMED("a"), .flags = CONVOY_COLUMN_HAS_IGNORED}}, 1, "needs reduction ALL_EQUAL"},
    {{{NAMED("a")}}, 0, "column_count is 0, allowed are 1 to 64"},
    {{{NAMED("a")}}, 65, "column_count is 65, allowed are 1 to 64"},
};

static void test_schema_bad_column_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refusals); i++) {
        struct convoy_schema schema;
        struct convoy_error error = {.struct_size = sizeof error};
        assert_int_equal(load(&schema, refusals[i].columns, refusals[i].count, &error), CONVOY_INVALID_ARGUMENT);
        if (strstr(error.text, refusals[i].text) == NULL) {
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.text, refusals[i].text);
        }
    }
}

static void test_schema_builtin_with_own_columns_or_short_stride_is_refused(void **state)
{
    (void)state;
    struct convoy_schema schema;
    struct convoy_sync_column column = {NAMED("a")};
    struct convoy_sync_schema given = {.builtin = "sglang-8", .builtin_length = 8, .column_count = 1};
    assert_int_equal(convoy_schema_load(&schema, &given, NULL), CONVOY_INVALID_ARGUMENT);
    given = (struct convoy_sync_schema){.columns = &column, .column_count = 1, .column_stride = 8};
    assert_int_equal(convoy_schema_load(&schema, &given, NULL), CONVOY_INVALID_ARGUMENT);
}

/* The hash is over what values mean: each property changes it, whether a peer may lack the column does not. */
static void test_schema_hash_changes_with_each_property(void **state)
{
    (void)state;
    struct convoy_schema base;
    assert_int_equal(load_builtin(&base, "sglang-8", NULL), CONVOY_OK);
    uint64_t hash = convoy_schema_hash(&base, 2, 4);
    struct convoy_schema changed[6];
    for (size_t i = 0; i < COUNT(changed); i++) {
        changed[i] = base;
    }
    changed[0].columns[3].name[0] = 'x';
    changed[1].columns[0].fallback = 1;
    changed[2].columns[0].reduction = CONVOY_REDUCE_SUM;
    changed[3].columns[5].ignored = 5;
    changed[4].columns[5].flags = 0;
    changed[5].count = 7;
    for (size_t i = 0; i < COUNT(changed); i++) {
        assert_int_not_equal(convoy_schema_hash(&changed[i], 2, 4), hash);
    }
    assert_int_not_equal(convoy_schema_hash(&base, 1, 4), hash);
    assert_int_not_equal(convoy_schema_hash(&base, 2, 5), hash);
    base.columns[7].flags = 0;
    assert_int_equal(convoy_schema_hash(&base, 2, 4), hash);
}

static void test_schema_bytes_read_back_and_no_prefix_does(void **state)
{
    (void)state;
    struct convoy_schema schema;
    struct convoy_schema again;
    uint8_t bytes[CONVOY_SCHEMA_BYTES_MAX];
    assert_int_equal(load_builtin(&schema, "sglang-8", NULL), CONVOY_OK);
    schema.columns[1].fallback = INT64_MIN;
    size_t length = convoy_schema_encode(&schema, bytes, sizeof bytes);
    assert_int_not_equal(length, 0);
    assert_int_equal(convoy_schema_encode(&schema, bytes, length - 1), 0);
    assert_int_equal(convoy_schema_decode(&again, bytes, length), CONVOY_OK);
    assert_int_equal(again.count, schema.count);
    assert_memory_equal(again.columns, schema.columns, schema.count * sizeof schema.columns[0]);
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(convoy_schema_decode(&again, bytes, cut), CONVOY_MALFORMED);
    }
    bytes[length] = 0;
    assert_int_equal(convoy_schema_decode(&again, bytes, length + 1), CONVOY_MALFORMED);
}

static void test_schema_largest_fits_the_stated_bound(void **state)
{
    (void)state;
    struct convoy_schema schema = {.count = CONVOY_SYNC_COLUMNS_MAX};
    uint8_t bytes[CONVOY_SCHEMA_BYTES_MAX];
    for (uint32_t i = 0; i < schema.count; i++) {
        memset(schema.columns[i].name, 'a', CONVOY_SCHEMA_NAME_MAX);
        schema.columns[i].name[0] = (char)('0' + i);
        schema.columns[i].name_length = CONVOY_SCHEMA_NAME_MAX;
    }
    assert_int_equal(convoy_schema_encode(&schema, bytes, sizeof bytes), sizeof bytes);
    assert_int_not_equal(convoy_schema_hash(&schema, 1, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema_builtin_has_the_hosts_columns),
        cmocka_unit_test(test_schema_unknown_builtin_is_refused),
        cmocka_unit_test(test_schema_bad_column_is_refused_by_name),
        cmocka_unit_test(test_schema_builtin_with_own_columns_or_short_stride_is_refused),
        cmocka_unit_test(test_schema_hash_changes_with_each_property),
        cmocka_unit_test(test_schema_bytes_read_back_and_no_prefix_does),
        cmocka_unit_test(test_schema_largest_fits_the_stated_bound),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
