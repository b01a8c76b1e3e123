/* SPDX-License-Identifier: Apache-2.0 */
/* All members' cells of a round on one host are there: compares, merges and ends the operation. */
#include "round/engine_internal.h"

int32_t convoy_engine_end(struct convoy_engine *engine, int32_t status, const struct convoy_error *error)
{
    CONVOY_POINT(round_ended);
    bool is_broken = status == CONVOY_PEER_LOST || status == CONVOY_BROKEN || status == CONVOY_UNREACHABLE;
    engine->ended_status = status;
    if (error != NULL) {
        engine->ended_error = *error;
    }
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    if (!is_broken) {
        engine->next_round = round + 1;
    }
    atomic_store_explicit(&engine->finished_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
    atomic_store_explicit(&engine->state, is_broken ? CONVOY_ENGINE_BROKEN : CONVOY_ENGINE_IDLE, memory_order_release);
    return status;
}

static void finish_tag(struct convoy_round_pass *pass, uint64_t tag)
{
    if (tag != 0) {
        pass->tag_min = pass->tag_min == 0 || tag < pass->tag_min ? tag : pass->tag_min;
        pass->tag_max = tag > pass->tag_max ? tag : pass->tag_max;
    }
}

static int32_t finish_error_reason(const struct convoy_cell *cell)
{
    int32_t reason;
    memcpy(&reason, cell->payload, sizeof reason);
    return reason;
}

/* One member's cell. Merging stops at the first disagreement: the result is not used then. */
static void finish_member(struct convoy_engine *engine, struct convoy_round_pass *pass, uint32_t member,
                          const struct convoy_cell *cell)
{
    const struct convoy_contribution *own = &engine->contribution;
    pass->votes_and &= CONVOY_MUTATED(votes_not_merged) ? UINT32_MAX : cell->votes;
    pass->votes_or |= cell->votes;
    finish_tag(pass, cell->tag);
    bool is_error = (cell->info & CONVOY_INFO_ERROR) != 0;
    if (!is_error && engine->reference == 0) { /* an error row says nothing about what the round is */
        engine->reference = cell->fingerprint;
    }
    if (!is_error && cell->fingerprint != engine->reference && !CONVOY_MUTATED(fingerprint_ignored)) {
        pass->diverged_member = pass->diverged_member < member ? pass->diverged_member : member;
        return;
    }
    if (pass->merge_status != CONVOY_OK || pass->diverged_member < engine->member_count) {
        return;
    }
    if (is_error && CONVOY_MUTATED(error_row_ignored)) {
        return;
    }
    if (is_error) {
        if (own->errors_as_presence) {
            own->merge->absent(own->merge_state, member, CONVOY_ABSENT_ERROR, finish_error_reason(cell));
        } else if (pass->error_member == engine->member_count) {
            pass->error_member = member;
            pass->error_reason = finish_error_reason(cell);
        }
        return;
    }
    if (own->is_error && !(own->errors_as_presence && cell->fingerprint == engine->fingerprint)) {
        return; /* this member brought no row of its own to line the others' up with, and needs no result */
    }
    uint32_t length = cell->info & CONVOY_INFO_LENGTH_MASK;
    engine->waited.bytes_received += member != engine->own_index ? length : 0;
    pass->merge_status = length <= engine->blob_bytes_max
                             ? own->merge->member(own->merge_state, member, cell->payload, length)
                             : CONVOY_MALFORMED;
    pass->bad_member = member;
}

void convoy_engine_pass(struct convoy_engine *engine, struct convoy_round_pass *pass)
{
    *pass = (struct convoy_round_pass){
        .votes_and = UINT32_MAX,
        .error_member = engine->member_count,
        .diverged_member = engine->member_count,
    };
    const struct convoy_contribution *own = &engine->contribution;
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    engine->reference = own->is_error ? 0 : engine->fingerprint;
    own->merge->begin(own->merge_state);
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        const struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, round);
        if (convoy_engine_is_lost(engine, member) ||
            (engine->loss_count != 0 &&
             convoy_cell_view_of(atomic_load_explicit(&cell->word, memory_order_acquire), engine->generation, round) !=
                 CONVOY_CELL_PUBLISHED)) {
            own->merge->absent(own->merge_state, member, CONVOY_ABSENT_LOST, 0);
            pass->lost_count++;
            continue;
        }
        finish_member(engine, pass, member, cell);
    }
    if (own->is_error && own->errors_as_presence && engine->reference != 0 &&
        engine->reference != engine->fingerprint) { /* the others did something else: there is no table to be in */
        pass->error_member = engine->own_index;
        pass->error_reason = own->error_reason;
    }
}

static int32_t finish_diverged(struct convoy_engine *engine, const struct convoy_round_pass *pass)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    convoy_engine_report_fill(engine, CONVOY_DIVERGED,
                              pass->diverged_member == engine->member_count ? CONVOY_FIELD_TAG : CONVOY_FIELD_NONE);
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_engine_report_diverged_text(engine, round, &error);
    return convoy_engine_end(engine, CONVOY_DIVERGED, &error);
}

static int32_t finish_refused(struct convoy_engine *engine, const struct convoy_round_pass *pass)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    int32_t status = pass->merge_status != CONVOY_OK ? pass->merge_status : CONVOY_PEER_ERROR;
    uint32_t member = pass->merge_status != CONVOY_OK ? pass->bad_member : pass->error_member;
    int32_t rank = convoy_engine_rank(engine, member);
    struct convoy_error error = CONVOY_ERROR_INIT;
    engine->error_member = status == CONVOY_PEER_ERROR ? member : engine->member_count;
    engine->error_reason = pass->error_reason;
    convoy_engine_report_fill(engine, status, CONVOY_FIELD_NONE);
    if (status == CONVOY_PEER_ERROR) {
        (void)convoy_error_set_peer(&error, status, rank, round,
                                    "group %.*s: rank %d contributed no row in round %llu, reason %d",
                                    (int)engine->group->name_length, engine->group->name, rank,
                                    (unsigned long long)round, pass->error_reason);
    } else {
        (void)convoy_error_set_peer(&error, status, rank, round,
                                    "group %.*s: what rank %d contributed to round %llu was refused as %s",
                                    (int)engine->group->name_length, engine->group->name, rank,
                                    (unsigned long long)round, convoy_status_text(status));
    }
    return convoy_engine_end(engine, status, &error);
}

int32_t convoy_engine_finish_local(struct convoy_engine *engine)
{
    struct convoy_round_pass pass;
    CONVOY_POINT(collect_complete);
    convoy_engine_pass(engine, &pass);
    return convoy_engine_conclude(engine, &pass);
}

int32_t convoy_engine_conclude(struct convoy_engine *engine, const struct convoy_round_pass *pass)
{
    atomic_store_explicit(&engine->absent_count, pass->lost_count, memory_order_relaxed);
    bool tags_differ = pass->tag_min != pass->tag_max && !CONVOY_MUTATED(tags_ignored);
    if (pass->diverged_member < engine->member_count || tags_differ) {
        return finish_diverged(engine, pass);
    }
    if (pass->merge_status != CONVOY_OK || pass->error_member < engine->member_count) {
        return finish_refused(engine, pass);
    }
    engine->summary = (struct convoy_round_summary){
        .round = atomic_load_explicit(&engine->round, memory_order_relaxed),
        .epoch = convoy_engine_epoch(engine),
        .votes_and = pass->votes_and,
        .votes_or = pass->votes_or,
    };
    return convoy_engine_end(engine, CONVOY_OK, NULL);
}
