/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/contribute.h"

#include "core/error.h"
#include "core/fault.h"
#include "poll/check.h"

#include <string.h>

#define POLICY_BITS_PER_LIST 2u
#define POLICY_FIRST_LEVEL (1ull << 16)

static uint64_t fold(uint64_t into, uint64_t value)
{
    into = (into ^ value) * 0x9e3779b97f4a7c15ull;
    return into ^ (into >> 32);
}

/*
 * What must agree, put where the report shows it best. One positional list: its count and its digest as they are.
 * Several: `counts` has the sum, and the digest is a fold that also holds each list's own count, so that {3, 5}
 * against {5, 3} differs too. Keyed lists put in neither count nor digest: theirs may differ.
 */
static void header_fill(struct convoy_poll *poll, const struct convoy_poll_call *call)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    struct convoy_round_header header = {
        .operation = shape->keyed_count != 0 ? CONVOY_OPERATION_POLL_KEYED : CONVOY_OPERATION_POLL,
        .counts = (uint64_t)shape->positional_bytes << 8 | shape->list_count,
    };
    for (uint32_t i = 0; i < shape->list_count; i++) {
        header.policy |= (uint64_t)shape->flags[i] << (POLICY_BITS_PER_LIST * i);
        if ((shape->flags[i] & CONVOY_POLL_KEYED) != 0) {
            continue;
        }
        header.digest = shape->list_count == 1
                            ? call->lists[i].digest
                            : fold(fold(fold(header.digest, i + 1u), shape->counts[i]), call->lists[i].digest);
    }
    poll->header = header;
    poll->has_header = true;
}

static uint64_t level_policy(enum convoy_poll_level level)
{
    return level == CONVOY_POLL_LEVEL_FIRST ? POLICY_FIRST_LEVEL : 0;
}

static int32_t round_publish(struct convoy_poll *poll, struct convoy_contribution *contribution,
                             struct convoy_error *error)
{
    bool is_keyed = poll->shape.keyed_count != 0;
    contribution->votes = poll->votes;
    contribution->tag = poll->tag;
    contribution->errors_as_presence = false;
    contribution->merge = is_keyed ? &convoy_keyed_ops : &convoy_positional_ops;
    contribution->merge_state = is_keyed ? (void *)&poll->keyed : (void *)&poll->keyed.positional;
    return convoy_contribute_publish(poll, contribution, error);
}

static void shape_set(struct convoy_poll *poll, const struct convoy_payload_shape *shape)
{
    poll->is_plain = poll->may_repeat = false;
    poll->quick.engine.generation = 0;
    poll->shape = *shape;
    convoy_keyed_prepare(&poll->keyed, &poll->shape);
}

/* -- what a member brings ---------------------------------------------------------------------------------------- */

/* Head and identities of the keyed form; at: where the parts lie. */
static void keyed_head_write(uint8_t *payload, const struct convoy_payload_shape *shape,
                             const struct convoy_payload_layout *at, bool has_generations)
{
    uint32_t head[1 + CONVOY_POLL_LISTS_MAX] = {has_generations ? CONVOY_PAYLOAD_GENERATIONS : 0};
    memset(payload + shape->positional_bytes, 0, at->keys - shape->positional_bytes);
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        head[1 + slot] = shape->counts[shape->list_of[slot]];
    }
    memcpy(payload + at->counts, head, sizeof head[0] * (1u + shape->keyed_count));
}

size_t convoy_contribute_keyed(const struct convoy_poll *poll, uint8_t *payload)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    const struct convoy_capture *capture = &poll->capture;
    const struct convoy_order *order = &poll->order;
    bool has_generations = convoy_order_has_generations(order);
    struct convoy_payload_layout at = convoy_payload_layout(shape, shape->keyed_entries, has_generations, false);
    keyed_head_write(payload, shape, &at, has_generations);
    memcpy(payload + at.keys, order->sorted_keys, sizeof *order->sorted_keys * shape->keyed_entries);
    memcpy(payload + at.generations, order->sorted_generations, at.listed - at.generations);
    for (uint32_t list = 0; list < shape->list_count; list++) {
        const uint8_t *states = capture->states + capture->starts[list];
        uint32_t start = shape->starts[list];
        if ((shape->flags[list] & CONVOY_POLL_KEYED) == 0) {
            memcpy(payload + start, states, shape->counts[list]);
            continue;
        }
        convoy_order_sort(order, shape->slots[list], payload + at.states + start, states);
    }
    return at.bytes;
}

static inline size_t payload_write(const struct convoy_poll *poll, uint8_t *payload)
{
    if (poll->shape.keyed_count != 0) {
        return convoy_contribute_keyed(poll, payload);
    }
    memcpy(payload, poll->capture.states, poll->shape.positional_bytes);
    return poll->shape.positional_bytes;
}

int32_t convoy_contribute_keys(struct convoy_poll *poll, const struct convoy_poll_call *call,
                               struct convoy_error *error)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    int32_t status = convoy_order_take(&poll->order, call->lists, shape, error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool has_generations = convoy_order_has_generations(&poll->order);
    size_t bytes = convoy_payload_layout(shape, shape->keyed_entries, has_generations, false).bytes;
    return convoy_check_bytes(bytes, poll->bytes_max, error);
}

static int32_t lists_take(struct convoy_poll *poll, const struct convoy_poll_call *call, struct convoy_error *error)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    int32_t status = shape->keyed_count != 0 ? convoy_contribute_keys(poll, call, error) : CONVOY_OK;
    if (status != CONVOY_OK) {
        return status;
    }
    return convoy_capture_take(&poll->capture, call, shape, &poll->inject, convoy_engine_next_round(poll->engine),
                               error);
}

static int32_t call_publish(struct convoy_poll *poll, const struct convoy_poll_call *call,
                            enum convoy_poll_level level, uint8_t *payload, struct convoy_error *error)
{
    struct convoy_contribution contribution; /* all fields are set here and in round_publish */
    poll->own = poll;
    poll->level = level;
    poll->tag = call->tag;
    poll->votes = call->votes;
    contribution.is_error = (call->critical_flags & CONVOY_CALL_ERROR_ROW) != 0;
    contribution.error_reason = call->error_reason;
    contribution.header = poll->header;
    contribution.header.policy |= level_policy(level);
    contribution.payload_bytes = contribution.is_error ? 0 : (uint32_t)payload_write(poll, payload);
    int32_t status = round_publish(poll, &contribution, error);
    poll->plain = contribution;
    return status;
}

/* The caller's arguments are wrong: its own error stays as it is, the peers are told if it asked for that. */
static int32_t call_refuse(struct convoy_poll *poll, const struct convoy_poll_call *call,
                           enum convoy_poll_level level, int32_t status)
{
    if ((call->hint_flags & CONVOY_CALL_POST_ERROR) != 0) {
        const struct convoy_contribute_row row = {
            .reason = call->error_reason, .votes = call->votes, .tag = call->tag, .call_of = poll};
        poll->level = level;
        (void)convoy_contribute_error(poll, &row, NULL);
    }
    return status;
}

/* After a call was published the whole way: whether the next one may be compared with it. */
static void plain_note(struct convoy_poll *poll, const struct convoy_poll_call *call)
{
    bool is_plain = poll->inject.probability_ppm == 0 && poll->inject.script_count == 0 && call->critical_flags == 0;
    for (uint32_t i = 0; i < poll->shape.list_count && is_plain; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        is_plain = convoy_contribute_is_plain(list) && list->name_length < CONVOY_CAPTURE_NAME_BYTES;
        poll->digests[i] = list->digest;
    }
    poll->is_plain = is_plain;
    if (is_plain) {
        convoy_poll_quick_keep(poll, call);
    }
}

int32_t convoy_contribute_whole(struct convoy_poll *poll, const struct convoy_poll_call *call,
                                enum convoy_poll_level level, const struct convoy_poll_result *result,
                                struct convoy_error *error)
{
    struct convoy_payload_shape shape;
    uint8_t *payload;
    if (poll->two.is_open) {
        return convoy_error_set(error, CONVOY_BUSY, "operation %#llx, a two-level reduce, is open",
                                (unsigned long long)poll->operation);
    }
    poll->has_header = false;
    poll->is_plain = false;
    poll->quick.engine.generation = 0;
    int32_t checked = convoy_check_call(call, poll->bytes_max, &shape, error);
    if (checked == CONVOY_OK && result != NULL) {
        checked = convoy_check_result(result, &shape, error);
    }
    if (checked != CONVOY_OK) {
        return call_refuse(poll, call, level, checked);
    }
    int32_t status = convoy_engine_begin(poll->engine, &payload, error);
    if (status != CONVOY_OK) {
        return status;
    }
    shape_set(poll, &shape);
    header_fill(poll, call);
    poll->operation = 0; /* the last one's result is gone: its storage is this call's now */
    poll->two.phase = CONVOY_TWO_LEVEL_NONE;
    if ((call->critical_flags & CONVOY_CALL_ERROR_ROW) == 0) {
        status = lists_take(poll, call, error);
    }
    if (status != CONVOY_OK) {
        return call_refuse(poll, call, level, status);
    }
    plain_note(poll, call);
    return call_publish(poll, call, level, payload, error);
}

int32_t convoy_contribute_error(struct convoy_poll *poll, const struct convoy_contribute_row *row,
                                struct convoy_error *error)
{
    uint8_t *payload;
    int32_t status = convoy_engine_begin(poll->engine, &payload, error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_known = row->call_of != NULL && row->call_of->has_header;
    struct convoy_contribution contribution = {.is_error = true, .error_reason = row->reason};
    struct convoy_payload_shape shape = {0};
    contribution.header.operation = CONVOY_OPERATION_POLL;
    if (is_known) { /* then the row differs from the others in nothing but being an error */
        shape = row->call_of->shape;
        shape.has_votes = row->call_of != poll;
        contribution.header = row->call_of->header;
        contribution.header.policy |= row->call_of == poll ? level_policy(poll->level) : 0;
    }
    shape_set(poll, &shape);
    poll->own = poll;
    poll->tag = row->tag;
    poll->votes = row->votes;
    status = round_publish(poll, &contribution, error);
    poll->error_row = poll->operation;
    poll->operation = 0;
    return status;
}

/* -- the second of two levels ------------------------------------------------------------------------------------ */

/* The first level's outcome is what the second one merges: keyed lists with all identities of the first group. */
static void second_shape(const struct convoy_poll *first, struct convoy_payload_shape *shape_out)
{
    const struct convoy_table *table = &first->keyed.tables[first->keyed.current];
    memset(shape_out, 0, sizeof *shape_out);
    for (uint32_t list = 0; list < first->shape.list_count; list++) {
        uint32_t count = first->shape.counts[list];
        if ((first->shape.flags[list] & CONVOY_POLL_KEYED) != 0) {
            uint32_t slot = first->shape.slots[list];
            count = table->starts[slot + 1] - table->starts[slot];
        }
        convoy_payload_shape_add(shape_out, count, first->shape.flags[list]);
    }
    shape_out->has_votes = true;
}

static size_t second_payload_write(const struct convoy_poll *first, const struct convoy_payload_shape *shape,
                                   uint8_t *payload)
{
    const struct convoy_table *table = &first->keyed.tables[first->keyed.current];
    uint32_t entries = shape->keyed_entries;
    size_t bytes = shape->positional_bytes;
    bool brings_own = CONVOY_MUTATED(level_two_takes_own) && shape->keyed_count == 0;
    memcpy(payload, brings_own ? first->capture.states : first->positional_states, shape->positional_bytes);
    if (shape->keyed_count != 0) {
        struct convoy_payload_layout at = convoy_payload_layout(shape, entries, table->has_generations, false);
        keyed_head_write(payload, shape, &at, table->has_generations);
        memcpy(payload + at.keys, table->keys, sizeof *table->keys * entries);
        memcpy(payload + at.generations, table->generations, at.listed - at.generations);
        memcpy(payload + at.states, table->states, entries);
        bytes = at.bytes;
    }
    if (first->summary.votes_or != 0) {
        memcpy(payload + bytes, &first->summary.votes_or, sizeof first->summary.votes_or);
        bytes += CONVOY_PAYLOAD_VOTES_BYTES;
    }
    return bytes;
}

int32_t convoy_contribute_second(struct convoy_poll *second, struct convoy_poll *first, struct convoy_error *error)
{
    struct convoy_payload_shape shape;
    uint8_t *payload;
    second_shape(first, &shape);
    const struct convoy_table *table = &first->keyed.tables[first->keyed.current];
    size_t bytes = shape.keyed_count == 0
                       ? shape.positional_bytes
                       : convoy_payload_layout(&shape, shape.keyed_entries, table->has_generations, false).bytes;
    int32_t status = convoy_check_bytes(bytes + CONVOY_PAYLOAD_VOTES_BYTES, second->bytes_max, error);
    if (status == CONVOY_OK) {
        status = convoy_engine_begin(second->engine, &payload, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    shape_set(second, &shape);
    second->own = first;
    second->level = CONVOY_POLL_LEVEL_SECOND;
    second->tag = first->tag;
    second->votes = first->summary.votes_and;
    second->header = first->header;
    struct convoy_contribution contribution = {.header = first->header};
    contribution.payload_bytes = (uint32_t)second_payload_write(first, &second->shape, payload);
    return round_publish(second, &contribution, error);
}
