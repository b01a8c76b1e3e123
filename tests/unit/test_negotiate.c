/* SPDX-License-Identifier: Apache-2.0 */
#include "core/negotiate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANGE(a, b, c, d) {{(a), (b)}, {(c), (d)}}
#define NAME "core"

struct row {
    struct convoy_version_range wanted;
    struct convoy_version_range offers[2];
    size_t offer_count;
    int32_t status;
    struct convoy_version agreed;
    const char *words; /* that the reason contains */
};

static const struct row rows[] = {
    {RANGE(1, 0, 1, 0), {RANGE(1, 0, 1, 0)}, 1, CONVOY_OK, {1, 0}, ""},
    {RANGE(1, 0, 1, 5), {RANGE(1, 0, 1, 3)}, 1, CONVOY_OK, {1, 3}, ""}, /* newer host, older plugin */
    {RANGE(1, 0, 1, 2), {RANGE(1, 0, 1, 3)}, 1, CONVOY_OK, {1, 2}, ""}, /* older host, newer plugin */
    {RANGE(1, 2, 2, 0), {RANGE(1, 0, 1, 3)}, 1, CONVOY_OK, {1, 3}, ""},
    {RANGE(1, 4, 1, 9), {RANGE(1, 0, 1, 3)}, 1, CONVOY_TOO_OLD, {0, 0}, "host wants 1.4 to 1.9, plugin has 1.0 to 1.3"},
    {RANGE(2, 0, 2, 1), {RANGE(1, 0, 1, 3)}, 1, CONVOY_TOO_OLD, {0, 0}, "plugin is too old"},
    {RANGE(1, 0, 1, 9), {RANGE(2, 0, 2, 0)}, 1, CONVOY_TOO_NEW, {0, 0}, "plugin is too new"},
    {RANGE(1, 0, 3, 0), {RANGE(1, 0, 1, 3), RANGE(2, 0, 2, 1)}, 2, CONVOY_OK, {2, 1}, ""},
    {RANGE(1, 0, 1, 9), {RANGE(1, 0, 1, 3), RANGE(2, 0, 2, 1)}, 2, CONVOY_OK, {1, 3}, ""},
    {RANGE(1, 5, 1, 9), {RANGE(1, 0, 1, 3), RANGE(2, 0, 2, 1)}, 2, CONVOY_UNSUPPORTED, {0, 0}, "plugin has 1.0 to 2.1"},
    {RANGE(1, 0, 1, 0), {RANGE(0, 0, 0, 0)}, 0, CONVOY_UNSUPPORTED, {0, 0}, "host wants 1.0 to 1.0, plugin has none"},
};

static void test_negotiate_agrees_on_the_highest_common_version_or_names_both_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_negotiation result;
        memset(&result, 0x5a, sizeof result);
        convoy_negotiate(NAME, strlen(NAME), &rows[i].wanted, rows[i].offers, rows[i].offer_count, &result);
        print_message("row %zu: %s\n", i, result.reason);
        assert_int_equal(result.status, rows[i].status);
        assert_int_equal(result.agreed.major, rows[i].agreed.major);
        assert_int_equal(result.agreed.minor, rows[i].agreed.minor);
        assert_non_null(strstr(result.reason, rows[i].words));
        assert_int_equal(result.reason[0] == '\0', rows[i].status == CONVOY_OK);
    }
}

static void test_negotiate_says_which_offer_was_chosen(void **state)
{
    (void)state;
    struct convoy_negotiation result;
    convoy_negotiate(NAME, strlen(NAME), &rows[7].wanted, rows[7].offers, 2, &result);
    assert_int_equal(result.offer_index, 1);
    convoy_negotiate(NAME, strlen(NAME), &rows[8].wanted, rows[8].offers, 2, &result);
    assert_int_equal(result.offer_index, 0);
}

/* A name of any length and the longest numbers still give a whole sentence that ends in a zero. */
static void test_negotiate_of_a_long_name_keeps_both_ranges(void **state)
{
    (void)state;
    char name[1000];
    memset(name, 'n', sizeof name);
    const struct convoy_version_range wanted = RANGE(1, 0, 1, 1);
    const struct convoy_version_range offer = RANGE(65534, 65534, 65535, 65535);
    struct convoy_negotiation result;
    convoy_negotiate(name, sizeof name, &wanted, &offer, 1, &result);
    assert_non_null(strstr(result.reason, "65534.65534 to 65535.65535: plugin is too new"));
}

static void test_negotiate_range_with_min_above_max_is_not_valid(void **state)
{
    (void)state;
    assert_true(convoy_version_range_is_valid(&(struct convoy_version_range)RANGE(1, 0, 1, 0)));
    assert_true(convoy_version_range_is_valid(&(struct convoy_version_range)RANGE(1, 9, 2, 0)));
    assert_false(convoy_version_range_is_valid(&(struct convoy_version_range)RANGE(1, 1, 1, 0)));
    assert_false(convoy_version_range_is_valid(&(struct convoy_version_range)RANGE(2, 0, 1, 9)));
}

static void test_negotiate_number_is_the_highest_that_both_have(void **state)
{
    (void)state;
    static const struct {
        struct convoy_number_range one;
        struct convoy_number_range other;
        uint32_t agreed; /* 0 = none */
    } pairs[] = {{{1, 1}, {1, 1}, 1}, {{1, 3}, {2, 5}, 3}, {{2, 5}, {1, 3}, 3}, {{1, 5}, {2, 3}, 3}, {{1, 1}, {2, 2}, 0},
                 {{4, 9}, {1, 3}, 0}, {{3, 3}, {1, 3}, 3}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uint32_t agreed = 77;
        assert_int_equal(convoy_negotiate_number(&pairs[i].one, &pairs[i].other, &agreed), pairs[i].agreed != 0);
        assert_int_equal(agreed, pairs[i].agreed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiate_agrees_on_the_highest_common_version_or_names_both_ranges),
        cmocka_unit_test(test_negotiate_says_which_offer_was_chosen),
        cmocka_unit_test(test_negotiate_of_a_long_name_keeps_both_ranges),
        cmocka_unit_test(test_negotiate_number_is_the_highest_that_both_have),
        cmocka_unit_test(test_negotiate_range_with_min_above_max_is_not_valid),
    };
    return cmocka_run_group_tests_name("negotiate", tests, NULL, NULL);
}
