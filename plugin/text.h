/* SPDX-License-Identifier: Apache-2.0 */
/* Handing text to a caller's convoy_text_buffer. */
#ifndef CONVOY_PLUGIN_TEXT_H
#define CONVOY_PLUGIN_TEXT_H

#include "core/error.h"

#include <jansson.h>

/* Writes the text and a zero. BUFFER_TOO_SMALL: length says what is needed, nothing else was written. */
int32_t convoy_text_write(struct convoy_text_buffer *text_out, const char *text, size_t length,
                          struct convoy_error *error);

/* The same for JSON; takes `json`. NULL json: NO_MEMORY. */
int32_t convoy_text_write_json(struct convoy_text_buffer *text_out, json_t *json, struct convoy_error *error);

#endif
