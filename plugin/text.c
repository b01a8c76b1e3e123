/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "sized.h"

#include <stdlib.h>

int32_t convoy_text_write(struct convoy_text_buffer *text_out, const char *text, size_t length,
                          struct convoy_error *error)
{
    struct convoy_text_buffer full;
    int32_t status = convoy_sized_out_begin(&full, &CONVOY_SHAPE(text_buffer), text_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    full.length = length;
    if (full.data == NULL || full.capacity < length) {
        status = convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "the text has %zu bytes, the buffer %zu", length,
                                  full.data == NULL ? 0 : full.capacity);
    } else {
        if (text != full.data) { /* it may have been written there already */
            memcpy(full.data, text, length);
        }
        if (full.capacity > length) {
            full.data[length] = '\0';
        }
    }
    convoy_sized_out_end(text_out, &CONVOY_SHAPE(text_buffer), &full);
    return status;
}

int32_t convoy_text_write_json(struct convoy_text_buffer *text_out, json_t *json, struct convoy_error *error)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the text");
    }
    int32_t status = convoy_text_write(text_out, text, strlen(text), error);
    free(text); /* jansson allocates with malloc */
    return status;
}
