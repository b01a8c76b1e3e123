/* SPDX-License-Identifier: Apache-2.0 */
/* From tensors to a file: the header first, then a name beside the file's own, which it gets when all is written. */
#include "cli/safetensors.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define METADATA "__metadata__"
#define LENGTH_BYTES 8u
#define ALIGNMENT 8u
#define NAMES_TRIED 100u

struct encoder {
    const char *path;
    json_t *root;
    uint64_t data_bytes; /* of the tensors so far */
    struct convoy_error *error;
};

/* name: of the tensor. */
__attribute__((format(printf, 3, 4))) static int32_t refuse(const struct encoder *encoder, const char *name,
                                                            const char *format, ...)
{
    char why[CONVOY_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return convoy_error_set(encoder->error, CONVOY_INVALID_ARGUMENT, "%.80s: tensor \"%.60s\": %s", encoder->path, name,
                            why);
}

static int32_t no_memory(const struct encoder *encoder)
{
    return convoy_error_set(encoder->error, CONVOY_NO_MEMORY, "no memory for the header of %.80s", encoder->path);
}

/* -- the header ---------------------------------------------------------------------------------------------------- */

/* Takes value. A text that is no UTF-8 makes jansson refuse key or value, which then is NULL. */
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool is_utf8(const char *text)
{
    json_t *string = json_string(text);
    json_decref(string);
    return string != NULL;
}

static int32_t add_metadata(const struct encoder *encoder, const struct convoy_safetensors *file)
{
    if (file->metadata_count == 0) {
        return CONVOY_OK;
    }
    json_t *object = json_object();
    for (size_t i = 0; i < file->metadata_count; i++) {
        const struct convoy_safetensors_text *text = &file->metadata[i];
        if (json_object_get(object, text->key) != NULL || !set(object, text->key, json_string(text->value))) {
            json_decref(object);
            return convoy_error_set(encoder->error, CONVOY_INVALID_ARGUMENT,
                                    "%.80s: \"" METADATA "\": \"%.60s\" is there twice, or no UTF-8", encoder->path,
                                    text->key);
        }
    }
    return set(encoder->root, METADATA, object) ? CONVOY_OK : no_memory(encoder);
}

static int32_t check_tensor(const struct encoder *encoder, const struct convoy_safetensor *tensor)
{
    char why[160];
    size_t length = strnlen(tensor->dtype, sizeof tensor->dtype);
    if (!is_utf8(tensor->name) || strcmp(tensor->name, METADATA) == 0) {
        return refuse(encoder, tensor->name, "is no name (must be UTF-8, and not " METADATA ")");
    }
    if (json_object_get(encoder->root, tensor->name) != NULL) {
        return refuse(encoder, tensor->name, "is there twice");
    }
    if (length == 0 || length > CONVOY_SAFETENSORS_DTYPE_BYTES_MAX || !is_utf8(tensor->dtype)) {
        return refuse(encoder, tensor->name, "dtype of %zu bytes (must be 1 to %u, UTF-8)", length,
                      CONVOY_SAFETENSORS_DTYPE_BYTES_MAX);
    }
    if (convoy_safetensors_is_wrong(tensor, why, sizeof why)) {
        return refuse(encoder, tensor->name, "%s", why);
    }
    return tensor->bytes != 0 && tensor->data == NULL ? refuse(encoder, tensor->name, "has no data") : CONVOY_OK;
}

static json_t *shape_json(const struct convoy_safetensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape;
}

static int32_t add_tensor(struct encoder *encoder, const struct convoy_safetensor *tensor)
{
    int32_t status = check_tensor(encoder, tensor);
    uint64_t end = 0;
    if (status != CONVOY_OK) {
        return status;
    }
    if (__builtin_add_overflow(encoder->data_bytes, tensor->bytes, &end) || end > INT64_MAX) {
        return refuse(encoder, tensor->name, "%" PRIu64 " bytes after %" PRIu64 " are more than 63 bits count",
                      tensor->bytes, encoder->data_bytes);
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->dtype, "shape", shape_json(tensor),
                              "data_offsets", (json_int_t)encoder->data_bytes, (json_int_t)end);
    encoder->data_bytes = end;
    return set(encoder->root, tensor->name, entry) ? CONVOY_OK : no_memory(encoder);
}

/* The text padded so that the data starts at a multiple of ALIGNMENT. */
static int32_t make_head(const struct encoder *encoder, const char *text, uint8_t **head_out, size_t *length_out)
{
    size_t text_bytes = strlen(text);
    size_t padded = (text_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t values = convoy_safetensors_values(text, text_bytes);
    if (padded > CONVOY_SAFETENSORS_HEADER_BYTES_MAX || values > CONVOY_SAFETENSORS_VALUES_MAX) {
        return convoy_error_set(encoder->error, CONVOY_LIMIT,
                                "%.80s: header has %zu bytes and %zu values (must be up to %u and %u)", encoder->path,
                                padded, values, CONVOY_SAFETENSORS_HEADER_BYTES_MAX, CONVOY_SAFETENSORS_VALUES_MAX);
    }
    uint8_t *head = convoy_memory_zalloc(LENGTH_BYTES + padded);
    if (head == NULL) {
        return no_memory(encoder);
    }
    convoy_bytes_put_u64(head, padded);
    memset(head + LENGTH_BYTES, ' ', padded);
    memcpy(head + LENGTH_BYTES, text, text_bytes);
    *head_out = head;
    *length_out = LENGTH_BYTES + padded;
    return CONVOY_OK;
}

int32_t convoy_safetensors_encode(const struct convoy_safetensors *file, const char *path, uint8_t **head_out,
                                  size_t *length_out, struct convoy_error *error)
{
    struct encoder encoder = {.path = path, .root = json_object(), .error = error};
    int32_t status = encoder.root != NULL ? add_metadata(&encoder, file) : no_memory(&encoder);
    for (size_t i = 0; status == CONVOY_OK && i < file->count; i++) {
        status = add_tensor(&encoder, &file->tensors[i]);
    }
    if (status == CONVOY_OK) {
        char *text = json_dumps(encoder.root, JSON_COMPACT);
        status = text != NULL ? make_head(&encoder, text, head_out, length_out) : no_memory(&encoder);
        free(text);
    }
    json_decref(encoder.root);
    return status;
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static bool write_all(int fd, const uint8_t *bytes, uint64_t length)
{
    while (length != 0) {
        ssize_t done = write(fd, bytes, length < SSIZE_MAX ? (size_t)length : SSIZE_MAX);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        bytes += done > 0 ? done : 0;
        length -= done > 0 ? (uint64_t)done : 0;
    }
    return true;
}

/* Closes fd. errno says why not. */
static bool write_contents(int fd, const uint8_t *head, size_t head_bytes, const struct convoy_safetensors *file)
{
    bool is_written = write_all(fd, head, head_bytes);
    for (size_t i = 0; is_written && i < file->count; i++) {
        is_written = write_all(fd, file->tensors[i].data, file->tensors[i].bytes);
    }
    is_written = is_written && fsync(fd) == 0; /* a rename may reach the disk before what was written */
    int why = errno;
    bool is_closed = close(fd) == 0;
    if (!is_written) {
        errno = why;
    }
    return is_written && is_closed;
}

/* A file of our own beside path; a process that was killed may have left one of the same name. */
static int create_beside(const char *path, char *name_out, size_t size)
{
    for (unsigned i = 0; i < NAMES_TRIED; i++) {
        if ((size_t)snprintf(name_out, size, "%s.%ld-%u.part", path, (long)getpid(), i) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(name_out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static int32_t write_file(const char *path, const uint8_t *head, size_t head_bytes,
                          const struct convoy_safetensors *file, struct convoy_error *error)
{
    char beside[PATH_MAX];
    int fd = create_beside(path, beside, sizeof beside);
    if (fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "creating a file beside %.120s", path);
    }
    if (!write_contents(fd, head, head_bytes, file) || rename(beside, path) != 0) {
        int32_t status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "writing %.120s", path);
        (void)unlink(beside);
        return status;
    }
    return CONVOY_OK;
}

int32_t convoy_safetensors_write(const char *path, const struct convoy_safetensors *file, struct convoy_error *error)
{
    uint8_t *head = NULL;
    size_t head_bytes = 0;
    int32_t status = convoy_safetensors_encode(file, path, &head, &head_bytes, error);
    if (status == CONVOY_OK) {
        status = write_file(path, head, head_bytes, file, error);
        convoy_memory_free(head);
    }
    return status;
}
