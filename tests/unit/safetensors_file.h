/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory for the tests of safetensors: a header as text, and data whose bytes count up from 0. */
#ifndef TESTS_UNIT_SAFETENSORS_FILE_H
#define TESTS_UNIT_SAFETENSORS_FILE_H

#include "core/bytes.h"

#include <stdlib.h>
#include <string.h>

/* Exactly as large as it must be, so that a sanitizer sees any read past it. free() */
static inline uint8_t *safetensors_file(const char *header, size_t data_bytes, size_t *length_out)
{
    size_t header_bytes = strlen(header);
    size_t length = 8 + header_bytes + data_bytes;
    uint8_t *file = malloc(length);
    if (file == NULL) {
        abort();
    }
    convoy_bytes_put_u64(file, header_bytes);
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        file[8 + header_bytes + i] = (uint8_t)i;
    }
    *length_out = length;
    return file;
}

#endif
