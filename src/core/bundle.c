/* SPDX-License-Identifier: Apache-2.0 */
#include "core/bundle.h"

#include "core/bytes.h"
#include "core/memory.h"
#include "core/version.h"

#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FORMAT ((uint16_t)CONVOY_STATE_FORMAT_MAX)
#define HEADER_BYTES 32u
#define ITEM_BYTES 8u
#define ROOM_FIRST ((size_t)1 << 20) /* as a table: what is not written costs nothing */

static const uint8_t magic[4] = {'C', 'V', 'S', 'T'};

static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

/* Room for so many more bytes, of any content; NULL: there is no memory. */
static uint8_t *grow(struct convoy_bundle_writer *writer, size_t bytes)
{
    if (writer->is_out_of_memory) {
        return NULL;
    }
    if (writer->room - writer->used < bytes) {
        size_t room = 2 * writer->room + bytes + ROOM_FIRST;
        uint8_t *grown = convoy_memory_table(1, room);
        if (grown == NULL) {
            writer->is_out_of_memory = true;
            return NULL;
        }
        if (writer->used != 0) {
            memcpy(grown, writer->data, writer->used);
        }
        if (!writer->is_lent) {
            convoy_memory_table_free(writer->data);
        }
        writer->data = grown;
        writer->room = room;
        writer->is_lent = false;
    }
    uint8_t *at = writer->data + writer->used;
    writer->used += bytes;
    return at;
}

void convoy_bundle_begin(struct convoy_bundle_writer *writer)
{
    uint8_t *at = grow(writer, HEADER_BYTES);
    if (at != NULL) {
        memset(at, 0, HEADER_BYTES);
    }
}

void convoy_bundle_lend(struct convoy_bundle_writer *writer, void *memory, size_t bytes)
{
    if (memory != NULL && ((uintptr_t)memory & 7u) == 0) {
        *writer = (struct convoy_bundle_writer){.data = memory, .room = bytes, .is_lent = true};
    }
}

/* Returns where the data goes, whose last word is zero already. */
static uint8_t *write_head(uint8_t *at, uint16_t tag, uint16_t flags, size_t bytes)
{
    memset(at + padded(bytes), 0, ITEM_BYTES); /* the last of all that there is room for */
    convoy_bytes_put_u16(at, tag);
    convoy_bytes_put_u16(at + 2, flags);
    convoy_bytes_put_u32(at + 4, (uint32_t)bytes);
    return at + ITEM_BYTES;
}

static uint8_t *put_head(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags, size_t bytes)
{
    if (bytes > UINT32_MAX) {
        writer->is_out_of_memory = true;
        return NULL;
    }
    uint8_t *at = grow(writer, ITEM_BYTES + padded(bytes));
    return at != NULL ? write_head(at, tag, flags, bytes) : NULL;
}

void convoy_bundle_put(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags, const void *data, size_t bytes)
{
    uint8_t *at = put_head(writer, tag, flags, bytes);
    if (at != NULL && bytes != 0) {
        memcpy(at, data, bytes);
    }
}

void convoy_bundle_put_u64(struct convoy_bundle_writer *writer, uint16_t tag, uint64_t value)
{
    convoy_bundle_put(writer, tag, 0, &value, sizeof value);
}

size_t convoy_bundle_open(struct convoy_bundle_writer *writer, uint16_t tag, uint16_t flags)
{
    (void)put_head(writer, tag, flags, 0);
    return writer->used;
}

void convoy_bundle_add(struct convoy_bundle_writer *writer, const void *data, size_t bytes)
{
    uint8_t *at = grow(writer, bytes);
    if (at != NULL && bytes != 0) {
        memcpy(at, data, bytes);
    }
}

void convoy_bundle_shut(struct convoy_bundle_writer *writer, size_t opened)
{
    size_t bytes = writer->used - opened;
    if (bytes > UINT32_MAX) {
        writer->is_out_of_memory = true;
    }
    if (!writer->is_out_of_memory) {
        convoy_bytes_put_u32(writer->data + opened - 4, (uint32_t)bytes);
        uint8_t *rest = grow(writer, padded(bytes) - bytes); /* after bytes that were added */
        if (rest != NULL) {
            memset(rest, 0, padded(bytes) - bytes);
        }
    }
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    uint64_t seen = 0;
    for (; count >= sizeof seen; bytes += sizeof seen, count -= sizeof seen) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        seen |= word;
    }
    for (size_t i = 0; i < count; i++) {
        seen |= bytes[i];
    }
    return seen == 0;
}

static size_t most_bytes(const struct convoy_bundle_shape *shape)
{
    size_t bytes = 0;
    for (size_t i = 0; i < shape->count; i++) {
        bytes += ITEM_BYTES + padded(shape->fields[i].bytes);
    }
    return bytes;
}

/* Room for all of them is made once: a moving group waits for thousands of fields. */
void convoy_bundle_put_fields(struct convoy_bundle_writer *writer, const struct convoy_bundle_shape *shape,
                              const void *from)
{
    size_t opened = convoy_bundle_open(writer, CONVOY_BUNDLE_FIELDS, 0);
    uint8_t *at = grow(writer, most_bytes(shape));
    if (at == NULL) {
        return;
    }
    for (size_t i = 0; i < shape->count; i++) {
        const struct convoy_bundle_field *field = &shape->fields[i];
        const uint8_t *value = (const uint8_t *)from + field->offset;
        if (!is_zero(value, field->bytes)) {
            at = write_head(at, field->tag, field->flags, field->bytes);
            memcpy(at, value, field->bytes);
            at += padded(field->bytes);
        }
    }
    writer->used = (size_t)(at - writer->data); /* the rest was not touched */
    convoy_bundle_shut(writer, opened);
}

int32_t convoy_bundle_end(struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    if (writer->is_out_of_memory) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a state of more than %zu bytes", writer->used);
    }
    memcpy(writer->data, magic, sizeof magic);
    convoy_bytes_put_u16(writer->data + 4, FORMAT);
    convoy_bytes_put_u64(writer->data + 8, writer->used);
    convoy_bytes_put_u64(writer->data + 24, (uint64_t)getpid());
    convoy_bytes_put_u64(writer->data + 16, XXH3_64bits(writer->data + 24, writer->used - 24));
    return CONVOY_OK;
}

void convoy_bundle_free(struct convoy_bundle_writer *writer)
{
    if (!writer->is_lent) {
        convoy_memory_table_free(writer->data);
    }
    *writer = (struct convoy_bundle_writer){0};
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

int32_t convoy_bundle_check_format(uint32_t format_max, uint32_t lowest, struct convoy_error *error)
{
    if (format_max != 0 && format_max < lowest) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "the importer reads exported states up to format %u, this build "
                                "writes them from format %u on", format_max, lowest);
    }
    return CONVOY_OK;
}

int32_t convoy_bundle_read(const void *data, size_t bytes, struct convoy_bundle_reader *reader_out,
                           struct convoy_error *error)
{
    const uint8_t *at = data;
    if (at == NULL || bytes < HEADER_BYTES || memcmp(at, magic, sizeof magic) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "%zu bytes are no exported state", bytes);
    }
    if (convoy_bytes_u16(at + 4) != FORMAT) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH, "an exported state of format %u, this build reads %u",
                                convoy_bytes_u16(at + 4), FORMAT);
    }
    if (convoy_bytes_u64(at + 8) != bytes || convoy_bytes_u64(at + 16) != XXH3_64bits(at + 24, bytes - 24)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "an exported state of %zu bytes is damaged", bytes);
    }
    if (convoy_bytes_u64(at + 24) != (uint64_t)getpid()) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "an exported state of process %llu, this is %ld",
                                (unsigned long long)convoy_bytes_u64(at + 24), (long)getpid());
    }
    *reader_out = (struct convoy_bundle_reader){.at = at + HEADER_BYTES, .left = bytes - HEADER_BYTES};
    return CONVOY_OK;
}

bool convoy_bundle_next(struct convoy_bundle_reader *reader, struct convoy_bundle_item *item_out)
{
    if (reader->left == 0 || reader->is_malformed) {
        return false;
    }
    size_t bytes = reader->left >= ITEM_BYTES ? convoy_bytes_u32(reader->at + 4) : 0;
    if (reader->left < ITEM_BYTES || padded(bytes) > reader->left - ITEM_BYTES) {
        reader->is_malformed = true;
        return false;
    }
    *item_out = (struct convoy_bundle_item){.tag = convoy_bytes_u16(reader->at),
                                            .flags = convoy_bytes_u16(reader->at + 2),
                                            .data = reader->at + ITEM_BYTES,
                                            .bytes = bytes};
    reader->at += ITEM_BYTES + padded(bytes);
    reader->left -= ITEM_BYTES + padded(bytes);
    return true;
}

struct convoy_bundle_reader convoy_bundle_inside(const struct convoy_bundle_item *item)
{
    return (struct convoy_bundle_reader){.at = item->data, .left = item->bytes};
}

int32_t convoy_bundle_done(const struct convoy_bundle_reader *reader, const char *where, struct convoy_error *error)
{
    return reader->is_malformed ? convoy_error_set(error, CONVOY_MALFORMED, "%s of an exported state is cut off", where)
                                : CONVOY_OK;
}

uint64_t convoy_bundle_u64(const struct convoy_bundle_item *item)
{
    return item->bytes == sizeof(uint64_t) ? convoy_bytes_u64(item->data) : 0;
}

int32_t convoy_bundle_unknown(const struct convoy_bundle_item *item, const char *where, struct convoy_error *error)
{
    if ((item->flags & CONVOY_BUNDLE_CRITICAL) == 0) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_TOO_NEW, "item %u of %s is needed, and this build does not know it", item->tag,
                            where);
}

static const struct convoy_bundle_field *find_field(const struct convoy_bundle_shape *shape, uint16_t tag)
{
    for (size_t i = 0; i < shape->count; i++) {
        if (shape->fields[i].tag == tag) {
            return &shape->fields[i];
        }
    }
    return NULL;
}

static bool are_bools(const uint8_t *data, size_t bytes)
{
    bool are = true;
    for (size_t i = 0; i < bytes; i++) {
        are = are && data[i] <= 1;
    }
    return are;
}

static int32_t take_field(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape, void *to,
                          struct convoy_error *error)
{
    const struct convoy_bundle_field *field = find_field(shape, item->tag);
    if (field == NULL) {
        return convoy_bundle_unknown(item, shape->name, error);
    }
    size_t known = item->bytes < field->bytes ? item->bytes : field->bytes;
    if (!is_zero(item->data + known, item->bytes - known)) {
        return convoy_error_set(error, CONVOY_TOO_NEW, "%s of %s has %zu bytes, this build knows %u", field->name,
                                shape->name, item->bytes, field->bytes);
    }
    if (field->is_bool && !are_bools(item->data, known)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "%s of %s is neither true nor false", field->name, shape->name);
    }
    memcpy((uint8_t *)to + field->offset, item->data, known);
    return CONVOY_OK;
}

int32_t convoy_bundle_get_fields(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape, void *to,
                                 struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item field;
    while (convoy_bundle_next(&reader, &field)) {
        int32_t status = take_field(&field, shape, to, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return convoy_bundle_done(&reader, shape->name, error);
}
