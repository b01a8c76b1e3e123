/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expectations that work alike in the parent, in forked ranks and in rank threads (see ranks.h). In the parent a failed
 * one fails the running cmocka test. In a rank it is written to the rank's slot and ends that rank; ranks_finish then
 * fails the test with the rank's number, file, line and text.
 */
#ifndef TESTS_LIB_EXPECT_H
#define TESTS_LIB_EXPECT_H

#include "convoy/base.h"

#include <stddef.h>
#include <stdint.h>

/* Where an expectation stands and what it looks at. */
struct expect_site {
    const char *file;
    int line;
    const char *what;
};

#define EXPECT_SITE(what) (&(const struct expect_site){__FILE__, __LINE__, (what)})

#define EXPECT(condition) ((condition) ? (void)0 : expect_fail(EXPECT_SITE(#condition), "is not true"))
#define EXPECT_EQUAL(actual, expected)                                                                                 \
    expect_equal(EXPECT_SITE(#actual), (long long)(actual), (long long)(expected))

/* error: a struct convoy_error * or NULL; its text is shown when the status is not the wanted one. */
#define EXPECT_STATUS(call, wanted, error) expect_status(EXPECT_SITE(#call), (call), (wanted), (error))
#define EXPECT_OK(call, error) EXPECT_STATUS(call, CONVOY_OK, error)

/* `part` occurs in `text`. */
#define EXPECT_TEXT(text, part) expect_text(EXPECT_SITE(#text), (text), (part))
#define EXPECT_BYTES(actual, expected, bytes) expect_bytes(EXPECT_SITE(#actual), (actual), (expected), (bytes))

/* Ends the test (in the parent) or the rank. */
void expect_fail(const struct expect_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn, cold));

void expect_equal(const struct expect_site *site, long long actual, long long expected);
void expect_status(const struct expect_site *site, int32_t actual, int32_t wanted, const struct convoy_error *error);
void expect_text(const struct expect_site *site, const char *text, const char *part);
void expect_bytes(const struct expect_site *site, const void *actual, const void *expected, size_t bytes);

#endif
