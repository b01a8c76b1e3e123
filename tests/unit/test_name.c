/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/name.h"

#include "core/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

/* Whatever plain text stands around it: words are looked at whole. */
static void test_name_is_looked_at_up_to_its_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_clean;
    } rows[] = {{"x", true}, {"\xc3\xa9", true}, {"\xf0\x9f\x9a\x8b", true}, {"\x01", false}, {"\x7f", false},
                {"\xff", false}, {"\xc3", false}, {"\xc2\x80", false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t before = 0; before <= 24; before++) {
            for (size_t behind = 0; behind <= 24; behind++) {
                char text[64];
                size_t length = strlen(rows[i].text);
                memset(text, 'a', sizeof text);
                memcpy(text + before, rows[i].text, length);
                assert_int_equal(convoy_utf8_is_clean(text, before + length + behind), rows[i].is_clean);
            }
        }
    }
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
        cmocka_unit_test(test_name_is_looked_at_up_to_its_ends),
        cmocka_unit_test(test_name_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
