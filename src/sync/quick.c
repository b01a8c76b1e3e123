/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/quick.h"

#include "sync/deliver.h"
#include "sync/sync_parts.h"

void convoy_sync_quick_note(struct convoy_sync *sync)
{
    const struct convoy_gather *gather = &sync->gather;
    const struct convoy_mask *mask = &gather->mask;
    if (sync->quick.generation != 0) {
        return; /* the end of a round that was noted, or of a short one, is read again */
    }
    convoy_engine_quick_note(sync->engine, &sync->quick);
    bool is_plain = sync->quick.contribution.header.policy == 0 && mask->version == 0 &&
                    mask->agreeing == gather->form.member_count && convoy_deliver_is_whole(&sync->grid, gather) &&
                    !convoy_alone_is_usual(&sync->grid); /* this was an exchange, plain calls are none */
    sync->quick.generation = is_plain ? sync->quick.generation : 0;
}

static inline bool call_is_plain(const struct convoy_sync_call *call)
{
    return (call->critical_flags | call->policy | call->reserved | call->mask_version | call->active_count) == 0 &&
           call->row != NULL && (call->row_stride == 0 || call->row_stride == sizeof(int64_t)) && call->active == NULL;
}

/* All rows in the place where merging would have put them; the rest of the merge state is that of the round before. */
static inline void rows_take(struct convoy_sync *sync, const struct convoy_quick_round *round, size_t bytes)
{
    uint32_t width = sync->grid.width;
    bool is_narrow = bytes == sizeof(int32_t) * width;
    const uint8_t *payload = round->payloads;
    int64_t *row = sync->gather.rows;
    for (uint32_t i = 0; i < round->count; i++, payload += round->stride, row += width) {
        convoy_row_take(row, width, is_narrow, payload);
    }
}

static inline void result_write(struct convoy_sync *sync, const struct convoy_round_summary *summary,
                                struct convoy_sync_result *result)
{
    convoy_deliver_whole(&sync->grid, &sync->gather, result);
    result->votes_and = summary->votes_and;
    result->votes_or = summary->votes_or;
    result->round = summary->round;
    result->epoch = summary->epoch;
    result->mask_version = 0;
    result->mask_skew = 0;
    result->width = sync->grid.width;
}

static inline const struct convoy_call_values *values_fill(struct convoy_sync *sync,
                                                           const struct convoy_round_summary *summary)
{
    struct convoy_call_values *values_out = &sync->values;
    const struct convoy_contribution *own = &sync->quick.contribution;
    values_out->round = summary->round;
    values_out->epoch = summary->epoch;
    values_out->tag = own->tag;
    values_out->votes = own->votes;
    values_out->votes_and = summary->votes_and;
    values_out->votes_or = summary->votes_or;
    values_out->input = sync->gather.rows + (size_t)sync->own_index * sync->grid.width;
    values_out->output = sync->gather.rows;
    return values_out;
}

enum convoy_quick_end convoy_sync_quick(struct convoy_sync *sync, const struct convoy_sync_call *call,
                                        const struct convoy_quick_call *how, struct convoy_sync_result *result,
                                        const struct convoy_call_values **values_out, int32_t *status_out)
{
    struct convoy_contribution *own = &sync->quick.contribution;
    struct convoy_quick_round round;
    uint8_t *payload = convoy_engine_quick_begin(sync->engine, &sync->quick);
    if (payload == NULL || !call_is_plain(call) || !convoy_sync_has_room(sync, result)) {
        return CONVOY_QUICK_CLOSED;
    }
    own->payload_bytes = (uint32_t)convoy_row_put_shortest(call->row, sync->grid.width, payload);
    own->votes = call->votes;
    own->tag = call->tag;
    enum convoy_quick_end end = convoy_engine_quick_round(sync->engine, &sync->quick, how, &round);
    if (end == CONVOY_QUICK_CLOSED) {
        return end;
    }
    sync->operation = round.operation;
    if (end == CONVOY_QUICK_ENDED) {
        sync->quick.generation = 0; /* the whole way has merged anew */
        convoy_row_take(sync->ended_row, sync->grid.width, own->payload_bytes == sizeof(int32_t) * sync->grid.width,
                        payload);
        sync->values.tag = own->tag;
        sync->values.votes = own->votes;
        sync->values.input = sync->ended_row;
        *values_out = &sync->values;
        *status_out = convoy_sync_end(sync, round.operation, round.status, round.summary, result, how->error);
        return end;
    }
    rows_take(sync, &round, own->payload_bytes);
    result_write(sync, round.summary, result);
    *values_out = values_fill(sync, round.summary);
    return end;
}
