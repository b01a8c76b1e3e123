/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/expect.h"

#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_BYTES 512

void expect_fail(const struct expect_site *site, const char *format, ...)
{
    char detail[TEXT_BYTES];
    char text[TEXT_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    (void)snprintf(text, sizeof text, "%s:%d: %s %s", site->file, site->line, site->what, detail);
    rank_fail(text); /* does not return in a rank */
    print_error("%s\n", text);
    _fail(site->file, site->line);
    __builtin_unreachable(); /* cmocka jumps back into its runner */
}

void expect_equal(const struct expect_site *site, long long actual, long long expected)
{
    if (actual != expected) {
        expect_fail(site, "is %lld, expected %lld", actual, expected);
    }
}

void expect_status(const struct expect_site *site, int32_t actual, int32_t wanted, const struct convoy_error *error)
{
    if (actual != wanted) {
        expect_fail(site, "gave %d, expected %d; error text: \"%s\"", actual, wanted,
                    error == NULL || actual == CONVOY_OK ? "" : error->text);
    }
}

void expect_text(const struct expect_site *site, const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        expect_fail(site, "lacks \"%s\": \"%s\"", part, text);
    }
}

void expect_bytes(const struct expect_site *site, const void *actual, const void *expected, size_t bytes)
{
    const unsigned char *left = actual;
    const unsigned char *right = expected;
    for (size_t i = 0; i < bytes; i++) {
        if (left[i] != right[i]) {
            expect_fail(site, "differs at byte %zu of %zu: 0x%02x, expected 0x%02x", i, bytes, left[i], right[i]);
        }
    }
}
