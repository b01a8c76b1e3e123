/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/descriptor.h"

#include "core/error.h"
#include "core/reader.h"
#include "core/utf8.h"
#include "pool/lease.h"
#include "wire/control.h"
#include "wire/manifest_binary.h"
#include "wire/scalars.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "CVTD"
#define VERSION 1u

size_t convoy_descriptor_bytes(const struct convoy_descriptor *descriptor)
{
    size_t manifest = convoy_manifest_binary_bytes(descriptor->manifest);
    return manifest == 0 ? 0
                         : CONVOY_DESCRIPTOR_HEADER_BYTES + descriptor->request.bytes + descriptor->session.bytes +
                               descriptor->scalars.bytes + manifest;
}

static uint8_t *put_span(uint8_t *at, struct convoy_span span)
{
    if (span.bytes != 0) {
        memcpy(at, span.text, span.bytes);
    }
    return at + span.bytes;
}

int32_t convoy_descriptor_encode(const struct convoy_descriptor *descriptor, uint8_t *out, size_t capacity,
                                 struct convoy_error *error)
{
    size_t texts = descriptor->request.bytes + descriptor->session.bytes + descriptor->scalars.bytes;
    size_t manifest = 0;
    if (capacity < CONVOY_DESCRIPTOR_HEADER_BYTES + texts) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "%zu bytes for a descriptor", capacity);
    }
    int32_t status = convoy_manifest_binary_put(descriptor->manifest, out + CONVOY_DESCRIPTOR_HEADER_BYTES + texts,
                                                capacity - CONVOY_DESCRIPTOR_HEADER_BYTES - texts, &manifest, error);
    if (status != CONVOY_OK) {
        return status;
    }
    memset(out, 0, CONVOY_DESCRIPTOR_HEADER_BYTES);
    memcpy(out, MAGIC, 4);
    convoy_bytes_put_u16(out + 4, VERSION);
    convoy_bytes_put_u16(out + 6, (uint16_t)descriptor->flags);
    convoy_bytes_put_u32(out + 8, (uint32_t)(CONVOY_DESCRIPTOR_HEADER_BYTES + texts + manifest));
    convoy_bytes_put_u32(out + 12, descriptor->attempt);
    const uint64_t numbers[] = {descriptor->incarnation, descriptor->serial,        descriptor->generation,
                                descriptor->offset,      descriptor->payload_bytes, descriptor->checksum};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        convoy_bytes_put_u64(out + 16 + 8 * i, numbers[i]);
    }
    convoy_bytes_put_u16(out + 64, (uint16_t)descriptor->request.bytes);
    convoy_bytes_put_u16(out + 66, (uint16_t)descriptor->session.bytes);
    convoy_bytes_put_u32(out + 68, (uint32_t)descriptor->scalars.bytes);
    convoy_bytes_put_u32(out + 72, (uint32_t)manifest);
    convoy_bytes_put_u32(out + 76, (uint32_t)descriptor->priority);
    uint8_t *at = put_span(out + CONVOY_DESCRIPTOR_HEADER_BYTES, descriptor->request);
    at = put_span(at, descriptor->session);
    (void)put_span(at, descriptor->scalars);
    return CONVOY_OK;
}

/* Lengths only: whether the parts fill the whole. */
static int32_t check_head(const uint8_t *bytes, size_t length, struct convoy_error *error)
{
    if (!convoy_descriptor_is_binary(bytes, length) || length < CONVOY_DESCRIPTOR_HEADER_BYTES) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor: %zu bytes that are none", length);
    }
    if (convoy_bytes_u16(bytes + 4) != VERSION) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH, "descriptor.version is %u, this build reads %u",
                                convoy_bytes_u16(bytes + 4), VERSION);
    }
    uint64_t parts = CONVOY_DESCRIPTOR_HEADER_BYTES + (uint64_t)convoy_bytes_u16(bytes + 64) +
                     convoy_bytes_u16(bytes + 66) + convoy_bytes_u32(bytes + 68) + convoy_bytes_u32(bytes + 72);
    if (convoy_bytes_u32(bytes + 8) != length || parts != length) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor.length is %u, its parts make %llu, %zu bytes came",
                                convoy_bytes_u32(bytes + 8), (unsigned long long)parts, length);
    }
    if ((convoy_bytes_u16(bytes + 6) & CONVOY_DESCRIPTOR_CRITICAL & ~CONVOY_DESCRIPTOR_CHECKSUM) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor: unknown flags 0x%x",
                                convoy_bytes_u16(bytes + 6) & CONVOY_DESCRIPTOR_CRITICAL);
    }
    return CONVOY_OK;
}

static int32_t check_texts(const struct convoy_descriptor *descriptor, struct convoy_error *error)
{
    if (descriptor->request.bytes == 0 || descriptor->request.bytes > CONVOY_REQUEST_BYTES ||
        !convoy_utf8_is_clean(descriptor->request.text, descriptor->request.bytes)) {
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "descriptor.request of %zu bytes must be 1 to %u of UTF-8 without control characters",
                                descriptor->request.bytes, CONVOY_REQUEST_BYTES);
    }
    if (descriptor->session.bytes >= CONVOY_SESSION_BYTES ||
        !convoy_utf8_is_clean(descriptor->session.text, descriptor->session.bytes)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor.session of %zu bytes is none",
                                descriptor->session.bytes);
    }
    if (descriptor->attempt == 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor.attempt is 0, allowed are 1 to %u", UINT32_MAX);
    }
    struct convoy_scalars_slot slot;
    return convoy_scalars_slot_read(descriptor->scalars, &slot, error);
}

static struct convoy_span take_span(struct convoy_reader *reader, size_t bytes)
{
    return (struct convoy_span){.text = (const char *)convoy_reader_take(reader, bytes), .bytes = bytes};
}

int32_t convoy_descriptor_decode(const uint8_t *bytes, size_t length, struct convoy_manifest_room *room,
                                 struct convoy_descriptor *descriptor_out, struct convoy_error *error)
{
    int32_t status = check_head(bytes, length, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_descriptor read = {
        .flags = convoy_bytes_u16(bytes + 6) & CONVOY_DESCRIPTOR_CRITICAL,
        .attempt = convoy_bytes_u32(bytes + 12),
        .priority = (int32_t)convoy_bytes_u32(bytes + 76),
        .incarnation = convoy_bytes_u64(bytes + 16),
        .serial = convoy_bytes_u64(bytes + 24),
        .generation = convoy_bytes_u64(bytes + 32),
        .offset = convoy_bytes_u64(bytes + 40),
        .payload_bytes = convoy_bytes_u64(bytes + 48),
        .checksum = convoy_bytes_u64(bytes + 56),
    };
    struct convoy_reader reader =
        convoy_reader_of(bytes + CONVOY_DESCRIPTOR_HEADER_BYTES, length - CONVOY_DESCRIPTOR_HEADER_BYTES);
    read.request = take_span(&reader, convoy_bytes_u16(bytes + 64));
    read.session = take_span(&reader, convoy_bytes_u16(bytes + 66));
    read.scalars = take_span(&reader, convoy_bytes_u32(bytes + 68));
    struct convoy_reader manifest = convoy_reader_part(&reader, convoy_bytes_u32(bytes + 72));
    if (!convoy_reader_is_done(&reader)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor: its parts are not as long as it is");
    }
    status = check_texts(&read, error);
    if (status == CONVOY_OK) {
        status = convoy_manifest_binary_decode_in(manifest.at, manifest.left, room, &read.manifest, error);
    }
    if (status == CONVOY_OK && read.manifest->payload_bytes != read.payload_bytes) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "descriptor.payload_bytes is %llu, the manifest says %llu",
                                  (unsigned long long)read.payload_bytes,
                                  (unsigned long long)read.manifest->payload_bytes);
    }
    if (status == CONVOY_OK) {
        *descriptor_out = read;
    }
    return status;
}

bool convoy_descriptor_is_binary(const void *bytes, size_t length)
{
    return length >= 4 && memcmp(bytes, MAGIC, 4) == 0;
}

uint64_t convoy_request_digest(const char *request, size_t length)
{
    uint64_t digest = XXH3_64bits(request, length);
    return digest != 0 ? digest : 1;
}
