/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/safetensors.h"

#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t bits;
} safetensors_dtypes[] = {
    {"F4", 4},       {"F6_E2M3", 6},  {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8},
    {"F8_E5M2", 8},  {"F8_E8M0", 8},  {"I16", 16},    {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},
    {"U32", 32},     {"F32", 32},     {"F64", 64},    {"I64", 64}, {"U64", 64}, {"C64", 64},
};

uint32_t convoy_safetensors_dtype_bits(const char *dtype)
{
    for (size_t i = 0; i < sizeof safetensors_dtypes / sizeof safetensors_dtypes[0]; i++) {
        if (strcmp(safetensors_dtypes[i].name, dtype) == 0) {
            return safetensors_dtypes[i].bits;
        }
    }
    return 0;
}

const char *convoy_safetensors_shape_text(const struct convoy_safetensor *tensor,
                                          char text_out[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES])
{
    size_t length = 0;
    text_out[length++] = '[';
    for (uint32_t i = 0; i < tensor->dim_count && i < CONVOY_SAFETENSORS_DIMS_MAX; i++) {
        length += (size_t)snprintf(text_out + length, CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES - length, "%s%" PRIu64,
                                   i != 0 ? "," : "", tensor->shape[i]);
    }
    text_out[length++] = ']';
    text_out[length] = '\0';
    return text_out;
}

/* Product of the dimensions. false: it does not fit in 64 bits, be it that a dimension of 0 comes later: whoever makes
 * strides of the shape multiplies them in some order. */
static bool count_elements(const struct convoy_safetensor *tensor, uint64_t *count_out)
{
    uint64_t product = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        if (tensor->shape[i] > INT64_MAX) { /* JSON readers have no more */
            return false;
        }
        if (tensor->shape[i] == 0) {
            is_empty = true;
        } else if (__builtin_mul_overflow(product, tensor->shape[i], &product)) {
            return false;
        }
    }
    *count_out = is_empty ? 0 : product;
    return true;
}

bool convoy_safetensors_is_wrong(const struct convoy_safetensor *tensor, char *why_out, size_t size)
{
    char shape[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES];
    uint64_t elements = 0;
    uint64_t bits = 0;
    if (tensor->dim_count > CONVOY_SAFETENSORS_DIMS_MAX) {
        (void)snprintf(why_out, size, "%u dimensions (must be 0 to %u)", tensor->dim_count,
                       CONVOY_SAFETENSORS_DIMS_MAX);
        return true;
    }
    convoy_safetensors_shape_text(tensor, shape);
    uint32_t element_bits = convoy_safetensors_dtype_bits(tensor->dtype);
    if (!count_elements(tensor, &elements) || __builtin_mul_overflow(elements, element_bits, &bits)) {
        (void)snprintf(why_out, size, "shape %.60s of %s is more than 64 bits count", shape, tensor->dtype);
        return true;
    }
    if (bits % 8 != 0) {
        (void)snprintf(why_out, size, "shape %.60s of %s is %" PRIu64 " bits, no whole bytes", shape, tensor->dtype,
                       bits);
        return true;
    }
    if (element_bits != 0 && bits / 8 != tensor->bytes) {
        (void)snprintf(why_out, size, "shape %.60s of %s is %" PRIu64 " bytes, its data %" PRIu64, shape,
                       tensor->dtype, bits / 8, tensor->bytes);
        return true;
    }
    return false;
}

static int compare_with_name(const void *name, const void *element)
{
    return strcmp(name, (*(const struct convoy_safetensor *const *)element)->name);
}

const struct convoy_safetensor *convoy_safetensors_find(const struct convoy_safetensors *file, const char *name)
{
    const struct convoy_safetensor **found = NULL;
    if (file->count != 0) {
        found = bsearch(name, file->by_name, file->count, sizeof(struct convoy_safetensor *), compare_with_name);
    }
    return found != NULL ? *found : NULL;
}

void convoy_safetensors_fini(struct convoy_safetensors *file)
{
    convoy_memory_free(file->tensors);
    convoy_memory_free(file->metadata);
    convoy_memory_free(file->by_name);
    convoy_memory_free(file->file);
    json_decref(file->document);
    *file = (struct convoy_safetensors){0};
}

/* -- reading a file ------------------------------------------------------------------------------------------------ */

/* The size comes from the file system and is bounded, so it may size the memory. */
static int32_t file_size(int fd, const char *path, size_t *size_out, struct convoy_error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "looking at %.120s", path);
    }
    if (!S_ISREG(status.st_mode)) {
        return convoy_error_set(error, CONVOY_SYSTEM, "%.120s: is no regular file", path);
    }
    if ((uint64_t)status.st_size > CONVOY_SAFETENSORS_FILE_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "%.120s: has %lld bytes (must be up to %" PRIu64 ")", path,
                                (long long)status.st_size, CONVOY_SAFETENSORS_FILE_BYTES_MAX);
    }
    *size_out = (size_t)status.st_size;
    return CONVOY_OK;
}

static int32_t file_fill(int fd, const char *path, uint8_t *bytes, size_t size, struct convoy_error *error)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, bytes + done, size - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "reading %.120s", path);
        }
        if (got == 0) {
            return convoy_error_set(error, CONVOY_TRUNCATED, "%.120s: ends after %zu of its %zu bytes", path, done,
                                    size);
        }
        done += (size_t)got;
    }
    return CONVOY_OK;
}

static int32_t file_load(int fd, const char *path, uint8_t **bytes_out, size_t *size_out, struct convoy_error *error)
{
    int32_t status = file_size(fd, path, size_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint8_t *bytes = convoy_memory_zalloc(*size_out);
    if (bytes == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the %zu bytes of %.120s", *size_out, path);
    }
    status = file_fill(fd, path, bytes, *size_out, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(bytes);
        return status;
    }
    *bytes_out = bytes;
    return CONVOY_OK;
}

int32_t convoy_safetensors_read(struct convoy_safetensors *out, const char *path, struct convoy_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO that nobody writes must not hold us */
    if (fd < 0) {
        return convoy_error_set_errno(error, errno == ENOENT ? CONVOY_NOT_FOUND : CONVOY_SYSTEM, errno,
                                      "opening %.120s", path);
    }
    uint8_t *bytes = NULL;
    size_t size = 0;
    int32_t status = file_load(fd, path, &bytes, &size, error);
    (void)close(fd);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_safetensors_parse(out, path, bytes, size, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(bytes);
        return status;
    }
    out->file = bytes;
    return CONVOY_OK;
}
