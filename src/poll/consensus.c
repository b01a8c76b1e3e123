/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/consensus.h"

#include "core/error.h"

#include <stdbool.h>
#include <string.h>

/* Agreed ids are taken in pieces of this size, each put into a small hash set on the stack: no allocation. */
#define PIECE 512u
#define SET_SLOTS (2u * PIECE)

struct id_set {
    uint64_t ids[SET_SLOTS];
    bool used[SET_SLOTS];
};

static uint32_t set_slot(const struct id_set *set, uint64_t id)
{
    uint32_t slot = (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 54); /* the top 10 bits: SET_SLOTS is 1,024 */
    while (set->used[slot] && set->ids[slot] != id) {
        slot = (slot + 1) % SET_SLOTS;
    }
    return slot;
}

static void set_fill(struct id_set *set, const uint64_t *ids, size_t count)
{
    memset(set->used, 0, sizeof set->used);
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = set_slot(set, ids[i]);
        set->ids[slot] = ids[i];
        set->used[slot] = true;
    }
}

static void states_mark(const struct convoy_poll_consensus *input, const uint64_t *agreed, size_t count, uint8_t state,
                        uint8_t *states_out)
{
    struct id_set set;
    for (size_t done = 0; done < count; done += PIECE) {
        set_fill(&set, agreed + done, count - done < PIECE ? count - done : PIECE);
        for (size_t i = 0; i < input->id_count; i++) {
            if (set.used[set_slot(&set, input->ids[i])]) {
                states_out[i] = state;
            }
        }
    }
}

static int32_t array_check(const char *name, const void *array, size_t count, struct convoy_error *error)
{
    if (array == NULL && count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "consensus.%s is NULL, but its count is %zu", name,
                                count);
    }
    return CONVOY_OK;
}

int32_t convoy_consensus_states(const struct convoy_poll_consensus *input, uint8_t *states_out,
                                struct convoy_error *error)
{
    if (input->success_state > CONVOY_STATE_SUCCESS) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "consensus.success_state is %u, allowed are 0 to %d",
                                input->success_state, CONVOY_STATE_SUCCESS);
    }
    int32_t status = array_check("ids", input->ids, input->id_count, error);
    if (status == CONVOY_OK) {
        status = array_check("good", input->good, input->good_count, error);
    }
    if (status == CONVOY_OK) {
        status = array_check("bad", input->bad, input->bad_count, error);
    }
    if (status == CONVOY_OK) {
        status = array_check("states_out", states_out, input->id_count, error);
    }
    if (status != CONVOY_OK || input->id_count == 0) {
        return status;
    }
    memset(states_out, (int)CONVOY_CONSENSUS_NONE, input->id_count);
    states_mark(input, input->good, input->good_count, (uint8_t)input->success_state, states_out);
    states_mark(input, input->bad, input->bad_count, CONVOY_STATE_FAILED, states_out); /* bad wins */
    return CONVOY_OK;
}
