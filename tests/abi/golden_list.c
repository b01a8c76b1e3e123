/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"

#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64u

const struct golden_set *const golden_sets[GOLDEN_SETS] = {&golden_net,     &golden_local, &golden_round,  &golden_segment,
                                                           &golden_payload, &golden_xfer,  &golden_control, &golden_state};

const struct golden_frame *golden_find(const char *name)
{
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->frame_count; i++) {
            if (strcmp(golden_sets[set]->frames[i].name, name) == 0) {
                return &golden_sets[set]->frames[i];
            }
        }
    }
    return NULL;
}

size_t golden_make(const struct golden_frame *frame, uint8_t *out)
{
    memset(out, 0, GOLDEN_BYTES_MAX);
    size_t length = frame->encode(frame->which, out);
    if (length == 0 || length > GOLDEN_BYTES_MAX) {
        (void)fprintf(stderr, "golden frame %s has %zu bytes\n", frame->name, length);
        abort();
    }
    return length;
}

size_t golden_make_bad(const struct golden_bad *bad, uint8_t *out)
{
    const struct golden_frame *frame = golden_find(bad->of);
    if (frame == NULL) {
        (void)fprintf(stderr, "golden frame %s is of no frame: %s\n", bad->name, bad->of);
        abort();
    }
    size_t length = golden_make(frame, out);
    switch (bad->harm) {
    case GOLDEN_CUT:
        return bad->at;
    case GOLDEN_GROW:
        memset(out + length, 0xa5, bad->at);
        return length + bad->at;
    case GOLDEN_POKE:
        out[bad->at] = (uint8_t)bad->value;
        return length;
    }
    abort();
}

int32_t golden_decode(const struct golden_frame *frame, const uint8_t *data, size_t length)
{
    uint8_t *copy = convoy_memory_aligned(LINE_BYTES, length != 0 ? length : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, length);
    int32_t status = frame->decode(frame->which, copy, length);
    convoy_memory_free(copy);
    return status;
}
