/* SPDX-License-Identifier: Apache-2.0 */
#include "core/copy.h"

#include "core/clock.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LINE 64u
#define SMALLEST (256u * 1024u)
#define TRIES 3u

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

/* The fastest of a few: what disturbs a copy only makes it slower. */
static uint64_t fastest_ns(uint8_t *scratch, size_t bytes, size_t stream_from)
{
    uint64_t fastest = UINT64_MAX;
    for (uint32_t i = 0; i < TRIES; i++) {
        uint64_t start = convoy_now_ns();
        convoy_copy(scratch + bytes, scratch, bytes, stream_from);
        uint64_t took = convoy_now_ns() - start;
        fastest = took < fastest ? took : fastest;
    }
    return fastest;
}

size_t convoy_copy_measure(void *scratch, size_t scratch_bytes)
{
    size_t from = CONVOY_COPY_NEVER;
    if (!convoy_copy_can_stream() || scratch_bytes / 2 < SMALLEST) {
        return from;
    }
    memset(scratch, 1, scratch_bytes); /* first touch is the kernel's time */
    size_t largest = SMALLEST;
    while (largest <= scratch_bytes / 8) {
        largest *= 4;
    }
    for (size_t bytes = largest; bytes >= SMALLEST; bytes /= 4) { /* from above: it pays from somewhere on */
        if (fastest_ns(scratch, bytes, 0) >= fastest_ns(scratch, bytes, CONVOY_COPY_NEVER)) {
            break;
        }
        from = bytes;
    }
    return from;
}
