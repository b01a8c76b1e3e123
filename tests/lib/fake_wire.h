/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pretended links (net/link.h) for tests of bulk with both sides in one thread: messages lie in a queue until the
 * receiver progresses, and the test decides what a connection takes and what becomes of it. Two links, peer 0 of each is
 * the other. Linked before the archive, so that no real link is taken from it.
 */
#ifndef TESTS_LIB_FAKE_WIRE_H
#define TESTS_LIB_FAKE_WIRE_H

#include "net/bulk_wire.h"
#include "net/link.h"

/* What the test wants of all connections. Cleared by fake_wire_reset. */
struct fake_wire {
    size_t segment_bytes;    /* longer messages are refused; 0 = none are */
    uint32_t refuse;         /* the next so many offers are refused */
    uint32_t (*random)(void); /* not NULL: offers are refused when it gives a number below refuse_of_256 */
    uint32_t refuse_of_256;
    uint32_t fail_sends;     /* the next so many sends fail, and their endpoint with them */
    uint64_t offers;
    uint64_t refused;
};

extern struct fake_wire fake_wire;

void fake_wire_reset(void);

/* Messages on their way to the owner of this link. */
uint32_t fake_wire_waiting(const struct convoy_link *link);

/* The i-th of them, to look at and to change. */
uint8_t *fake_wire_header(const struct convoy_link *link, uint32_t index);
uint8_t *fake_wire_data(const struct convoy_link *link, uint32_t index, size_t *bytes_out);

/* Puts a copy of the i-th at the end; takes the i-th away; hands one in that nobody has sent. */
void fake_wire_repeat(struct convoy_link *link, uint32_t index);
void fake_wire_lose(struct convoy_link *link, uint32_t index);
void fake_wire_inject(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                      size_t bytes);

/* The endpoint of that side fails, as at a death. */
void fake_wire_break(struct convoy_link *link);

#endif
