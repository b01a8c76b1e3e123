/* SPDX-License-Identifier: Apache-2.0 */
/* Names that come over the wire: what is a name, and how much of one a refusal quotes. */
#ifndef CONVOY_WIRE_NAME_H
#define CONVOY_WIRE_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the bytes are well-formed UTF-8 (shortest forms, no surrogates, up to U+10FFFF) without control characters
 * (U+0000 to U+001F, U+007F to U+009F). An empty text is right. */
bool convoy_name_is_clean(const char *text, size_t length);

/* Bytes of a clean name to quote: all of it, or at most `length_max`, cut between characters. */
size_t convoy_name_quoted(const char *text, size_t length, size_t length_max);

#endif
