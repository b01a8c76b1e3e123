/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest as bytes, between convoy peers. Little-endian, any alignment, one form only: what decodes encodes again to
 * the same bytes.
 *
 *   0 "CVMF" 4 | 4 version 2 = 1 | 6 zero 2 | 8 length of all 4 | 12 tensors 4 = T | 16 lists 4 = L
 *   20 dimensions of all tensors 4 = D | 24 bytes of all names 4 = N | 28 zero 4 | 32 payload bytes 8
 *   40            T tensors of 32: offset 8 | bytes 8 | list index 4 (-1: none) | dtype 4 | rank 1 | name length 1
 *                                  dtype name length 1 (0 unless the dtype is 0, opaque) | zero 5
 *   40 + 32 T     L lists of 8:    length 4 | name length 1 | zero 3
 *   + 8 L         D dimensions of 8, tensor by tensor
 *   + 8 D         N bytes: of each tensor its name and its dtype name, then of each list its name
 *   + N           the end
 *
 * Offsets are multiples of 512. Another version is another layout behind byte 6.
 */
#ifndef CONVOY_WIRE_MANIFEST_BINARY_H
#define CONVOY_WIRE_MANIFEST_BINARY_H

#include "wire/manifest.h"

#define CONVOY_MANIFEST_BINARY_VERSION 1u
#define CONVOY_MANIFEST_BINARY_HEADER_BYTES 40u
#define CONVOY_MANIFEST_BINARY_TENSOR_BYTES 32u
#define CONVOY_MANIFEST_BINARY_LIST_BYTES 8u

/* Of no manifest more (about 2 MB). A receiver may refuse a longer one before it has the bytes. */
#define CONVOY_MANIFEST_BINARY_BYTES_MAX                                                                               \
    (CONVOY_MANIFEST_BINARY_HEADER_BYTES +                                                                             \
     CONVOY_MANIFEST_TENSORS_MAX * (CONVOY_MANIFEST_BINARY_TENSOR_BYTES + 8u * CONVOY_MANIFEST_RANK_MAX +              \
                                    CONVOY_MANIFEST_NAME_MAX + CONVOY_MANIFEST_DTYPE_NAME_MAX) +                       \
     CONVOY_MANIFEST_LISTS_MAX * (CONVOY_MANIFEST_BINARY_LIST_BYTES + CONVOY_MANIFEST_NAME_MAX))

/* Bytes that encode writes. 0: ranks, lengths of names or counts are out of bounds, so that encode refuses it. */
size_t convoy_manifest_binary_bytes(const struct convoy_manifest *manifest);

/* INVALID_ARGUMENT, LIMIT or NO_MEMORY as convoy_manifest_check with multiples of 512; BUFFER_TOO_SMALL: the text and
 * length_out say what is needed, and nothing was written. */
int32_t convoy_manifest_binary_encode(const struct convoy_manifest *manifest, uint8_t *out, size_t capacity,
                                      size_t *length_out, struct convoy_error *error);

/* The same of a manifest that was laid out, checked or decoded before: it is not checked again. */
int32_t convoy_manifest_binary_put(const struct convoy_manifest *manifest, uint8_t *out, size_t capacity,
                                   size_t *length_out, struct convoy_error *error);

/* Remembers a manifest that was laid out in the room, of whose lists `given` were given: from now on it has its image. Where
 * there is no memory for that it is not remembered. */
void convoy_manifest_remember(struct convoy_manifest_room *room, struct convoy_manifest *manifest, uint32_t given);

/* Exactly `length` untrusted bytes into one allocation (at most 6 times as large), checked. VERSION_MISMATCH; MALFORMED
 * or LIMIT with the path; NO_MEMORY. gives (convoy_manifest_destroy) */
int32_t convoy_manifest_binary_decode(const uint8_t *bytes, size_t length, struct convoy_manifest **manifest_out,
                                      struct convoy_error *error);

/* The same in a room (convoy_manifest_create_in): nothing is given. The same bytes as the last ones there were checked
 * already. */
int32_t convoy_manifest_binary_decode_in(const uint8_t *bytes, size_t length, struct convoy_manifest_room *room,
                                         struct convoy_manifest **manifest_out, struct convoy_error *error);

#endif
