/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor as the message that hosts exchange: transfer_staged, written; transfer_staged and transfer_ready, read. */
#include "xfer/descriptor.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "wire/control.h"
#include "wire/manifest_json.h"
#include "xfer/session.h"

#include <stdlib.h>
#include <string.h>

/* As texts, to be freed with free: jansson allocates with malloc. extra: NULL when the fields say all. */
struct manifest_texts {
    char *fields;
    char *extra;
};

static int32_t manifest_texts(const struct convoy_manifest *manifest, struct manifest_texts *texts_out,
                              struct convoy_error *error)
{
    json_t *fields = NULL;
    json_t *extra = NULL;
    int32_t status = convoy_manifest_json_encode(manifest, &fields, &extra, error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool has_extra = json_object_size(extra) != 0 && !CONVOY_MUTATED(json_holes_lost);
    texts_out->fields = json_dumps(fields, JSON_COMPACT | JSON_ENSURE_ASCII);
    texts_out->extra = has_extra ? json_dumps(extra, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(fields);
    json_decref(extra);
    if (texts_out->fields == NULL || (has_extra && texts_out->extra == NULL)) {
        free(texts_out->fields);
        free(texts_out->extra);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a manifest's text");
    }
    return CONVOY_OK;
}

int32_t convoy_descriptor_to_json(const struct convoy_descriptor *descriptor, char **text_out, size_t *bytes_out,
                                  struct convoy_error *error)
{
    struct manifest_texts texts = {NULL, NULL};
    int32_t status = manifest_texts(descriptor->manifest, &texts, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_control message = {
        .type = CONVOY_CONTROL_STAGED,
        .request_id = descriptor->request,
        .data_size = (int64_t)descriptor->slot_bytes,
        .manifest = {texts.fields, strlen(texts.fields)},
        .session_id = descriptor->session,
        .pool_ptr = (int64_t)descriptor->pool_address,
        .slot_offset = (int64_t)(descriptor->offset - descriptor->base),
        .scalar_fields = descriptor->scalars,
        .wire_version = 1,
        .attempt = descriptor->attempt,
        .epoch = descriptor->incarnation,
        .exact_bytes = (int64_t)descriptor->payload_bytes,
        .manifest_extra = {texts.extra, texts.extra != NULL ? strlen(texts.extra) : 0},
        .priority = descriptor->priority,
    };
    status = convoy_control_encode(&message, text_out, bytes_out, error);
    free(texts.fields);
    free(texts.extra);
    return status;
}

/* name: of the field that it came in. No bytes: {}. */
static int32_t parse(struct convoy_span text, const char *name, json_t **parsed_out, struct convoy_error *error)
{
    json_error_t where;
    struct convoy_span given = text.bytes != 0 ? text : (struct convoy_span){"{}", 2};
    *parsed_out = json_loadb(given.text, given.bytes, CONVOY_MANIFEST_JSON_FLAGS, &where);
    return *parsed_out != NULL
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_MALFORMED, "%s: %s at byte %d", name, where.text, where.position);
}

static int32_t read_manifest(const struct convoy_control *message, struct convoy_manifest **manifest_out,
                             struct convoy_error *error)
{
    json_t *fields = NULL;
    json_t *extra = NULL;
    int32_t status = parse(message->manifest, "manifest", &fields, error);
    if (status == CONVOY_OK) {
        status = parse(message->manifest_extra, "convoy_manifest", &extra, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_manifest_json_decode(fields, extra, manifest_out, error);
    }
    json_decref(fields);
    json_decref(extra);
    return status;
}

static int32_t fill(const struct convoy_control *message, struct convoy_descriptor *out, struct convoy_error *error)
{
    struct convoy_session session;
    bool is_ours = convoy_session_parse(message->session_id.text, message->session_id.bytes, &session, NULL) == CONVOY_OK;
    *out = (struct convoy_descriptor){
        .attempt = message->attempt != 0 ? (uint32_t)message->attempt : 1,
        .priority = (int32_t)message->priority,
        .incarnation = is_ours ? session.incarnation : message->epoch,
        .offset = (uint64_t)message->slot_offset,
        .slot_bytes = (uint64_t)message->data_size,
        .pool_address = (uint64_t)message->pool_ptr,
        .request = message->request_id,
        .session = message->session_id,
        .scalars = message->scalar_fields,
    };
    int32_t status = read_manifest(message, &out->manifest, error);
    if (status == CONVOY_OK) {
        out->payload_bytes = out->manifest->payload_bytes;
    }
    if (status == CONVOY_OK && message->exact_bytes != 0 && out->payload_bytes != (uint64_t)message->exact_bytes) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "convoy_exact_bytes is %lld, the manifest says %llu",
                                  (long long)message->exact_bytes, (unsigned long long)out->payload_bytes);
        convoy_manifest_destroy(out->manifest);
        out->manifest = NULL;
    }
    return status;
}

int32_t convoy_descriptor_from_json(const char *text, size_t length, struct convoy_descriptor *descriptor_out,
                                    char **storage_out, struct convoy_error *error)
{
    const struct convoy_span frames[2] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}, {text, length}};
    struct convoy_control message;
    int32_t status = convoy_control_decode(frames, 2, &message, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (message.type != CONVOY_CONTROL_STAGED && message.type != CONVOY_CONTROL_READY) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "msg_type is %s, a descriptor is transfer_staged or "
                                                           "transfer_ready",
                                  convoy_control_name(message.type));
    }
    if (status == CONVOY_OK) {
        status = fill(&message, descriptor_out, error);
    }
    if (status != CONVOY_OK) {
        convoy_control_free(&message);
        return status;
    }
    *storage_out = message.storage;
    return CONVOY_OK;
}
