/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_histogram_empty_has_no_quantile(void **state)
{
    (void)state;
    static struct convoy_histogram histogram;
    assert_int_equal(convoy_histogram_quantile(&histogram, 500), 0);
}

static void test_histogram_quantiles_are_within_a_thirtysecond(void **state)
{
    (void)state;
    static struct convoy_histogram histogram;
    for (uint64_t i = 1; i <= 100000; i++) {
        convoy_histogram_add(&histogram, i * 7);
    }
    assert_in_range(convoy_histogram_quantile(&histogram, 500), 350000, 350000 + 350000 / 32 + 1);
    assert_in_range(convoy_histogram_quantile(&histogram, 990), 693000, 693000 + 693000 / 32 + 1);
    assert_int_equal(convoy_histogram_quantile(&histogram, 1000), 700000);
    assert_int_equal(histogram.max_ns, 700000);
}

static void test_histogram_small_and_largest_values_have_buckets(void **state)
{
    (void)state;
    static struct convoy_histogram histogram;
    convoy_histogram_add(&histogram, 0);
    convoy_histogram_add(&histogram, 31);
    convoy_histogram_add(&histogram, 32);
    assert_int_equal(convoy_histogram_quantile(&histogram, 1), 0);
    assert_int_equal(convoy_histogram_quantile(&histogram, 600), 31);
    assert_int_equal(convoy_histogram_quantile(&histogram, 1000), 32);
    convoy_histogram_add(&histogram, UINT64_MAX);
    assert_true(convoy_histogram_quantile(&histogram, 1000) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram_empty_has_no_quantile),
        cmocka_unit_test(test_histogram_quantiles_are_within_a_thirtysecond),
        cmocka_unit_test(test_histogram_small_and_largest_values_have_buckets),
    };
    return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
