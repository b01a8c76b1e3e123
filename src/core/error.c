/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The oldest layout that exists: a caller with less than this compiled against nothing we released. */
#define ERROR_BYTES_MIN ((uint32_t)sizeof(struct convoy_error))

/* Writes `full` into the caller's struct, never past the size it was compiled with. */
static void error_write(struct convoy_error *error, const struct convoy_error *full)
{
    uint32_t room = error->struct_size;
    uint32_t bytes = room < ERROR_BYTES_MIN ? room : ERROR_BYTES_MIN;
    if (bytes < offsetof(struct convoy_error, status)) {
        return;
    }
    memcpy((char *)error + sizeof room, (const char *)full + sizeof room, bytes - sizeof room);
    error->written_bytes = bytes;
    if (bytes > offsetof(struct convoy_error, text)) {
        ((char *)error)[bytes - 1] = '\0'; /* a shorter text room still ends in a zero */
    }
}

__attribute__((format(printf, 3, 0))) static void error_vset(struct convoy_error *error, struct convoy_error *full,
                                                             const char *format, va_list args)
{
    (void)vsnprintf(full->text, sizeof full->text, format, args);
    error_write(error, full);
}

int32_t convoy_error_set(struct convoy_error *error, int32_t status, const char *format, ...)
{
    if (error != NULL) {
        struct convoy_error full = {.status = status, .rank = -1};
        va_list args;
        va_start(args, format);
        error_vset(error, &full, format, args);
        va_end(args);
    }
    return status;
}

int32_t convoy_error_set_peer(struct convoy_error *error, int32_t status, int32_t rank, uint64_t round,
                              const char *format, ...)
{
    if (error != NULL) {
        struct convoy_error full = {.status = status, .rank = rank, .round = round};
        va_list args;
        va_start(args, format);
        error_vset(error, &full, format, args);
        va_end(args);
    }
    return status;
}

int32_t convoy_error_set_errno(struct convoy_error *error, int32_t status, int sys_errno, const char *format, ...)
{
    if (error == NULL) {
        return status;
    }
    struct convoy_error full = {.status = status, .rank = -1, .sys_errno = sys_errno};
    va_list args;
    va_start(args, format);
    int length = vsnprintf(full.text, sizeof full.text, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof full.text) {
        char buffer[96];
        const char *words = strerror_r(sys_errno, buffer, sizeof buffer); /* the GNU form: may return a constant */
        (void)snprintf(full.text + length, sizeof full.text - (size_t)length, ": %s", words);
    }
    error_write(error, &full);
    return status;
}

int32_t convoy_error_prefix(struct convoy_error *error, int32_t status, const char *format, ...)
{
    if (error == NULL || error->struct_size < ERROR_BYTES_MIN) {
        return status;
    }
    char text[CONVOY_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof text) {
        (void)snprintf(text + length, sizeof text - (size_t)length, ": %.*s",
                       (int)(sizeof text - (size_t)length) - 3, error->text);
        memcpy(error->text, text, sizeof text);
    }
    return error->status;
}

int32_t convoy_error_copy(struct convoy_error *error, const struct convoy_error *kept)
{
    if (error != NULL) {
        error_write(error, kept);
    }
    return kept->status;
}
