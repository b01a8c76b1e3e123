/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_out.h"

#include "sized.h"
#include "wire/dtype.h"

#define FIRST_BYTES offsetof(struct convoy_payload, priority)

static void fill_view(const struct convoy_xfer_contents *contents, const struct convoy_tensor *tensor,
                      struct convoy_tensor_view *view)
{
    const struct convoy_dtype *dtype = convoy_dtype_by_id(tensor->dtype);
    *view = (struct convoy_tensor_view){
        .name = tensor->name,
        .name_length = tensor->name_length,
        .dtype = dtype != NULL ? dtype->name : tensor->dtype_name,
        .dtype_length = dtype != NULL ? strlen(dtype->name) : tensor->dtype_name_length,
        .data = contents->base != NULL && tensor->bytes != 0 ? contents->base + tensor->offset : NULL,
        .shape = tensor->shape,
        .bytes = tensor->bytes,
        .offset = tensor->offset,
        .rank = tensor->rank,
        .flags = tensor->list_index >= 0 ? CONVOY_TENSOR_LISTED : 0,
        .list_index = tensor->list_index >= 0 ? (uint32_t)tensor->list_index : 0,
    };
}

/* An array that is not there takes nothing. */
static int32_t check_array(struct convoy_sized_array *array, const struct convoy_shape *shape, size_t count,
                           struct convoy_error *error)
{
    if (array->base == NULL) {
        array->count = 0;
        return CONVOY_OK;
    }
    int32_t status = array->count != 0 ? convoy_sized_array_check_out(array, shape, error) : CONVOY_OK;
    array->count = array->count < count ? array->count : count;
    return status;
}

static void write_arrays(const struct convoy_xfer_contents *contents, const struct convoy_sized_array *tensors,
                         const struct convoy_sized_array *lists)
{
    for (size_t i = 0; i < tensors->count; i++) {
        struct convoy_tensor_view view;
        fill_view(contents, &contents->manifest->tensors[i], &view);
        convoy_sized_array_write(tensors, &CONVOY_SHAPE(tensor_view), i, &view);
    }
    for (size_t i = 0; i < lists->count; i++) {
        const struct convoy_tensor_list *list = &contents->manifest->lists[i];
        const struct convoy_tensor_list_entry entry = {
            .name = list->name, .name_length = list->name_length, .length = list->length};
        convoy_sized_array_write(lists, &CONVOY_SHAPE(tensor_list_entry), i, &entry);
    }
}

int32_t convoy_transfer_out(const struct convoy_xfer_contents *contents, struct convoy_payload *payload_out,
                            struct convoy_error *error)
{
    struct convoy_payload full;
    const struct convoy_manifest *manifest = contents->manifest;
    int32_t status = convoy_sized_out_begin(&full, &CONVOY_SHAPE_SINCE(payload, FIRST_BYTES), payload_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_sized_array tensors = {full.tensors, full.tensor_stride, full.tensor_capacity};
    struct convoy_sized_array lists = {full.lists, full.list_stride, full.list_capacity};
    status = check_array(&tensors, &CONVOY_SHAPE(tensor_view), manifest->count, error);
    if (status == CONVOY_OK) {
        status = check_array(&lists, &CONVOY_SHAPE(tensor_list_entry), manifest->list_count, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    write_arrays(contents, &tensors, &lists);
    full.tensor_count = manifest->count;
    full.list_count = manifest->list_count;
    full.request = contents->request.text;
    full.request_length = contents->request.bytes;
    full.scalars = contents->scalars.bytes != 0 ? contents->scalars.text : NULL;
    full.scalars_length = contents->scalars.bytes;
    full.session = contents->session.text;
    full.session_length = contents->session.bytes;
    full.payload_bytes = manifest->payload_bytes;
    full.attempt = contents->attempt;
    full.priority = contents->priority;
    full.reserved_2 = 0;
    convoy_sized_out_end(payload_out, &CONVOY_SHAPE_SINCE(payload, FIRST_BYTES), &full);
    return CONVOY_OK;
}
