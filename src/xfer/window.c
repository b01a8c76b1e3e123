/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/window.h"

#include "convoy/base.h"

enum convoy_window_answer convoy_window_see(struct convoy_window *window, uint64_t sequence, int32_t *status_out)
{
    uint32_t at = (uint32_t)(sequence % CONVOY_WINDOW_OFFERS);
    if (sequence != 0 && window->sequences[at] == sequence) {
        *status_out = window->statuses[at];
        return window->statuses[at] == CONVOY_IN_PROGRESS ? CONVOY_WINDOW_LIVE : CONVOY_WINDOW_ENDED;
    }
    if (sequence == 0 || window->sequences[at] > sequence) {
        return CONVOY_WINDOW_OLD;
    }
    window->sequences[at] = sequence;
    window->statuses[at] = CONVOY_IN_PROGRESS;
    window->highest = sequence > window->highest ? sequence : window->highest;
    return CONVOY_WINDOW_NEW;
}

void convoy_window_end(struct convoy_window *window, uint64_t sequence, int32_t status)
{
    uint32_t at = (uint32_t)(sequence % CONVOY_WINDOW_OFFERS);
    if (sequence != 0 && window->sequences[at] == sequence) {
        window->statuses[at] = status;
    }
}
