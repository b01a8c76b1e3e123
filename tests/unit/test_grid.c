/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/grid.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 3u

static const int32_t ids[MEMBERS] = {10, 11, 12};

/* Three members and what each of them sends. */
struct fixture {
    struct convoy_schema schemas[MEMBERS];
    struct convoy_grid_own own[MEMBERS];
    uint8_t bytes[MEMBERS][CONVOY_GRID_BYTES_MAX];
    struct convoy_blob blobs[MEMBERS];
    struct convoy_grid grid;
    struct convoy_error error;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct convoy_sync_schema given = {.builtin = "sglang-8", .builtin_length = 8};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->own[i] = (struct convoy_grid_own){.member_count = MEMBERS, .schema = &f->schemas[i]};
        if (convoy_schema_load(&f->schemas[i], &given, NULL) != CONVOY_OK ||
            convoy_grid_check(&f->own[i], NULL) != CONVOY_OK) {
            return -1;
        }
    }
    f->error.struct_size = sizeof f->error;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static int32_t agree(struct fixture *f, uint32_t as)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        size_t length = convoy_grid_encode(&f->own[i], f->bytes[i], sizeof f->bytes[i]);
        assert_int_not_equal(length, 0);
        f->blobs[i] = (struct convoy_blob){.data = f->bytes[i], .bytes = length};
    }
    return convoy_grid_agree(f->blobs, ids, &f->own[as], &f->grid, &f->error);
}

static void test_grid_equal_schemas_keep_all_columns(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(agree(f, 1), CONVOY_OK);
    assert_int_equal(f->grid.width, 8);
    assert_int_equal(f->grid.own.count, 8);
    assert_int_equal(f->grid.slots, 3);
    assert_int_equal(f->grid.inner, 1);
    for (uint8_t i = 0; i < 8; i++) {
        assert_int_equal(f->grid.common[i], i);
    }
}

/* A group of both built-in rows goes on with seven columns; all members hash the same. */
static void test_grid_optional_column_is_cut_for_all(void **state)
{
    struct fixture *f = *state;
    f->schemas[1].count = 7;
    assert_int_equal(agree(f, 0), CONVOY_OK);
    uint64_t hash = f->grid.hash;
    assert_int_equal(f->grid.width, 7);
    assert_int_equal(f->grid.own.count, 8);
    assert_int_equal(f->grid.common[7], CONVOY_GRID_CUT);
    assert_int_equal(agree(f, 1), CONVOY_OK);
    assert_int_equal(f->grid.width, 7);
    assert_int_equal(f->grid.own.count, 7);
    assert_true(f->grid.hash == hash);
    f->schemas[1].count = 8;
    assert_int_equal(agree(f, 1), CONVOY_OK);
    assert_true(f->grid.hash != hash);
}

/* The column may be new to the lowest member too. */
static void test_grid_optional_column_of_a_higher_member_is_cut(void **state)
{
    struct fixture *f = *state;
    f->schemas[0].count = 7;
    assert_int_equal(agree(f, 2), CONVOY_OK);
    assert_int_equal(f->grid.width, 7);
    assert_int_equal(f->grid.common[7], CONVOY_GRID_CUT);
}

static void test_grid_required_column_that_a_member_lacks_is_diverged(void **state)
{
    struct fixture *f = *state;
    f->schemas[2].count = 6;
    assert_int_equal(agree(f, 1), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "sync schema, column \"prefill_graph\": member 10 has it and not as optional, "
                                       "member 12 lacks it");
    assert_int_equal(f->error.rank, 12);
    f->schemas[2].count = 8;
    f->schemas[0].count = 6;
    f->schemas[1].columns[6].flags = CONVOY_COLUMN_OPTIONAL;
    assert_int_equal(agree(f, 1), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "sync schema, column \"prefill_graph\": member 12 has it and not as optional, "
                                       "member 10 lacks it");
}

static void test_grid_column_that_means_something_else_is_diverged(void **state)
{
    struct fixture *f = *state;
    f->schemas[1].columns[2].fallback = 0;
    assert_int_equal(agree(f, 0), CONVOY_DIVERGED);
    assert_string_equal(f->error.text,
                        "sync schema, column \"decode_graph\": members 10 and 11 differ in its fallback");
    f->schemas[1] = f->schemas[0];
    f->schemas[2].columns[0].reduction = CONVOY_REDUCE_SUM;
    assert_int_equal(agree(f, 0), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "sync schema, column \"tokens\": members 10 and 12 differ in its reduction");
    f->schemas[2] = f->schemas[0];
    f->schemas[2].columns[5].ignored = 9;
    assert_int_equal(agree(f, 0), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "sync schema, column \"mode\": members 10 and 12 differ in its ignored value");
}

/* Order is the lowest member's, on every member; own outputs keep the own order. */
static void test_grid_other_order_is_mapped(void **state)
{
    struct fixture *f = *state;
    struct convoy_schema_column column = f->schemas[2].columns[0];
    f->schemas[2].columns[0] = f->schemas[2].columns[3];
    f->schemas[2].columns[3] = column;
    assert_int_equal(agree(f, 0), CONVOY_OK);
    uint64_t hash = f->grid.hash;
    assert_int_equal(agree(f, 2), CONVOY_OK);
    assert_true(f->grid.hash == hash);
    assert_int_equal(f->grid.common[0], 3);
    assert_int_equal(f->grid.common[3], 0);
    assert_string_equal(f->grid.own.columns[0].name, "extend");
}

static void test_grid_no_schema_anywhere_means_no_gathers(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->own[i].schema = NULL;
    }
    assert_int_equal(agree(f, 0), CONVOY_OK);
    assert_int_equal(f->grid.width, 0);
    assert_int_equal(f->grid.own.count, 0);
    f->own[1].schema = &f->schemas[1];
    assert_int_equal(agree(f, 0), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "sync schema: member 11 has one, this member has none");
}

static void test_grid_other_table_is_diverged(void **state)
{
    struct fixture *f = *state;
    f->own[2].slots = 5;
    assert_int_equal(agree(f, 0), CONVOY_DIVERGED);
    assert_string_equal(f->error.text,
                        "sync_inner and sync_slots: member 12 has 1 and 5, this member 1 and 3");
}

static void test_grid_bytes_that_end_early_are_malformed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(agree(f, 0), CONVOY_OK);
    size_t length = f->blobs[1].bytes;
    for (size_t cut = 0; cut < length; cut++) {
        f->blobs[1].bytes = cut;
        assert_int_equal(convoy_grid_agree(f->blobs, ids, &f->own[0], &f->grid, &f->error), CONVOY_MALFORMED);
        assert_int_equal(f->error.rank, 11);
    }
}

/* Five members with 64 columns of their own each are over the bound of 256; four are at it. */
static void test_grid_too_many_different_columns_is_limit(void **state)
{
    struct fixture *f = *state;
    struct convoy_grid_own own = {.member_count = 5, .inner = 1, .slots = 5, .schema = &f->schemas[0]};
    static uint8_t bytes[5][CONVOY_GRID_BYTES_MAX];
    const int32_t five[5] = {0, 1, 2, 3, 4};
    struct convoy_blob blobs[5];
    for (uint32_t i = 0; i < 5; i++) {
        f->schemas[0] = (struct convoy_schema){.count = CONVOY_SYNC_COLUMNS_MAX};
        for (uint32_t j = 0; j < CONVOY_SYNC_COLUMNS_MAX; j++) {
            struct convoy_schema_column *column = &f->schemas[0].columns[j];
            column->name_length = 2;
            column->name[0] = (char)('a' + i);
            column->name[1] = (char)('0' + j);
            column->flags = CONVOY_COLUMN_OPTIONAL;
        }
        blobs[i] = (struct convoy_blob){bytes[i], convoy_grid_encode(&own, bytes[i], sizeof bytes[i])};
    }
    assert_int_equal(convoy_grid_agree(blobs, five, &own, &f->grid, &f->error), CONVOY_LIMIT);
    own.member_count = 4;
    own.slots = 4;
    for (uint32_t i = 0; i < 4; i++) {
        memcpy(bytes[i] + 8, &own.slots, 4);
    }
    assert_int_equal(convoy_grid_agree(blobs, five, &own, &f->grid, &f->error), CONVOY_OK);
    assert_int_equal(f->grid.width, 0);
    assert_int_equal(f->grid.own.count, CONVOY_SYNC_COLUMNS_MAX);
}

static void test_grid_check_refuses_tables_that_do_not_fit(void **state)
{
    struct fixture *f = *state;
    struct convoy_grid_own own = {.member_count = 6, .inner = 4};
    assert_int_equal(convoy_grid_check(&own, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(f->error.text, "sync_inner is 4 and does not divide 6 members");
    own = (struct convoy_grid_own){.member_count = 6, .inner = 2, .slots = 2};
    assert_int_equal(convoy_grid_check(&own, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(f->error.text, "sync_slots is 2, allowed are 3 to 32768"));
    own.slots = 32769;
    assert_int_equal(convoy_grid_check(&own, &f->error), CONVOY_INVALID_ARGUMENT);
    own.slots = 0;
    assert_int_equal(convoy_grid_check(&own, &f->error), CONVOY_OK);
    assert_int_equal(own.slots, 3);
    own = (struct convoy_grid_own){.member_count = 6, .inner = 7};
    assert_int_equal(convoy_grid_check(&own, &f->error), CONVOY_INVALID_ARGUMENT);
}

#ifdef CONVOY_FAULTS
static void test_grid_without_memory_says_so(void **state)
{
    struct fixture *f = *state;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(agree(f, 0), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
    assert_int_equal(agree(f, 0), CONVOY_OK);
}
#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_grid_equal_schemas_keep_all_columns),
        CASE(test_grid_optional_column_is_cut_for_all),
        CASE(test_grid_optional_column_of_a_higher_member_is_cut),
        CASE(test_grid_required_column_that_a_member_lacks_is_diverged),
        CASE(test_grid_column_that_means_something_else_is_diverged),
        CASE(test_grid_other_order_is_mapped),
        CASE(test_grid_no_schema_anywhere_means_no_gathers),
        CASE(test_grid_other_table_is_diverged),
        CASE(test_grid_bytes_that_end_early_are_malformed),
        CASE(test_grid_too_many_different_columns_is_limit),
        CASE(test_grid_check_refuses_tables_that_do_not_fit),
#ifdef CONVOY_FAULTS
        CASE(test_grid_without_memory_says_so),
#endif
    };
    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
