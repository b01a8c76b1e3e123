/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata gate: does the stamp beside an entry's payload say that the payload is this entry's? Pure. */
#ifndef CONVOY_POLL_GATE_H
#define CONVOY_POLL_GATE_H

#include "convoy/poll.h"

enum convoy_gate_answer {
    CONVOY_GATE_MINE = 0,  /* Success stands */
    CONVOY_GATE_UNWRITTEN, /* nothing landed yet: Transferring */
    CONVOY_GATE_FOREIGN,   /* another request's: Transferring, Failed once the entry's deadline has passed */
};

/* gate: CONVOY_GATE_HOST or CONVOY_GATE_IDENTITY; key and generation are used by the second only. */
enum convoy_gate_answer convoy_gate_check(uint32_t gate, uint64_t key, uint32_t generation,
                                          const struct convoy_poll_stamp *stamp);

/* State of a local Success after that answer. deadline_ns 0 = never. */
uint8_t convoy_gate_state(enum convoy_gate_answer answer, uint64_t now_ns, uint64_t deadline_ns);

#endif
