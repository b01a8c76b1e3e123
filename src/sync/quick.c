/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/quick.h"

#include "core/hot.h"
#include "round/quick_path.h"
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

/* All rows into the table and into the place where merging would have put them; the rest of the merge state is that of
 * the round before. */
static inline void rows_take(struct convoy_sync *sync, const struct convoy_quick_round *round, void *table, size_t bytes)
{
    uint32_t width = sync->width;
    bool is_narrow = bytes == sizeof(int32_t) * width;
    const uint8_t *payload = round->payloads;
    uint8_t *row = (uint8_t *)sync->rows;
    uint8_t *copy = table != NULL ? table : row;
    for (uint32_t i = round->count; i != 0; i--, payload += round->stride) {
        convoy_row_take_both(row, copy, width, is_narrow, payload);
        row += sizeof(int64_t) * width;
        copy += sizeof(int64_t) * width;
    }
}

/* The result's other arrays, where the caller wants any. */
static inline void result_write(struct convoy_sync *sync, const struct convoy_round_summary *summary,
                                struct convoy_sync_result *result)
{
    if (((uintptr_t)result->first | (uintptr_t)result->reduced | (uintptr_t)result->presence) != 0) {
        convoy_deliver_whole(&sync->grid, &sync->gather, result);
    }
    result->votes_and = summary->votes_and;
    result->votes_or = summary->votes_or;
    result->round = summary->round;
    result->epoch = summary->epoch;
    result->mask_version = 0;
    result->mask_skew = 0;
    result->width = sync->width;
}

__attribute__((noinline)) static int32_t quick_leave(struct convoy_sync *sync, const struct convoy_quick_round *round,
                                                     const uint8_t *payload, struct convoy_sync_result *result,
                                                     struct convoy_error *error)
{
    uint32_t width = sync->width;
    sync->quick.generation = 0; /* the whole way has merged anew */
    convoy_row_take(sync->ended_row, width, sync->quick.payload_bytes == sizeof(int32_t) * width, payload);
    return convoy_sync_end(sync, round->operation, round->status, round->summary, result, error);
}

CONVOY_HOT
enum convoy_quick_end convoy_sync_quick(struct convoy_sync *sync, const struct convoy_sync_call *call,
                                        const struct convoy_quick_call *how, struct convoy_sync_result *result,
                                        struct convoy_sync_short *short_out, int32_t *status_out)
{
    struct convoy_quick_round round;
    uint8_t *payload = convoy_engine_quick_begin(sync->engine, &sync->quick);
    if (payload == NULL || !call_is_plain(call) || !convoy_sync_has_room(sync, result)) {
        return CONVOY_QUICK_CLOSED;
    }
    sync->quick.payload_bytes = (uint32_t)convoy_row_put_shortest(call->row, sync->width, payload);
    sync->quick.votes = short_out->votes = call->votes;
    sync->quick.tag = short_out->tag = call->tag;
    enum convoy_quick_end end = convoy_engine_quick_round(sync->engine, &sync->quick, how, &round);
    if (__builtin_expect(end == CONVOY_QUICK_CLOSED, 0)) {
        return end;
    }
    sync->operation = round.operation;
    if (__builtin_expect(end == CONVOY_QUICK_ENDED, 0)) {
        short_out->row = sync->ended_row;
        *status_out = quick_leave(sync, &round, payload, result, how->error);
        return end;
    }
    rows_take(sync, &round, result->table, sync->quick.payload_bytes);
    result_write(sync, round.summary, result);
    short_out->row = sync->own_row;
    short_out->table = sync->rows;
    return end;
}
