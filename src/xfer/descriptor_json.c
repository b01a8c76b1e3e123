/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor as the message that hosts exchange: transfer_staged, written; transfer_staged and transfer_ready, read. */
#include "xfer/descriptor.h"

#include "core/error.h"
#include "core/memory.h"
#include "wire/control.h"
#include "wire/manifest_json.h"
#include "xfer/session.h"

#include <stdlib.h>
#include <string.h>

/* As text, to be freed with free: jansson allocates with malloc. */
static int32_t manifest_text(const struct convoy_manifest *manifest, char **text_out, struct convoy_error *error)
{
    json_t *fields = NULL;
    json_t *extra = NULL;
    int32_t status = convoy_manifest_json_encode(manifest, &fields, &extra, error);
    if (status != CONVOY_OK) {
        return status;
    }
    *text_out = json_dumps(fields, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(fields);
    json_decref(extra);
    return *text_out != NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a manifest's text");
}

int32_t convoy_descriptor_to_json(const struct convoy_descriptor *descriptor, char **text_out, size_t *bytes_out,
                                  struct convoy_error *error)
{
    char *manifest = NULL;
    int32_t status = manifest_text(descriptor->manifest, &manifest, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_control message = {
        .type = CONVOY_CONTROL_STAGED,
        .request_id = descriptor->request,
        .data_size = (int64_t)descriptor->slot_bytes,
        .manifest = {manifest, strlen(manifest)},
        .session_id = descriptor->session,
        .pool_ptr = (int64_t)descriptor->pool_address,
        .slot_offset = (int64_t)(descriptor->offset - descriptor->base),
        .scalar_fields = descriptor->scalars,
        .wire_version = 1,
        .attempt = descriptor->attempt,
        .epoch = descriptor->incarnation,
        .exact_bytes = (int64_t)descriptor->payload_bytes,
    };
    status = convoy_control_encode(&message, text_out, bytes_out, error);
    free(manifest);
    return status;
}

static int32_t read_manifest(struct convoy_span text, struct convoy_manifest **manifest_out, struct convoy_error *error)
{
    json_error_t where;
    struct convoy_span given = text.bytes != 0 ? text : (struct convoy_span){"{}", 2};
    json_t *fields = json_loadb(given.text, given.bytes, CONVOY_MANIFEST_JSON_FLAGS, &where);
    if (fields == NULL) {
        return convoy_error_set(error, CONVOY_MALFORMED, "manifest: %s at byte %d", where.text, where.position);
    }
    int32_t status = convoy_manifest_json_decode(fields, NULL, manifest_out, error);
    json_decref(fields);
    return status;
}

static int32_t fill(const struct convoy_control *message, struct convoy_descriptor *out, struct convoy_error *error)
{
    struct convoy_session session;
    bool is_ours = convoy_session_parse(message->session_id.text, message->session_id.bytes, &session, NULL) == CONVOY_OK;
    *out = (struct convoy_descriptor){
        .attempt = message->attempt != 0 ? (uint32_t)message->attempt : 1,
        .incarnation = is_ours ? session.incarnation : message->epoch,
        .offset = (uint64_t)message->slot_offset,
        .slot_bytes = (uint64_t)message->data_size,
        .pool_address = (uint64_t)message->pool_ptr,
        .request = message->request_id,
        .session = message->session_id,
        .scalars = message->scalar_fields,
    };
    int32_t status = read_manifest(message->manifest, &out->manifest, error);
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
