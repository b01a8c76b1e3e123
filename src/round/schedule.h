/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hosts exchange blobs with which in a round across hosts. Today directly: every leader with every other, in one
 * hop, which bounds the number of hosts; a schedule with more hops fits behind the same two questions. Pure.
 */
#ifndef CONVOY_ROUND_SCHEDULE_H
#define CONVOY_ROUND_SCHEDULE_H

#include <stdint.h>

#define CONVOY_SCHEDULE_HOSTS_MAX 16u

struct convoy_schedule {
    uint32_t host_count; /* 2 to CONVOY_SCHEDULE_HOSTS_MAX */
    uint32_t own_host;
    uint64_t taking_part; /* bit per host; own host included */
};

/* Hops of one round. */
uint32_t convoy_schedule_hops(const struct convoy_schedule *schedule);

/* Hosts, as bits, to which this one sends in a hop and from which it hears in that hop. Symmetric: a host is among
 * another's peers exactly if that one is among its. */
uint64_t convoy_schedule_peers(const struct convoy_schedule *schedule, uint32_t hop);

/* Takes the lowest host out of a set that is not empty. */
static inline uint32_t convoy_schedule_take(uint64_t *hosts)
{
    uint32_t host = (uint32_t)__builtin_ctzll(*hosts);
    *hosts &= *hosts - 1;
    return host;
}

#endif
