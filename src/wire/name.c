/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/name.h"

#include <stdint.h>

size_t convoy_name_quoted(const char *text, size_t length, size_t length_max)
{
    if (length <= length_max) {
        return length;
    }
    while (length_max != 0 && ((uint8_t)text[length_max] & 0xc0u) == 0x80u) {
        length_max--;
    }
    return length_max;
}
