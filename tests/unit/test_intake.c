/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/intake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* Own columns a, b, c; b was cut, and the carried order is c, a. */
static struct convoy_grid grid_of_three(void)
{
    struct convoy_grid grid = {
        .member_count = 2, .inner = 1, .slots = 3, .width = 2, .common = {1, CONVOY_GRID_CUT, 0}};
    grid.own.count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        grid.own.columns[i].fallback = -(int64_t)i - 1;
    }
    return grid;
}

static void check_values(const struct convoy_grid *grid, const struct convoy_sync_call *call, int64_t first,
                         int64_t second)
{
    uint8_t payload[CONVOY_ROW_BYTES_MAX];
    int64_t values[2];
    struct convoy_row_form form = {.width = 2, .member_count = 2, .has_slot = (call->policy & CONVOY_SYNC_WORLD) != 0};
    struct convoy_row_out row = {.values = values};
    size_t length = convoy_intake_encode(grid, call, 0, payload);
    assert_int_equal(convoy_row_decode(&form, payload, length, &row), CONVOY_OK);
    assert_int_equal(values[0], first);
    assert_int_equal(values[1], second);
}

static void test_intake_row_is_carried_in_the_agreed_order(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    const int64_t row[3] = {10, 11, 12};
    struct convoy_sync_call call = {.row = row};
    check_values(&grid, &call, 12, 10);
}

/* sgl-project/sglang PR 25404, uccl-project/uccl PR 940: a rank without a batch brings its fallback, not nothing. */
static void test_intake_row_that_is_null_is_the_fallback(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    struct convoy_sync_call call = {0};
    check_values(&grid, &call, -3, -1);
}

/* pytorch/pytorch issue 192920: a column of a matrix, at any alignment. */
static void test_intake_row_with_stride_and_odd_address_is_right(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    char room[1 + 3 * 13];
    const int64_t row[3] = {10, 11, INT64_MIN};
    for (size_t i = 0; i < 3; i++) {
        memcpy(room + 1 + i * 13, &row[i], 8);
    }
    struct convoy_sync_call call = {.row = (const int64_t *)(const void *)(room + 1), .row_stride = 13};
    check_values(&grid, &call, INT64_MIN, 10);
}

/* pytorch/pytorch issue 21480: inputs are only read. */
static void test_intake_inputs_may_be_read_only(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    const int64_t row[3] = {10, 11, 12};
    memcpy(page, row, sizeof row);
    page[1024] = 1;
    assert_int_equal(mprotect(page, 4096, PROT_READ), 0);
    struct convoy_sync_call call = {
        .row = (const int64_t *)(void *)page, .active = (const uint8_t *)page + 1024, .active_count = 2};
    check_values(&grid, &call, 12, 10);
    assert_int_equal(munmap(page, 4096), 0);
}

struct refusal {
    struct convoy_sync_call call;
    const char *text;
};

static const struct refusal refusals[] = {
    {{.critical_flags = 1}, "call.critical_flags is 0x1, allowed are 0x2"},
    {{.policy = 8}, "call.policy is 0x8, allowed are 0x7"},
    {{.policy = 8, .critical_flags = CONVOY_CALL_ERROR_ROW}, "call.policy is 0x8, allowed are 0x7"},
    {{.reserved = 9}, "call.reserved is 9, allowed is 0"},
    {{.row_stride = 7}, "call.row_stride is 7, allowed are 0 and 8 to 1073741824 bytes"},
    {{.active_count = 2}, "call.active is NULL for active_count 2"},
    {{.policy = CONVOY_SYNC_WORLD, .slot = 3}, "call.slot is 3, allowed are 0 to 2 and 0xffffffff"},
};

static void test_intake_bad_arguments_are_refused_by_name(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    struct convoy_error error = {.struct_size = sizeof error};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        bool is_flag = (refusals[i].call.critical_flags & ~CONVOY_CALL_ERROR_ROW) != 0;
        assert_int_equal(convoy_intake_check(&grid, &refusals[i].call, &error),
                         is_flag ? CONVOY_UNSUPPORTED : CONVOY_INVALID_ARGUMENT);
        assert_string_equal(error.text, refusals[i].text);
    }
}

static void test_intake_what_an_error_row_ignores_is_not_checked(void **state)
{
    (void)state;
    struct convoy_grid grid = grid_of_three();
    struct convoy_sync_call call = {.critical_flags = CONVOY_CALL_ERROR_ROW, .row_stride = 3, .active_count = 7};
    assert_int_equal(convoy_intake_check(&grid, &call, NULL), CONVOY_OK);
    call = (struct convoy_sync_call){.slot = 99}; /* no world gather: the slot means nothing */
    assert_int_equal(convoy_intake_check(&grid, &call, NULL), CONVOY_OK);
    call = (struct convoy_sync_call){.policy = CONVOY_SYNC_WORLD, .slot = UINT32_MAX};
    assert_int_equal(convoy_intake_check(&grid, &call, NULL), CONVOY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_intake_row_is_carried_in_the_agreed_order),
        cmocka_unit_test(test_intake_row_that_is_null_is_the_fallback),
        cmocka_unit_test(test_intake_row_with_stride_and_odd_address_is_right),
        cmocka_unit_test(test_intake_inputs_may_be_read_only),
        cmocka_unit_test(test_intake_bad_arguments_are_refused_by_name),
        cmocka_unit_test(test_intake_what_an_error_row_ignores_is_not_checked),
    };
    return cmocka_run_group_tests_name("intake", tests, NULL, NULL);
}
