/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/manifest_binary.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/reader.h"
#include "wire/dtype.h"

#include <inttypes.h>
#include <stdbool.h>

static const uint8_t binary_magic[4] = {'C', 'V', 'M', 'F'};

/* The header's numbers. */
struct binary_head {
    uint32_t length;
    uint32_t tensors;
    uint32_t lists;
    uint32_t dimensions;
    uint32_t names;
    uint64_t payload_bytes;
};

/* Where the next of each kind lies. */
struct binary_cursor {
    size_t record;
    size_t dimension;
    size_t name;
};

/* 64 bits hold any sum of these. */
static uint64_t head_length(const struct binary_head *head)
{
    return CONVOY_MANIFEST_BINARY_HEADER_BYTES + (uint64_t)CONVOY_MANIFEST_BINARY_TENSOR_BYTES * head->tensors +
           (uint64_t)CONVOY_MANIFEST_BINARY_LIST_BYTES * head->lists + UINT64_C(8) * head->dimensions + head->names;
}

static struct binary_cursor head_cursor(const struct binary_head *head)
{
    struct binary_cursor cursor = {.record = CONVOY_MANIFEST_BINARY_HEADER_BYTES};
    cursor.dimension = cursor.record + (size_t)CONVOY_MANIFEST_BINARY_TENSOR_BYTES * head->tensors +
                       (size_t)CONVOY_MANIFEST_BINARY_LIST_BYTES * head->lists;
    cursor.name = cursor.dimension + (size_t)8 * head->dimensions;
    return cursor;
}

static uint32_t dtype_name_length(const struct convoy_tensor *tensor)
{
    return tensor->dtype == CONVOY_DTYPE_OPAQUE ? tensor->dtype_name_length : 0;
}

/* -- encode -------------------------------------------------------------------------------------------------------- */

/* Whether the lengths are such that the sums cannot overflow and the records hold them. */
static bool count_all(const struct convoy_manifest *manifest, struct binary_head *head_out)
{
    if (manifest->count > CONVOY_MANIFEST_TENSORS_MAX || manifest->list_count > CONVOY_MANIFEST_LISTS_MAX) {
        return false;
    }
    struct binary_head head = {
        .tensors = manifest->count, .lists = manifest->list_count, .payload_bytes = manifest->payload_bytes};
    for (uint32_t i = 0; i < manifest->count; i++) {
        const struct convoy_tensor *tensor = &manifest->tensors[i];
        if (tensor->rank > CONVOY_MANIFEST_RANK_MAX || tensor->name_length > CONVOY_MANIFEST_NAME_MAX ||
            dtype_name_length(tensor) > CONVOY_MANIFEST_DTYPE_NAME_MAX) {
            return false;
        }
        head.dimensions += tensor->rank;
        head.names += tensor->name_length + dtype_name_length(tensor);
    }
    for (uint32_t i = 0; i < manifest->list_count; i++) {
        if (manifest->lists[i].name_length > CONVOY_MANIFEST_NAME_MAX) {
            return false;
        }
        head.names += manifest->lists[i].name_length;
    }
    head.length = (uint32_t)head_length(&head);
    *head_out = head;
    return true;
}

size_t convoy_manifest_binary_bytes(const struct convoy_manifest *manifest)
{
    struct binary_head head;
    if (manifest->image != NULL) {
        return manifest->image_bytes;
    }
    return count_all(manifest, &head) ? head.length : 0;
}

static void put_head(const struct binary_head *head, uint8_t *out)
{
    memcpy(out, binary_magic, sizeof binary_magic);
    convoy_bytes_put_u16(out + 4, CONVOY_MANIFEST_BINARY_VERSION);
    convoy_bytes_put_u16(out + 6, 0);
    convoy_bytes_put_u32(out + 8, head->length);
    convoy_bytes_put_u32(out + 12, head->tensors);
    convoy_bytes_put_u32(out + 16, head->lists);
    convoy_bytes_put_u32(out + 20, head->dimensions);
    convoy_bytes_put_u32(out + 24, head->names);
    convoy_bytes_put_u32(out + 28, 0);
    convoy_bytes_put_u64(out + 32, head->payload_bytes);
}

static void put_name(uint8_t *out, struct binary_cursor *cursor, const char *name, uint32_t length)
{
    if (length != 0) { /* the name may be NULL then */
        memcpy(out + cursor->name, name, length);
    }
    cursor->name += length;
}

static void put_tensor(const struct convoy_tensor *tensor, uint8_t *out, struct binary_cursor *cursor)
{
    uint8_t *at = out + cursor->record;
    memset(at, 0, CONVOY_MANIFEST_BINARY_TENSOR_BYTES);
    convoy_bytes_put_u64(at, tensor->offset);
    convoy_bytes_put_u64(at + 8, tensor->bytes);
    convoy_bytes_put_u32(at + 16, (uint32_t)tensor->list_index);
    convoy_bytes_put_u32(at + 20, tensor->dtype);
    at[24] = (uint8_t)tensor->rank;
    at[25] = (uint8_t)tensor->name_length;
    at[26] = (uint8_t)dtype_name_length(tensor);
    cursor->record += CONVOY_MANIFEST_BINARY_TENSOR_BYTES;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        convoy_bytes_put_u64(out + cursor->dimension, tensor->shape[i]);
        cursor->dimension += 8;
    }
    put_name(out, cursor, tensor->name, tensor->name_length);
    put_name(out, cursor, tensor->dtype_name, dtype_name_length(tensor));
}

static void put_list(const struct convoy_tensor_list *list, uint8_t *out, struct binary_cursor *cursor)
{
    uint8_t *at = out + cursor->record;
    memset(at, 0, CONVOY_MANIFEST_BINARY_LIST_BYTES);
    convoy_bytes_put_u32(at, list->length);
    at[4] = (uint8_t)list->name_length;
    cursor->record += CONVOY_MANIFEST_BINARY_LIST_BYTES;
    put_name(out, cursor, list->name, list->name_length);
}

int32_t convoy_manifest_binary_encode(const struct convoy_manifest *manifest, uint8_t *out, size_t capacity,
                                      size_t *length_out, struct convoy_error *error)
{
    int32_t status = convoy_manifest_check(manifest, CONVOY_MANIFEST_ALIGNMENT, CONVOY_INVALID_ARGUMENT, error);
    return status == CONVOY_OK ? convoy_manifest_binary_put(manifest, out, capacity, length_out, error) : status;
}

int32_t convoy_manifest_binary_put(const struct convoy_manifest *manifest, uint8_t *out, size_t capacity,
                                   size_t *length_out, struct convoy_error *error)
{
    struct binary_head head;
    if (manifest->image != NULL && manifest->image_bytes <= capacity) {
        memcpy(out, manifest->image, manifest->image_bytes);
        *length_out = manifest->image_bytes;
        return CONVOY_OK;
    }
    if (!count_all(manifest, &head)) {
        return convoy_error_set(error, CONVOY_INVARIANT, "manifest: passed its check with lengths out of bounds");
    }
    *length_out = head.length;
    if (capacity < head.length) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "manifest takes %u bytes, the buffer has %zu",
                                head.length, capacity);
    }
    struct binary_cursor cursor = head_cursor(&head);
    put_head(&head, out);
    for (uint32_t i = 0; i < manifest->count; i++) {
        put_tensor(&manifest->tensors[i], out, &cursor);
    }
    for (uint32_t i = 0; i < manifest->list_count; i++) {
        put_list(&manifest->lists[i], out, &cursor);
    }
    return CONVOY_OK;
}

/* -- remembering --------------------------------------------------------------------------------------------------- */

static bool image_grow(struct convoy_manifest_room *room, size_t bytes)
{
    if (room->image_room < bytes) {
        uint8_t *image = convoy_memory_zalloc(bytes);
        if (image == NULL) {
            return false;
        }
        convoy_memory_free(room->image);
        room->image = image;
        room->image_room = bytes;
    }
    return true;
}

static void know(struct convoy_manifest_room *room, struct convoy_manifest *manifest, size_t bytes, uint32_t given)
{
    manifest->image = room->image;
    manifest->image_bytes = bytes;
    room->known = manifest;
    room->known_lists = given;
}

void convoy_manifest_remember(struct convoy_manifest_room *room, struct convoy_manifest *manifest, uint32_t given)
{
    size_t bytes = convoy_manifest_binary_bytes(manifest);
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (bytes != 0 && image_grow(room, bytes) &&
        convoy_manifest_binary_put(manifest, room->image, bytes, &bytes, &error) == CONVOY_OK) {
        know(room, manifest, bytes, given);
    }
}

static bool is_known(const struct convoy_manifest_room *room, const uint8_t *bytes, size_t length)
{
    return room != NULL && room->known != NULL && room->known->image_bytes == length &&
           memcmp(room->image, bytes, length) == 0;
}

/* -- decode -------------------------------------------------------------------------------------------------------- */

static int32_t take_head(const uint8_t *bytes, size_t length, struct binary_head *head_out, struct convoy_error *error)
{
    if (length < CONVOY_MANIFEST_BINARY_HEADER_BYTES || memcmp(bytes, binary_magic, sizeof binary_magic) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest: %zu bytes that do not begin with a header of %u",
                                length, CONVOY_MANIFEST_BINARY_HEADER_BYTES);
    }
    if (convoy_bytes_u16(bytes + 4) != CONVOY_MANIFEST_BINARY_VERSION) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH, "manifest.version is %u, this side reads %u",
                                convoy_bytes_u16(bytes + 4), CONVOY_MANIFEST_BINARY_VERSION);
    }
    struct binary_head head = {
        .length = convoy_bytes_u32(bytes + 8),
        .tensors = convoy_bytes_u32(bytes + 12),
        .lists = convoy_bytes_u32(bytes + 16),
        .dimensions = convoy_bytes_u32(bytes + 20),
        .names = convoy_bytes_u32(bytes + 24),
        .payload_bytes = convoy_bytes_u64(bytes + 32),
    };
    if (convoy_bytes_u16(bytes + 6) != 0 || convoy_bytes_u32(bytes + 28) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest: bytes 6 and 28 of the header must be zero");
    }
    if (head.length != length || head_length(&head) != length) {
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "manifest.length is %u, its counts make %" PRIu64 ", %zu bytes came", head.length,
                                head_length(&head), length);
    }
    *head_out = head;
    return convoy_manifest_limits(head.tensors, head.lists, error);
}

/* What is read, each kind from its own part. */
struct binary_input {
    struct convoy_reader records;
    struct convoy_reader dimensions;
    struct convoy_reader names; /* of the copy */
};

static const char *take_name(struct binary_input *input, uint32_t length)
{
    return (const char *)convoy_reader_take(&input->names, length);
}

/* false: a byte that must be zero is not, or dimensions or names run over. */
static bool take_tensor(struct binary_input *input, struct convoy_tensor *tensor)
{
    tensor->offset = convoy_reader_u64(&input->records);
    tensor->bytes = convoy_reader_u64(&input->records);
    tensor->list_index = (int32_t)convoy_reader_u32(&input->records);
    tensor->dtype = convoy_reader_u32(&input->records);
    tensor->rank = convoy_reader_u8(&input->records);
    tensor->name_length = convoy_reader_u8(&input->records);
    tensor->dtype_name_length = convoy_reader_u8(&input->records);
    if (!convoy_reader_zeros(&input->records, 5) || tensor->rank > CONVOY_MANIFEST_RANK_MAX ||
        (tensor->dtype != CONVOY_DTYPE_OPAQUE && tensor->dtype_name_length != 0)) {
        return false;
    }
    for (uint32_t i = 0; i < tensor->rank; i++) {
        tensor->shape[i] = convoy_reader_u64(&input->dimensions);
    }
    tensor->name = take_name(input, tensor->name_length);
    tensor->dtype_name = tensor->dtype == CONVOY_DTYPE_OPAQUE ? take_name(input, tensor->dtype_name_length) : NULL;
    return !input->dimensions.is_short && !input->names.is_short;
}

static bool take_list(struct binary_input *input, struct convoy_tensor_list *list)
{
    list->length = convoy_reader_u32(&input->records);
    list->name_length = convoy_reader_u8(&input->records);
    bool is_zero = convoy_reader_zeros(&input->records, 3);
    list->name = take_name(input, list->name_length);
    return is_zero && !input->names.is_short;
}

static int32_t take_records(struct binary_input *input, struct convoy_manifest *manifest, struct convoy_error *error)
{
    for (uint32_t i = 0; i < manifest->count; i++) {
        if (!take_tensor(input, &manifest->tensors[i])) {
            return convoy_error_set(error, CONVOY_MALFORMED,
                                    "manifest.tensors[%u]: rank %u (up to %u), a name of %u and a dtype name of %u "
                                    "bytes do not fit the header, or its last 5 bytes are not zero",
                                    i, manifest->tensors[i].rank, CONVOY_MANIFEST_RANK_MAX,
                                    manifest->tensors[i].name_length, manifest->tensors[i].dtype_name_length);
        }
    }
    for (uint32_t i = 0; i < manifest->list_count; i++) {
        if (!take_list(input, &manifest->lists[i])) {
            return convoy_error_set(error, CONVOY_MALFORMED,
                                    "manifest.lists[%u]: a name of %u bytes does not fit the header, or its last 3 "
                                    "bytes are not zero",
                                    i, manifest->lists[i].name_length);
        }
    }
    if (input->dimensions.left != 0 || input->names.left != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest: %zu bytes of dimensions and %zu of names are left",
                                input->dimensions.left, input->names.left);
    }
    return CONVOY_OK;
}

int32_t convoy_manifest_binary_decode_in(const uint8_t *bytes, size_t length, struct convoy_manifest_room *room,
                                         struct convoy_manifest **manifest_out, struct convoy_error *error)
{
    struct binary_head head = {0};
    char *names = NULL;
    if (is_known(room, bytes, length)) {
        *manifest_out = room->known;
        return CONVOY_OK;
    }
    int32_t status = take_head(bytes, length, &head, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_manifest *manifest = convoy_manifest_create_in(room, head.tensors, head.lists, head.names, &names);
    if (manifest == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "manifest: no memory for %u tensors", head.tensors);
    }
    const struct binary_cursor parts = head_cursor(&head); /* which fill the length, as its head was checked to */
    struct convoy_reader reader = convoy_reader_of(bytes + parts.record, length - parts.record);
    struct binary_input input = {.records = convoy_reader_part(&reader, parts.dimension - parts.record),
                                 .dimensions = convoy_reader_part(&reader, parts.name - parts.dimension),
                                 .names = convoy_reader_of(names, head.names)};
    memcpy(names, reader.at, head.names);
    manifest->payload_bytes = head.payload_bytes;
    status = take_records(&input, manifest, error);
    if (status == CONVOY_OK) {
        status = convoy_manifest_check(manifest, CONVOY_MANIFEST_ALIGNMENT, CONVOY_MALFORMED, error);
    }
    if (status != CONVOY_OK) {
        if (room == NULL) {
            convoy_manifest_destroy(manifest);
        }
        return status;
    }
    if (room != NULL && image_grow(room, length)) {
        memcpy(room->image, bytes, length);
        know(room, manifest, length, CONVOY_MANIFEST_CAME);
    }
    *manifest_out = manifest;
    return CONVOY_OK;
}

int32_t convoy_manifest_binary_decode(const uint8_t *bytes, size_t length, struct convoy_manifest **manifest_out,
                                      struct convoy_error *error)
{
    return convoy_manifest_binary_decode_in(bytes, length, NULL, manifest_out, error);
}
