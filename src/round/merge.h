/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an operation merges what the members of a round bring. The engine calls begin, then member or absent once per
 * member in index order, or partial for what another host has merged already; on success the operation reads its own
 * state. Merging is associative and commutative over hosts, deterministic, and free of I/O, clock and locks. Payloads
 * come from other processes: every function checks what it reads.
 */
#ifndef CONVOY_ROUND_MERGE_H
#define CONVOY_ROUND_MERGE_H

#include "convoy/base.h"

enum convoy_absence {
    CONVOY_ABSENT_LOST = 1, /* excluded from this epoch, or sealed as lost under policy degrade */
    CONVOY_ABSENT_ERROR,    /* contributed an error row, and the policy wants presence */
};

struct convoy_merge_ops {
    void (*begin)(void *state);

    /* One member's payload. OK, MALFORMED, LIMIT or DIVERGED: the round then ends so on all members. */
    int32_t (*member)(void *state, uint32_t index, const uint8_t *payload, size_t bytes);

    /* A member without payload. */
    void (*absent)(void *state, uint32_t index, enum convoy_absence absence, int32_t reason);

    /* The state so far as bytes for another host. Returns the length, or 0 when capacity does not do. */
    size_t (*encode)(const void *state, uint8_t *out, size_t capacity);

    /* Bytes that encode made elsewhere. Statuses as `member`. */
    int32_t (*partial)(void *state, const uint8_t *bytes, size_t length);
};

#endif
