/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of other processes. Input that begins with '{' is JSON: {"fields": ..., "extra": ...}; all else is the
 * binary form. What is accepted goes through both forms and must come back the same.
 */
#include "wire/manifest_binary.h"
#include "wire/manifest_json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Through JSON to a fixed point: the second text is the first. */
static void feed_through_json(const struct convoy_manifest *manifest)
{
    json_t *fields[2];
    json_t *extra[2];
    struct convoy_manifest *back = NULL;
    require(convoy_manifest_json_encode(manifest, &fields[0], &extra[0], NULL) == CONVOY_OK);
    require(convoy_manifest_json_decode(fields[0], extra[0], &back, NULL) == CONVOY_OK);
    require(back->count == manifest->count && back->list_count == manifest->list_count);
    require(back->payload_bytes == manifest->payload_bytes);
    require(convoy_manifest_json_encode(back, &fields[1], &extra[1], NULL) == CONVOY_OK);
    require(json_equal(fields[0], fields[1]) != 0 && json_equal(extra[0], extra[1]) != 0);
    for (int i = 0; i < 2; i++) {
        json_decref(fields[i]);
        json_decref(extra[i]);
    }
    convoy_manifest_destroy(back);
}

static void feed_binary(const uint8_t *data, size_t size)
{
    struct convoy_manifest *manifest = NULL;
    size_t length = 0;
    int32_t status = convoy_manifest_binary_decode(data, size, &manifest, NULL);
    require(status == CONVOY_OK || status == CONVOY_MALFORMED || status == CONVOY_LIMIT ||
            status == CONVOY_VERSION_MISMATCH);
    if (status != CONVOY_OK) {
        return;
    }
    uint8_t *again = malloc(size);
    require(again != NULL && convoy_manifest_binary_bytes(manifest) == size);
    require(convoy_manifest_binary_encode(manifest, again, size, &length, NULL) == CONVOY_OK);
    require(length == size && memcmp(again, data, size) == 0);
    free(again);
    feed_through_json(manifest);
    convoy_manifest_destroy(manifest);
}

/* Laid out anew, what JSON said has a binary form. */
static void feed_json(const uint8_t *data, size_t size)
{
    struct convoy_manifest *manifest = NULL;
    json_t *frame = json_loadb((const char *)data, size, CONVOY_MANIFEST_JSON_FLAGS, NULL);
    int32_t status = convoy_manifest_json_decode(json_object_get(frame, "fields"), json_object_get(frame, "extra"),
                                                 &manifest, NULL);
    json_decref(frame);
    require(status == CONVOY_OK || status == CONVOY_MALFORMED || status == CONVOY_LIMIT);
    if (status != CONVOY_OK) {
        return;
    }
    feed_through_json(manifest);
    if (convoy_manifest_layout(manifest, NULL) == CONVOY_OK) {
        size_t length = convoy_manifest_binary_bytes(manifest);
        uint8_t *bytes = malloc(length);
        require(bytes != NULL && convoy_manifest_binary_encode(manifest, bytes, length, &length, NULL) == CONVOY_OK);
        feed_binary(bytes, length);
        free(bytes);
    }
    convoy_manifest_destroy(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size != 0 && data[0] == '{') {
        feed_json(data, size);
    } else {
        feed_binary(data, size);
    }
    return 0;
}
