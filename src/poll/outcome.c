/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/outcome.h"

#include "core/fault.h"

#include <string.h>

void convoy_outcome_place(struct convoy_outcome *outcome, size_t capacity, struct convoy_memory_plan *plan)
{
    memset(outcome, 0, sizeof *outcome);
    outcome->plain_keyed = outcome->position_keyed = UINT64_MAX; /* no version yet */
    outcome->positions = convoy_memory_place(plan, capacity, sizeof *outcome->positions);
    outcome->flags = convoy_memory_place(plan, capacity, sizeof *outcome->flags);
    outcome->states = convoy_memory_place(plan, capacity, sizeof *outcome->states);
}

/* A member that does not list an identity is "not yet" there: Bootstrapping, unless the list skips the absent. */
static void absent_apply(struct convoy_table *table, const struct convoy_payload_shape *shape, uint32_t members)
{
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        if ((shape->flags[shape->list_of[slot]] & CONVOY_POLL_ABSENT_SKIP) != 0) {
            continue;
        }
        for (uint32_t i = table->starts[slot]; i < table->starts[slot + 1]; i++) {
            bool holds = table->listed[i] < members && table->states[i] > CONVOY_STATE_BOOTSTRAPPING;
            table->states[i] = holds && !CONVOY_MUTATED(absent_is_success) ? CONVOY_STATE_BOOTSTRAPPING : table->states[i];
        }
    }
}

/* Identities that ended before are answered with that end. Returns whether there were any. */
static bool decided_answer(struct convoy_outcome *outcome, struct convoy_table *table,
                           const struct convoy_payload_shape *shape, struct convoy_decided *decided)
{
    bool any = false;
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        for (uint32_t i = table->starts[slot]; i < table->starts[slot + 1]; i++) {
            uint8_t state = convoy_decided_find(decided, shape->list_of[slot], table->keys[i],
                                                convoy_table_generation(table, i));
            bool is_decided = state != CONVOY_DECIDED_NONE;
            outcome->flags[i] = is_decided ? CONVOY_OUTCOME_DECIDED : 0;
            table->states[i] = is_decided ? state : table->states[i];
            any |= is_decided;
        }
    }
    return any;
}

/* Whether any of eight states is Failed or Success: only of these (0 and 4) both low bits are 0. */
static inline bool block_has_end(const uint8_t *states)
{
    uint64_t word;
    memcpy(&word, states, sizeof word);
    return ((word | word >> 1) & 0x0101010101010101ull) != 0x0101010101010101ull;
}

static void decided_learn(const struct convoy_outcome *outcome, const struct convoy_table *table,
                          const struct convoy_payload_shape *shape, struct convoy_decided *decided)
{
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        uint32_t end = table->starts[slot + 1];
        for (uint32_t i = table->starts[slot]; i < end; i++) {
            while (end - i >= 8 && !block_has_end(table->states + i)) {
                i += 8;
            }
            if (i == end) {
                break;
            }
            bool is_end = table->states[i] == CONVOY_STATE_FAILED || table->states[i] == CONVOY_STATE_SUCCESS;
            if (is_end && outcome->flags[i] == 0) {
                convoy_decided_add(decided, shape->list_of[slot], table->keys[i], convoy_table_generation(table, i),
                                   table->states[i]);
            }
        }
    }
}

void convoy_outcome_finish(struct convoy_outcome *outcome, struct convoy_keyed *keyed, struct convoy_decided *decided)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    struct convoy_table *table = convoy_keyed_current(keyed);
    uint32_t entries = table->starts[shape->keyed_count];
    if (!convoy_keyed_is_whole(keyed)) { /* the usual round is */
        absent_apply(table, shape, keyed->positional.members);
    }
    if (decided == NULL || decided->count == 0) {
        memset(outcome->flags, 0, entries);
    } else if (outcome->plain_keyed != keyed->version || outcome->plain_decided != decided->version) {
        bool any = decided_answer(outcome, table, shape, decided);
        outcome->plain_keyed = any ? UINT64_MAX : keyed->version;
        outcome->plain_decided = decided->version;
    }
    if (decided != NULL) {
        decided_learn(outcome, table, shape, decided);
    }
}

static bool positions_find_list(struct convoy_outcome *outcome, const struct convoy_table *table,
                                const struct convoy_order *order, uint32_t slot)
{
    uint32_t at = table->starts[slot];
    uint32_t start = order->starts[slot];
    uint32_t *sorted = order->scratch; /* own ascending position -> entry of the table */
    for (uint32_t i = start; i < order->starts[slot + 1]; i++) {
        while (at < table->starts[slot + 1] && convoy_table_compare(table->keys[at], convoy_table_generation(table, at),
                                                                    order->sorted_keys[i],
                                                                    order->sorted_generations[i]) < 0) {
            at++;
        }
        if (at == table->starts[slot + 1] || table->keys[at] != order->sorted_keys[i] ||
            convoy_table_generation(table, at) != order->sorted_generations[i]) {
            return false;
        }
        sorted[i - start] = at;
    }
    for (uint32_t i = start; i < order->starts[slot + 1]; i++) {
        outcome->positions[i] = sorted[order->ranks[i]];
    }
    return true;
}

/* Nothing overlaps. */
static void states_pick(uint8_t *restrict to, const uint8_t *restrict states, const uint32_t *restrict positions,
                        uint32_t count)
{
    uint32_t i = 0;
    for (; count - i >= 4; i += 4) {
        to[i] = states[positions[i]];
        to[i + 1] = states[positions[i + 1]];
        to[i + 2] = states[positions[i + 2]];
        to[i + 3] = states[positions[i + 3]];
    }
    for (; i < count; i++) {
        to[i] = states[positions[i]];
    }
}

bool convoy_outcome_own(struct convoy_outcome *outcome, struct convoy_keyed *keyed, const struct convoy_order *order)
{
    const struct convoy_table *table = convoy_keyed_current(keyed);
    if (order->slots != keyed->slots) {
        return false;
    }
    if (outcome->position_keyed != keyed->version || outcome->position_order != order->version) {
        for (uint32_t slot = 0; slot < order->slots; slot++) {
            if (!positions_find_list(outcome, table, order, slot)) {
                outcome->position_keyed = UINT64_MAX;
                return false;
            }
        }
        outcome->position_keyed = keyed->version;
        outcome->position_order = order->version;
    }
    states_pick(outcome->states, table->states, outcome->positions, order->starts[order->slots]);
    return true;
}
