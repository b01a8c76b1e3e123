/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline-parallel consensus: states from the lists that the stages have agreed on. Pure; never communicates. */
#ifndef CONVOY_POLL_CONSENSUS_H
#define CONVOY_POLL_CONSENSUS_H

#include "convoy/poll.h"

/* See convoy_poll_table.consensus. input is full-size. Uses 8 KiB of stack, no heap; time grows with
 * id_count * (1 + (good_count + bad_count) / 512). INVALID_ARGUMENT: a pointer is missing, success_state is no state. */
int32_t convoy_consensus_states(const struct convoy_poll_consensus *input, uint8_t *states_out,
                                struct convoy_error *error);

#endif
