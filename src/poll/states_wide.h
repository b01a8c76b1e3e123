/* SPDX-License-Identifier: Apache-2.0 */
/* As states.h, for machines that do thirty-two bytes at a time; for long lists. Pure. */
#ifndef CONVOY_POLL_STATES_WIDE_H
#define CONVOY_POLL_STATES_WIDE_H

#include "poll/states.h"

#define CONVOY_STATES_WIDE 32u /* shortest list that these take */

/* Where convoy_cpu_has_avx2 (core/cpu.h) says so. */
bool convoy_states_copy_wide(uint8_t *into, const uint8_t *from, size_t count);
struct convoy_states_seen convoy_states_merge_wide(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                                   size_t count);

#endif
