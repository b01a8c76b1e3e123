/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that puts another build behind a loader while its host goes on calling. One swap at a time.
 *
 *   idle --start--> running --(the thread is done)--> done --finish--> idle
 */
#ifndef CONVOY_CLI_SWAPPER_H
#define CONVOY_CLI_SWAPPER_H

#include "cli/plain_host.h"
#include "convoy/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* What became of a host's swaps. Plain data, written by one thread. */
struct convoy_swap_tally {
    uint32_t count;    /* that were made */
    uint32_t failures; /* the old build went on */
    uint64_t pause_ns_max;
    uint64_t total_ns_max;
    uint64_t turn_ns_max; /* longest turn of the host while a swap was under way */
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES]; /* behind it after the last one */
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
    struct convoy_error error; /* of the first that failed */
};

struct convoy_swapper {
    convoy_loader *loader;
    uint64_t timeout_ns;
    struct convoy_swap_tally *tally; /* keeps */
    char path[CONVOY_LOADER_PATH_BYTES];
    pthread_t thread;
    bool is_running;
    _Atomic bool is_done;
    int32_t status;
    struct convoy_swap_result result;
    struct convoy_error error;
};

void convoy_swapper_init(struct convoy_swapper *swapper, convoy_loader *loader, uint64_t timeout_ns,
                         struct convoy_swap_tally *tally);

/* Begins. SYSTEM: no thread. BUSY: one is under way. INVALID_ARGUMENT: the path is too long. */
int32_t convoy_swapper_start(struct convoy_swapper *swapper, const char *path, struct convoy_error *error);

/* Takes into the tally what is over; with must_wait, also what is under way. true: none is under way any more. */
bool convoy_swapper_finish(struct convoy_swapper *swapper, bool must_wait);

/* One turn of the host took so long. */
static inline void convoy_swapper_turn(struct convoy_swapper *swapper, uint64_t ns)
{
    if (swapper->is_running && ns > swapper->tally->turn_ns_max) {
        swapper->tally->turn_ns_max = ns;
    }
}

#endif
