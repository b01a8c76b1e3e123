/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/writer.h"

#include "core/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void convoy_writer_put(struct convoy_writer *writer, const char *text, size_t bytes)
{
    if (writer->out != NULL && bytes != 0) {
        memcpy(writer->out + writer->bytes, text, bytes);
    }
    writer->bytes += bytes;
}

void convoy_writer_text(struct convoy_writer *writer, const char *text)
{
    convoy_writer_put(writer, text, strlen(text));
}

void convoy_writer_number(struct convoy_writer *writer, int64_t value)
{
    char text[24];
    convoy_writer_put(writer, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void convoy_writer_large(struct convoy_writer *writer, uint64_t value)
{
    char text[24];
    convoy_writer_put(writer, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

static void put_unit(struct convoy_writer *writer, uint32_t unit)
{
    char text[8];
    convoy_writer_put(writer, text, (size_t)snprintf(text, sizeof text, "\\u%04x", unit & 0xffffu));
}

static bool is_plain(char c)
{
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

static void put_escaped(struct convoy_writer *writer, uint32_t point)
{
    static const char values[] = "\"\\\b\f\n\r\t";
    static const char names[] = "\"\\bfnrt";
    const char *found = point != 0 && point < 0x80 ? strchr(values, (int)point) : NULL;
    if (found != NULL) {
        const char pair[2] = {'\\', names[found - values]};
        convoy_writer_put(writer, pair, sizeof pair);
    } else if (point < 0x10000) {
        put_unit(writer, point);
    } else {
        put_unit(writer, 0xd800u + ((point - 0x10000u) >> 10));
        put_unit(writer, 0xdc00u + ((point - 0x10000u) & 0x3ffu));
    }
}

void convoy_writer_string(struct convoy_writer *writer, struct convoy_span text)
{
    size_t at = 0;
    convoy_writer_put(writer, "\"", 1);
    while (at < text.bytes) {
        size_t plain = at;
        while (plain < text.bytes && is_plain(text.text[plain])) {
            plain++;
        }
        convoy_writer_put(writer, text.text + at, plain - at);
        at = plain;
        if (at < text.bytes) {
            put_escaped(writer, convoy_json_utf8_point(text.text + at, text.bytes - at));
            at += convoy_utf8_bytes(text.text + at, text.bytes - at);
        }
    }
    convoy_writer_put(writer, "\"", 1);
}
