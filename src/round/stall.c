/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stall.h"

void convoy_stall_init(struct convoy_stall *stall, uint64_t interval)
{
    *stall = (struct convoy_stall){.interval = interval};
}

bool convoy_stall_round(struct convoy_stall *stall, bool has_moved)
{
    if (has_moved) {
        stall->still = 0;
        stall->since_notice = 0;
        return false;
    }
    stall->still += stall->still != UINT64_MAX;
    stall->since_notice++;
    if (stall->interval == 0 || stall->since_notice < stall->interval) {
        return false;
    }
    stall->since_notice = 0;
    return true;
}
