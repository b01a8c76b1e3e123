/* SPDX-License-Identifier: Apache-2.0 */
/* Injected failures: which entries of a round turn into Failed. Pure after init; equal seeds draw equal faults. */
#ifndef CONVOY_POLL_INJECT_H
#define CONVOY_POLL_INJECT_H

#include "convoy/poll.h"

#include <stdbool.h>

#define CONVOY_INJECT_SCRIPT_MAX 4096u
#define CONVOY_INJECT_PPM_MAX 1000000u

struct convoy_inject {
    uint64_t seed;
    uint32_t probability_ppm;
    uint32_t script_count;
    struct convoy_poll_fault *script; /* own copy, ascending by (round, list, entry) */
};

/* Whether full-size faults can be injected; the first of the two does not look at the script's elements.
 * INVALID_ARGUMENT: probability or script out of range; the text has parameter, value and range. */
int32_t convoy_inject_check_limits(const struct convoy_poll_faults *faults, struct convoy_error *error);
int32_t convoy_inject_check(const struct convoy_poll_faults *faults, struct convoy_error *error);

/* Copies faults (NULL = none). INVALID_ARGUMENT: as convoy_inject_check. NO_MEMORY. */
int32_t convoy_inject_init(struct convoy_inject *inject, const struct convoy_poll_faults *faults,
                           struct convoy_error *error);

/* Safe on zeroed storage. */
void convoy_inject_fini(struct convoy_inject *inject);

/* Whether anything can happen in this round, so that a round without faults pays nothing per entry. */
bool convoy_inject_is_active(const struct convoy_inject *inject, uint64_t round);

/* Whether this entry fails in this round. */
bool convoy_inject_hits(const struct convoy_inject *inject, uint64_t round, uint32_t list, uint32_t entry);

#endif
