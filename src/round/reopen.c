/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement on the next epoch among the members of one host. The first survivor writes who is lost into its own slot
 * and swaps the segment's generation word; everybody else adopts that. No member waits for another here. The round
 * that failed is started again under its number in the new generation, so its cells still hold nothing that a late
 * member needs: the results of the round before lie in the other parity until that member has collected them.
 */
#include "round/remote.h"

static uint32_t reopen_word_generation(uint64_t word)
{
    return (uint32_t)(word & CONVOY_GENERATION_MAX);
}

/* Whoever is known to be gone now, as a set over members. */
static void reopen_write_proposal(struct convoy_engine *engine, uint32_t generation)
{
    struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, engine->local_index);
    struct convoy_proposal *proposal = &slot->proposals[generation & 1];
    uint64_t lost[CONVOY_LOST_WORDS];
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        lost[word] = atomic_load_explicit(&engine->lost[word], memory_order_relaxed);
    }
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->losses[member].is_dead != 0 || engine->losses[member].is_closed != 0) {
            lost[member / 64] |= UINT64_C(1) << (member % 64);
        }
    }
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        atomic_store_explicit(&proposal->lost[word], lost[word], memory_order_relaxed);
    }
    atomic_store_explicit(&proposal->next_round, 0, memory_order_relaxed);
}

/* Members that have ended without anybody having waited for them yet. */
static void reopen_look_around(struct convoy_engine *engine)
{
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        if (member == engine->own_index || convoy_engine_is_lost(engine, member)) {
            continue;
        }
        if (atomic_load(&convoy_segment_slot(&engine->segment, local)->closed) != 0) {
            convoy_engine_note_loss(engine, member, true, CONVOY_NOTICED_CLOSE);
        }
        struct pollfd look = {.fd = engine->local.pidfds[member], .events = POLLIN};
        if (poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0) {
            convoy_engine_note_loss(engine, member, false, CONVOY_NOTICED_PROCESS);
        }
    }
}

/* What the own cell holds, for the swap that publishes. A cell that was sealed in this generation (or a later one) before
 * its owner came must make that swap fail, so its word is not taken for one of the owner's. */
static uint64_t reopen_own_word(const struct convoy_engine *engine, uint32_t parity)
{
    uint64_t word = atomic_load(&convoy_segment_cell(&engine->segment, engine->local_index, parity)->word);
    enum convoy_cell_view view = convoy_cell_view_of(word, engine->generation, engine->next_round);
    return view == CONVOY_CELL_SEALED || view == CONVOY_CELL_MOVED_ON ? 0 : word;
}

void convoy_engine_adopt(struct convoy_engine *engine, uint32_t generation, const uint64_t *lost)
{
    engine->generation = generation;
    convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
    atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
    uint32_t lost_count = 0;
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        uint64_t members = CONVOY_MUTATED(reopen_keeps_generation_of_lost) ? 0 : lost[word];
        atomic_store_explicit(&engine->lost[word], members, memory_order_relaxed);
        lost_count += (uint32_t)__builtin_popcountll(members);
    }
    engine->lost_count = lost_count;
    atomic_store_explicit(&engine->absent_count, 0, memory_order_relaxed);
    engine->next_round += CONVOY_MUTATED(round_number_not_repeated) ? 1 : 0;
    for (uint32_t parity = 0; parity < 2; parity++) {
        engine->own_words[parity] = reopen_own_word(engine, parity);
        engine->cold_prints[parity] = 0; /* the epoch is part of the cold line */
    }
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_IDLE, memory_order_release);
}

/* Reads the proposal that the generation word points at; false when the word has moved meanwhile. */
static bool reopen_read(struct convoy_engine *engine, uint64_t word, uint64_t lost[CONVOY_LOST_WORDS])
{
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    uint32_t proposer = (uint32_t)(word >> 12);
    if (proposer >= engine->local_count) {
        return false;
    }
    const struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, proposer)->proposals[reopen_word_generation(word) & 1];
    for (uint32_t i = 0; i < CONVOY_LOST_WORDS; i++) {
        lost[i] = atomic_load_explicit(&proposal->lost[i], memory_order_relaxed);
    }
    return atomic_load(&head->generation) == word;
}

uint32_t convoy_engine_newly_lost(struct convoy_engine *engine)
{
    uint64_t lost[CONVOY_LOST_WORDS];
    uint64_t word = atomic_load(&convoy_segment_head(&engine->segment)->generation);
    if (reopen_word_generation(word) <= engine->generation || !reopen_read(engine, word, lost)) {
        return engine->member_count;
    }
    uint32_t member = 0;
    while (member < engine->member_count &&
           ((lost[member / 64] >> (member % 64) & 1) == 0 || convoy_engine_is_lost(engine, member))) {
        member++;
    }
    return member;
}

/* Makes generation + 1 happen, or finds that somebody else has. */
static int32_t reopen_local(struct convoy_engine *engine, struct convoy_error *error)
{
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    if (engine->generation == CONVOY_GENERATION_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "group %.*s was reopened %u times; close it and open it afresh",
                                (int)engine->group->name_length, engine->group->name, engine->generation);
    }
    uint64_t lost[CONVOY_LOST_WORDS];
    for (;;) {
        uint64_t word = atomic_load(&head->generation);
        if (reopen_word_generation(word) > engine->generation) {
            if (reopen_read(engine, word, lost)) {
                convoy_engine_adopt(engine, reopen_word_generation(word), lost);
                return CONVOY_OK;
            }
            continue;
        }
        if (atomic_load_explicit(&engine->state, memory_order_relaxed) != CONVOY_ENGINE_BROKEN) {
            return CONVOY_OK; /* ready, and nobody has moved on: nothing to do */
        }
        reopen_look_around(engine);
        reopen_write_proposal(engine, engine->generation + 1);
        uint64_t next = (uint64_t)engine->local_index << 12 | (engine->generation + 1);
        CONVOY_POINT(reopen_before_switch);
        (void)atomic_compare_exchange_strong(&head->generation, &word, next); /* whoever wins, the next look adopts */
        CONVOY_POINT(reopen_after_switch);
    }
}

static int32_t reopen_any(struct convoy_engine *engine, uint64_t timeout_ns,
                          struct convoy_reopen_result *result_out, struct convoy_error *error)
{
    if (convoy_engine_is_open(engine)) {
        return convoy_error_set(error, CONVOY_BUSY, "group %.*s: round %llu is still open; abandon it first",
                                (int)engine->group->name_length, engine->group->name,
                                (unsigned long long)atomic_load_explicit(&engine->round, memory_order_relaxed));
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : engine->timeout_ns;
    int32_t status = engine->remote == NULL
                         ? reopen_local(engine, error)
                         : convoy_remote_reopen(engine, convoy_deadline_after(convoy_now_ns(), timeout), error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_recovered = engine->ended_status == CONVOY_OK && engine->recovered;
    result_out->epoch = convoy_engine_epoch(engine);
    result_out->next_round = engine->next_round;
    result_out->recovered =
        is_recovered ? atomic_load_explicit(&engine->operation, memory_order_relaxed) : 0;
    result_out->lost_count = engine->lost_count;
    engine->recovered = false;
    return CONVOY_OK;
}

int32_t convoy_engine_reopen(struct convoy_engine *engine, uint64_t timeout_ns,
                             struct convoy_reopen_result *result_out, struct convoy_error *error)
{
    if (engine->remote == NULL) {
        return reopen_any(engine, timeout_ns, result_out, error);
    }
    convoy_remote_enter(engine);
    int32_t status = reopen_any(engine, timeout_ns, result_out, error);
    convoy_remote_leave(engine);
    return status;
}
