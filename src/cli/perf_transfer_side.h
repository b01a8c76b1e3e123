/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two processes of `convoy perf transfer`, a new pair with new engines for each kind, so that what the engines measure is
 * of that kind alone. The receiver says on the board when it is about to wait, the sender starts
 * to stage then: what is measured is a hand-over to someone who waits for it, and nothing of the round before.
 */
#ifndef CONVOY_CLI_PERF_TRANSFER_SIDE_H
#define CONVOY_CLI_PERF_TRANSFER_SIDE_H

#include "cli/perf_transfer_load.h"
#include "cli/perf_transfer_phases.h"
#include "cli/plain_host.h"

#include <stdatomic.h>

#define CONVOY_PERF_TRANSFER_WARM 5u /* rounds of each kind before those that are measured; the first is compared */

enum convoy_perf_transfer_kind {
    CONVOY_PERF_TRANSFER_VIEW,
    CONVOY_PERF_TRANSFER_COPY,
    CONVOY_PERF_TRANSFER_KINDS,
};

/* One hand-over; times of the two processes are of one clock. */
struct convoy_perf_transfer_sample {
    uint64_t started_ns; /* sender */
    uint64_t loaded_ns;  /* receiver */
};

/* What the two sides say of one kind; the sender's first, where there are two. */
struct convoy_perf_transfer_account {
    uint32_t paths[2];       /* as each side saw them; 0 = not measured */
    uint64_t moved_bytes[2]; /* copied by each side, in the measured rounds */
    struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES]; /* of all rounds, those that warm up too */
};

struct convoy_perf_transfer_board {
    enum convoy_perf_transfer_kind kind; /* that is measured now */
    _Atomic uint32_t is_open;         /* the receiver's session is there */
    _Atomic uint32_t is_stop_wanted;  /* a side failed */
    _Atomic uint64_t waiting;         /* rounds that the receiver has begun to wait for */
    _Atomic uint32_t ended;           /* sides that are through; none closes before the other */
    _Atomic uint32_t first_failed;    /* side + 1: whose error is the cause; 0 = nobody's */
    uint64_t deadline_ns;
    struct convoy_perf_transfer_account accounts[CONVOY_PERF_TRANSFER_KINDS];
    char session[CONVOY_SESSION_BYTES];
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES];
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
    struct convoy_error errors[2]; /* sender, receiver */
    struct convoy_perf_transfer_sample samples[]; /* [kind][rounds] */
};

/* One side of the board's kind: 0 sends, 1 receives. Returns the process's exit code; the error is on the board. */
int convoy_perf_transfer_side(const struct convoy_perf_transfer_load *load, struct convoy_perf_transfer_board *board,
                              uint32_t side);

#endif
