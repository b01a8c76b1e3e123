/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of bulk (net/bulk.h): the header of each message and the address that engines exchange. Pure code. Input
 * from other processes: everything is checked.
 *
 *   header   magic u16 | kind u8 | flags u8 | epoch u32 | from u64 | to u64 | transfer u64 | generation u64 | offset u64 |
 *            sequence u64 | checksum u64      64 bytes, little-endian
 *   address  "cvB1" | incarnation u64 | address of the link
 *
 *   kind    transfer, generation, offset   sequence                   data
 *   FRAME   0                              0                          the frame, 1 to CONVOY_BULK_FRAME_BYTES
 *   CHUNK   of its first byte              chunks before it           up to CONVOY_BULK_CHUNK_BYTES
 *   ABORT   of the stream, offset 0        as a chunk: it is one      none
 *   ACK     0, epoch acknowledged, bytes   chunks answered            nothing, or one reason for each newly answered one
 *
 * epoch: counts the connections of the sender, so that what is left of an earlier one is known. from, to: incarnations.
 */
#ifndef CONVOY_NET_BULK_WIRE_H
#define CONVOY_NET_BULK_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BULK_HEADER_BYTES 64u
#define BULK_ADDRESS_HEAD_BYTES 12u
#define BULK_FLAG_PUSH 1u    /* answer at once */
#define BULK_FLAG_CHECKSUM 2u

enum bulk_kind {
    BULK_FRAME = 1,
    BULK_CHUNK,
    BULK_ABORT,
    BULK_ACK,
};

/* Why a chunk was not applied. On the wire. */
enum bulk_reason {
    BULK_APPLIED = 0,
    BULK_NOT_WANTED,
    BULK_WRONG_CHECKSUM,
};

struct bulk_header {
    enum bulk_kind kind;
    uint8_t flags;
    uint32_t epoch;
    uint64_t from;
    uint64_t to;
    uint64_t transfer;
    uint64_t generation;
    uint64_t offset;
    uint64_t sequence;
    uint64_t checksum;
};

void convoy_bulk_header_encode(const struct bulk_header *header, uint8_t out[BULK_HEADER_BYTES]);

/* false: not a header, or one that does not fit `data_bytes` of data. */
bool convoy_bulk_header_decode(const void *bytes, size_t length, size_t data_bytes, struct bulk_header *header_out);

/* Of a chunk's data and its place. */
uint64_t convoy_bulk_checksum(const struct bulk_header *header, const void *data, size_t bytes);

/* out: BULK_ADDRESS_HEAD_BYTES and those of the link's address. */
void convoy_bulk_address_encode(uint64_t incarnation, const void *link, size_t link_bytes, uint8_t *out);

/* The link's part is what follows the head. false: malformed, or incarnation 0. */
bool convoy_bulk_address_decode(const void *bytes, size_t length, uint64_t *incarnation_out);

#endif
