/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/parcel.h"

#include "cli/plan.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROMPT_ROW_BYTES (2u * CONVOY_PARCEL_PROMPT_WIDTH)
#define PROMPT_SHIFT_MAX 65536u /* by how much the windows of two requests differ */
#define PROMPT_TABLE_BYTES (CONVOY_PARCEL_PROMPT_TOKENS_MAX * PROMPT_ROW_BYTES + PROMPT_SHIFT_MAX)
#define PARCEL_ALIGNMENT 512u
#define PARCEL_NAME_PREFIX "request-"

/* -- of the file ---------------------------------------------------------------------------------------------------- */

static void parcel_tensor(struct convoy_parcel *parcel, const struct convoy_tensor_field *field,
                          const struct convoy_tensor_entry *entry)
{
    const struct convoy_safetensor *tensor = &parcel->file->tensors[entry->tensor];
    parcel->tensors[entry->tensor] = (struct convoy_tensor_source){
        .name = field->name,
        .name_length = field->name_bytes,
        .dtype = tensor->dtype,
        .dtype_length = strlen(tensor->dtype),
        .data = tensor->data,
        .shape = tensor->shape,
        .bytes = tensor->bytes,
        .rank = tensor->dim_count,
        .flags = field->is_list ? CONVOY_TENSOR_LISTED : 0,
        .list_index = field->is_list ? entry->index : 0,
    };
}

static void parcel_fields(struct convoy_parcel *parcel)
{
    for (size_t i = 0; i < parcel->fields.count; i++) {
        const struct convoy_tensor_field *field = &parcel->fields.fields[i];
        if (field->is_list) {
            parcel->lists[parcel->list_count++] = (struct convoy_tensor_list_entry){
                .name = field->name, .name_length = field->name_bytes, .length = field->length};
        }
        for (size_t j = 0; j < field->count; j++) {
            parcel_tensor(parcel, field, &parcel->fields.entries[field->first + j]);
        }
    }
}

static void parcel_prompt_table(uint8_t *table)
{
    for (uint64_t at = 0; at < PROMPT_TABLE_BYTES; at += sizeof at) {
        convoy_bytes_put_u64(table + at, convoy_plan_mix(at));
    }
}

int32_t convoy_parcel_init(struct convoy_parcel *parcel_out, const struct convoy_safetensors *file,
                           struct convoy_error *error)
{
    struct convoy_parcel parcel = {.file = file, .count = file->count + 1};
    if (convoy_safetensors_find(file, CONVOY_PARCEL_PROMPT) != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "the file has a tensor " CONVOY_PARCEL_PROMPT
                                ": the pipeline needs that name for its own");
    }
    int32_t status = convoy_tensor_fields_make(&parcel.fields, file->tensors, file->count, error);
    if (status != CONVOY_OK) {
        return status;
    }
    parcel.tensors = convoy_memory_array(parcel.count, sizeof *parcel.tensors);
    parcel.lists = convoy_memory_array(parcel.fields.count, sizeof *parcel.lists);
    parcel.prompt = convoy_memory_zalloc(PROMPT_TABLE_BYTES);
    if (parcel.tensors == NULL || parcel.lists == NULL || parcel.prompt == NULL) {
        convoy_parcel_fini(&parcel);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the list of %zu tensors", parcel.count);
    }
    parcel_fields(&parcel);
    parcel_prompt_table(parcel.prompt);
    *parcel_out = parcel;
    return CONVOY_OK;
}

void convoy_parcel_fini(struct convoy_parcel *parcel)
{
    convoy_tensor_fields_fini(&parcel->fields);
    convoy_memory_free(parcel->tensors);
    convoy_memory_free(parcel->lists);
    convoy_memory_free(parcel->prompt);
    *parcel = (struct convoy_parcel){0};
}

/* -- of a request --------------------------------------------------------------------------------------------------- */

void convoy_parcel_set(struct convoy_parcel *parcel, uint32_t request, const struct convoy_trace_request *sizes)
{
    uint64_t seed = convoy_plan_mix(request);
    uint64_t tokens = sizes->input_tokens < CONVOY_PARCEL_PROMPT_TOKENS_MAX ? sizes->input_tokens
                                                                            : CONVOY_PARCEL_PROMPT_TOKENS_MAX;
    parcel->prompt_shape[0] = tokens;
    parcel->prompt_shape[1] = CONVOY_PARCEL_PROMPT_WIDTH;
    parcel->tensors[parcel->count - 1] = (struct convoy_tensor_source){
        .name = CONVOY_PARCEL_PROMPT,
        .name_length = sizeof CONVOY_PARCEL_PROMPT - 1,
        .dtype = "BF16",
        .dtype_length = 4,
        .data = parcel->prompt + seed % PROMPT_SHIFT_MAX,
        .shape = parcel->prompt_shape,
        .bytes = tokens * PROMPT_ROW_BYTES,
        .rank = 2,
    };
    (void)snprintf(parcel->name, sizeof parcel->name, PARCEL_NAME_PREFIX "%" PRIu32, request);
    (void)snprintf(parcel->scalars, sizeof parcel->scalars,
                   "{\"request\":%" PRIu32 ",\"prompt_tokens\":%" PRIu32 ",\"output_tokens\":%" PRIu32
                   ",\"seed\":%" PRIu64 "}",
                   request, sizes->input_tokens, sizes->output_tokens, seed);
}

uint64_t convoy_parcel_bytes(const struct convoy_parcel *parcel)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < parcel->count; i++) {
        bytes += (parcel->tensors[i].bytes + PARCEL_ALIGNMENT - 1) / PARCEL_ALIGNMENT * PARCEL_ALIGNMENT;
    }
    return bytes;
}

struct convoy_stage convoy_parcel_stage(const struct convoy_parcel *parcel)
{
    return (struct convoy_stage){
        .struct_size = sizeof(struct convoy_stage),
        .request = parcel->name,
        .request_length = strlen(parcel->name),
        .tensors = parcel->tensors,
        .tensor_stride = sizeof parcel->tensors[0],
        .tensor_count = parcel->count,
        .lists = parcel->lists,
        .list_stride = sizeof parcel->lists[0],
        .list_count = parcel->list_count,
        .scalars = parcel->scalars,
        .scalars_length = strlen(parcel->scalars),
    };
}

bool convoy_parcel_request_of(const char *name, size_t length, uint32_t *request_out)
{
    const size_t prefix = sizeof PARCEL_NAME_PREFIX - 1;
    uint64_t number = 0;
    if (length <= prefix || length > prefix + 9 || memcmp(name, PARCEL_NAME_PREFIX, prefix) != 0) {
        return false;
    }
    for (size_t i = prefix; i < length; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        number = 10 * number + (uint64_t)(name[i] - '0');
    }
    *request_out = (uint32_t)number;
    return true;
}
