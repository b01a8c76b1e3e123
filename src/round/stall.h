/* SPDX-License-Identifier: Apache-2.0 */
/* Notices that round after round nothing moves: one notice for each interval of such rounds, and no state that grows. */
#ifndef CONVOY_ROUND_STALL_H
#define CONVOY_ROUND_STALL_H

#include <stdbool.h>
#include <stdint.h>

struct convoy_stall {
    uint64_t interval; /* rounds without progress that are worth a notice; 0 = never */
    uint64_t still;    /* such rounds in a row; stops at UINT64_MAX */
    uint64_t since_notice;
};

void convoy_stall_init(struct convoy_stall *stall, uint64_t interval);

/*
 * One round is over. has_moved: something changed in it, or there was nothing that could (an idle group does not
 * stall). True when a notice is due: at `interval` rounds in a row without progress and at every multiple of it.
 */
static inline bool convoy_stall_round(struct convoy_stall *stall, bool has_moved);

/* The part of it for rounds without progress. */
bool convoy_stall_still(struct convoy_stall *stall);

static inline bool convoy_stall_round(struct convoy_stall *stall, bool has_moved)
{
    if (has_moved) {
        stall->still = 0;
        stall->since_notice = 0;
        return false;
    }
    return convoy_stall_still(stall);
}

#endif
