/* SPDX-License-Identifier: Apache-2.0 */
/* Golden frames of rounds between hosts: fingerprints, heads and rows of partials, messages of every kind. */
#include "golden.h"

#include "round/fingerprint.h"
#include "round/remote_reopen.h"

#include <string.h>

#define MEMBERS 8u
#define PAYLOAD 24u

static const struct convoy_round_header round_header = {
    .operation = CONVOY_OPERATION_POLL, .wire = 1, .epoch = 40, .counts = 0x20001, .digest = 0xd1d2d3d4d5d6d7d8ull,
    .schema = 0x5e5e, .policy = 6};

static size_t encode_fingerprint(uint32_t which, uint8_t *out)
{
    (void)which;
    uint64_t fingerprint = convoy_fingerprint(&round_header);
    memcpy(out, &round_header, sizeof round_header);
    memcpy(out + sizeof round_header, &fingerprint, sizeof fingerprint);
    return sizeof round_header + sizeof fingerprint;
}

static int32_t decode_fingerprint(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_round_header read;
    uint64_t fingerprint = 0;
    if (length != sizeof read + sizeof fingerprint) {
        return CONVOY_MALFORMED;
    }
    memcpy(&read, data, sizeof read);
    memcpy(&fingerprint, data + sizeof read, sizeof fingerprint);
    if (convoy_fingerprint(&read) != fingerprint) {
        return CONVOY_DIVERGED;
    }
    return read.operation == round_header.operation && read.wire == 1 && read.epoch == round_header.epoch &&
                   read.counts == round_header.counts && read.digest == round_header.digest &&
                   read.schema == round_header.schema && read.policy == round_header.policy
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

enum { PARTIAL_PLAIN, PARTIAL_FAILED, PARTIAL_ROWS };

static struct convoy_partial_head make_head(uint32_t which)
{
    struct convoy_partial_head head = {
        .fingerprint = convoy_fingerprint(&round_header),
        .tag_min = 7,
        .tag_max = 7,
        .votes_and = 1,
        .votes_or = 3,
        .culprit = UINT32_MAX,
        .error_member = UINT32_MAX,
        .payload_bytes = PAYLOAD,
    };
    if (which == PARTIAL_FAILED) {
        head.flags = CONVOY_PARTIAL_FAILED;
        head.status = CONVOY_PEER_LOST;
        head.culprit = 5;
        head.lost_count = 1;
        head.payload_bytes = 0;
    } else if (which == PARTIAL_ROWS) {
        head.flags = CONVOY_PARTIAL_MIXED;
        head.tag_max = 9;
        head.error_member = 2;
        head.error_reason = -204;
        head.payload_bytes = 0;
        head.row_count = 2;
    }
    return head;
}

static struct convoy_partial_row make_row(uint32_t at)
{
    return (struct convoy_partial_row){.member = at,
                                       .operation = CONVOY_OPERATION_POLL,
                                       .fingerprint = 0x1100u + at,
                                       .round = 19,
                                       .tag = 7 + 2 * (uint64_t)at,
                                       .epoch = 40,
                                       .counts = 3,
                                       .digest = 4,
                                       .schema = 5,
                                       .policy = 6};
}

static size_t encode_partial(uint32_t which, uint8_t *out)
{
    struct convoy_partial_head head = make_head(which);
    size_t at = sizeof head;
    memcpy(out, &head, sizeof head);
    for (uint32_t i = 0; i < head.row_count; i++) {
        struct convoy_partial_row row = make_row(i);
        memcpy(out + at, &row, sizeof row);
        at += sizeof row;
    }
    memset(out + at, 4, head.payload_bytes);
    return at + head.payload_bytes;
}

static int32_t decode_partial(uint32_t which, const uint8_t *data, size_t length)
{
    const struct convoy_partial_head wanted = make_head(which);
    struct convoy_partial_head read;
    if (!convoy_partial_read(&read, data, length, MEMBERS)) {
        return CONVOY_MALFORMED;
    }
    bool is_same = read.fingerprint == wanted.fingerprint && read.tag_min == wanted.tag_min &&
                   read.tag_max == wanted.tag_max && read.votes_and == wanted.votes_and &&
                   read.votes_or == wanted.votes_or && read.flags == wanted.flags && read.status == wanted.status &&
                   read.culprit == wanted.culprit && read.error_member == wanted.error_member &&
                   read.error_reason == wanted.error_reason && read.payload_bytes == wanted.payload_bytes &&
                   read.row_count == wanted.row_count && read.lost_count == wanted.lost_count &&
                   convoy_partial_is_diverged(&read) == (which == PARTIAL_ROWS);
    for (uint32_t i = 0; is_same && i < read.row_count; i++) {
        struct convoy_partial_row row = make_row(i);
        is_same = memcmp(data + sizeof read + i * sizeof row, &row, sizeof row) == 0;
    }
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

static struct convoy_reopen_body make_body(uint32_t kind)
{
    struct convoy_reopen_body body = {.generation = 2,
                                      .has_promise = kind == CONVOY_MESSAGE_STATE,
                                      .decision = {.generation = 3, .next_round = 20, .lost = {0x20}},
                                      .lost = {0x60},
                                      .complete_round = 19,
                                      .result_length = 16};
    return body;
}

/* The data of a message: those of one kind are of one form. */
static size_t encode_data(uint32_t kind, uint8_t *out)
{
    struct convoy_reopen_body body = make_body(kind);
    struct convoy_partial_row row = make_row(1);
    switch (kind) {
    case CONVOY_MESSAGE_PARTIAL:
        return encode_partial(PARTIAL_PLAIN, out);
    case CONVOY_MESSAGE_ROWS:
    case CONVOY_MESSAGE_STATUS:
        memcpy(out, &row, sizeof row);
        return sizeof row;
    case CONVOY_MESSAGE_STATE:
    case CONVOY_MESSAGE_PROPOSE:
        memcpy(out, &body, sizeof body);
        memset(out + sizeof body, 0x1f, body.result_length);
        return sizeof body + body.result_length;
    default:
        return 0;
    }
}

static size_t encode_message(uint32_t kind, uint8_t *out)
{
    size_t bytes = encode_data(kind, out + sizeof(struct convoy_message));
    struct convoy_message message = {
        .kind = kind, .member = 4, .word = convoy_word(2, 19), .length = (uint32_t)bytes, .leads = 1};
    memset(message.token, 0x77, sizeof message.token);
    memcpy(out, &message, sizeof message);
    return sizeof message + bytes;
}

static int32_t decode_data(uint32_t kind, const uint8_t *data, size_t length)
{
    const struct convoy_reopen_body wanted = make_body(kind);
    const struct convoy_partial_row row = make_row(1);
    struct convoy_reopen_body read;
    switch (kind) {
    case CONVOY_MESSAGE_PARTIAL:
        return decode_partial(PARTIAL_PLAIN, data, length);
    case CONVOY_MESSAGE_ROWS:
    case CONVOY_MESSAGE_STATUS:
        return length != sizeof row ? CONVOY_MALFORMED : memcmp(data, &row, sizeof row) == 0 ? CONVOY_OK : GOLDEN_OTHER;
    case CONVOY_MESSAGE_STATE:
    case CONVOY_MESSAGE_PROPOSE:
        if (length < sizeof read) {
            return CONVOY_MALFORMED;
        }
        memcpy(&read, data, sizeof read);
        if (length != sizeof read + read.result_length) {
            return CONVOY_MALFORMED;
        }
        return read.generation == wanted.generation && read.has_promise == wanted.has_promise &&
                       read.decision.generation == 3 && read.decision.next_round == 20 &&
                       read.decision.lost[0] == 0x20 && read.lost[0] == 0x60 && read.complete_round == 19
                   ? CONVOY_OK
                   : GOLDEN_OTHER;
    default:
        return length == 0 ? CONVOY_OK : CONVOY_MALFORMED;
    }
}

static int32_t decode_message(uint32_t kind, const uint8_t *data, size_t length)
{
    struct convoy_message read;
    if (length < sizeof read) {
        return CONVOY_MALFORMED;
    }
    memcpy(&read, data, sizeof read);
    if (read.length != length - sizeof read || read.member >= MEMBERS) {
        return CONVOY_MALFORMED;
    }
    bool is_same = read.kind == kind && read.member == 4 && read.leads == 1 && read.token[0] == 0x77 &&
                   read.token[sizeof read.token - 1] == 0x77 && convoy_word_generation(read.word) == 2 &&
                   convoy_word_round(read.word) == 19;
    return is_same ? decode_data(kind, data + sizeof read, length - sizeof read) : GOLDEN_OTHER;
}

#define MESSAGE(name, kind) {"message." name, CONVOY_MESSAGE_##kind, encode_message, decode_message}

static const struct golden_frame frames[] = {
    {"round.fingerprint", 0, encode_fingerprint, decode_fingerprint},
    {"partial.plain", PARTIAL_PLAIN, encode_partial, decode_partial},
    {"partial.failed", PARTIAL_FAILED, encode_partial, decode_partial},
    {"partial.rows", PARTIAL_ROWS, encode_partial, decode_partial},
    MESSAGE("partial", PARTIAL),
    MESSAGE("rows", ROWS),
    MESSAGE("request", REQUEST),
    MESSAGE("ask", ASK),
    MESSAGE("status", STATUS),
    MESSAGE("want", WANT),
    MESSAGE("query", QUERY),
    MESSAGE("state", STATE),
    MESSAGE("propose", PROPOSE),
    MESSAGE("accept", ACCEPT),
    MESSAGE("commit", COMMIT),
};

static const struct golden_bad bads[] = {
    {"round.bad-fingerprint", "round.fingerprint", GOLDEN_POKE, 8, 41, CONVOY_DIVERGED},
    {"partial.bad-cut", "partial.plain", GOLDEN_CUT, 63, 0, CONVOY_MALFORMED},
    {"partial.bad-long", "partial.plain", GOLDEN_GROW, 1, 0, CONVOY_MALFORMED},
    {"partial.bad-culprit", "partial.failed", GOLDEN_POKE, 40, MEMBERS, CONVOY_MALFORMED},
    {"partial.bad-row-count", "partial.rows", GOLDEN_POKE, 56, MEMBERS + 1, CONVOY_MALFORMED},
    {"message.bad-cut", "message.want", GOLDEN_CUT, 39, 0, CONVOY_MALFORMED},
    {"message.bad-length", "message.want", GOLDEN_POKE, 32, 1, CONVOY_MALFORMED},
    {"message.bad-member", "message.want", GOLDEN_POKE, 20, MEMBERS, CONVOY_MALFORMED},
    {"message.bad-result", "message.propose", GOLDEN_CUT, 100, 0, CONVOY_MALFORMED},
};

const struct golden_set golden_round = GOLDEN_SET(frames, bads);
