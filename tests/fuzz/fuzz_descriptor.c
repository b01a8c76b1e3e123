/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transfer engines read of each other: descriptors (binary, or the hosts' JSON), introductions (as long as one is),
 * notices (all else: type, then the rest). What is accepted must come back the same.
 */
#include "core/memory.h"
#include "xfer/descriptor.h"
#include "xfer/introduce.h"
#include "xfer/notice.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void feed_binary(const uint8_t *data, size_t size)
{
    static struct convoy_manifest_room room; /* of all inputs, as of all transfers of an engine */
    struct convoy_descriptor read;
    int32_t status = convoy_descriptor_decode(data, size, &room, &read, NULL);
    require(status == CONVOY_OK || status == CONVOY_MALFORMED || status == CONVOY_LIMIT ||
            status == CONVOY_VERSION_MISMATCH);
    if (status != CONVOY_OK) {
        return;
    }
    uint8_t *again = malloc(size);
    require(again != NULL && convoy_descriptor_bytes(&read) == size);
    require(convoy_descriptor_encode(&read, again, size, NULL) == CONVOY_OK);
    require(memcmp(again, data, size) == 0);
    free(again);
}

static void feed_json(const uint8_t *data, size_t size)
{
    struct convoy_descriptor read;
    char *storage = NULL;
    int32_t status = convoy_descriptor_from_json((const char *)data, size, &read, &storage, NULL);
    if (status == CONVOY_OK) {
        require(read.request.bytes != 0 && read.request.bytes <= 255);
        convoy_manifest_destroy(read.manifest);
        convoy_memory_free(storage);
    }
}

static void feed_introduction(const uint8_t *data, size_t size)
{
    struct convoy_introduction read;
    uint8_t again[CONVOY_INTRODUCE_BYTES];
    if (convoy_introduction_decode(data, size, &read, NULL) == CONVOY_OK) {
        require(memchr(read.session, '\0', sizeof read.session) != NULL);
        convoy_introduction_encode(&read, again);
        struct convoy_introduction back;
        require(convoy_introduction_decode(again, sizeof again, &back, NULL) == CONVOY_OK);
        require(back.incarnation == read.incarnation && back.flags == read.flags);
    }
}

static void feed_notice(const uint8_t *data, size_t size)
{
    struct convoy_ring_entry entry = {.type = data[0], .length = (uint16_t)(size - 1)};
    struct convoy_ring_entry again;
    struct convoy_xfer_notice notice;
    if (size - 1 > sizeof entry.data) {
        return;
    }
    memcpy(entry.data, data + 1, size - 1);
    if (convoy_xfer_notice_unpack(&entry, &notice)) {
        convoy_xfer_notice_pack(&notice, &again);
        require(again.type == entry.type && again.length == entry.length);
        require(memcmp(again.data, entry.data, entry.length) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (convoy_descriptor_is_binary(data, size)) {
        feed_binary(data, size);
    } else if (data[0] == '{') {
        feed_json(data, size);
    } else if (size == CONVOY_INTRODUCE_BYTES) {
        feed_introduction(data, size);
    } else {
        feed_notice(data, size);
    }
    return 0;
}
