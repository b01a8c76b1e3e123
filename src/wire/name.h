/* SPDX-License-Identifier: Apache-2.0 */
/* Names that come over the wire (what one is: core/utf8.h): how much of one a refusal quotes. */
#ifndef CONVOY_WIRE_NAME_H
#define CONVOY_WIRE_NAME_H

#include <stddef.h>

/* Bytes of a clean name to quote: all of it, or at most `length_max`, cut between characters. */
size_t convoy_name_quoted(const char *text, size_t length, size_t length_max);

#endif
