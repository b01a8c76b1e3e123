/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/positional.h"

#include "core/fault.h"
#include "poll/states_packed.h"

#include <string.h>

#define MEMBERS_MAX 1024u
#define LANES CONVOY_STATES_BLOCK
#define WORD CONVOY_STATES_WORD

bool convoy_positional_copy(uint8_t *into, const uint8_t *from, size_t count)
{
    return convoy_states_copy(into, from, count);
}

bool convoy_positional_copy_twice(uint8_t *into, uint8_t *also, const uint8_t *from, size_t count)
{
    bool is_known = convoy_states_copy(into, from, count);
    if (count != 0) {
        memcpy(also, into, count);
    }
    return is_known;
}

__attribute__((noinline)) static uint32_t unknown_count(const uint8_t *states, size_t count)
{
    uint32_t unknown = 0;
    for (size_t i = 0; i < count; i++) {
        unknown += states[i] > CONVOY_STATE_SUCCESS;
    }
    return unknown;
}

static inline bool tail_has_unknown(const uint8_t *states, size_t count)
{
    bool has_unknown = false;
    if (count >= WORD) {
        uint64_t word;
        memcpy(&word, states, WORD);
        has_unknown = convoy_word_has_unknown(word);
    }
    for (size_t i = count & WORD; i < count; i++) {
        has_unknown |= states[i] > CONVOY_STATE_SUCCESS;
    }
    return has_unknown;
}

uint32_t convoy_positional_unknown(const uint8_t *states, size_t count)
{
    uint8_t top[LANES] = {0};
    size_t done = 0;
    for (; count - done >= LANES; done += LANES) {
        uint8_t block[LANES];
        memcpy(block, states + done, LANES);
        convoy_block_max(top, block);
    }
    bool has_unknown = convoy_block_has_unknown(top);
    has_unknown |= tail_has_unknown(states + done, count - done);
    return __builtin_expect(has_unknown, 0) ? unknown_count(states, count) : 0;
}

/* MIN once more, now with unknown states taken as Bootstrapping. Returns how many there are. */
__attribute__((noinline)) static uint32_t unknown_min(uint8_t *into, const uint8_t *from, size_t count)
{
    uint32_t unknown = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t state = from[i];
        bool is_known = state <= CONVOY_STATE_SUCCESS;
        state = is_known ? state : CONVOY_STATE_BOOTSTRAPPING;
        into[i] = state < into[i] ? state : into[i];
        unknown += !is_known;
    }
    return unknown;
}

/* As tail_copy. In a word that has an unknown state nothing is merged yet. */
static inline bool tail_min(uint8_t *into, const uint8_t *from, size_t count)
{
    bool has_unknown = false;
    if (count >= WORD) {
        uint64_t mine;
        uint64_t theirs;
        memcpy(&mine, into, WORD);
        memcpy(&theirs, from, WORD);
        has_unknown = convoy_word_has_unknown(theirs);
        mine = has_unknown ? mine : convoy_word_min(mine, theirs);
        memcpy(into, &mine, WORD);
    }
    for (size_t i = count & WORD; i < count; i++) {
        uint8_t state = from[i];
        into[i] = state < into[i] ? state : into[i];
        has_unknown |= state > CONVOY_STATE_SUCCESS;
    }
    return has_unknown;
}

/* As bytes: an unknown state is larger than any known one, so MIN leaves what was there. */
static bool blocks_min(uint8_t *into, const uint8_t *from, size_t count)
{
    uint8_t top[LANES] = {0};
    size_t done = 0;
    for (; count - done >= LANES; done += LANES) {
        uint8_t mine[LANES];
        uint8_t theirs[LANES];
        memcpy(mine, into + done, LANES);
        memcpy(theirs, from + done, LANES);
        convoy_block_max(top, theirs);
        convoy_block_min(mine, theirs);
        memcpy(into + done, mine, LANES);
    }
    bool has_unknown = convoy_block_has_unknown(top);
    return tail_min(into + done, from + done, count - done) || has_unknown;
}

uint32_t convoy_positional_min(uint8_t *into, const uint8_t *from, size_t count)
{
    if (CONVOY_MUTATED(min_is_max)) {
        for (size_t i = 0; i < count; i++) {
            into[i] = from[i] > into[i] ? from[i] : into[i];
        }
        return 0;
    }
    bool has_unknown = count < LANES ? tail_min(into, from, count) : blocks_min(into, from, count);
    return __builtin_expect(has_unknown, 0) ? unknown_min(into, from, count) : 0;
}

void convoy_positional_begin(struct convoy_positional *positional)
{
    positional->members = 0;
    positional->votes_or = 0;
    memset(positional->unknown, 0, sizeof positional->unknown);
}

/* Only after unknown states were seen: which lists they are in. */
static void unknown_attribute(struct convoy_positional *positional, const uint8_t *states)
{
    const struct convoy_payload_shape *shape = positional->shape;
    for (uint32_t list = 0; list < shape->list_count; list++) {
        if ((shape->flags[list] & CONVOY_POLL_KEYED) == 0) {
            positional->unknown[list] += convoy_positional_unknown(states + shape->starts[list], shape->counts[list]);
        }
    }
}

void convoy_positional_add(struct convoy_positional *positional, const uint8_t *states, uint32_t members)
{
    size_t count = positional->shape->positional_bytes;
    bool is_first = positional->members == 0;
    positional->members += members;
    if (is_first && __builtin_expect(convoy_positional_copy(positional->states, states, count), 1)) {
        return;
    }
    /* The first one's unknown states lie in `states` already, where they count as larger than anything. */
    if (convoy_positional_min(positional->states, states, count) != 0) {
        unknown_attribute(positional, states);
    }
}

static void packed_add(struct convoy_positional *positional, const uint8_t *packed)
{
    uint8_t states[CONVOY_PACKED_MAX];
    uint32_t count = positional->shape->positional_bytes;
    for (uint32_t i = 0; i < count; i++) {
        states[i] = convoy_packed_state(packed, count, i);
    }
    convoy_positional_add(positional, states, 1);
}

void convoy_positional_head(const struct convoy_positional *positional, struct convoy_payload_head *head_out)
{
    memset(head_out, 0, sizeof *head_out);
    head_out->members = positional->members;
    head_out->votes_or = positional->votes_or;
    memcpy(head_out->unknown, positional->unknown, sizeof head_out->unknown);
}

int32_t convoy_positional_take_head(struct convoy_positional *positional, const struct convoy_payload_head *head)
{
    if (head->members == 0 || head->members > MEMBERS_MAX - positional->members ||
        (head->flags & ~CONVOY_PAYLOAD_OVERFLOW) != 0 || head->reserved != 0) {
        return CONVOY_MALFORMED;
    }
    positional->votes_or |= head->votes_or;
    for (uint32_t list = 0; list < positional->shape->list_count; list++) {
        uint32_t room = UINT32_MAX - positional->unknown[list];
        positional->unknown[list] += head->unknown[list] < room ? head->unknown[list] : room;
    }
    return CONVOY_OK;
}

/* -- merge operations of rounds that have positional lists only ------------------------------------------------- */

static void ops_begin(void *state)
{
    convoy_positional_begin(state);
}

static int32_t ops_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    struct convoy_positional *positional = state;
    (void)index;
    bytes -= convoy_payload_votes(positional->shape, positional->shape->positional_bytes, payload, bytes,
                                  &positional->votes_or);
    bool is_packed = convoy_payload_is_packed(positional->shape, bytes);
    if ((bytes != positional->shape->positional_bytes && !is_packed) || positional->members >= MEMBERS_MAX) {
        return CONVOY_MALFORMED;
    }
    if (is_packed) {
        packed_add(positional, payload);
    } else {
        convoy_positional_add(positional, payload, 1);
    }
    return CONVOY_OK;
}

/* A lost member is left out of this epoch: nobody waits for its transfers any more. */
static void ops_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    (void)state;
    (void)index;
    (void)absence;
    (void)reason;
}

static size_t ops_encode(const void *state, uint8_t *out, size_t capacity)
{
    const struct convoy_positional *positional = state;
    struct convoy_payload_head head;
    size_t bytes = sizeof head + positional->shape->positional_bytes;
    if (bytes > capacity || positional->members == 0) {
        return 0;
    }
    convoy_positional_head(positional, &head);
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, positional->states, positional->shape->positional_bytes);
    return bytes;
}

static int32_t ops_partial(void *state, const uint8_t *bytes, size_t length)
{
    struct convoy_positional *positional = state;
    struct convoy_payload_head head;
    if (length != sizeof head + positional->shape->positional_bytes) {
        return CONVOY_MALFORMED;
    }
    memcpy(&head, bytes, sizeof head);
    if (head.flags != 0) {
        return CONVOY_MALFORMED;
    }
    int32_t status = convoy_positional_take_head(positional, &head);
    if (status == CONVOY_OK) {
        convoy_positional_add(positional, bytes + sizeof head, head.members);
    }
    return status;
}

const struct convoy_merge_ops convoy_positional_ops = {
    .begin = ops_begin,
    .member = ops_member,
    .absent = ops_absent,
    .encode = ops_encode,
    .partial = ops_partial,
};
