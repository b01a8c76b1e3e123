/* SPDX-License-Identifier: Apache-2.0 */
/* Names of element types: the library tells those of hosts, files have those of safetensors. Pure. */
#ifndef CONVOY_CLI_DTYPE_NAMES_H
#define CONVOY_CLI_DTYPE_NAMES_H

#include <stddef.h>

/* "F16" of "float16"; what is no host's name, of an opaque type for example, stays what it is. Returns the text, and its
 * length in length_out. */
const char *convoy_dtype_file_name(const char *name, size_t length, size_t *length_out);

#endif
