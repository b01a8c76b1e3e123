/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a leader says about its host in one round, and what all hosts together say: a head and the merged payload.
 * Merging heads is associative and commutative. Part of the wire version; native order is little-endian on every
 * machine that convoy builds for. Pure.
 */
#ifndef CONVOY_ROUND_PARTIAL_H
#define CONVOY_ROUND_PARTIAL_H

#include "round/engine_internal.h"

#define CONVOY_PARTIAL_MIXED 1u  /* fingerprints differ: rows follow in a second hop */
#define CONVOY_PARTIAL_FAILED 2u /* the round cannot complete: status and culprit say why */

struct convoy_partial_head {
    uint64_t fingerprint;
    uint64_t tag_min;
    uint64_t tag_max;
    uint32_t votes_and;
    uint32_t votes_or;
    uint32_t flags;
    int32_t status;        /* OK, what merge refused with, or with FAILED: PEER_LOST, BROKEN */
    uint32_t culprit;      /* member it is about, or UINT32_MAX */
    uint32_t error_member; /* lowest member with an error row, or UINT32_MAX */
    int32_t error_reason;
    uint32_t payload_bytes;
    uint32_t row_count; /* in a result that says DIVERGED: convoy_partial_row follow instead of the payload */
    uint32_t lost_count; /* members that the round goes on without: of the host; in a result, of all hosts */
};

/* One member's cold line and tag, for reports. */
struct convoy_partial_row {
    uint32_t member;
    uint32_t operation;
    uint64_t fingerprint;
    uint64_t round;
    uint64_t tag;
    uint64_t epoch;
    uint64_t counts;
    uint64_t digest;
    uint64_t schema;
    uint64_t policy;
};

static_assert(sizeof(struct convoy_partial_head) == 64, "one cache line");
static_assert(sizeof(struct convoy_partial_row) == 72, "nine words");

/* The head of this host from its pass over the cells. */
void convoy_partial_from_pass(struct convoy_partial_head *head, const struct convoy_engine *engine,
                              const struct convoy_round_pass *pass);

/* Adds another host's head. Payloads are merged elsewhere. */
void convoy_partial_combine(struct convoy_partial_head *into, const struct convoy_partial_head *other);

/* Whether the members disagree on what this round is. */
bool convoy_partial_is_diverged(const struct convoy_partial_head *head);

/* Reads a head from bytes of another process: false when lengths do not fit together. */
bool convoy_partial_read(struct convoy_partial_head *head, const uint8_t *bytes, size_t length, uint32_t member_count);

#endif
