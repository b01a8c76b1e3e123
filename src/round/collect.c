/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at the open round. The common case is a handful of loads: every cell of this host has arrived and the round
 * is merged at once. A round is complete exactly if no cell is sealed, which is the same for all members.
 */
#include "core/hot.h"
#include "round/engine_internal.h"
#include "round/remote.h"

enum collect_view {
    COLLECT_ARRIVED = 0, /* or absent by agreement */
    COLLECT_PENDING,
    COLLECT_FAILED,
};

/* Under policy degrade a member that is gone is presence "lost" in this very round; an abandoned round is broken. */
static bool collect_is_absence(const struct convoy_engine *engine, uint64_t word)
{
    return engine->degrade && convoy_word_reason(word) != CONVOY_SEAL_ABANDON;
}

static void collect_note_seal(struct convoy_engine *engine, uint32_t member, uint64_t word)
{
    if (convoy_word_reason(word) != CONVOY_SEAL_ABANDON) {
        bool is_closed = convoy_word_reason(word) == CONVOY_SEAL_CLOSED;
        convoy_engine_note_loss(engine, member, is_closed, is_closed ? CONVOY_NOTICED_CLOSE : CONVOY_NOTICED_PEER);
    }
}

CONVOY_HOT
static enum collect_view collect_view_of(struct convoy_engine *engine, uint32_t local, uint64_t round)
{
    uint32_t member = engine->local_members[local];
    if (convoy_engine_is_lost(engine, member)) {
        return COLLECT_ARRIVED;
    }
    struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, round);
    uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
    enum convoy_cell_view view = convoy_cell_view_of(word, engine->generation, round);
    if (view == CONVOY_CELL_PENDING && engine->loss_count != 0) { /* known to be gone: do not wait for it again */
        const struct convoy_loss *loss = &engine->losses[member];
        if (loss->is_dead != 0 || loss->is_closed != 0) {
            uint32_t reason = loss->is_closed != 0 ? CONVOY_SEAL_CLOSED : CONVOY_SEAL_LOST;
            (void)convoy_engine_seal(engine, local, round, reason);
            word = atomic_load(&cell->word);
            view = convoy_cell_view_of(word, engine->generation, round);
        }
    }
    if (view == CONVOY_CELL_SEALED) {
        collect_note_seal(engine, member, word);
        return collect_is_absence(engine, word) ? COLLECT_ARRIVED : COLLECT_FAILED;
    }
    if (view == CONVOY_CELL_MOVED_ON) {
        return COLLECT_FAILED;
    }
    return view == CONVOY_CELL_PENDING ? COLLECT_PENDING : COLLECT_ARRIVED;
}

/* The first member that makes the round fail as lost, else the first that abandoned it, else member_count. Notes all
 * seals: the look that found the failure may have ended at another cell, before it came to them. */
static uint32_t collect_culprit(struct convoy_engine *engine, bool *is_loss_out)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    uint32_t lost = engine->member_count;
    uint32_t abandoner = engine->member_count;
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint64_t word = atomic_load(&convoy_segment_cell(&engine->segment, local, round)->word);
        if (convoy_cell_view_of(word, engine->generation, round) != CONVOY_CELL_SEALED) {
            continue;
        }
        uint32_t member = engine->local_members[local];
        collect_note_seal(engine, member, word);
        if (convoy_word_reason(word) != CONVOY_SEAL_ABANDON) {
            lost = member < lost ? member : lost;
        } else if (abandoner == engine->member_count && convoy_word_sealer(word) < engine->local_count) {
            abandoner = engine->local_members[convoy_word_sealer(word)];
        }
    }
    *is_loss_out = lost < engine->member_count;
    return *is_loss_out ? lost : abandoner;
}

int32_t convoy_engine_fail_sealed(struct convoy_engine *engine)
{
    bool is_loss = false;
    uint32_t culprit = collect_culprit(engine, &is_loss);
    if (culprit == engine->member_count) { /* no seal is left to see: the others have moved on */
        culprit = convoy_engine_newly_lost(engine);
        is_loss = culprit < engine->member_count;
        if (is_loss) {
            convoy_engine_note_loss(engine, culprit, false, CONVOY_NOTICED_PEER);
        }
    }
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    int32_t rank = culprit < engine->member_count ? convoy_engine_rank(engine, culprit) : -1;
    int32_t status = is_loss ? CONVOY_PEER_LOST : CONVOY_BROKEN;
    engine->failed_member = culprit;
    convoy_engine_report_fill(engine, status, CONVOY_FIELD_NONE);
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (is_loss) {
        bool is_closed = engine->losses[culprit].is_closed != 0;
        (void)convoy_error_set_peer(&error, status, rank, round, "group %.*s: rank %d %s in round %llu",
                                    (int)engine->group->name_length, engine->group->name, rank,
                                    is_closed ? "closed the group" : "was lost (its process ended)",
                                    (unsigned long long)round);
    } else if (rank >= 0) {
        (void)convoy_error_set_peer(&error, status, rank, round, "group %.*s: rank %d abandoned round %llu",
                                    (int)engine->group->name_length, engine->group->name, rank,
                                    (unsigned long long)round);
    } else {
        (void)convoy_error_set_peer(&error, status, -1, round,
                                    "group %.*s: the other members reopened the group during round %llu",
                                    (int)engine->group->name_length, engine->group->name, (unsigned long long)round);
    }
    return convoy_engine_end(engine, status, &error);
}

CONVOY_HOT
int32_t convoy_engine_collect(struct convoy_engine *engine)
{
    if (!convoy_engine_is_open(engine)) {
        return engine->ended_status;
    }
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    bool is_pending = false;
    for (uint32_t local = engine->scan; local < engine->local_count; local++) {
        switch (collect_view_of(engine, local, round)) {
        case COLLECT_ARRIVED:
            engine->scan += local == engine->scan; /* the prefix that need not be looked at again */
            break;
        case COLLECT_PENDING:
            is_pending = true; /* goes on: a seal further back already decides the round */
            break;
        case COLLECT_FAILED:
            return engine->remote == NULL ? convoy_engine_fail_sealed(engine) : convoy_remote_fail_local(engine);
        }
    }
    if (engine->remote != NULL) {
        return convoy_remote_collect(engine, !is_pending);
    }
    if (!is_pending && engine->stops_at_arrival) {
        return CONVOY_ENGINE_ARRIVED;
    }
    return is_pending ? CONVOY_IN_PROGRESS : convoy_engine_finish_local(engine);
}
