/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/manifest.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "wire/dtype.h"
#include "wire/name.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME_QUOTED 64u

/* Zeroed memory of the room, or of its own. */
static char *take_room(struct convoy_manifest_room *room, size_t bytes)
{
    if (room == NULL) {
        return convoy_memory_zalloc(bytes);
    }
    room->known = NULL;
    if (room->bytes < bytes) {
        void *memory = convoy_memory_zalloc(bytes);
        if (memory == NULL) {
            return NULL;
        }
        convoy_memory_free(room->memory);
        room->memory = memory;
        room->bytes = bytes;
        return memory;
    }
    memset(room->memory, 0, bytes);
    return room->memory;
}

struct convoy_manifest *convoy_manifest_create_in(struct convoy_manifest_room *room, uint32_t count,
                                                  uint32_t list_count, size_t text_bytes, char **text_out)
{
    struct convoy_manifest *manifest = NULL;
    size_t tensors_at = sizeof *manifest;
    size_t lists_at = tensors_at + count * sizeof *manifest->tensors;
    size_t text_at = lists_at + list_count * sizeof *manifest->lists;
    char *memory = text_bytes <= SIZE_MAX - text_at ? take_room(room, text_at + text_bytes) : NULL;
    if (memory == NULL) {
        return NULL;
    }
    manifest = (struct convoy_manifest *)(void *)memory;
    manifest->tensors = (struct convoy_tensor *)(void *)(memory + tensors_at);
    manifest->lists = (struct convoy_tensor_list *)(void *)(memory + lists_at);
    manifest->count = count;
    manifest->list_count = list_count;
    *text_out = memory + text_at;
    return manifest;
}

struct convoy_manifest *convoy_manifest_create(uint32_t count, uint32_t list_count, size_t text_bytes,
                                               char **text_out)
{
    return convoy_manifest_create_in(NULL, count, list_count, text_bytes, text_out);
}

void convoy_manifest_room_free(struct convoy_manifest_room *room)
{
    convoy_memory_free(room->memory);
    convoy_memory_free(room->image);
    *room = (struct convoy_manifest_room){.memory = NULL};
}

void convoy_manifest_destroy(struct convoy_manifest *manifest)
{
    convoy_memory_free(manifest);
}

void convoy_manifest_path(const struct convoy_tensor *tensor, char path_out[CONVOY_MANIFEST_PATH_BYTES])
{
    int length = (int)convoy_name_quoted(tensor->name, tensor->name_length, NAME_QUOTED);
    const char *cut = tensor->name_length > NAME_QUOTED ? "..." : "";
    if (tensor->list_index < 0) {
        (void)snprintf(path_out, CONVOY_MANIFEST_PATH_BYTES, "manifest.%.*s%s", length, tensor->name, cut);
    } else {
        (void)snprintf(path_out, CONVOY_MANIFEST_PATH_BYTES, "manifest.%.*s%s[%" PRId32 "]", length, tensor->name, cut,
                       tensor->list_index);
    }
}

int32_t convoy_manifest_limits(uint64_t count, uint64_t list_count, struct convoy_error *error)
{
    if (count > CONVOY_MANIFEST_TENSORS_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "manifest has %" PRIu64 " tensors, allowed are up to %u", count,
                                CONVOY_MANIFEST_TENSORS_MAX);
    }
    if (list_count > CONVOY_MANIFEST_LISTS_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "manifest has %" PRIu64 " lists, allowed are up to %u", list_count,
                                CONVOY_MANIFEST_LISTS_MAX);
    }
    return CONVOY_OK;
}

/* -- one tensor ---------------------------------------------------------------------------------------------------- */

int32_t convoy_manifest_tensor_check(const struct convoy_tensor *tensor, uint32_t position, int32_t refusal,
                                     struct convoy_error *error)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    if (tensor->name_length == 0 || tensor->name_length > CONVOY_MANIFEST_NAME_MAX) {
        return convoy_error_set(error, refusal, "manifest.tensors[%u].name has %u bytes, allowed are 1 to %u", position,
                                tensor->name_length, CONVOY_MANIFEST_NAME_MAX);
    }
    if (!convoy_utf8_is_clean(tensor->name, tensor->name_length)) {
        return convoy_error_set(error, refusal,
                                "manifest.tensors[%u].name is no UTF-8, or has control characters", position);
    }
    if (tensor->dtype == CONVOY_DTYPE_OPAQUE) {
        if (tensor->dtype_name_length == 0 || tensor->dtype_name_length > CONVOY_MANIFEST_DTYPE_NAME_MAX) {
            convoy_manifest_path(tensor, path);
            return convoy_error_set(error, refusal, "%s.dtype is opaque with a name of %u bytes, allowed are 1 to %u",
                                    path, tensor->dtype_name_length, CONVOY_MANIFEST_DTYPE_NAME_MAX);
        }
        if (!convoy_utf8_is_clean(tensor->dtype_name, tensor->dtype_name_length)) {
            convoy_manifest_path(tensor, path);
            return convoy_error_set(error, refusal, "%s.dtype is no UTF-8, or has control characters", path);
        }
    } else if (convoy_dtype_by_id(tensor->dtype) == NULL) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.dtype is %u, known are 0 to %u", path, tensor->dtype,
                                CONVOY_DTYPE_MAX);
    }
    if (tensor->rank > CONVOY_MANIFEST_RANK_MAX) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.shape has %u dimensions, allowed are up to %u", path, tensor->rank,
                                CONVOY_MANIFEST_RANK_MAX);
    }
    return CONVOY_OK;
}

static int32_t dimension_refused(const struct convoy_tensor *tensor, uint32_t index, const char *what, int32_t refusal,
                                 struct convoy_error *error)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    convoy_manifest_path(tensor, path);
    return convoy_error_set(error, refusal, "%s.shape[%u] is %" PRIu64 "%s", path, index, tensor->shape[index], what);
}

/* Product of the shape. The bound is over the dimensions that are not 0: the strides of an empty tensor fit as well. */
static int32_t count_elements(const struct convoy_tensor *tensor, uint64_t *elements_out, int32_t refusal,
                              struct convoy_error *error)
{
    uint64_t product = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t dimension = tensor->shape[i];
        if (dimension > CONVOY_MANIFEST_NUMBER_MAX) {
            return dimension_refused(tensor, i, ", allowed are 0 to 2^63 - 1", refusal, error);
        }
        is_empty |= dimension == 0;
        if (dimension != 0 &&
            (__builtin_mul_overflow(product, dimension, &product) || product > CONVOY_MANIFEST_NUMBER_MAX)) {
            return dimension_refused(tensor, i, ": the product passes 2^63 - 1 elements", refusal, error);
        }
    }
    *elements_out = is_empty ? 0 : product;
    return CONVOY_OK;
}

/* What the bytes are measured by. A peer that lacks a type sends it as opaque, and its bytes are still right. */
static const struct convoy_dtype *measure(const struct convoy_tensor *tensor)
{
    return tensor->dtype != CONVOY_DTYPE_OPAQUE ? convoy_dtype_by_id(tensor->dtype)
                                                : convoy_dtype_by_name(tensor->dtype_name, tensor->dtype_name_length);
}

int32_t convoy_manifest_tensor_bytes(const struct convoy_tensor *tensor, uint64_t *bytes_out, int32_t refusal,
                                     struct convoy_error *error)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    uint64_t elements = 0;
    uint64_t bytes = tensor->bytes;
    int32_t status = count_elements(tensor, &elements, refusal, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_dtype *dtype = measure(tensor);
    enum convoy_dtype_status measured = dtype != NULL ? convoy_dtype_bytes(dtype, elements, &bytes) : CONVOY_DTYPE_OK;
    if (measured == CONVOY_DTYPE_PARTIAL) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.shape has %" PRIu64 " elements of %u bits, no whole bytes", path,
                                elements, dtype->bits);
    }
    if (measured == CONVOY_DTYPE_OVERFLOW || bytes > CONVOY_MANIFEST_NUMBER_MAX) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.shape has %" PRIu64 " elements, more than 2^63 - 1 bytes", path,
                                elements);
    }
    *bytes_out = bytes;
    return CONVOY_OK;
}

/* -- layout -------------------------------------------------------------------------------------------------------- */

static int32_t place(struct convoy_tensor *tensor, uint64_t *end, struct convoy_error *error)
{
    const uint64_t step = CONVOY_MANIFEST_ALIGNMENT;
    uint64_t down = *end / step * step;
    tensor->offset = tensor->bytes == 0 || down == *end ? down : down + step;
    const uint64_t room = CONVOY_MANIFEST_NUMBER_MAX - step;
    if (tensor->bytes > room || tensor->offset > room - tensor->bytes) {
        char path[CONVOY_MANIFEST_PATH_BYTES];
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "%s: %" PRIu64 " bytes at offset %" PRIu64 " pass 2^63 - 1", path, tensor->bytes,
                                tensor->offset);
    }
    *end = tensor->bytes != 0 ? tensor->offset + tensor->bytes : *end;
    return CONVOY_OK;
}

int32_t convoy_manifest_layout(struct convoy_manifest *manifest, struct convoy_error *error)
{
    uint64_t end = 0;
    int32_t status = convoy_manifest_limits(manifest->count, manifest->list_count, error);
    for (uint32_t i = 0; i < manifest->count && status == CONVOY_OK; i++) {
        struct convoy_tensor *tensor = &manifest->tensors[i];
        status = convoy_manifest_tensor_check(tensor, i, CONVOY_INVALID_ARGUMENT, error);
        if (status == CONVOY_OK) {
            status = convoy_manifest_tensor_bytes(tensor, &tensor->bytes, CONVOY_INVALID_ARGUMENT, error);
        }
        if (status == CONVOY_OK) {
            status = place(tensor, &end, error);
        }
    }
    if (status != CONVOY_OK) {
        return status;
    }
    manifest->payload_bytes = end;
    return convoy_manifest_check_laid_out(manifest, error);
}
