/* SPDX-License-Identifier: Apache-2.0 */
#include "round/schedule.h"

uint32_t convoy_schedule_hops(const struct convoy_schedule *schedule)
{
    uint64_t others = schedule->taking_part & ~(UINT64_C(1) << schedule->own_host);
    return others != 0 ? 1 : 0;
}

uint64_t convoy_schedule_peers(const struct convoy_schedule *schedule, uint32_t hop)
{
    uint64_t known = (UINT64_C(1) << schedule->host_count) - 1;
    return hop == 0 ? schedule->taking_part & known & ~(UINT64_C(1) << schedule->own_host) : 0;
}
