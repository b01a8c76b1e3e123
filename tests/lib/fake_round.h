/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives merge operations as the round engine does, without an engine: the members of each host are merged into one
 * state, the hosts exchange what they encoded, and a further state receives a finished host's whole.
 */
#ifndef CONVOY_TESTS_FAKE_ROUND_H
#define CONVOY_TESTS_FAKE_ROUND_H

#include "round/merge.h"

struct fake_round_member {
    const uint8_t *payload;
    size_t bytes;
    enum convoy_absence absence; /* 0 = it brings its payload */
};

struct fake_round {
    const struct convoy_merge_ops *ops;
    const struct fake_round_member *members;
    uint32_t member_count;
    const uint32_t *host_of; /* [member_count] */
    uint32_t host_count;
    void **states;          /* [host_count + 1]: one per host; the last is a member that gets the leader's whole */
    size_t partial_bytes_max;
};

/* First status that is not OK, or OK; all states are then complete. */
int32_t fake_round_run(const struct fake_round *round);

#endif
