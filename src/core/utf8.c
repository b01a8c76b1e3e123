/* SPDX-License-Identifier: Apache-2.0 */
#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

/* The second byte has a range of its own: no longer form than needed, no surrogate, nothing above U+10FFFF. */
size_t convoy_utf8_bytes(const char *at, size_t left)
{
    const unsigned char *bytes = (const unsigned char *)at;
    unsigned char first = bytes[0];
    if (first < 0x80) {
        return 1;
    }
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > left) {
        return 0;
    }
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (bytes[1] < low || bytes[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

static bool is_control(const unsigned char *at)
{
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

#define WORD_ONES UINT64_C(0x0101010101010101)
#define WORD_HIGH UINT64_C(0x8080808080808080)

/* Eight bytes that are ASCII and no control characters: none has its high bit, is below 0x20 or is 0x7f. */
static bool is_plain_word(const char *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    uint64_t is_low = word - WORD_ONES * 0x20;
    uint64_t is_delete = word + WORD_ONES;
    return ((word | is_low | is_delete) & WORD_HIGH) == 0;
}

bool convoy_utf8_is_clean(const char *text, size_t length)
{
    size_t known = 0; /* plain bytes right before the text */
    while (length != 0) {
        if (length >= sizeof(uint64_t) && is_plain_word(text)) {
            text += sizeof(uint64_t);
            length -= sizeof(uint64_t);
            known = sizeof(uint64_t);
            continue;
        }
        if (length < known && is_plain_word(text + length - sizeof(uint64_t))) {
            return true; /* the last word, which overlaps the one before it */
        }
        known = 0;
        size_t taken = convoy_utf8_bytes(text, length);
        if (taken == 0 || is_control((const unsigned char *)text)) {
            return false;
        }
        text += taken;
        length -= taken;
    }
    return true;
}
