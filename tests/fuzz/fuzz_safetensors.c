/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .safetensors file of any origin. What is accepted covers its data exactly, groups into fields, and is the same after
 * it was encoded and read again. The header's length is put right when the first byte is odd, so that more than lengths
 * is looked at: then all but the last byte & 63 bytes are header.
 */
#include "cli/tensor_fields.h"
#include "core/bytes.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void check_fields(const struct convoy_safetensors *file)
{
    struct convoy_tensor_fields fields;
    size_t entries = 0;
    require(convoy_tensor_fields_make(&fields, file->tensors, file->count, NULL) == CONVOY_OK);
    for (size_t i = 0; i < fields.count; i++) {
        entries += fields.fields[i].count;
        require(fields.fields[i].count <= fields.fields[i].length);
    }
    require(entries == file->count);
    convoy_tensor_fields_fini(&fields);
}

/* Head and data as the writer puts them in a row. */
static void check_again(const struct convoy_safetensors *file, size_t data_bytes)
{
    uint8_t *head = NULL;
    size_t head_bytes = 0;
    struct convoy_safetensors again;
    struct convoy_safetensors_difference differences[CONVOY_SAFETENSORS_KINDS];
    require(convoy_safetensors_encode(file, "again", &head, &head_bytes, NULL) == CONVOY_OK);
    uint8_t *bytes = malloc(head_bytes + data_bytes);
    require(bytes != NULL && head_bytes % 8 == 0);
    memcpy(bytes, head, head_bytes);
    size_t end = head_bytes;
    for (size_t i = 0; i < file->count; i++) {
        require(file->tensors[i].bytes <= head_bytes + data_bytes - end);
        memcpy(bytes + end, file->tensors[i].data, file->tensors[i].bytes);
        end += file->tensors[i].bytes;
    }
    require(end == head_bytes + data_bytes);
    require(convoy_safetensors_parse(&again, "again", bytes, end, NULL) == CONVOY_OK);
    require(again.metadata_count == file->metadata_count && convoy_safetensors_compare(file, &again, differences));
    convoy_safetensors_fini(&again);
    convoy_memory_free(head);
    free(bytes);
}

static void feed(const uint8_t *bytes, size_t length)
{
    struct convoy_safetensors file;
    if (convoy_safetensors_parse(&file, "input", bytes, length, NULL) != CONVOY_OK) {
        return;
    }
    check_fields(&file);
    check_again(&file, length - 8 - (size_t)convoy_bytes_u64(bytes));
    convoy_safetensors_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t length = size - 1;
    uint8_t *bytes = malloc(length != 0 ? length : 1);
    require(bytes != NULL);
    memcpy(bytes, data + 1, length);
    if ((data[0] & 1) != 0 && length > 8) {
        size_t data_bytes = bytes[length - 1] & 63u;
        convoy_bytes_put_u64(bytes, length - 8 > data_bytes ? length - 8 - data_bytes : length - 8);
    }
    feed(bytes, length);
    free(bytes);
    return 0;
}
