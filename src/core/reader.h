/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads untrusted bytes from the front, and never beyond their end: what does not fit gives 0 or NULL, and from then on the
 * reader is short for good, so that one question at the end is enough. Borrows the bytes; pure.
 */
#ifndef CONVOY_CORE_READER_H
#define CONVOY_CORE_READER_H

#include "core/bytes.h"

#include <stdbool.h>
#include <stddef.h>

struct convoy_reader {
    const uint8_t *at;
    size_t left;
    bool is_short; /* more was asked for than there was */
};

static inline struct convoy_reader convoy_reader_of(const void *bytes, size_t length)
{
    return (struct convoy_reader){.at = bytes, .left = length};
}

/* The next bytes as they are, or NULL. */
static inline const uint8_t *convoy_reader_take(struct convoy_reader *reader, size_t bytes)
{
    const uint8_t *taken = reader->at;
    if (reader->is_short || bytes > reader->left) {
        reader->is_short = true;
        return NULL;
    }
    reader->at += bytes;
    reader->left -= bytes;
    return taken;
}

/* A reader of the next bytes alone; short if there are not so many. */
static inline struct convoy_reader convoy_reader_part(struct convoy_reader *reader, size_t bytes)
{
    const uint8_t *taken = convoy_reader_take(reader, bytes);
    return (struct convoy_reader){.at = taken, .left = taken != NULL ? bytes : 0, .is_short = taken == NULL};
}

static inline uint8_t convoy_reader_u8(struct convoy_reader *reader)
{
    const uint8_t *at = convoy_reader_take(reader, 1);
    return at != NULL ? *at : 0;
}

static inline uint16_t convoy_reader_u16(struct convoy_reader *reader)
{
    const uint8_t *at = convoy_reader_take(reader, 2);
    return at != NULL ? convoy_bytes_u16(at) : 0;
}

static inline uint32_t convoy_reader_u32(struct convoy_reader *reader)
{
    const uint8_t *at = convoy_reader_take(reader, 4);
    return at != NULL ? convoy_bytes_u32(at) : 0;
}

static inline uint64_t convoy_reader_u64(struct convoy_reader *reader)
{
    const uint8_t *at = convoy_reader_take(reader, 8);
    return at != NULL ? convoy_bytes_u64(at) : 0;
}

/* Whether so many bytes come next, all of them zero. */
static inline bool convoy_reader_zeros(struct convoy_reader *reader, size_t bytes)
{
    const uint8_t *at = convoy_reader_take(reader, bytes);
    uint8_t seen = 0;
    for (size_t i = 0; at != NULL && i < bytes; i++) {
        seen |= at[i];
    }
    return at != NULL && seen == 0;
}

/* Whether these very bytes come next. */
static inline bool convoy_reader_is(struct convoy_reader *reader, const void *wanted, size_t bytes)
{
    const uint8_t *at = convoy_reader_take(reader, bytes);
    return at != NULL && memcmp(at, wanted, bytes) == 0;
}

/* All was read, and nothing more was asked for. */
static inline bool convoy_reader_is_done(const struct convoy_reader *reader)
{
    return !reader->is_short && reader->left == 0;
}

#endif
