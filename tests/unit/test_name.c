/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/name.h"

#include "core/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void test_name_clean_texts(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "a", " ~", "prompt_embeds.0", "\xc2\xa0", "\xc3\xa9", "\xe0\xa0\x80",
                                       "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf", "x\xf0\x9f\x9a\x8by"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_true(convoy_utf8_is_clean(rows[i], strlen(rows[i])));
    }
}

static void test_name_refuses_controls_and_what_is_no_utf8(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "\x01", "a\n", "\x1f", "\x7f", "\xc2\x80", "\xc2\x9f",      /* control characters */
        "\x80", "\xbf", "\xff", "\xf8\x88\x80\x80\x80",               /* never a first byte */
        "\xc3", "\xe2\x82", "\xf0\x9f\x9a",                           /* cut short */
        "\xc3(", "\xe2(\xa1", "\xe2\x82(", "\xf0\x9f\x9a(",           /* no second byte */
        "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",   /* overlong */
        "\xed\xa0\x80", "\xed\xbf\xbf",                               /* surrogates */
        "\xf4\x90\x80\x80", "\xf7\xbf\xbf\xbf",                       /* past U+10FFFF */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_false(convoy_utf8_is_clean(rows[i], strlen(rows[i])));
    }
    assert_false(convoy_utf8_is_clean("a\0b", 3));
}

static void test_name_is_cut_between_characters(void **state)
{
    (void)state;
    assert_int_equal(convoy_name_quoted("abc", 3, 3), 3);
    assert_int_equal(convoy_name_quoted("abcd", 4, 3), 3);
    assert_int_equal(convoy_name_quoted("ab\xe2\x82\xac", 5, 4), 2);
    assert_int_equal(convoy_name_quoted("\xe2\x82\xac", 3, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_clean_texts),
        cmocka_unit_test(test_name_refuses_controls_and_what_is_no_utf8),
        cmocka_unit_test(test_name_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
