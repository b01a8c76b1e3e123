/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/positional.h"

#include <string.h>

#define MEMBERS_MAX 1024u
#define LANES 16u

typedef uint8_t lanes __attribute__((vector_size(LANES)));

/* Whether any lane of a comparison came out true. */
static bool lanes_any(lanes mask)
{
    uint64_t halves[2];
    memcpy(halves, &mask, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

static uint32_t tail_unknown(const uint8_t *states, size_t count)
{
    uint32_t unknown = 0;
    for (size_t i = 0; i < count; i++) {
        unknown += states[i] > CONVOY_STATE_SUCCESS;
    }
    return unknown;
}

uint32_t convoy_positional_unknown(const uint8_t *states, size_t count)
{
    uint32_t unknown = 0;
    size_t done = 0;
    for (; count - done >= LANES; done += LANES) {
        lanes block;
        memcpy(&block, states + done, sizeof block);
        if (__builtin_expect(lanes_any((lanes)(block > (uint8_t)CONVOY_STATE_SUCCESS)), 0)) {
            unknown += tail_unknown(states + done, LANES);
        }
    }
    return unknown + tail_unknown(states + done, count - done);
}

static uint32_t tail_min(uint8_t *into, const uint8_t *from, size_t count)
{
    uint32_t unknown = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_known = from[i] <= CONVOY_STATE_SUCCESS;
        uint8_t state = is_known ? from[i] : CONVOY_STATE_BOOTSTRAPPING;
        into[i] = state < into[i] ? state : into[i];
        unknown += !is_known;
    }
    return unknown;
}

uint32_t convoy_positional_min(uint8_t *into, const uint8_t *from, size_t count)
{
    uint32_t unknown = 0;
    size_t done = 0;
    for (; count - done >= LANES; done += LANES) {
        lanes mine;
        lanes theirs;
        memcpy(&mine, into + done, sizeof mine);
        memcpy(&theirs, from + done, sizeof theirs);
        if (__builtin_expect(lanes_any((lanes)(theirs > (uint8_t)CONVOY_STATE_SUCCESS)), 0)) {
            unknown += tail_min(into + done, from + done, LANES);
            continue;
        }
        lanes is_less = (lanes)(theirs < mine);
        mine = (theirs & is_less) | (mine & ~is_less);
        memcpy(into + done, &mine, sizeof mine);
    }
    return unknown + tail_min(into + done, from + done, count - done);
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
    if (positional->members == 0) {
        memset(positional->states, CONVOY_STATE_SUCCESS, count); /* the top: MIN with it changes nothing */
    }
    positional->members += members;
    if (convoy_positional_min(positional->states, states, count) != 0) {
        unknown_attribute(positional, states);
    }
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
    if (bytes != positional->shape->positional_bytes || positional->members >= MEMBERS_MAX) {
        return CONVOY_MALFORMED;
    }
    convoy_positional_add(positional, payload, 1);
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
