/* SPDX-License-Identifier: Apache-2.0 */
/* Golden frames of transfers: introductions, notices of every type, descriptors. */
#include "golden.h"

#include "core/error.h"
#include "core/memory.h"
#include "wire/dtype.h"
#include "xfer/descriptor.h"
#include "xfer/introduce.h"
#include "xfer/notice.h"

#include <stdlib.h>
#include <string.h>

#define SESSION "127.0.0.1:4000+00000000000000aa"

static struct convoy_introduction make_introduction(void)
{
    struct convoy_introduction introduction = {
        .flags = CONVOY_INTRODUCE_PRIVATE | CONVOY_INTRODUCE_BY_PROCESS,
        .asked = 11,
        .incarnation = 0xaa,
        .pool_bytes = 1u << 24,
        .pool_address = 0x7f0000000000ull,
        .token_address = 0x7f1000000000ull,
        .context = 14,
        .keys = {.flags = CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_NETWORK, .network = {4, 5}, .directory = {6, 7}},
        .session = SESSION,
    };
    memset(introduction.keys.boot, 0x21, sizeof introduction.keys.boot);
    memset(introduction.token, 0x22, sizeof introduction.token);
    memset(introduction.socket, 0x23, sizeof introduction.socket);
    memset(introduction.nonce, 0x24, sizeof introduction.nonce);
    return introduction;
}

static size_t encode_introduction(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_introduction introduction = make_introduction();
    convoy_introduction_encode(&introduction, out);
    return CONVOY_INTRODUCE_BYTES;
}

static int32_t decode_introduction(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    const struct convoy_introduction wanted = make_introduction();
    struct convoy_introduction read;
    int32_t status = convoy_introduction_decode(data, length, &read, NULL);
    if (status != CONVOY_OK) {
        return status;
    }
    return read.flags == wanted.flags && read.asked == wanted.asked && read.incarnation == wanted.incarnation &&
                   read.pool_bytes == wanted.pool_bytes && read.pool_address == wanted.pool_address &&
                   read.token_address == wanted.token_address && read.context == wanted.context &&
                   memcmp(&read.keys, &wanted.keys, sizeof read.keys) == 0 &&
                   memcmp(read.token, wanted.token, sizeof read.token) == 0 &&
                   memcmp(read.socket, wanted.socket, sizeof read.socket) == 0 &&
                   memcmp(read.nonce, wanted.nonce, sizeof read.nonce) == 0 && strcmp(read.session, wanted.session) == 0
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static struct convoy_xfer_notice make_notice(uint32_t type)
{
    struct convoy_xfer_notice notice;
    memset(&notice, 0, sizeof notice);
    notice.type = (enum convoy_say)type;
    switch (notice.type) {
    case CONVOY_SAY_OFFER:
        notice.body.offer = (struct convoy_offer){
            .serial = 1, .sequence = 2, .digest = 3, .offset = 4, .bytes = 5, .note_offset = 6, .attempt = 8};
        notice.body.offer.note = 80 | CONVOY_OFFER_EARLY;
        break;
    case CONVOY_SAY_ASK:
    case CONVOY_SAY_QUERY:
        notice.body.ask = (struct convoy_ask){.cookie = 1, .serial = 2, .digest = 3, .offset = 4, .bytes = 5, .attempt = 6};
        break;
    case CONVOY_SAY_RAW:
        notice.body.raw = (struct convoy_raw_order){.cookie = 1, .offset = 2, .target = 3, .bytes = 4};
        break;
    case CONVOY_SAY_RAW_LIST:
        notice.body.list = (struct convoy_raw_list){.cookie = 1, .note_offset = 2, .bytes = 3, .count = 4};
        break;
    case CONVOY_SAY_ROOM:
        notice.body.room = (struct convoy_room){.serial = 1, .landing = 2, .generation = 3, .note_bytes = 4};
        notice.body.room.put = CONVOY_ROOM_NO_PUT;
        break;
    case CONVOY_SAY_FORGET:
        notice.body.forget = (struct convoy_forget){.generation = 3, .oldest = 4};
        break;
    case CONVOY_SAY_PUT:
        notice.body.put = (struct convoy_put){.landing = 1, .generation = 2, .bytes = 3, .status = CONVOY_PEER_LOST};
        break;
    case CONVOY_SAY_TAKEN:
    case CONVOY_SAY_BACK:
    case CONVOY_SAY_WITHDRAW:
    case CONVOY_SAY_GRANT:
    case CONVOY_SAY_RAW_DONE:
    case CONVOY_SAY_ANSWER:
    case CONVOY_SAY_STAGED:
        notice.body.reply = (struct convoy_reply){.serial = 1,
                                                  .cookie = 2,
                                                  .figures = {3, 4},
                                                  .status = CONVOY_BUSY,
                                                  .state = 6,
                                                  .attempt = 7,
                                                  .retry_after_ms = 8,
                                                  .flags = CONVOY_REPLY_PLACED,
                                                  .is_drained = 1};
        break;
    case CONVOY_SAY_GOODBYE:
    case CONVOY_SAY_CLOSED:
    case CONVOY_SAY_HELLO:
    case CONVOY_SAY_NONE:
    case CONVOY_SAY_TYPES:
        break;
    }
    return notice;
}

static size_t encode_notice(uint32_t type, uint8_t *out)
{
    struct convoy_xfer_notice notice = make_notice(type);
    struct convoy_ring_entry entry;
    memset(&entry, 0, sizeof entry);
    convoy_xfer_notice_pack(&notice, &entry);
    memcpy(out, &entry, sizeof entry);
    return offsetof(struct convoy_ring_entry, data) + entry.length;
}

static int32_t decode_notice(uint32_t type, const uint8_t *data, size_t length)
{
    const struct convoy_xfer_notice wanted = make_notice(type);
    struct convoy_xfer_notice read;
    struct convoy_ring_entry entry;
    memset(&entry, 0, sizeof entry);
    memset(&read, 0, sizeof read);
    if (length < offsetof(struct convoy_ring_entry, data) || length > sizeof entry) {
        return CONVOY_MALFORMED;
    }
    memcpy(&entry, data, length);
    if (entry.length != length - offsetof(struct convoy_ring_entry, data) || !convoy_xfer_notice_unpack(&entry, &read)) {
        return CONVOY_MALFORMED;
    }
    return read.type == wanted.type && memcmp(&read.body, &wanted.body, entry.length) == 0 ? CONVOY_OK : GOLDEN_OTHER;
}

static struct convoy_manifest_room manifest_room;

#define SPARE_PRIORITY 0x4100 /* what a frame of 1.0 has where that had spare bytes is a priority since 1.1 */

/* which: the priority, as its 32 bits; 0 is what builds before 1.1 write. */
static size_t encode_descriptor(uint32_t which, uint8_t *out)
{
    char *names = NULL;
    struct convoy_manifest *manifest = convoy_manifest_create(3, 1, 8, &names);
    if (manifest == NULL) {
        abort();
    }
    memcpy(names, "xy", 2);
    for (uint32_t i = 0; i < 3; i++) {
        manifest->tensors[i] = (struct convoy_tensor){.name = names + (i != 0),
                                                      .name_length = 1,
                                                      .list_index = i == 0 ? -1 : i == 1 ? 0 : 2,
                                                      .dtype = CONVOY_DTYPE_FLOAT16,
                                                      .rank = 2,
                                                      .shape = {100, i}};
    }
    manifest->lists[0] = (struct convoy_tensor_list){.name = names + 1, .name_length = 1, .length = 4};
    struct convoy_descriptor descriptor = {.flags = CONVOY_DESCRIPTOR_CHECKSUM,
                                           .attempt = 3,
                                           .priority = (int32_t)which,
                                           .incarnation = 0xaa,
                                           .serial = 77,
                                           .generation = 1,
                                           .offset = 8192,
                                           .checksum = 0x0123456789abcdefu,
                                           .request = {"request", 7},
                                           .session = {SESSION, sizeof SESSION - 1},
                                           .scalars = {"{\"seed\":1}", 10},
                                           .manifest = manifest};
    if (convoy_manifest_layout(manifest, NULL) != CONVOY_OK) {
        abort();
    }
    descriptor.payload_bytes = manifest->payload_bytes;
    size_t bytes = convoy_descriptor_bytes(&descriptor);
    if (convoy_descriptor_encode(&descriptor, out, GOLDEN_BYTES_MAX, NULL) != CONVOY_OK) {
        abort();
    }
    convoy_manifest_destroy(manifest);
    return bytes;
}

static int32_t decode_descriptor(uint32_t which, const uint8_t *data, size_t length)
{
    struct convoy_descriptor read;
    int32_t status = convoy_descriptor_decode(data, length, &manifest_room, &read, NULL);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_manifest *manifest = read.manifest;
    bool is_priority = read.priority == (int32_t)which || (which == 0 && read.priority == SPARE_PRIORITY);
    bool is_same = read.flags == CONVOY_DESCRIPTOR_CHECKSUM && read.attempt == 3 && is_priority &&
                   read.incarnation == 0xaa && read.serial == 77 && read.generation == 1 && read.offset == 8192 &&
                   read.checksum == 0x0123456789abcdefu && read.request.bytes == 7 &&
                   memcmp(read.request.text, "request", 7) == 0 && read.session.bytes == sizeof SESSION - 1 &&
                   memcmp(read.session.text, SESSION, sizeof SESSION - 1) == 0 && read.scalars.bytes == 10 &&
                   memcmp(read.scalars.text, "{\"seed\":1}", 10) == 0 && manifest->count == 3 && manifest->list_count == 1 &&
                   manifest->lists[0].length == 4 && manifest->tensors[2].list_index == 2 &&
                   manifest->tensors[2].dtype == CONVOY_DTYPE_FLOAT16 && manifest->tensors[2].shape[1] == 2 &&
                   read.payload_bytes == manifest->payload_bytes && manifest->payload_bytes == 512 + 400;
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

#define NOTICE(name, type) {"notice." name, CONVOY_SAY_##type, encode_notice, decode_notice}

static const struct golden_frame frames[] = {
    {"transfer.introduction", 0, encode_introduction, decode_introduction},
    NOTICE("offer", OFFER),
    NOTICE("taken", TAKEN),
    NOTICE("back", BACK),
    NOTICE("withdraw", WITHDRAW),
    NOTICE("ask", ASK),
    NOTICE("grant", GRANT),
    NOTICE("raw", RAW),
    NOTICE("raw-done", RAW_DONE),
    NOTICE("query", QUERY),
    NOTICE("answer", ANSWER),
    NOTICE("goodbye", GOODBYE),
    NOTICE("room", ROOM),
    NOTICE("hello", HELLO),
    NOTICE("staged", STAGED),
    NOTICE("raw-list", RAW_LIST),
    NOTICE("closed", CLOSED),
    NOTICE("forget", FORGET),
    NOTICE("put", PUT),
    {"transfer.descriptor", 0, encode_descriptor, decode_descriptor},
    {"transfer.descriptor-priority", 0xfffffffdu, encode_descriptor, decode_descriptor},
};

static const struct golden_bad bads[] = {
    {"transfer.bad-introduction-cut", "transfer.introduction", GOLDEN_CUT, 319, 0, CONVOY_MALFORMED},
    {"transfer.bad-introduction-version", "transfer.introduction", GOLDEN_POKE, 0, 99, CONVOY_VERSION_MISMATCH},
    {"notice.bad-type", "notice.offer", GOLDEN_POKE, 0, 99, CONVOY_MALFORMED},
    {"notice.bad-cut", "notice.offer", GOLDEN_CUT, 20, 0, CONVOY_MALFORMED},
    {"notice.bad-length", "notice.ask", GOLDEN_POKE, 2, 8, CONVOY_MALFORMED},
    {"transfer.bad-descriptor-magic", "transfer.descriptor", GOLDEN_POKE, 0, 0, CONVOY_MALFORMED},
    {"transfer.bad-descriptor-version", "transfer.descriptor", GOLDEN_POKE, 4, 9, CONVOY_VERSION_MISMATCH},
    {"transfer.bad-descriptor-cut", "transfer.descriptor", GOLDEN_CUT, 90, 0, CONVOY_MALFORMED},
    {"transfer.bad-descriptor-long", "transfer.descriptor", GOLDEN_GROW, 1, 0, CONVOY_MALFORMED},
    {"transfer.bad-descriptor-flags", "transfer.descriptor", GOLDEN_POKE, 6, 0x80, CONVOY_MALFORMED},
    {"transfer.later-descriptor-hint", "transfer.descriptor", GOLDEN_POKE, 7, 0x80, CONVOY_OK},
    {"transfer.later-descriptor-spare", "transfer.descriptor", GOLDEN_POKE, 77, 0x41, CONVOY_OK},
};

const struct golden_set golden_xfer = GOLDEN_SET(frames, bads);
