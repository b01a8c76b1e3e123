/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stall.h"

void convoy_stall_init(struct convoy_stall *stall, uint64_t interval)
{
    *stall = (struct convoy_stall){.interval = interval};
}

bool convoy_stall_still(struct convoy_stall *stall)
{
    stall->still += stall->still != UINT64_MAX;
    stall->since_notice++;
    if (stall->interval == 0 || stall->since_notice < stall->interval) {
        return false;
    }
    stall->since_notice = 0;
    return true;
}
