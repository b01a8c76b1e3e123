/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/gate.h"

#include "core/fault.h"

enum convoy_gate_answer convoy_gate_check(uint32_t gate, uint64_t key, uint32_t generation,
                                          const struct convoy_poll_stamp *stamp)
{
    if (CONVOY_MUTATED(gate_ignored)) {
        return CONVOY_GATE_MINE;
    }
    if (stamp->key == 0) {
        return CONVOY_GATE_UNWRITTEN;
    }
    if (gate == CONVOY_GATE_HOST) {
        return CONVOY_GATE_MINE;
    }
    if (stamp->key != key || (stamp->has_generation != 0 && stamp->generation != generation)) {
        return CONVOY_GATE_FOREIGN;
    }
    return CONVOY_GATE_MINE;
}

uint8_t convoy_gate_state(enum convoy_gate_answer answer, uint64_t now_ns, uint64_t deadline_ns)
{
    if (answer == CONVOY_GATE_MINE) {
        return CONVOY_STATE_SUCCESS;
    }
    if (answer == CONVOY_GATE_FOREIGN && deadline_ns != 0 && now_ns >= deadline_ns) {
        return CONVOY_STATE_FAILED;
    }
    return CONVOY_STATE_TRANSFERRING;
}
