/* SPDX-License-Identifier: Apache-2.0 */
/* Golden frames of one host's members, and of bulk: statements, proofs at the local socket, bulk's headers and address. */
#include "golden.h"

#include "net/bulk_wire.h"
#include "net/link_parts.h"
#include "net/local_join.h"
#include "net/local_roll.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct convoy_local_statement make_statement(void)
{
    struct convoy_local_statement statement = {
        .keys = {.flags = CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_NETWORK | CONVOY_HOST_HAS_DIRECTORY,
                 .network = {4, 4026531840u},
                 .directory = {27, 1}},
        .coming = CONVOY_LOCAL_CONNECTED,
        .joined = 3,
        .reason = "no reason",
    };
    for (uint32_t i = 0; i < sizeof statement.keys.boot; i++) {
        statement.keys.boot[i] = (uint8_t)i;
    }
    return statement;
}

static size_t encode_statement(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_local_statement statement = make_statement();
    memcpy(out, &statement, sizeof statement);
    return sizeof statement;
}

/* The rule of the roll: a longer one, of a later release, is read as far as it is known. */
static int32_t decode_statement(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_local_statement wanted = make_statement();
    if (length < sizeof wanted) {
        return CONVOY_MALFORMED;
    }
    return memcmp(data, &wanted, sizeof wanted) == 0 ? CONVOY_OK : GOLDEN_OTHER;
}

static const struct convoy_agreement agreement = {.epoch = 1, .wire = 1, .session = {1, 2, 3, [31] = 9}};
static const struct convoy_local_request request = {.agreement = &agreement, .deadline_ns = UINT64_MAX};

static size_t encode_body(uint32_t which, uint8_t *out)
{
    const struct convoy_local_join join = {.request = &request, .own_index = 2, .member_count = 4};
    static struct convoy_fd_message message;
    struct convoy_local_body body = {.kind = which, .count = 1, .status = 0, .members = {3}};
    int pair[2];
    memset(&message, 0, sizeof message);
    memcpy(message.data, &body, sizeof body);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 ||
        convoy_local_join_send(&join, pair[0], 1, &message, NULL) != CONVOY_OK) {
        abort();
    }
    ssize_t got = recv(pair[1], out, GOLDEN_BYTES_MAX, 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return got > 0 ? (size_t)got : 0;
}

static int32_t decode_body(uint32_t which, const uint8_t *data, size_t length)
{
    const struct convoy_local_join join = {.request = &request, .own_index = 1, .member_count = 4};
    static struct convoy_fd_message message;
    memset(&message, 0, sizeof message);
    message.bytes = (uint32_t)length;
    memcpy(message.data, data, length);
    const struct convoy_local_body *body = convoy_local_join_check(&join, &message, (enum convoy_local_kind)which);
    if (body == NULL) {
        return CONVOY_UNAUTHENTICATED;
    }
    return body->sender == 2 && body->count == 1 && body->members[0] == 3 ? CONVOY_OK : GOLDEN_OTHER;
}

#define BULK_DATA 48u

static struct bulk_header make_header(uint32_t which)
{
    struct bulk_header header = {.kind = (enum bulk_kind)which, .epoch = 6, .from = 0xa1, .to = 0xb2};
    if (which == BULK_CHUNK || which == BULK_ABORT) {
        header.flags = which == BULK_CHUNK ? BULK_FLAG_PUSH | BULK_FLAG_CHECKSUM : 0;
        header.transfer = 0x7000000000000001ull;
        header.generation = 3;
        header.offset = which == BULK_CHUNK ? 1u << 20 : 0;
        header.sequence = 12;
    } else if (which == BULK_ACK) {
        header.generation = 5;
        header.offset = 4096;
        header.sequence = 20;
    }
    return header;
}

static size_t data_bytes(uint32_t which)
{
    return which == BULK_FRAME || which == BULK_CHUNK ? BULK_DATA : 0;
}

static size_t encode_header(uint32_t which, uint8_t *out)
{
    struct bulk_header header = make_header(which);
    size_t bytes = data_bytes(which);
    memset(out + BULK_HEADER_BYTES, 0x5c, bytes);
    if ((header.flags & BULK_FLAG_CHECKSUM) != 0) {
        header.checksum = convoy_bulk_checksum(&header, out + BULK_HEADER_BYTES, bytes);
    }
    convoy_bulk_header_encode(&header, out);
    return BULK_HEADER_BYTES + bytes;
}

static int32_t decode_header(uint32_t which, const uint8_t *data, size_t length)
{
    struct bulk_header wanted = make_header(which);
    struct bulk_header read;
    size_t head = length < BULK_HEADER_BYTES ? length : BULK_HEADER_BYTES;
    if (!convoy_bulk_header_decode(data, head, length - head, &read)) {
        return CONVOY_MALFORMED;
    }
    if ((read.flags & BULK_FLAG_CHECKSUM) != 0 &&
        convoy_bulk_checksum(&read, data + BULK_HEADER_BYTES, length - head) != read.checksum) {
        return CONVOY_MALFORMED;
    }
    return read.kind == wanted.kind && read.flags == wanted.flags && read.epoch == wanted.epoch &&
                   read.from == wanted.from && read.to == wanted.to && read.transfer == wanted.transfer &&
                   read.generation == wanted.generation && read.offset == wanted.offset &&
                   read.sequence == wanted.sequence && length - head == data_bytes(which)
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static size_t encode_address(uint32_t which, uint8_t *out)
{
    (void)which;
    convoy_bulk_address_encode(0x0102030405060708ull, "a link's address", 16, out);
    return BULK_ADDRESS_HEAD_BYTES + 16;
}

static int32_t decode_address(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    uint64_t incarnation = 0;
    if (!convoy_bulk_address_decode(data, length, &incarnation)) {
        return CONVOY_MALFORMED;
    }
    return incarnation == 0x0102030405060708ull && length == BULK_ADDRESS_HEAD_BYTES + 16 ? CONVOY_OK : GOLDEN_OTHER;
}

static struct link_piece make_piece(void)
{
    return (struct link_piece){.sender = 0x11, .sequence = 0x22, .total = 100000, .offset = 61440, .header_bytes = 40};
}

static size_t encode_piece(uint32_t which, uint8_t *out)
{
    (void)which;
    struct link_piece piece = make_piece();
    memcpy(out, &piece, sizeof piece);
    return sizeof piece;
}

static int32_t decode_piece(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    const struct link_piece wanted = make_piece();
    struct link_piece read;
    if (length != sizeof read) {
        return CONVOY_MALFORMED;
    }
    memcpy(&read, data, sizeof read);
    return read.sender == wanted.sender && read.sequence == wanted.sequence && read.total == wanted.total &&
                   read.offset == wanted.offset && read.header_bytes == wanted.header_bytes && read.reserved == 0
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static const struct golden_frame frames[] = {
    {"local.statement", 0, encode_statement, decode_statement},
    {"local.join", CONVOY_LOCAL_JOIN, encode_body, decode_body},
    {"local.segment", CONVOY_LOCAL_SEGMENT, encode_body, decode_body},
    {"local.members", CONVOY_LOCAL_MEMBERS, encode_body, decode_body},
    {"bulk.frame", BULK_FRAME, encode_header, decode_header},
    {"bulk.chunk", BULK_CHUNK, encode_header, decode_header},
    {"bulk.abort", BULK_ABORT, encode_header, decode_header},
    {"bulk.ack", BULK_ACK, encode_header, decode_header},
    {"bulk.address", 0, encode_address, decode_address},
    {"link.piece", 0, encode_piece, decode_piece},
};

static const struct golden_bad bads[] = {
    {"local.bad-statement-cut", "local.statement", GOLDEN_CUT, 60, 0, CONVOY_MALFORMED},
    {"local.later-statement", "local.statement", GOLDEN_GROW, 64, 0, CONVOY_OK},
    {"local.bad-join-proof", "local.join", GOLDEN_POKE, 24, 0, CONVOY_UNAUTHENTICATED},
    {"local.bad-join-sender", "local.join", GOLDEN_POKE, 8, 9, CONVOY_UNAUTHENTICATED},
    {"local.bad-join-magic", "local.join", GOLDEN_POKE, 0, 0, CONVOY_UNAUTHENTICATED},
    {"bulk.bad-magic", "bulk.chunk", GOLDEN_POKE, 0, 0, CONVOY_MALFORMED},
    {"bulk.bad-kind", "bulk.chunk", GOLDEN_POKE, 2, 99, CONVOY_MALFORMED},
    {"bulk.bad-cut", "bulk.ack", GOLDEN_CUT, 63, 0, CONVOY_MALFORMED},
    {"bulk.bad-checksum", "bulk.chunk", GOLDEN_POKE, 70, 0, CONVOY_MALFORMED},
    {"bulk.bad-abort-data", "bulk.abort", GOLDEN_GROW, 8, 0, CONVOY_MALFORMED},
    {"bulk.bad-address-magic", "bulk.address", GOLDEN_POKE, 0, 0, CONVOY_MALFORMED},
    {"bulk.bad-address-cut", "bulk.address", GOLDEN_CUT, 8, 0, CONVOY_MALFORMED},
};

const struct golden_set golden_local = GOLDEN_SET(frames, bads);
