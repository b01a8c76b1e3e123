/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/result.h"

#include <string.h>

/* This member's entries of one list after the round, in own order. */
static inline const uint8_t *list_output(const struct convoy_poll *poll, uint32_t list)
{
    const struct convoy_payload_shape *own = &poll->own->shape;
    bool is_keyed = (own->flags[list] & CONVOY_POLL_KEYED) != 0;
    return (is_keyed ? poll->outcome.states : poll->positional_states) + own->starts[list];
}

__attribute__((noinline)) static size_t outcomes_write(const struct convoy_poll *poll, uint32_t list,
                                                       struct convoy_poll_list_result *out)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    const struct convoy_table *table = &poll->keyed.tables[poll->keyed.current];
    uint32_t start = table->starts[shape->slots[list]];
    size_t count = table->starts[shape->slots[list] + 1] - start;
    size_t room = out->outcomes != NULL ? out->outcome_capacity : 0;
    size_t stride = out->outcome_stride != 0 ? out->outcome_stride : sizeof *out->outcomes;
    for (size_t i = 0; i < count && i < room; i++) {
        struct convoy_poll_outcome outcome = {
            .key = table->keys[start + i],
            .generation = table->has_generations ? table->generations[start + i] : 0,
            .listed_by = table->listed[start + i],
            .state = table->states[start + i],
            .flags = poll->outcome.flags[start + i],
        };
        memcpy((char *)out->outcomes + stride * i, &outcome, sizeof outcome);
    }
    return count;
}

static inline void list_write(const struct convoy_poll *poll, uint32_t list, struct convoy_poll_list_result *out)
{
    const struct convoy_poll *own = poll->own;
    uint32_t count = own->shape.counts[list];
    bool is_keyed = (own->shape.flags[list] & CONVOY_POLL_KEYED) != 0;
    if (out->states != NULL && count != 0) {
        memcpy(out->states, list_output(poll, list), count);
    }
    out->states_count = count;
    out->outcome_count = is_keyed ? outcomes_write(poll, list, out) : 0;
    out->foreign_count = own->capture.foreign[list];
    out->injected_count = own->capture.injected[list];
    out->demoted_count = own->capture.demoted[list];
    out->unknown_count = poll->keyed.positional.unknown[list];
    if (own != poll) {
        out->unknown_count += own->keyed.positional.unknown[list];
    }
}

void convoy_result_write(struct convoy_poll *poll, struct convoy_poll_result *result)
{
    poll->has_counts = true;
    uint32_t list_count = poll->own->shape.list_count;
    for (uint32_t list = 0; list < list_count; list++) {
        list_write(poll, list, &result->lists[list]);
    }
    bool is_second = poll->level == CONVOY_POLL_LEVEL_SECOND;
    result->votes_and = poll->summary.votes_and;
    result->votes_or = is_second ? poll->keyed.positional.votes_or : poll->summary.votes_or;
    result->round = poll->summary.round;
    result->epoch = poll->summary.epoch;
}

__attribute__((noinline)) static void record_whole(struct convoy_poll *poll, int32_t status)
{
    const struct convoy_poll *own = poll->own;
    struct convoy_poll_record record; /* unused lists stay as they are: clearing them would cost more than the rest */
    bool is_ok = status == CONVOY_OK;
    bool is_mixed = own->shape.keyed_count != 0 && own->shape.keyed_count != own->shape.list_count;
    record.status = status;
    record.level = (uint32_t)poll->level;
    record.operation = poll->operation;
    record.tag = poll->tag;
    record.votes = poll->votes;
    record.votes_and = status == CONVOY_OK ? poll->summary.votes_and : 0;
    record.votes_or = status == CONVOY_OK ? poll->summary.votes_or : 0;
    record.list_count = own->shape.list_count;
    record.may_repeat = is_ok && poll->has_own && poll->is_plain && record.list_count != 0 && !is_mixed &&
                        poll->repeat != NULL;
    record.round = is_ok ? poll->summary.round : convoy_engine_round(poll->engine);
    record.epoch = is_ok ? poll->summary.epoch : 0;
    for (uint32_t list = 0; list < record.list_count; list++) {
        record.lists[list] = (struct convoy_poll_record_list){
            .name = own->capture.names[list],
            .name_length = own->capture.name_lengths[list],
            .count = own->shape.counts[list],
            .flags = own->shape.flags[list],
            .input = own != poll ? list_output(own, list) : own->capture.states + own->capture.starts[list],
            .output = is_ok && poll->has_own ? list_output(poll, list) : NULL,
        };
    }
    poll->may_repeat = record.may_repeat || (poll->may_repeat && !is_ok);
    poll->record(poll->record_user, &record);
}

void convoy_result_record(struct convoy_poll *poll, int32_t status)
{
    if (poll->may_repeat && poll->is_plain && status == CONVOY_OK && poll->has_own) {
        struct convoy_call_values values; /* all fields are set here */
        values.round = poll->summary.round;
        values.epoch = poll->summary.epoch;
        values.tag = poll->tag;
        values.votes = poll->votes;
        values.votes_and = poll->summary.votes_and;
        values.votes_or = poll->summary.votes_or;
        values.input = poll->capture.states;
        values.output = poll->shape.keyed_count != 0 ? poll->outcome.states : poll->positional_states;
        if (poll->repeat(poll->record_user, &values)) {
            return;
        }
    }
    record_whole(poll, status);
}
