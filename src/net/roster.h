/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what two members say about their group. Pure code. */
#ifndef CONVOY_NET_ROSTER_H
#define CONVOY_NET_ROSTER_H

#include "net/hello.h"

/* Bytes of a set of member indexes. */
#define CONVOY_ROSTER_SET_BYTES (CONVOY_HELLO_MEMBERS_MAX / 8)

/*
 * OK: theirs belongs to the group as own describes it. Else the status and a text with both members' ids and values:
 * STALE_EPOCH, DIVERGED (name, list, index, id, listener, blob bound, policy), VERSION_MISMATCH.
 * dooms_out: the group cannot form because of it. Not so for one of another life or not in the list: the right member
 * may still come. error: full-size, not NULL.
 */
int32_t convoy_roster_check(const struct convoy_hello *own, const struct convoy_hello *theirs, bool *dooms_out,
                            struct convoy_error *error);

/* TIMED_OUT, its text naming the members that are not in `heard` (one bit per index); rank is the first of them.
 * remark: follows in the text, as far as there is room; "" = none. */
int32_t convoy_roster_missing(const struct convoy_hello_group *group, const uint8_t *heard, const char *remark,
                              struct convoy_error *error);

static inline bool convoy_roster_has(const uint8_t *set, uint32_t index)
{
    return (set[index / 8] >> (index % 8) & 1) != 0;
}

static inline void convoy_roster_add(uint8_t *set, uint32_t index)
{
    set[index / 8] = (uint8_t)(set[index / 8] | 1u << (index % 8));
}

static inline void convoy_roster_remove(uint8_t *set, uint32_t index)
{
    set[index / 8] = (uint8_t)(set[index / 8] & ~(1u << (index % 8)));
}

#endif
