/* SPDX-License-Identifier: Apache-2.0 */
/* What stands between the quotes of a JSON string: its characters, one by one. Pure. */
#ifndef CONVOY_WIRE_JSON_STRING_H
#define CONVOY_WIRE_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of somebody else's text; not terminated. */
struct convoy_span {
    const char *text;
    size_t bytes;
};

/* The UTF-8 character that starts there. It must be one. */
uint32_t convoy_json_utf8_point(const char *at, size_t left);

/* Bytes of the escape that starts there with a backslash, 0 when it is none. */
size_t convoy_json_escape_bytes(const char *at, size_t left);

/* Whether two keys as written mean the same text: "a" and "\u0061" do. Both were passed by convoy_json_next. */
bool convoy_json_is_same(struct convoy_span one, struct convoy_span other);

/* Writes what was passed as UTF-8, which is never longer; out may be the same place. false: a lone surrogate (\ud800),
 * which can be carried but has no UTF-8; out is undefined then. */
bool convoy_json_unescape(struct convoy_span inside, char *out, size_t *bytes_out);

#endif
