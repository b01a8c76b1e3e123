/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden frames: examples of all that peers of different releases exchange, made by the library's own encoders from fixed
 * values, each with what a reader must find in it; and spoilt ones with the status that a reader must answer. A release
 * keeps them as files (abi/vX.Y/golden), and every later release makes the same bytes and reads them alike.
 */
#ifndef TESTS_ABI_GOLDEN_H
#define TESTS_ABI_GOLDEN_H

#include "convoy/base.h"

#include <stddef.h>
#include <stdint.h>

#define GOLDEN_BYTES_MAX 65536u
#define GOLDEN_NAME_BYTES 64u
#define GOLDEN_OTHER 1 /* of decode: it was read, and has other values */

struct golden_frame {
    const char *name;
    uint32_t which; /* for functions that make several frames */
    size_t (*encode)(uint32_t which, uint8_t *out); /* out: GOLDEN_BYTES_MAX, zeroed, aligned to a cache line */
    /* data: a copy of exactly that many bytes, aligned alike. OK: read, with the very values; GOLDEN_OTHER; or the refusal. */
    int32_t (*decode)(uint32_t which, const uint8_t *data, size_t length);
};

enum golden_harm {
    GOLDEN_CUT,  /* to `at` bytes */
    GOLDEN_GROW, /* by `at` bytes of 0xa5 */
    GOLDEN_POKE, /* byte `at` becomes `value` */
};

struct golden_bad {
    const char *name;
    const char *of; /* a frame */
    enum golden_harm harm;
    uint32_t at;
    uint32_t value;
    int32_t status; /* what decode answers */
};

struct golden_set {
    const struct golden_frame *frames;
    size_t frame_count;
    const struct golden_bad *bads;
    size_t bad_count;
};

extern const struct golden_set golden_net;
extern const struct golden_set golden_local;
extern const struct golden_set golden_round;
extern const struct golden_set golden_segment;
extern const struct golden_set golden_payload;
extern const struct golden_set golden_xfer;
extern const struct golden_set golden_control;
extern const struct golden_set golden_state;

#define GOLDEN_SETS 8u
extern const struct golden_set *const golden_sets[GOLDEN_SETS];

#define GOLDEN_SET(frames, bads)                                                                                       \
    {                                                                                                                  \
        (frames), sizeof(frames) / sizeof(frames)[0], (bads), sizeof(bads) / sizeof(bads)[0]                           \
    }

/* NULL: no frame has that name. */
const struct golden_frame *golden_find(const char *name);

/* The bytes of a frame, and of a spoilt one. */
size_t golden_make(const struct golden_frame *frame, uint8_t *out);
size_t golden_make_bad(const struct golden_bad *bad, uint8_t *out);

/* What decode says of a copy of exactly these bytes. */
int32_t golden_decode(const struct golden_frame *frame, const uint8_t *data, size_t length);

#endif
