/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of the last offers of one sender, by their sequence numbers, so that one that comes twice is answered and not
 * done twice. Plain data, fixed size; pure.
 */
#ifndef CONVOY_XFER_WINDOW_H
#define CONVOY_XFER_WINDOW_H

#include <stdint.h>

#define CONVOY_WINDOW_OFFERS 1024u

struct convoy_window {
    uint64_t highest;
    uint64_t sequences[CONVOY_WINDOW_OFFERS];
    int32_t statuses[CONVOY_WINDOW_OFFERS];
};

enum convoy_window_answer {
    CONVOY_WINDOW_NEW = 0,
    CONVOY_WINDOW_LIVE,  /* it came before and has no end yet */
    CONVOY_WINDOW_ENDED, /* it came before and ended with the status */
    CONVOY_WINDOW_OLD,   /* too long ago to know, or no sequence number */
};

/* Notes a NEW one. status_out: written for ENDED. */
enum convoy_window_answer convoy_window_see(struct convoy_window *window, uint64_t sequence, int32_t *status_out);

/* How one ended that was seen; nothing if it has fallen out of the window. */
void convoy_window_end(struct convoy_window *window, uint64_t sequence, int32_t status);

#endif
