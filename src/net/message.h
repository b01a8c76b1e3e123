/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the rendezvous frames that come after both hellos are authenticated. Pure code. */
#ifndef CONVOY_NET_MESSAGE_H
#define CONVOY_NET_MESSAGE_H

#include "convoy/base.h"
#include "net/bootstrap.h"

#include <stdbool.h>

enum convoy_message {
    CONVOY_MESSAGE_REFUSED = 1, /* listener to connector: a notice */
    CONVOY_MESSAGE_FAILED,      /* both ways: a notice; the opening is over for everyone */
    CONVOY_MESSAGE_HEARD,       /* listener to member: a bit per member index, then a remark (text) on connections that
                                   did not get in, maybe empty; the first one means "admitted" */
    CONVOY_MESSAGE_WELCOME,     /* listener to member: all are here */
    CONVOY_MESSAGE_BLOB,        /* member to listener: sequence 4, blob */
    CONVOY_MESSAGE_TABLE,       /* listener to member: sequence 4, then {length 4, blob} per member */
};

#define CONVOY_NOTICE_RETRY 1u /* may be different soon: connect again until the deadline */
#define CONVOY_NOTICE_HEAD_BYTES 16u
#define CONVOY_NOTICE_BYTES_MAX (CONVOY_NOTICE_HEAD_BYTES + CONVOY_ERROR_TEXT_BYTES - 1)
#define CONVOY_WELCOME_BYTES 44u
#define CONVOY_REMARK_BYTES 200u /* room for a remark and its zero */

/* Why somebody is refused or everybody fails. */
struct convoy_notice {
    int32_t status; /* always an error */
    int32_t rank;
    int32_t sys_errno;
    uint32_t flags;
    char text[CONVOY_ERROR_TEXT_BYTES];
};

struct convoy_welcome {
    uint64_t epoch;
    uint32_t wire;
    uint8_t salt[32];
};

void convoy_notice_from_error(struct convoy_notice *notice, const struct convoy_error *error, uint32_t flags);
int32_t convoy_notice_to_error(const struct convoy_notice *notice, struct convoy_error *error);

/* Returns the bytes written. */
size_t convoy_notice_encode(const struct convoy_notice *notice, uint8_t bytes_out[CONVOY_NOTICE_BYTES_MAX]);

/* false: malformed. Control bytes in the text become '?', since it ends up in logs. */
bool convoy_notice_decode(const uint8_t *data, size_t bytes, struct convoy_notice *notice_out);

/* Copies a text of another process: printable ASCII as it is, '?' for any other byte, cut at room - 1 bytes. */
void convoy_message_text(const void *bytes, size_t count, char *text_out, size_t room);

void convoy_welcome_encode(const struct convoy_welcome *welcome, uint8_t bytes_out[CONVOY_WELCOME_BYTES]);
bool convoy_welcome_decode(const uint8_t *data, size_t bytes, struct convoy_welcome *welcome_out);

/* Bytes of a table of blobs, and writing it there. */
size_t convoy_table_bytes(const struct convoy_blob *blobs, uint32_t count);
void convoy_table_encode(const struct convoy_blob *blobs, uint32_t count, uint32_t sequence, uint8_t *bytes_out);

/* blobs_out: count elements, pointing into data. false: malformed or another sequence number. */
bool convoy_table_decode(const uint8_t *data, size_t bytes, uint32_t sequence, struct convoy_blob *blobs_out,
                         uint32_t count);

#endif
