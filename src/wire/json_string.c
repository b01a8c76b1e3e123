/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json_string.h"

#include "core/utf8.h"

#include <string.h>

#define SURROGATE_FIRST 0xd800u
#define SURROGATE_LOW 0xdc00u
#define SURROGATE_LAST 0xdfffu

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t hex_unit(const char *digits)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        unit = unit << 4 | (uint32_t)hex_digit(digits[i]);
    }
    return unit;
}

/* What \ and this character mean, 0 when nothing; `u` stands for itself. */
static char short_escape(char c)
{
    static const char names[] = "\"\\/bfnrtu";
    static const char values[] = "\"\\/\b\f\n\r\tu";
    const char *found = c != '\0' ? strchr(names, c) : NULL;
    return found != NULL ? values[found - names] : '\0';
}

size_t convoy_json_escape_bytes(const char *at, size_t left)
{
    size_t length = left < 2 || short_escape(at[1]) == '\0' ? 0 : at[1] == 'u' ? 6 : 2;
    if (length > left) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (hex_digit(at[i]) < 0) {
            return 0;
        }
    }
    return length;
}

uint32_t convoy_json_utf8_point(const char *at, size_t left)
{
    const unsigned char *bytes = (const unsigned char *)at;
    size_t length = convoy_utf8_bytes(at, left);
    uint32_t point = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        point = point << 6 | (bytes[i] & 0x3fu);
    }
    return point;
}

/* The character at *at of a string that was passed; it is left behind. Half of a surrogate pair comes as it is. */
static uint32_t next_point(const char **at, const char *end)
{
    const unsigned char *bytes = (const unsigned char *)*at;
    if (bytes[0] != '\\') {
        size_t left = (size_t)(end - *at);
        *at += convoy_utf8_bytes(*at, left);
        return convoy_json_utf8_point((const char *)bytes, left);
    }
    if (bytes[1] != 'u') {
        *at += 2;
        return (unsigned char)short_escape((char)bytes[1]);
    }
    uint32_t unit = hex_unit(*at + 2);
    *at += 6;
    if (unit >= SURROGATE_FIRST && unit < SURROGATE_LOW && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        uint32_t low = hex_unit(*at + 2);
        if (low >= SURROGATE_LOW && low <= SURROGATE_LAST) {
            *at += 6;
            return 0x10000u + ((unit - SURROGATE_FIRST) << 10 | (low - SURROGATE_LOW));
        }
    }
    return unit;
}

static char *put_point(char *out, uint32_t point)
{
    if (point < 0x80) {
        *out++ = (char)point;
    } else if (point < 0x800) {
        *out++ = (char)(0xc0 | point >> 6);
        *out++ = (char)(0x80 | (point & 0x3f));
    } else if (point < 0x10000) {
        *out++ = (char)(0xe0 | point >> 12);
        *out++ = (char)(0x80 | (point >> 6 & 0x3f));
        *out++ = (char)(0x80 | (point & 0x3f));
    } else {
        *out++ = (char)(0xf0 | point >> 18);
        *out++ = (char)(0x80 | (point >> 12 & 0x3f));
        *out++ = (char)(0x80 | (point >> 6 & 0x3f));
        *out++ = (char)(0x80 | (point & 0x3f));
    }
    return out;
}

static bool has_escape(struct convoy_span span)
{
    return span.bytes != 0 && memchr(span.text, '\\', span.bytes) != NULL;
}

bool convoy_json_is_same(struct convoy_span one, struct convoy_span other)
{
    if (!has_escape(one) && !has_escape(other)) {
        return one.bytes == other.bytes && (one.bytes == 0 || memcmp(one.text, other.text, one.bytes) == 0);
    }
    const char *end = one.text + one.bytes;
    const char *other_end = other.text + other.bytes;
    while (one.text < end && other.text < other_end) {
        if (next_point(&one.text, end) != next_point(&other.text, other_end)) {
            return false;
        }
    }
    return one.text == end && other.text == other_end;
}

bool convoy_json_unescape(struct convoy_span inside, char *out, size_t *bytes_out)
{
    if (!has_escape(inside)) {
        memmove(out, inside.text, inside.bytes);
        *bytes_out = inside.bytes;
        return true;
    }
    const char *at = inside.text;
    const char *end = inside.text + inside.bytes;
    char *to = out;
    while (at < end) {
        uint32_t point = next_point(&at, end);
        if (point >= SURROGATE_FIRST && point <= SURROGATE_LAST) {
            return false;
        }
        to = put_point(to, point);
    }
    *bytes_out = (size_t)(to - out);
    return true;
}
