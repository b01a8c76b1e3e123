/* SPDX-License-Identifier: Apache-2.0 */
#include "core/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LINE 64u

void convoy_copy(void *to, const void *from, size_t bytes, size_t stream_from)
{
    if (bytes >= stream_from) {
        convoy_copy_stream(to, from, bytes);
    } else if (bytes != 0) {
        memcpy(to, from, bytes);
    }
}

#if defined(__SSE2__)

bool convoy_copy_can_stream(void)
{
    return true;
}

void convoy_copy_stream(void *to, const void *from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t head = (LINE - (uintptr_t)out % LINE) % LINE; /* streaming stores are for whole lines */
    head = head < bytes ? head : bytes;
    if (bytes == 0) {
        return;
    }
    memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= LINE; bytes -= LINE, out += LINE, in += LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)in);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(in + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(in + 48));
        _mm_stream_si128((__m128i *)(void *)out, a);
        _mm_stream_si128((__m128i *)(void *)(out + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + 48), d);
    }
    memcpy(out, in, bytes);
    _mm_sfence();
}

#else

bool convoy_copy_can_stream(void)
{
    return false;
}

void convoy_copy_stream(void *to, const void *from, size_t bytes)
{
    if (bytes != 0) {
        memcpy(to, from, bytes);
    }
}

#endif
