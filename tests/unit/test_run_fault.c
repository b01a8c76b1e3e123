/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_fault.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_run_fault_three_kinds_are_read(void **state)
{
    (void)state;
    struct convoy_run_fault fault;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_run_fault_parse(&fault, "kill:3@17", 4, &error), CONVOY_OK);
    assert_int_equal(fault.kind, CONVOY_RUN_FAULT_KILL);
    assert_int_equal(fault.rank, 3);
    assert_int_equal(fault.step, 17);
    assert_int_equal(convoy_run_fault_parse(&fault, "stall:0@0:250", 4, &error), CONVOY_OK);
    assert_int_equal(fault.kind, CONVOY_RUN_FAULT_STALL);
    assert_int_equal(fault.stall_ms, 250);
    assert_int_equal(convoy_run_fault_parse(&fault, "diverge:1@9", 4, &error), CONVOY_OK);
    assert_int_equal(fault.kind, CONVOY_RUN_FAULT_DIVERGE);
}

static void test_run_fault_wrong_words_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"",
                                        "kill",
                                        "kill:",
                                        "kill:1",
                                        "kill:1@",
                                        "kill:1@2:3",
                                        "kill:-1@2",
                                        "kill:1@2 ",
                                        "stall:1@2",
                                        "stall:1@2:",
                                        "stall:1@2:x",
                                        "boom:1@2",
                                        "kill:4@2",
                                        "diverge:1@2:3",
                                        "stall:1@2:600001",
                                        "kill:99999999999999999999@1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct convoy_run_fault fault = {.rank = 77};
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_run_fault_parse(&fault, words[i], 4, &error), CONVOY_INVALID_ARGUMENT);
        assert_int_equal(fault.rank, 77);
        assert_non_null(strstr(error.text, "must be"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_fault_three_kinds_are_read),
        cmocka_unit_test(test_run_fault_wrong_words_are_refused),
    };
    return cmocka_run_group_tests_name("run_fault", tests, NULL, NULL);
}
