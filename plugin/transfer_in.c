/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_in.h"

#include "core/memory.h"

#define FIRST_BYTES offsetof(struct convoy_stage, priority)

int32_t convoy_full_array_begin(struct convoy_full_array *full, const struct convoy_sized_array *array,
                                const struct convoy_shape *shape, struct convoy_error *error)
{
    *full = (struct convoy_full_array){.elements = array->base};
    if (array->count == 0) {
        return CONVOY_OK;
    }
    int32_t status = convoy_sized_array_check_in(array, shape, error);
    if (status != CONVOY_OK || array->stride == shape->full_bytes) {
        return status;
    }
    full->copy = convoy_memory_array(array->count, shape->full_bytes);
    if (full->copy == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu elements of %s", array->count, shape->name);
    }
    for (size_t i = 0; i < array->count; i++) {
        convoy_sized_array_read((char *)full->copy + i * shape->full_bytes, array, shape, i);
    }
    full->elements = full->copy;
    return CONVOY_OK;
}

int32_t convoy_full_flags(const char *what, uint32_t given, uint32_t known, struct convoy_error *error)
{
    return (given & ~known) == 0 ? CONVOY_OK
                                 : convoy_error_set(error, CONVOY_UNSUPPORTED,
                                                    "%s.critical_flags: 0x%x is unknown, known are 0x%x", what, given,
                                                    known);
}

int32_t convoy_full_stage_begin(struct convoy_full_stage *full, const struct convoy_stage *given, struct convoy_error *error)
{
    *full = (struct convoy_full_stage){.stage = {.struct_size = 0}};
    int32_t status = convoy_sized_in(&full->stage, &CONVOY_SHAPE_SINCE(stage, FIRST_BYTES), given, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("stage", full->stage.critical_flags, CONVOY_STAGE_CHECKSUM, error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_sized_array tensors = {full->stage.tensors, full->stage.tensor_stride, full->stage.tensor_count};
        status = convoy_full_array_begin(&full->tensors, &tensors, &CONVOY_SHAPE(tensor_source), error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_sized_array lists = {full->stage.lists, full->stage.list_stride, full->stage.list_count};
        status = convoy_full_array_begin(&full->lists, &lists, &CONVOY_SHAPE(tensor_list_entry), error);
    }
    full->stage.tensors = full->tensors.elements;
    full->stage.lists = full->lists.elements;
    return status;
}

void convoy_full_stage_end(struct convoy_full_stage *full)
{
    if (full->tensors.copy != NULL) {
        convoy_memory_free(full->tensors.copy);
    }
    if (full->lists.copy != NULL) {
        convoy_memory_free(full->lists.copy);
    }
}
