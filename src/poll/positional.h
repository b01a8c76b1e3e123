/* SPDX-License-Identifier: Apache-2.0 */
/* Merge of positional lists: MIN by position. A state above 4 comes from a newer peer, counts as Bootstrapping, and
 * is counted. Pure. */
#ifndef CONVOY_POLL_POSITIONAL_H
#define CONVOY_POLL_POSITIONAL_H

#include "poll/payload.h"
#include "round/merge.h"

/* What the members of a round have brought so far. The merge state of convoy_positional_ops. */
struct convoy_positional {
    const struct convoy_payload_shape *shape; /* set before the round; stays until its result was read */
    uint8_t *states;                          /* room for shape->positional_bytes */
    uint32_t members;                         /* merged so far */
    uint32_t votes_or;                        /* of the vote tails */
    uint32_t unknown[CONVOY_POLL_LISTS_MAX];  /* by list */
};

extern const struct convoy_merge_ops convoy_positional_ops;

/* into[i] = min(into[i], from[i]) with states above 4 taken as 1; returns how many of those there were. from may have
 * any alignment. */
uint32_t convoy_positional_min(uint8_t *into, const uint8_t *from, size_t count);

/* Copies all states, none of which overlaps. false: some are above 4. from may have any alignment. */
bool convoy_positional_copy(uint8_t *into, const uint8_t *from, size_t count);

/* The same to two places. */
bool convoy_positional_copy_twice(uint8_t *into, uint8_t *also, const uint8_t *from, size_t count);

/* Number of states above 4. */
uint32_t convoy_positional_unknown(const uint8_t *states, size_t count);

/* Forgets all members. */
void convoy_positional_begin(struct convoy_positional *positional);

/* Merges the positional bytes of `members` members (the bytes are in range already). */
void convoy_positional_add(struct convoy_positional *positional, const uint8_t *states, uint32_t members);

/* Head of what a host sends, and back. MALFORMED: counts that cannot be. */
void convoy_positional_head(const struct convoy_positional *positional, struct convoy_payload_head *head_out);
int32_t convoy_positional_take_head(struct convoy_positional *positional, const struct convoy_payload_head *head);

#endif
