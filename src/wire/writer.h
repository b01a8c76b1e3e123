/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON as the hosts' Python does: no blanks, everything but printable ASCII escaped. The same calls run twice:
 * without a place to write, which gives the length, then into memory of exactly that length.
 */
#ifndef CONVOY_WIRE_WRITER_H
#define CONVOY_WIRE_WRITER_H

#include "wire/json_string.h"

struct convoy_writer {
    char *out; /* NULL: only counts */
    size_t bytes;
};

void convoy_writer_put(struct convoy_writer *writer, const char *text, size_t bytes);
void convoy_writer_text(struct convoy_writer *writer, const char *text);
void convoy_writer_number(struct convoy_writer *writer, int64_t value);
void convoy_writer_large(struct convoy_writer *writer, uint64_t value);

/* With its quotes. text must be UTF-8. */
void convoy_writer_string(struct convoy_writer *writer, struct convoy_span text);

#endif
