/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/name.h"

#include <stdint.h>

/* Smallest character that takes 2, 3 and 4 bytes: less is an overlong form. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

static size_t sequence_length(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
}

/* Bytes of the character that starts here; 0: it is none, or a control character. */
static size_t clean_character(const uint8_t *at, size_t left)
{
    size_t length = sequence_length(at[0]);
    if (length <= 1) {
        return length == 1 && at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
    }
    if (length > left) {
        return 0;
    }
    uint32_t character = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0u) != 0x80u) {
            return 0;
        }
        character = character << 6 | (at[i] & 0x3fu);
    }
    bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
    return character < smallest[length] || character < 0xa0 || is_surrogate || character > 0x10ffff ? 0 : length;
}

bool convoy_name_is_clean(const char *text, size_t length)
{
    const uint8_t *at = (const uint8_t *)text;
    while (length != 0) {
        size_t taken = clean_character(at, length);
        if (taken == 0) {
            return false;
        }
        at += taken;
        length -= taken;
    }
    return true;
}

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
