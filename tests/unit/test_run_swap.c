/* SPDX-License-Identifier: Apache-2.0 */
/* What --swap means, and when each rank is to do it. */
#include "cli/run_swap.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NEVER CONVOY_RUN_SWAP_NEVER

static void test_run_swap_says_who_goes_when(void **state)
{
    (void)state;
    const struct {
        const char *text;
        const char *path;
        uint32_t rank;
        uint64_t there;
        uint64_t back;
        uint32_t count;
    } cases[] = {
        {"new.so@100", "new.so", 0, 100, NEVER, 1},
        {"new.so@100", "new.so", 3, 100, NEVER, 1},
        {"a@b/new.so@0", "a@b/new.so", 1, 0, NEVER, 1},
        {"new.so@100:rank=2", "new.so", 2, 100, NEVER, 1},
        {"new.so@100:rank=2", "new.so", 1, NEVER, NEVER, 0},
        {"new.so@100:rank=2:back=200", "new.so", 1, NEVER, NEVER, 0},
        {"new.so@100:every=10", "new.so", 3, 130, NEVER, 1},
        {"new.so@100:every=10:back=200", "new.so", 3, 130, 230, 2},
        {"new.so@100:back=200:every=10", "new.so", 0, 100, 200, 2},
        {"new.so@100:back=101", "new.so", 3, 100, 101, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_run_swap swap;
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_run_swap_parse(&swap, cases[i].text, 4, &error), CONVOY_OK);
        assert_string_equal(swap.path, cases[i].path);
        assert_true(convoy_run_swap_there(&swap, cases[i].rank) == cases[i].there);
        assert_true(convoy_run_swap_back(&swap, cases[i].rank) == cases[i].back);
        assert_int_equal(convoy_run_swap_count(&swap, cases[i].rank), cases[i].count);
    }
}

static void test_run_swap_of_nothing_is_nobodys(void **state)
{
    (void)state;
    const struct convoy_run_swap none = {0};
    assert_true(convoy_run_swap_there(&none, 0) == NEVER);
    assert_int_equal(convoy_run_swap_count(&none, 0), 0);
}

static void test_run_swap_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const char *const cases[] = {"",
                                 "new.so",
                                 "@100",
                                 "new.so@",
                                 "new.so@x",
                                 "new.so@-1",
                                 "new.so@1000000000001",
                                 "new.so@100:",
                                 "new.so@100:rank",
                                 "new.so@100:rank=",
                                 "new.so@100:rank=4",
                                 "new.so@100:rank=x",
                                 "new.so@100:often=2",
                                 "new.so@100:back=100",
                                 "new.so@100:back=99",
                                 "new.so@100 "};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_run_swap swap = {.step = 77};
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_run_swap_parse(&swap, cases[i], 4, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "--swap"));
        assert_int_equal(swap.step, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_swap_says_who_goes_when),
        cmocka_unit_test(test_run_swap_of_nothing_is_nobodys),
        cmocka_unit_test(test_run_swap_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("run_swap", tests, NULL, NULL);
}
