/* SPDX-License-Identifier: Apache-2.0 */
#include "net/message.h"

#include "core/bytes.h"
#include "core/error.h"

#define TABLE_HEAD_BYTES 4u
#define TABLE_ENTRY_HEAD_BYTES 4u

void convoy_notice_from_error(struct convoy_notice *notice, const struct convoy_error *error, uint32_t flags)
{
    notice->status = error->status < 0 ? error->status : CONVOY_INVARIANT;
    notice->rank = error->rank;
    notice->sys_errno = error->sys_errno;
    notice->flags = flags;
    memcpy(notice->text, error->text, sizeof notice->text);
}

int32_t convoy_notice_to_error(const struct convoy_notice *notice, struct convoy_error *error)
{
    (void)convoy_error_set_peer(error, notice->status, notice->rank, 0, "%s", notice->text);
    if (error != NULL && error->struct_size >= sizeof *error) {
        error->sys_errno = notice->sys_errno;
    }
    return notice->status;
}

size_t convoy_notice_encode(const struct convoy_notice *notice, uint8_t bytes_out[CONVOY_NOTICE_BYTES_MAX])
{
    size_t length = strnlen(notice->text, sizeof notice->text - 1);
    convoy_bytes_put_u32(bytes_out, (uint32_t)notice->status);
    convoy_bytes_put_u32(bytes_out + 4, (uint32_t)notice->rank);
    convoy_bytes_put_u32(bytes_out + 8, (uint32_t)notice->sys_errno);
    convoy_bytes_put_u32(bytes_out + 12, notice->flags);
    memcpy(bytes_out + CONVOY_NOTICE_HEAD_BYTES, notice->text, length);
    return CONVOY_NOTICE_HEAD_BYTES + length;
}

bool convoy_notice_decode(const uint8_t *data, size_t bytes, struct convoy_notice *notice_out)
{
    if (bytes < CONVOY_NOTICE_HEAD_BYTES || bytes > CONVOY_NOTICE_BYTES_MAX || (int32_t)convoy_bytes_u32(data) >= 0) {
        return false;
    }
    notice_out->status = (int32_t)convoy_bytes_u32(data);
    notice_out->rank = (int32_t)convoy_bytes_u32(data + 4);
    notice_out->sys_errno = (int32_t)convoy_bytes_u32(data + 8);
    notice_out->flags = convoy_bytes_u32(data + 12);
    size_t length = bytes - CONVOY_NOTICE_HEAD_BYTES;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = data[CONVOY_NOTICE_HEAD_BYTES + i];
        notice_out->text[i] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    notice_out->text[length] = '\0';
    return true;
}

void convoy_message_text(const void *bytes, size_t count, char *text_out, size_t room)
{
    size_t length = count < room - 1 ? count : room - 1;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = ((const uint8_t *)bytes)[i];
        text_out[i] = byte < 0x20 || byte > 0x7e ? '?' : (char)byte;
    }
    text_out[length] = '\0';
}

void convoy_welcome_encode(const struct convoy_welcome *welcome, uint8_t bytes_out[CONVOY_WELCOME_BYTES])
{
    convoy_bytes_put_u64(bytes_out, welcome->epoch);
    convoy_bytes_put_u32(bytes_out + 8, welcome->wire);
    memcpy(bytes_out + 12, welcome->salt, sizeof welcome->salt);
}

bool convoy_welcome_decode(const uint8_t *data, size_t bytes, struct convoy_welcome *welcome_out)
{
    if (bytes != CONVOY_WELCOME_BYTES || convoy_bytes_u64(data) == 0) {
        return false;
    }
    welcome_out->epoch = convoy_bytes_u64(data);
    welcome_out->wire = convoy_bytes_u32(data + 8);
    memcpy(welcome_out->salt, data + 12, sizeof welcome_out->salt);
    return true;
}

size_t convoy_table_bytes(const struct convoy_blob *blobs, uint32_t count)
{
    size_t bytes = TABLE_HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        bytes += TABLE_ENTRY_HEAD_BYTES + blobs[i].bytes;
    }
    return bytes;
}

void convoy_table_encode(const struct convoy_blob *blobs, uint32_t count, uint32_t sequence, uint8_t *bytes_out)
{
    convoy_bytes_put_u32(bytes_out, sequence);
    bytes_out += TABLE_HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        convoy_bytes_put_u32(bytes_out, (uint32_t)blobs[i].bytes);
        bytes_out += TABLE_ENTRY_HEAD_BYTES;
        if (blobs[i].bytes != 0) {
            memcpy(bytes_out, blobs[i].data, blobs[i].bytes);
        }
        bytes_out += blobs[i].bytes;
    }
}

bool convoy_table_decode(const uint8_t *data, size_t bytes, uint32_t sequence, struct convoy_blob *blobs_out,
                         uint32_t count)
{
    if (bytes < TABLE_HEAD_BYTES || convoy_bytes_u32(data) != sequence) {
        return false;
    }
    size_t offset = TABLE_HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        if (bytes - offset < TABLE_ENTRY_HEAD_BYTES) {
            return false;
        }
        size_t length = convoy_bytes_u32(data + offset);
        offset += TABLE_ENTRY_HEAD_BYTES;
        if (length > CONVOY_BOOTSTRAP_BLOB_MAX || length > bytes - offset) {
            return false;
        }
        blobs_out[i] = (struct convoy_blob){.data = data + offset, .bytes = length};
        offset += length;
    }
    return offset == bytes;
}
