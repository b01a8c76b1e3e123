/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of a slot have been written: ranges in order, each byte once, those that touch merged, so that a piece that
 * arrives twice does not stand for one that is missing. Pure; all zero is the empty set. Its memory grows with it and is kept
 * for the next request.
 *
 * At most EXTENTS_MAX ranges are kept, holes and all. What finds no room is forgotten, and so counts as not written: a slot is
 * never taken to be fuller than it is, and whoever wrote is told.
 */
#ifndef CONVOY_XFER_EXTENTS_H
#define CONVOY_XFER_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

#define CONVOY_EXTENTS_MAX 16384u

struct convoy_extent {
    uint64_t from;
    uint64_t to; /* behind its last byte */
};

struct convoy_extents {
    struct convoy_extent *all;
    uint32_t count;
    uint32_t room;
};

/* parts: in order of `from`; they may overlap. false: some of it, or of what was there before, is not kept. */
bool convoy_extents_add(struct convoy_extents *extents, const struct convoy_extent *parts, uint32_t count);

/* Whether every byte of [0, bytes) is there. */
bool convoy_extents_cover(const struct convoy_extents *extents, uint64_t bytes);

/* How many bytes are there. */
uint64_t convoy_extents_bytes(const struct convoy_extents *extents);

/* Moves what is in one to the other, which loses what it had; each keeps a memory of its own. */
void convoy_extents_move(struct convoy_extents *from, struct convoy_extents *to);
void convoy_extents_free(struct convoy_extents *extents);

#endif
