/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "core/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_status_names_are_those_of_the_header(void **state)
{
    (void)state;
    assert_string_equal(convoy_status_name(CONVOY_OK), "OK");
    assert_string_equal(convoy_status_name(CONVOY_TIMED_OUT), "TIMED_OUT");
    assert_string_equal(convoy_status_name(CONVOY_INVARIANT), "INVARIANT");
}

static void test_status_unknown_number_is_described_by_its_band(void **state)
{
    (void)state;
    assert_string_equal(convoy_status_name(7), "UNKNOWN_INFORMATION");
    assert_string_equal(convoy_status_name(-199), "UNKNOWN_CALLER_ERROR");
    assert_string_equal(convoy_status_name(-399), "UNKNOWN_PEER_ERROR");
    assert_string_equal(convoy_status_name(-777), "UNKNOWN_INTERNAL_ERROR");
    assert_false(convoy_status_is_retryable(-399));
}

static void test_error_set_terminates_a_long_text(void **state)
{
    (void)state;
    char longer[2 * CONVOY_ERROR_TEXT_BYTES];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_error_set(&error, CONVOY_LIMIT, "%s", longer), CONVOY_LIMIT);
    assert_int_equal(strlen(error.text), CONVOY_ERROR_TEXT_BYTES - 1);
    assert_int_equal(error.rank, -1);
    assert_int_equal(error.written_bytes, sizeof error);
}

static void test_error_set_writes_no_byte_past_a_shorter_struct(void **state)
{
    (void)state;
    for (uint32_t size = 0; size <= sizeof(struct convoy_error); size++) {
        struct convoy_error error;
        memset(&error, 0x5a, sizeof error);
        error.struct_size = size;
        (void)convoy_error_set(&error, CONVOY_BUSY, "text");
        for (size_t i = size > 4 ? size : 4; i < sizeof error; i++) {
            assert_int_equal(((unsigned char *)&error)[i], 0x5a);
        }
    }
}

static void test_error_prefix_keeps_the_first_cause(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)convoy_error_set_errno(&error, CONVOY_SYSTEM, 2, "open %s", "x");
    assert_int_equal(convoy_error_prefix(&error, CONVOY_SYSTEM, "group %s", "tp"), CONVOY_SYSTEM);
    assert_string_equal(error.text, "group tp: open x: No such file or directory");
    assert_int_equal(error.sys_errno, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_names_are_those_of_the_header),
        cmocka_unit_test(test_status_unknown_number_is_described_by_its_band),
        cmocka_unit_test(test_error_set_terminates_a_long_text),
        cmocka_unit_test(test_error_set_writes_no_byte_past_a_shorter_struct),
        cmocka_unit_test(test_error_prefix_keeps_the_first_cause),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
