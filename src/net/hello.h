/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hello: what two peers say first. Pure code. The first 64 bytes are frozen for ever, little-endian:
 *
 *   0 magic 8 | 8 length of the whole hello 4 | 12 wire min 2 | 14 wire max 2 | 16 critical features 8
 *   24 optional features 8 | 32 epoch 8 | 40 incarnation 8 | 48 configuration hash 8 | 56 first 8 of the build id
 *
 * Then items {type 2, length 2, value}; the top bit of the type says critical: who does not know the item must refuse.
 * The first item is the nonce. A listener that serves several groups says hello without a group, before it knows which
 * one the other means. Only length is used before the hello is authenticated (net/auth.h).
 */
#ifndef CONVOY_NET_HELLO_H
#define CONVOY_NET_HELLO_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_HELLO_FIXED_BYTES 64u
#define CONVOY_HELLO_BYTES_MAX 8192u
#define CONVOY_HELLO_NONCE_BYTES 32u
#define CONVOY_HELLO_SALT_BYTES 32u
#define CONVOY_HELLO_NAME_MAX 127u
#define CONVOY_HELLO_MEMBERS_MAX 1024u

/* A group as its member describes it. */
struct convoy_hello_group {
    const char *name; /* not terminated */
    uint32_t name_length;
    const int32_t *member_ids;   /* for encode */
    const uint8_t *member_bytes; /* from decode: little-endian, any alignment; see convoy_hello_member */
    uint32_t member_count;
    uint32_t own_index;
    int32_t own_id;
    uint32_t listener_index;
    uint32_t blob_bytes_max;
    uint32_t policy; /* critical flags of the group */
};

struct convoy_hello {
    uint16_t wire_min;
    uint16_t wire_max;
    uint64_t critical_features;
    uint64_t optional_features;
    uint64_t epoch; /* 0 = the listener picks */
    uint64_t incarnation;
    uint64_t configuration; /* hash of all of the group that must agree; 0 = no group */
    uint8_t build_id[8];
    uint8_t nonce[CONVOY_HELLO_NONCE_BYTES];
    bool has_group;
    struct convoy_hello_group group;
    bool has_offer; /* what this member picks if it is the listener */
    uint64_t offer_epoch;
    uint8_t offer_salt[CONVOY_HELLO_SALT_BYTES];
};

/* What two hellos agree on; the same whichever comes first. */
struct convoy_hello_choice {
    uint32_t wire;
    uint64_t features;
};

/* Writes the hello, its configuration hash included. Returns its bytes, at most CONVOY_HELLO_BYTES_MAX. */
size_t convoy_hello_encode(const struct convoy_hello *hello, uint8_t bytes_out[CONVOY_HELLO_BYTES_MAX]);

/* Length of a hello from its first `bytes` bytes; IN_PROGRESS: more are needed; MALFORMED: this is no hello. */
int32_t convoy_hello_length(const uint8_t *data, size_t bytes, uint32_t *length_out);

/* hello_out points into data. MALFORMED: with the offset. VERSION_MISMATCH: a critical item is unknown here. */
int32_t convoy_hello_decode(const uint8_t *data, size_t bytes, struct convoy_hello *hello_out,
                            struct convoy_error *error);

/* Id of one member of a decoded or described group. */
int32_t convoy_hello_member(const struct convoy_hello_group *group, uint32_t index);

/* Hash of all that must agree. */
uint64_t convoy_hello_configuration(const struct convoy_hello_group *group);

/* VERSION_MISMATCH: no common wire version, or a critical feature that the other lacks; the text has both values. */
int32_t convoy_hello_choose(const struct convoy_hello *one, const struct convoy_hello *other,
                            struct convoy_hello_choice *choice_out, struct convoy_error *error);

#endif
