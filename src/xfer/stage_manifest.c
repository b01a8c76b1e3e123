/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of what the host stages: its tensors' names, types and shapes, checked, kept and laid out. */
#include "core/error.h"
#include "core/fault.h"
#include "wire/dtype.h"
#include "wire/manifest_binary.h"
#include "xfer/parts.h"

#include <string.h>

static int32_t check_tensor(const struct convoy_tensor_source *source, size_t index, struct convoy_error *error)
{
    if (source->name == NULL || source->name_length == 0 || source->name_length > CONVOY_MANIFEST_NAME_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "stage.tensors[%zu].name of %zu bytes, allowed are 1 to %u",
                                index, source->name == NULL ? 0 : source->name_length, CONVOY_MANIFEST_NAME_MAX);
    }
    if (source->dtype == NULL || source->dtype_length == 0 || source->dtype_length > CONVOY_MANIFEST_DTYPE_NAME_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.tensors[%zu].dtype of %zu bytes, allowed are 1 to %u", index,
                                source->dtype == NULL ? 0 : source->dtype_length, CONVOY_MANIFEST_DTYPE_NAME_MAX);
    }
    if (source->rank > CONVOY_MANIFEST_RANK_MAX || (source->rank != 0 && source->shape == NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.tensors[%zu].rank is %u, allowed are 0 to %u with a shape", index, source->rank,
                                CONVOY_MANIFEST_RANK_MAX);
    }
    if ((source->flags & ~CONVOY_TENSOR_LISTED) != 0 || source->list_index >= CONVOY_MANIFEST_LENGTH_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "stage.tensors[%zu]: flags 0x%x (known: 0x1), list_index %u (below %u)", index,
                                source->flags, source->list_index, CONVOY_MANIFEST_LENGTH_MAX);
    }
    return CONVOY_OK;
}

static const char *keep_text(char **room, const char *text, size_t length)
{
    char *kept = *room;
    memcpy(kept, text, length);
    *room += length;
    return kept;
}

/* The type by its name, which mostly is that of the tensor before (NULL: there is none). */
static const struct convoy_dtype *find_dtype(const struct convoy_tensor_source *source,
                                             const struct convoy_tensor_source *before,
                                             const struct convoy_dtype *known)
{
    if (before != NULL && before->dtype_length == source->dtype_length &&
        memcmp(before->dtype, source->dtype, source->dtype_length) == 0) {
        return known;
    }
    const struct convoy_dtype *dtype = convoy_dtype_by_name(source->dtype, source->dtype_length);
    return dtype != NULL ? dtype : convoy_dtype_by_safetensors(source->dtype, source->dtype_length);
}

static void fill_tensor(struct convoy_tensor *tensor, const struct convoy_tensor_source *source,
                        const struct convoy_dtype *dtype, char **room)
{
    tensor->name = keep_text(room, source->name, source->name_length);
    tensor->name_length = (uint32_t)source->name_length;
    tensor->dtype = dtype != NULL ? dtype->id : CONVOY_DTYPE_OPAQUE;
    if (dtype == NULL) {
        tensor->dtype_name = keep_text(room, source->dtype, source->dtype_length);
        tensor->dtype_name_length = (uint32_t)source->dtype_length;
        tensor->bytes = source->bytes;
    }
    tensor->list_index = (source->flags & CONVOY_TENSOR_LISTED) != 0 ? (int32_t)source->list_index : -1;
    tensor->rank = source->rank;
    for (uint32_t d = 0; d < source->rank; d++) {
        tensor->shape[d] = source->shape[d];
    }
}

static bool is_same_name(const struct convoy_tensor_list *list, const char *name, size_t length)
{
    return list->name_length == length && memcmp(list->name, name, length) == 0;
}

/* A list that the host did not declare is as long as its highest index says. */
static void fill_lists(struct convoy_manifest *manifest, const struct convoy_stage *stage, char **room)
{
    manifest->list_count = 0;
    for (size_t i = 0; i < stage->list_count; i++) {
        manifest->lists[manifest->list_count++] = (struct convoy_tensor_list){
            .name = keep_text(room, stage->lists[i].name, stage->lists[i].name_length),
            .name_length = (uint32_t)stage->lists[i].name_length,
            .length = stage->lists[i].length};
    }
    for (uint32_t i = 0; i < manifest->count; i++) {
        const struct convoy_tensor *tensor = &manifest->tensors[i];
        uint32_t at = 0;
        if (tensor->list_index < 0) {
            continue;
        }
        while (at < manifest->list_count && !is_same_name(&manifest->lists[at], tensor->name, tensor->name_length)) {
            at++;
        }
        if (at == manifest->list_count) {
            manifest->lists[manifest->list_count++] =
                (struct convoy_tensor_list){.name = tensor->name, .name_length = tensor->name_length};
        }
        if (at >= stage->list_count && manifest->lists[at].length <= (uint32_t)tensor->list_index) {
            manifest->lists[at].length = (uint32_t)tensor->list_index + 1;
        }
    }
}

static bool is_known_tensor(const struct convoy_tensor *tensor, const struct convoy_tensor_source *source,
                            const struct convoy_dtype *dtype)
{
    int32_t list_index = (source->flags & CONVOY_TENSOR_LISTED) != 0 ? (int32_t)source->list_index : -1;
    bool is_alike = tensor->name_length == source->name_length && tensor->rank == source->rank &&
                    tensor->list_index == list_index && memcmp(tensor->name, source->name, source->name_length) == 0 &&
                    tensor->dtype == (dtype != NULL ? dtype->id : CONVOY_DTYPE_OPAQUE);
    for (uint32_t d = 0; is_alike && d < source->rank; d++) {
        is_alike = tensor->shape[d] == source->shape[d] || CONVOY_MUTATED(known_shape_ignored);
    }
    return is_alike && (dtype != NULL || (tensor->bytes == source->bytes &&
                                          tensor->dtype_name_length == source->dtype_length &&
                                          memcmp(tensor->dtype_name, source->dtype, source->dtype_length) == 0));
}

/* Whether the last manifest in the room was made of the same names, types, shapes and lists. */
static bool is_known(const struct convoy_manifest_room *room, const struct convoy_stage *stage)
{
    const struct convoy_manifest *known = room->known;
    const struct convoy_dtype *dtype = NULL;
    bool is_alike = known != NULL && known->count == stage->tensor_count && room->known_lists == stage->list_count;
    for (size_t i = 0; is_alike && i < stage->list_count; i++) {
        is_alike = known->lists[i].length == stage->lists[i].length &&
                   is_same_name(&known->lists[i], stage->lists[i].name, stage->lists[i].name_length);
    }
    for (size_t i = 0; is_alike && i < stage->tensor_count; i++) {
        dtype = find_dtype(&stage->tensors[i], i != 0 ? &stage->tensors[i - 1] : NULL, dtype);
        is_alike = is_known_tensor(&known->tensors[i], &stage->tensors[i], dtype);
    }
    return is_alike;
}

int32_t convoy_xfer_stage_manifest(const struct convoy_stage *stage, struct convoy_manifest_room *manifest_room,
                                   struct convoy_manifest **manifest_out, struct convoy_error *error)
{
    size_t text_bytes = 0;
    uint32_t listed = 0;
    char *room = NULL;
    for (size_t i = 0; i < stage->tensor_count; i++) {
        int32_t status = check_tensor(&stage->tensors[i], i, error);
        if (status != CONVOY_OK) {
            return status;
        }
        text_bytes += stage->tensors[i].name_length + stage->tensors[i].dtype_length;
        listed += (stage->tensors[i].flags & CONVOY_TENSOR_LISTED) != 0;
    }
    for (size_t i = 0; i < stage->list_count; i++) {
        if (stage->lists[i].name == NULL || stage->lists[i].name_length > CONVOY_MANIFEST_NAME_MAX) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "stage.lists[%zu].name: allowed are 1 to %u bytes", i,
                                    CONVOY_MANIFEST_NAME_MAX);
        }
        text_bytes += stage->lists[i].name_length;
    }
    if (is_known(manifest_room, stage)) {
        *manifest_out = manifest_room->known;
        return CONVOY_OK;
    }
    struct convoy_manifest *manifest =
        convoy_manifest_create_in(manifest_room, (uint32_t)stage->tensor_count, (uint32_t)stage->list_count + listed,
                                  text_bytes + 1, &room);
    if (manifest == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a manifest of %zu tensors", stage->tensor_count);
    }
    const struct convoy_dtype *dtype = NULL;
    for (size_t i = 0; i < stage->tensor_count; i++) {
        dtype = find_dtype(&stage->tensors[i], i != 0 ? &stage->tensors[i - 1] : NULL, dtype);
        fill_tensor(&manifest->tensors[i], &stage->tensors[i], dtype, &room);
    }
    fill_lists(manifest, stage, &room);
    *manifest_out = manifest;
    int32_t status = convoy_manifest_layout(manifest, error);
    if (status == CONVOY_OK) {
        convoy_manifest_remember(manifest_room, manifest, (uint32_t)stage->list_count);
    }
    return status;
}
