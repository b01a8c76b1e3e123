/* SPDX-License-Identifier: Apache-2.0 */
/* Golden frames of meeting: hellos, proofs, heads of frames, notices, welcomes, tables. */
#include "golden.h"

#include "core/error.h"
#include "net/auth.h"
#include "net/frame.h"
#include "net/hello.h"
#include "net/message.h"

#include <string.h>

#define SECRET "golden secret"
#define FRAME_LIMIT 65536u

static const int32_t ids[3] = {5, 0, 2147483647};

enum { HELLO_GROUP, HELLO_PLAIN, HELLO_LATER };

static struct convoy_hello make_hello(uint32_t which)
{
    struct convoy_hello hello = {
        .wire_min = 1,
        .wire_max = which == HELLO_LATER ? 3 : 1,
        .optional_features = which == HELLO_LATER ? 0x50 : 0,
        .incarnation = 0x1817161514131211ull,
        .build_id = {1, 2, 3, 4, 5, 6, 7, 8},
    };
    for (uint32_t i = 0; i < sizeof hello.nonce; i++) {
        hello.nonce[i] = (uint8_t)(0xa0 + i);
    }
    if (which == HELLO_GROUP) {
        hello.epoch = 0x1122334455667788ull;
        hello.has_group = true;
        hello.group = (struct convoy_hello_group){.name = "tp.0",
                                                  .name_length = 4,
                                                  .member_ids = ids,
                                                  .member_count = 3,
                                                  .own_index = 2,
                                                  .own_id = 2147483647,
                                                  .listener_index = 1,
                                                  .blob_bytes_max = 16384,
                                                  .policy = 1};
        hello.has_offer = true;
        hello.offer_epoch = 77;
        memset(hello.offer_salt, 0x33, sizeof hello.offer_salt);
    }
    return hello;
}

static size_t encode_hello(uint32_t which, uint8_t *out)
{
    struct convoy_hello hello = make_hello(which);
    return convoy_hello_encode(&hello, out);
}

static bool is_same_group(const struct convoy_hello_group *read, const struct convoy_hello_group *wanted)
{
    bool is_same = read->member_count == wanted->member_count && read->own_index == wanted->own_index &&
                   read->own_id == wanted->own_id && read->listener_index == wanted->listener_index &&
                   read->blob_bytes_max == wanted->blob_bytes_max && read->policy == wanted->policy &&
                   read->name_length == wanted->name_length && memcmp(read->name, wanted->name, read->name_length) == 0;
    for (uint32_t i = 0; is_same && i < read->member_count; i++) {
        is_same = convoy_hello_member(read, i) == ids[i];
    }
    return is_same;
}

static int32_t decode_hello(uint32_t which, const uint8_t *data, size_t length)
{
    const struct convoy_hello wanted = make_hello(which);
    struct convoy_hello read;
    uint32_t whole = 0;
    int32_t status = convoy_hello_length(data, length, &whole);
    status = status == CONVOY_OK ? convoy_hello_decode(data, length, &read, NULL) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_same = whole == length && read.wire_min == wanted.wire_min && read.wire_max == wanted.wire_max &&
                   read.critical_features == wanted.critical_features &&
                   read.optional_features == wanted.optional_features && read.epoch == wanted.epoch &&
                   read.incarnation == wanted.incarnation && memcmp(read.build_id, wanted.build_id, 8) == 0 &&
                   memcmp(read.nonce, wanted.nonce, sizeof read.nonce) == 0 && read.has_group == wanted.has_group &&
                   read.has_offer == wanted.has_offer &&
                   (!read.has_group || is_same_group(&read.group, &wanted.group)) &&
                   (!read.has_offer || (read.offer_epoch == wanted.offer_epoch &&
                                        memcmp(read.offer_salt, wanted.offer_salt, sizeof read.offer_salt) == 0));
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

static size_t encode_proof(uint32_t which, uint8_t *out)
{
    uint8_t hello[2][CONVOY_HELLO_BYTES_MAX];
    struct convoy_auth_text texts[2];
    for (uint32_t i = 0; i < 2; i++) {
        texts[i] = (struct convoy_auth_text){hello[i], encode_hello(i, hello[i])};
    }
    convoy_auth_mac((struct convoy_auth_text){SECRET, sizeof SECRET - 1}, (enum convoy_auth_role)which, texts, 2, out);
    return CONVOY_AUTH_BYTES;
}

static int32_t decode_proof(uint32_t which, const uint8_t *data, size_t length)
{
    uint8_t wanted[CONVOY_AUTH_BYTES];
    (void)encode_proof(which, wanted);
    return length != CONVOY_AUTH_BYTES ? CONVOY_MALFORMED
                                       : convoy_auth_equal(data, wanted) ? CONVOY_OK : CONVOY_UNAUTHENTICATED;
}

static size_t encode_head(uint32_t which, uint8_t *out)
{
    convoy_frame_head_encode(out, (uint16_t)which, 0x1234);
    return CONVOY_FRAME_HEAD_BYTES;
}

static int32_t decode_head(uint32_t which, const uint8_t *data, size_t length)
{
    uint16_t type = 0;
    uint32_t bytes = 0;
    if (length != CONVOY_FRAME_HEAD_BYTES) {
        return CONVOY_MALFORMED;
    }
    int32_t status = convoy_frame_head_decode(data, FRAME_LIMIT, &type, &bytes);
    return status != CONVOY_OK ? status : type == which && bytes == 0x1234 ? CONVOY_OK : GOLDEN_OTHER;
}

static struct convoy_notice make_notice(void)
{
    return (struct convoy_notice){.status = CONVOY_DIVERGED,
                                  .rank = 7,
                                  .sys_errno = 11,
                                  .flags = CONVOY_NOTICE_RETRY,
                                  .text = "rank 7 names another group"};
}

static size_t encode_notice(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_notice notice = make_notice();
    return convoy_notice_encode(&notice, out);
}

static int32_t decode_notice(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    const struct convoy_notice wanted = make_notice();
    struct convoy_notice read;
    if (!convoy_notice_decode(data, length, &read)) {
        return CONVOY_MALFORMED;
    }
    return read.status == wanted.status && read.rank == wanted.rank && read.sys_errno == wanted.sys_errno &&
                   read.flags == wanted.flags && strcmp(read.text, wanted.text) == 0
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static struct convoy_welcome make_welcome(void)
{
    struct convoy_welcome welcome = {.epoch = 0x8877665544332211ull, .wire = 1};
    memset(welcome.salt, 0x44, sizeof welcome.salt);
    return welcome;
}

static size_t encode_welcome(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_welcome welcome = make_welcome();
    convoy_welcome_encode(&welcome, out);
    return CONVOY_WELCOME_BYTES;
}

static int32_t decode_welcome(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    const struct convoy_welcome wanted = make_welcome();
    struct convoy_welcome read;
    if (!convoy_welcome_decode(data, length, &read)) {
        return CONVOY_MALFORMED;
    }
    return read.epoch == wanted.epoch && read.wire == wanted.wire && memcmp(read.salt, wanted.salt, sizeof read.salt) == 0
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static const uint8_t table_bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const struct convoy_blob table_blobs[3] = {{table_bytes, 3}, {table_bytes, 0}, {table_bytes, 5}};

static size_t encode_table(uint32_t which, uint8_t *out)
{
    convoy_table_encode(table_blobs, 3, which, out);
    return convoy_table_bytes(table_blobs, 3);
}

static int32_t decode_table(uint32_t which, const uint8_t *data, size_t length)
{
    struct convoy_blob blobs[3];
    if (!convoy_table_decode(data, length, which, blobs, 3)) {
        return CONVOY_MALFORMED;
    }
    bool is_same = true;
    for (uint32_t i = 0; i < 3; i++) {
        is_same = is_same && blobs[i].bytes == table_blobs[i].bytes &&
                  memcmp(blobs[i].data, table_blobs[i].data, blobs[i].bytes) == 0;
    }
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

static const struct golden_frame frames[] = {
    {"hello.group", HELLO_GROUP, encode_hello, decode_hello},
    {"hello.plain", HELLO_PLAIN, encode_hello, decode_hello},
    {"hello.later", HELLO_LATER, encode_hello, decode_hello}, /* offers wire versions and features of later releases */
    {"proof.connector", CONVOY_AUTH_CONNECTOR, encode_proof, decode_proof},
    {"proof.listener", CONVOY_AUTH_LISTENER, encode_proof, decode_proof},
    {"proof.gather", CONVOY_AUTH_GATHER, encode_proof, decode_proof},
    {"proof.session", CONVOY_AUTH_SESSION, encode_proof, decode_proof},
    {"frame.refused", CONVOY_MESSAGE_REFUSED, encode_head, decode_head},
    {"frame.failed", CONVOY_MESSAGE_FAILED, encode_head, decode_head},
    {"frame.heard", CONVOY_MESSAGE_HEARD, encode_head, decode_head},
    {"frame.welcome", CONVOY_MESSAGE_WELCOME, encode_head, decode_head},
    {"frame.blob", CONVOY_MESSAGE_BLOB, encode_head, decode_head},
    {"frame.table", CONVOY_MESSAGE_TABLE, encode_head, decode_head},
    {"meeting.notice", 0, encode_notice, decode_notice},
    {"meeting.welcome", 0, encode_welcome, decode_welcome},
    {"meeting.table", 9, encode_table, decode_table},
};

static const struct golden_bad bads[] = {
    {"hello.bad-magic", "hello.group", GOLDEN_POKE, 0, 'X', CONVOY_MALFORMED},
    {"hello.bad-cut", "hello.group", GOLDEN_CUT, 100, 0, CONVOY_MALFORMED},
    {"hello.bad-long", "hello.group", GOLDEN_GROW, 1, 0, CONVOY_MALFORMED},
    {"hello.bad-critical-item", "hello.plain", GOLDEN_POKE, 64, 0x77, CONVOY_VERSION_MISMATCH},
    {"hello.bad-configuration", "hello.group", GOLDEN_POKE, 48, 0, CONVOY_MALFORMED},
    {"proof.bad-bit", "proof.connector", GOLDEN_POKE, 31, 0, CONVOY_UNAUTHENTICATED},
    {"frame.bad-zero", "frame.table", GOLDEN_POKE, 7, 1, CONVOY_MALFORMED},
    {"frame.bad-length", "frame.table", GOLDEN_POKE, 3, 1, CONVOY_LIMIT},
    {"meeting.bad-notice-status", "meeting.notice", GOLDEN_POKE, 3, 0, CONVOY_MALFORMED},
    {"meeting.bad-notice-cut", "meeting.notice", GOLDEN_CUT, 15, 0, CONVOY_MALFORMED},
    {"meeting.bad-welcome-long", "meeting.welcome", GOLDEN_GROW, 1, 0, CONVOY_MALFORMED},
    {"meeting.bad-table-cut", "meeting.table", GOLDEN_CUT, 12, 0, CONVOY_MALFORMED},
    {"meeting.bad-table-sequence", "meeting.table", GOLDEN_POKE, 0, 8, CONVOY_MALFORMED},
};

const struct golden_set golden_net = GOLDEN_SET(frames, bads);
