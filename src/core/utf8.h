/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others: whether it is well-formed UTF-8 (shortest forms, no surrogates, up to U+10FFFF). Pure. */
#ifndef CONVOY_CORE_UTF8_H
#define CONVOY_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that starts there, 0 when it is none. left is not 0. */
size_t convoy_utf8_bytes(const char *at, size_t left);

/* Whether all of it is UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F): what can stand in a report, in
 * JSON and in Prometheus text. */
bool convoy_utf8_is_clean(const char *text, size_t length);

#endif
