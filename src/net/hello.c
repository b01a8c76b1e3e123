/* SPDX-License-Identifier: Apache-2.0 */
#include "net/hello.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/negotiate.h"

#include <assert.h>
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#include <xxhash.h>
#pragma GCC diagnostic pop

static const uint8_t hello_magic[8] = {0x89, 'c', 'o', 'n', 'v', 'o', 'y', '\n'};

#define ITEM_CRITICAL 0x8000u
#define ITEM_HEAD_BYTES 4u

enum item {
    ITEM_NONCE = 1,
    ITEM_NAME,
    ITEM_MEMBERS,
    ITEM_PLACE,  /* own index, own id, listener index */
    ITEM_BOUNDS, /* blob bound, policy */
    ITEM_OFFER,  /* epoch, salt */
    ITEM_END
};

#define ITEMS_OF_GROUP (1u << ITEM_NAME | 1u << ITEM_MEMBERS | 1u << ITEM_PLACE | 1u << ITEM_BOUNDS)

/* The longest hello there is fits its bound. */
_Static_assert(CONVOY_HELLO_FIXED_BYTES + ITEM_END * ITEM_HEAD_BYTES + CONVOY_HELLO_NONCE_BYTES +
                       CONVOY_HELLO_NAME_MAX + 4 * CONVOY_HELLO_MEMBERS_MAX + 12 + 8 + 8 + CONVOY_HELLO_SALT_BYTES <=
                   CONVOY_HELLO_BYTES_MAX,
               "hello bound");

int32_t convoy_hello_member(const struct convoy_hello_group *group, uint32_t index)
{
    assert(index < group->member_count);
    return group->member_ids != NULL ? group->member_ids[index]
                                     : (int32_t)convoy_bytes_u32(group->member_bytes + 4u * index);
}

/* -- encode ------------------------------------------------------------------------------------------------------ */

static uint8_t *item_begin(uint8_t *at, uint32_t type, uint32_t length)
{
    convoy_bytes_put_u16(at, (uint16_t)type);
    convoy_bytes_put_u16(at + 2, (uint16_t)length);
    return at + ITEM_HEAD_BYTES;
}

static uint8_t *encode_members(uint8_t *at, const struct convoy_hello_group *group)
{
    for (uint32_t i = 0; i < group->member_count; i++) {
        convoy_bytes_put_u32(at, (uint32_t)convoy_hello_member(group, i));
        at += 4;
    }
    return at;
}

static uint8_t *encode_group(uint8_t *at, const struct convoy_hello_group *group)
{
    assert(group->name_length <= CONVOY_HELLO_NAME_MAX && group->member_count <= CONVOY_HELLO_MEMBERS_MAX);
    at = item_begin(at, ITEM_NAME | ITEM_CRITICAL, group->name_length);
    memcpy(at, group->name, group->name_length);
    at = item_begin(at + group->name_length, ITEM_MEMBERS | ITEM_CRITICAL, 4 * group->member_count);
    at = item_begin(encode_members(at, group), ITEM_PLACE | ITEM_CRITICAL, 12);
    convoy_bytes_put_u32(at, group->own_index);
    convoy_bytes_put_u32(at + 4, (uint32_t)group->own_id);
    convoy_bytes_put_u32(at + 8, group->listener_index);
    at = item_begin(at + 12, ITEM_BOUNDS | ITEM_CRITICAL, 8);
    convoy_bytes_put_u32(at, group->blob_bytes_max);
    convoy_bytes_put_u32(at + 4, group->policy);
    return at + 8;
}

static void encode_fixed(const struct convoy_hello *hello, uint8_t *at, uint32_t length)
{
    memcpy(at, hello_magic, sizeof hello_magic);
    convoy_bytes_put_u32(at + 8, length);
    convoy_bytes_put_u16(at + 12, hello->wire_min);
    convoy_bytes_put_u16(at + 14, hello->wire_max);
    convoy_bytes_put_u64(at + 16, hello->critical_features);
    convoy_bytes_put_u64(at + 24, hello->optional_features);
    convoy_bytes_put_u64(at + 32, hello->epoch);
    convoy_bytes_put_u64(at + 40, hello->incarnation);
    convoy_bytes_put_u64(at + 48, hello->has_group ? convoy_hello_configuration(&hello->group) : 0);
    memcpy(at + 56, hello->build_id, sizeof hello->build_id);
}

size_t convoy_hello_encode(const struct convoy_hello *hello, uint8_t bytes_out[CONVOY_HELLO_BYTES_MAX])
{
    uint8_t *at = item_begin(bytes_out + CONVOY_HELLO_FIXED_BYTES, ITEM_NONCE | ITEM_CRITICAL, sizeof hello->nonce);
    memcpy(at, hello->nonce, sizeof hello->nonce);
    at += sizeof hello->nonce;
    if (hello->has_group) {
        at = encode_group(at, &hello->group);
    }
    if (hello->has_offer) {
        at = item_begin(at, ITEM_OFFER, 8 + CONVOY_HELLO_SALT_BYTES);
        convoy_bytes_put_u64(at, hello->offer_epoch);
        memcpy(at + 8, hello->offer_salt, CONVOY_HELLO_SALT_BYTES);
        at += 8 + CONVOY_HELLO_SALT_BYTES;
    }
    size_t length = (size_t)(at - bytes_out);
    encode_fixed(hello, bytes_out, (uint32_t)length);
    return length;
}

uint64_t convoy_hello_configuration(const struct convoy_hello_group *group)
{
    struct convoy_hello_group shared = *group; /* without what is each member's own */
    shared.own_index = 0;
    shared.own_id = 0;
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    size_t length = (size_t)(encode_group(bytes, &shared) - bytes);
    return XXH64(bytes, length, 0);
}

/* -- decode ------------------------------------------------------------------------------------------------------ */

int32_t convoy_hello_length(const uint8_t *data, size_t bytes, uint32_t *length_out)
{
    size_t seen = bytes < sizeof hello_magic ? bytes : sizeof hello_magic;
    if (memcmp(data, hello_magic, seen) != 0) {
        return CONVOY_MALFORMED; /* a stranger is recognised by its first byte, not after a time-out */
    }
    if (bytes < CONVOY_HELLO_FIXED_BYTES) {
        return CONVOY_IN_PROGRESS;
    }
    uint32_t length = convoy_bytes_u32(data + 8);
    if (length < CONVOY_HELLO_FIXED_BYTES || length > CONVOY_HELLO_BYTES_MAX) {
        return CONVOY_MALFORMED;
    }
    *length_out = length;
    return CONVOY_OK;
}

static void decode_fixed(const uint8_t *at, struct convoy_hello *hello)
{
    hello->wire_min = convoy_bytes_u16(at + 12);
    hello->wire_max = convoy_bytes_u16(at + 14);
    hello->critical_features = convoy_bytes_u64(at + 16);
    hello->optional_features = convoy_bytes_u64(at + 24);
    hello->epoch = convoy_bytes_u64(at + 32);
    hello->incarnation = convoy_bytes_u64(at + 40);
    hello->configuration = convoy_bytes_u64(at + 48);
    memcpy(hello->build_id, at + 56, sizeof hello->build_id);
}

/* Takes the value of a known item. false: its length is impossible. */
static bool decode_value(enum item item, const uint8_t *at, uint32_t length, struct convoy_hello *hello)
{
    struct convoy_hello_group *group = &hello->group;
    switch (item) {
    case ITEM_NONCE:
        memcpy(hello->nonce, at, length < sizeof hello->nonce ? length : sizeof hello->nonce);
        return length == sizeof hello->nonce;
    case ITEM_NAME:
        group->name = (const char *)at;
        group->name_length = length;
        return length >= 1 && length <= CONVOY_HELLO_NAME_MAX;
    case ITEM_MEMBERS:
        group->member_bytes = at;
        group->member_count = length / 4;
        return length % 4 == 0 && length >= 4 && length / 4 <= CONVOY_HELLO_MEMBERS_MAX;
    case ITEM_PLACE:
        if (length == 12) {
            group->own_index = convoy_bytes_u32(at);
            group->own_id = (int32_t)convoy_bytes_u32(at + 4);
            group->listener_index = convoy_bytes_u32(at + 8);
        }
        return length == 12;
    case ITEM_BOUNDS:
        if (length == 8) {
            group->blob_bytes_max = convoy_bytes_u32(at);
            group->policy = convoy_bytes_u32(at + 4);
        }
        return length == 8;
    case ITEM_OFFER:
        hello->has_offer = true;
        if (length == 8 + CONVOY_HELLO_SALT_BYTES) {
            hello->offer_epoch = convoy_bytes_u64(at);
            memcpy(hello->offer_salt, at + 8, CONVOY_HELLO_SALT_BYTES);
        }
        return length == 8 + CONVOY_HELLO_SALT_BYTES;
    case ITEM_END:
        break;
    }
    return false;
}

static int32_t decode_malformed(struct convoy_error *error, size_t offset, const char *what)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "the hello is malformed at byte %zu: %s", offset, what);
}

/* One item at *offset; advances it. seen: bits of the items so far. */
static int32_t decode_item(const uint8_t *data, size_t bytes, size_t *offset, struct convoy_hello *hello,
                           uint32_t *seen)
{
    if (bytes - *offset < ITEM_HEAD_BYTES) {
        return CONVOY_MALFORMED;
    }
    uint32_t type = convoy_bytes_u16(data + *offset);
    uint32_t length = convoy_bytes_u16(data + *offset + 2);
    uint32_t item = type & ~ITEM_CRITICAL;
    if (bytes - *offset - ITEM_HEAD_BYTES < length) {
        return CONVOY_MALFORMED;
    }
    if (item == 0 || item >= ITEM_END) {
        if ((type & ITEM_CRITICAL) != 0) {
            return CONVOY_VERSION_MISMATCH;
        }
    } else if ((*seen & 1u << item) != 0 || (*seen == 0) != (item == ITEM_NONCE) ||
               !decode_value((enum item)item, data + *offset + ITEM_HEAD_BYTES, length, hello)) {
        return CONVOY_MALFORMED;
    } else {
        *seen |= 1u << item;
    }
    *offset += ITEM_HEAD_BYTES + length;
    return CONVOY_OK;
}

static int32_t decode_items(const uint8_t *data, size_t bytes, struct convoy_hello *hello, struct convoy_error *error)
{
    size_t offset = CONVOY_HELLO_FIXED_BYTES;
    uint32_t seen = 0;
    while (offset < bytes) {
        int32_t status = decode_item(data, bytes, &offset, hello, &seen);
        if (status == CONVOY_VERSION_MISMATCH) {
            return convoy_error_set(error, status, "the hello has a critical item %u that is unknown here",
                                    convoy_bytes_u16(data + offset) & ~ITEM_CRITICAL);
        }
        if (status != CONVOY_OK) {
            return decode_malformed(error, offset, "an item is cut, repeated, misplaced or of a wrong length");
        }
    }
    if ((seen & 1u << ITEM_NONCE) == 0) {
        return decode_malformed(error, offset, "the nonce is missing");
    }
    if ((seen & ITEMS_OF_GROUP) != 0 && (seen & ITEMS_OF_GROUP) != ITEMS_OF_GROUP) {
        return decode_malformed(error, offset, "a part of the group is missing");
    }
    hello->has_group = (seen & ITEMS_OF_GROUP) != 0;
    return CONVOY_OK;
}

int32_t convoy_hello_decode(const uint8_t *data, size_t bytes, struct convoy_hello *hello_out,
                            struct convoy_error *error)
{
    uint32_t length = 0;
    if (bytes < CONVOY_HELLO_FIXED_BYTES || convoy_hello_length(data, bytes, &length) != CONVOY_OK ||
        length != bytes) {
        return decode_malformed(error, 0, "no magic, or a wrong length");
    }
    struct convoy_hello hello = {.wire_min = 0};
    decode_fixed(data, &hello);
    int32_t status = decode_items(data, bytes, &hello, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (hello.configuration != (hello.has_group ? convoy_hello_configuration(&hello.group) : 0)) {
        return decode_malformed(error, 48, "the configuration hash is not that of the group");
    }
    *hello_out = hello;
    return CONVOY_OK;
}

/* -- choice ------------------------------------------------------------------------------------------------------ */

int32_t convoy_hello_choose(const struct convoy_hello *one, const struct convoy_hello *other,
                            struct convoy_hello_choice *choice_out, struct convoy_error *error)
{
    const struct convoy_number_range mine = {one->wire_min, one->wire_max};
    const struct convoy_number_range theirs = {other->wire_min, other->wire_max};
    uint32_t wire = 0;
    if (!convoy_negotiate_number(&mine, &theirs, &wire)) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH, "wire versions %u to %u meet %u to %u: none is common",
                                one->wire_min, one->wire_max, other->wire_min, other->wire_max);
    }
    uint64_t has_one = one->critical_features | one->optional_features;
    uint64_t has_other = other->critical_features | other->optional_features;
    uint64_t lacking = (one->critical_features & ~has_other) | (other->critical_features & ~has_one);
    if (lacking != 0) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH,
                                "features 0x%llx and 0x%llx: 0x%llx is critical to one and unknown to the other",
                                (unsigned long long)has_one, (unsigned long long)has_other,
                                (unsigned long long)lacking);
    }
    choice_out->wire = wire;
    choice_out->features = has_one & has_other;
    return CONVOY_OK;
}
