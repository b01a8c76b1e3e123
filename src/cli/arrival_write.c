/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/arrival.h"

#include "cli/dtype_names.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define INDEX_BYTES 12u /* ".65535" and the zero, with room to spare */

static bool is_own(const struct convoy_tensor_view *view)
{
    return view->name_length == sizeof CONVOY_PARCEL_PROMPT - 1 &&
           memcmp(view->name, CONVOY_PARCEL_PROMPT, view->name_length) == 0;
}

/* Writes the tensor's name in the file and returns how many bytes it took. */
static size_t write_name(const struct convoy_tensor_view *view, char *text)
{
    memcpy(text, view->name, view->name_length);
    text[view->name_length] = '\0';
    if ((view->flags & CONVOY_TENSOR_LISTED) == 0) {
        return view->name_length + 1;
    }
    int more = snprintf(text + view->name_length, INDEX_BYTES, ".%" PRIu32, view->list_index);
    return view->name_length + (size_t)more + 1;
}

static int32_t write_tensor(const struct convoy_tensor_view *view, struct convoy_safetensor *tensor,
                            struct convoy_error *error)
{
    size_t dtype_length = 0;
    const char *dtype = convoy_dtype_file_name(view->dtype, view->dtype_length, &dtype_length);
    if (dtype_length > CONVOY_SAFETENSORS_DTYPE_BYTES_MAX || view->rank > CONVOY_SAFETENSORS_DIMS_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "tensor %.*s: a dtype of %zu bytes or %u dimensions does not fit",
                                (int)(view->name_length < 64 ? view->name_length : 64), view->name,
                                dtype_length, view->rank);
    }
    memcpy(tensor->dtype, dtype, dtype_length);
    tensor->dim_count = view->rank;
    if (view->rank != 0) {
        memcpy(tensor->shape, view->shape, view->rank * sizeof view->shape[0]);
    }
    tensor->data = view->data;
    tensor->bytes = view->bytes;
    return CONVOY_OK;
}

static int32_t write_all(const struct convoy_arrival *arrival, struct convoy_safetensors *file, char *names,
                         struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < arrival->payload.tensor_count && status == CONVOY_OK; i++) {
        const struct convoy_tensor_view *view = &arrival->tensors[i];
        if (is_own(view)) {
            continue;
        }
        struct convoy_safetensor *tensor = &file->tensors[file->count++];
        tensor->name = names;
        names += write_name(view, names);
        status = write_tensor(view, tensor, error);
    }
    return status;
}

int32_t convoy_arrival_write(const struct convoy_arrival *arrival, const char *path, struct convoy_error *error)
{
    size_t count = arrival->payload.tensor_count;
    size_t names_bytes = 1;
    for (size_t i = 0; i < count; i++) {
        names_bytes += arrival->tensors[i].name_length + INDEX_BYTES;
    }
    struct convoy_safetensors file = {.tensors = convoy_memory_array(count + 1, sizeof *file.tensors)};
    char *names = convoy_memory_zalloc(names_bytes);
    int32_t status = file.tensors != NULL && names != NULL
                         ? write_all(arrival, &file, names, error)
                         : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to write %zu tensors", count);
    if (status == CONVOY_OK) {
        status = convoy_safetensors_write(path, &file, error);
    }
    convoy_memory_free(names);
    convoy_memory_free(file.tensors);
    return status;
}
