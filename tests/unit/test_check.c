/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t states[4];
static const uint64_t keys[4];
static const struct convoy_poll_stamp stamps[4];

static int32_t check(const struct convoy_poll_list *list, struct convoy_error *error)
{
    struct convoy_payload_shape shape;
    struct convoy_poll_call call = {.lists = list, .list_count = 1};
    return convoy_check_call(&call, 1024, &shape, error);
}

/* One wrong parameter at a time; the text has its name and value. */
static void test_check_each_wrong_list_parameter_is_named(void **state)
{
    (void)state;
    const struct {
        struct convoy_poll_list list;
        const char *text;
    } rows[] = {
        {{.count = 4, .states = states, .flags = 4}, "flags is 4"},
        {{.count = 4, .states = states, .flags = CONVOY_POLL_ABSENT_SKIP}, "flags is 2"},
        {{.count = 4, .states = states, .state_bytes = 2}, "state_bytes is 2"},
        {{.count = 4, .states = states, .state_bytes = 4, .state_stride = 3}, "state_stride is 3"},
        {{.count = 4, .states = states, .gate = 3}, "gate is 3"},
        {{.count = 4, .states = states, .stamp_stride = 8}, "stamp_stride is 8"},
        {{.count = 4, .states = states, .reserved = 1}, "reserved is 1"},
        {{.count = 4}, "states is NULL"},
        {{.count = 4, .states = states, .flags = CONVOY_POLL_KEYED}, "keys is NULL"},
        {{.count = 4, .states = states, .gate = CONVOY_GATE_IDENTITY, .stamps = stamps}, "keys is NULL"},
        {{.count = 4, .states = states, .keys = keys, .gate = CONVOY_GATE_HOST}, "stamps is NULL"},
        {{.name_length = 3}, "name is NULL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        assert_int_equal(check(&rows[i].list, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, rows[i].text));
        assert_non_null(strstr(error.text, "list 0"));
    }
}

static void test_check_empty_lists_need_no_pointers(void **state)
{
    (void)state;
    const uint32_t flags[] = {0, CONVOY_POLL_KEYED, CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP};
    for (size_t i = 0; i < 3; i++) {
        struct convoy_poll_list list = {.flags = flags[i], .gate = CONVOY_GATE_IDENTITY};
        assert_int_equal(check(&list, NULL), CONVOY_OK);
    }
}

static void test_check_call_parameters_are_named(void **state)
{
    (void)state;
    struct convoy_payload_shape shape;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_poll_call call = {.list_count = 9};
    assert_int_equal(convoy_check_call(&call, 1024, &shape, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "list_count is 9"));
    call.list_count = 1;
    assert_int_equal(convoy_check_call(&call, 1024, &shape, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "lists is NULL"));
    call = (struct convoy_poll_call){.critical_flags = 1};
    assert_int_equal(convoy_check_call(&call, 1024, &shape, &error), CONVOY_UNSUPPORTED);
    call = (struct convoy_poll_call){.hint_flags = 0x80000000u};
    assert_int_equal(convoy_check_call(&call, 1024, &shape, &error), CONVOY_OK);
}

/* Counts whose sum or product would overflow are refused like any other that is too large. */
static void test_check_sizes_beyond_the_bound_are_limit(void **state)
{
    (void)state;
    const size_t counts[] = {1025, UINT32_MAX, (size_t)1 << 33, SIZE_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_poll_list list = {.count = counts[i], .states = states, .keys = keys};
        assert_int_equal(check(&list, &error), CONVOY_LIMIT);
        assert_non_null(strstr(error.text, "1024"));
        list.flags = CONVOY_POLL_KEYED;
        assert_int_equal(check(&list, &error), CONVOY_LIMIT);
    }
    struct convoy_poll_list list = {.count = 1024, .states = states, .keys = keys};
    assert_int_equal(check(&list, NULL), CONVOY_OK);
    list.flags = CONVOY_POLL_KEYED;
    assert_int_equal(check(&list, NULL), CONVOY_LIMIT);
}

static void test_check_result_room_is_named(void **state)
{
    (void)state;
    struct convoy_payload_shape shape = {0};
    uint8_t out[4];
    struct convoy_poll_outcome outcomes[1];
    struct convoy_error error = {.struct_size = sizeof error};
    convoy_payload_shape_add(&shape, 4, 0);
    struct convoy_poll_list_result list = {.states = out, .states_capacity = 3};
    struct convoy_poll_result result = {.lists = &list};
    assert_int_equal(convoy_check_result(&result, &shape, &error), CONVOY_BUFFER_TOO_SMALL);
    assert_non_null(strstr(error.text, "list_capacity is 0"));
    result.list_capacity = 1;
    assert_int_equal(convoy_check_result(&result, &shape, &error), CONVOY_BUFFER_TOO_SMALL);
    assert_non_null(strstr(error.text, "states_capacity is 3"));
    list.states = NULL;
    assert_int_equal(convoy_check_result(&result, &shape, &error), CONVOY_OK);
    list.outcomes = outcomes;
    list.outcome_stride = 8;
    assert_int_equal(convoy_check_result(&result, &shape, &error), CONVOY_INVALID_ARGUMENT);
}

static void test_check_list_name_is_cut_and_may_be_missing(void **state)
{
    (void)state;
    char buffer[CONVOY_CHECK_NAME_BYTES];
    struct convoy_poll_list list = {0};
    assert_string_equal(convoy_check_list_name(&list, 3, buffer), "list 3");
    list.name = "0123456789012345678901234567890123456789";
    list.name_length = 40;
    assert_string_equal(convoy_check_list_name(&list, 7, buffer), "list 7 \"0123456789012345678901234567890\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_each_wrong_list_parameter_is_named),
        cmocka_unit_test(test_check_empty_lists_need_no_pointers),
        cmocka_unit_test(test_check_call_parameters_are_named),
        cmocka_unit_test(test_check_sizes_beyond_the_bound_are_limit),
        cmocka_unit_test(test_check_result_room_is_named),
        cmocka_unit_test(test_check_list_name_is_cut_and_may_be_missing),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
