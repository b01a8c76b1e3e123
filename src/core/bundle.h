/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle: what one build writes down of itself for another one of the same process, as tagged items that nest. Whoever
 * reads it takes the tags it knows; what it does not know is dropped, unless the writer has marked it as critical.
 *
 *   0 "CVST" 4 | 4 format 2 = 1 | 6 zero 2 | 8 bytes of all 8 | 16 digest of what follows 8 | 24 process 8 | 32 items
 *
 *   item   tag 2 | flags 2 | length 4 | data, filled up with zeros to a multiple of 8
 *
 * Tags are numbers of their own in each kind of item, never used again. An integer is as long as its field; a reader with a
 * longer one fills up with zeros, one with a shorter one refuses what it would cut off. A field that is all zero is not
 * written, and zero is what a reader assumes. Little-endian, like every machine that convoy runs on. Pure but for memory.
 */
#ifndef CONVOY_CORE_BUNDLE_H
#define CONVOY_CORE_BUNDLE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_BUNDLE_CRITICAL 1u /* item flag: a reader that does not know it must not go on */
#define CONVOY_BUNDLE_FIELDS 1u   /* tag, in every kind of item: the plain fields of a struct */

/* -- fields: a struct's members by tag, one table for writer and reader -- */

struct convoy_bundle_field {
    const char *name; /* for error texts and the list of all tags */
    uint16_t tag;     /* from 1 */
    uint16_t flags;   /* CONVOY_BUNDLE_CRITICAL */
    uint32_t offset;
    uint32_t bytes;
    bool is_bool; /* also an array of them: what is read is 0 or 1, another byte is MALFORMED */
};

#define CONVOY_BUNDLE_FIELD_FLAGS(number, type, member, how)                                                           \
    {.name = #member,                                                                                                  \
     .tag = (number),                                                                                                  \
     .flags = (how),                                                                                                   \
     .offset = (uint32_t)offsetof(type, member),                                                                       \
     .bytes = (uint32_t)sizeof(((type *)NULL)->member),                                                                \
     .is_bool = _Generic(((type *)NULL)->member, bool: true, bool *: true, default: false)}
#define CONVOY_BUNDLE_FIELD(number, type, member) CONVOY_BUNDLE_FIELD_FLAGS(number, type, member, 0u)

/* The fields of one kind of item. */
struct convoy_bundle_shape {
    const char *name;
    const struct convoy_bundle_field *fields;
    size_t count;
};

/* -- writing -- */

/* Whether there is a format that this build writes, from `lowest` on, and its importer reads, up to format_max (0 = the same
 * ones). UNSUPPORTED: both numbers. */
int32_t convoy_bundle_check_format(uint32_t format_max, uint32_t lowest, struct convoy_error *error);

/* All zero before begin. The first failure stays; later calls do nothing. */
struct convoy_bundle_writer {
    uint8_t *data;
    size_t used;
    size_t room;
    bool is_out_of_memory;
    bool is_lent; /* data is the caller's */
};

/* Before begin: the caller's memory is written to as long as it suffices, and never freed. */
void convoy_bundle_lend(struct convoy_bundle_writer *writer, void *memory, size_t bytes);
void convoy_bundle_begin(struct convoy_bundle_writer *writer);
void convoy_bundle_put(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags, const void *data, size_t bytes);
void convoy_bundle_put_u64(struct convoy_bundle_writer *writer, uint16_t tag, uint64_t value); /* also zero */
/* An item of items: what is put until shut is inside. Returns what shut takes. */
size_t convoy_bundle_open(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags);
/* Bytes at the end of the open item, for one that is a row of them; items cannot follow. */
void convoy_bundle_add(struct convoy_bundle_writer *writer, const void *data, size_t bytes);
void convoy_bundle_shut(struct convoy_bundle_writer *writer, size_t opened);
/* One item FIELDS with those of `from` that are not all zero. */
void convoy_bundle_put_fields(struct convoy_bundle_writer *writer, const struct convoy_bundle_shape *shape,
                              const void *from);
/* NO_MEMORY, or the bundle is whole: data and used. */
int32_t convoy_bundle_end(struct convoy_bundle_writer *writer, struct convoy_error *error);
void convoy_bundle_free(struct convoy_bundle_writer *writer);

/* -- reading -- */

/* What is left of a row of items. */
struct convoy_bundle_reader {
    const uint8_t *at;
    size_t left;
    bool is_malformed;
};

struct convoy_bundle_item {
    uint16_t tag;
    uint16_t flags;
    const uint8_t *data; /* aligned to 8 */
    size_t bytes;
};

/* data: aligned to 8. MALFORMED: damaged, or no bundle. VERSION_MISMATCH: another format. INVALID_ARGUMENT: of another
 * process. */
int32_t convoy_bundle_read(const void *data, size_t bytes, struct convoy_bundle_reader *reader_out,
                           struct convoy_error *error);
/* The next item. false: there is none, or is_malformed. */
bool convoy_bundle_next(struct convoy_bundle_reader *reader, struct convoy_bundle_item *item_out);
struct convoy_bundle_reader convoy_bundle_inside(const struct convoy_bundle_item *item);
/* After the last item: OK, or MALFORMED in which. */
int32_t convoy_bundle_done(const struct convoy_bundle_reader *reader, const char *where, struct convoy_error *error);
/* 0 if it has another length. */
uint64_t convoy_bundle_u64(const struct convoy_bundle_item *item);
/* OK: an item that this reader does not know may be dropped. TOO_NEW: it is critical. */
int32_t convoy_bundle_unknown(const struct convoy_bundle_item *item, const char *where, struct convoy_error *error);
/* From an item FIELDS into `to`, whose fields were zero. TOO_NEW: an unknown critical one, or one that does not fit.
 * MALFORMED. */
int32_t convoy_bundle_get_fields(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape, void *to,
                                 struct convoy_error *error);

#endif
