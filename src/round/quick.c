/* SPDX-License-Identifier: Apache-2.0 */
#include "round/quick.h"
#include "round/engine_internal.h"

#include <sched.h>

#define QUICK_YIELDS 8u /* without a look at the clock */

void convoy_engine_quick_note(const struct convoy_engine *engine, struct convoy_quick *quick_out)
{
    bool is_usual = engine->remote == NULL && engine->loss_count == 0 && engine->waiting.is_settled &&
                    !engine->contribution.is_error && !engine->contribution.errors_as_presence;
    quick_out->generation = is_usual ? engine->generation : 0;
    quick_out->fingerprint = engine->fingerprint;
    quick_out->contribution = engine->contribution;
}

/* Ownership of the line has to come back from the others' processors: it may do so while the call is looked at. */
static inline void quick_claim(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

uint8_t *convoy_engine_quick_begin(struct convoy_engine *engine, const struct convoy_quick *quick)
{
    struct convoy_cell *cell = engine->own_cells[engine->next_round & 1];
    quick_claim(&cell->word);
    bool is_open = quick->generation != engine->generation || engine->loss_count != 0 ||
                   atomic_load_explicit(&engine->state, memory_order_relaxed) != CONVOY_ENGINE_IDLE ||
                   convoy_engine_is_unread(engine);
    if (is_open || CONVOY_MUTATED(number_before_payload) || CONVOY_MUTATED(one_cell_for_two)) {
        return NULL;
    }
    return cell->payload;
}

/* The cell and its word. false: the word is not what this member left there. */
static inline bool quick_swap(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t round)
{
    const struct convoy_contribution *own = &quick->contribution;
    struct convoy_cell *cell = engine->own_cells[round & 1];
    uint64_t *cold_print = &engine->cold_prints[round & 1];
    if (*cold_print != quick->fingerprint && !(CONVOY_MUTATED(cold_line_stale) && *cold_print != 0)) {
        cell->cold = own->header;
        *cold_print = quick->fingerprint;
    }
    cell->fingerprint = quick->fingerprint;
    cell->votes = own->votes;
    cell->info = own->payload_bytes;
    cell->tag = own->tag;
    CONVOY_POINT(publish_before_swap);
    uint64_t word = convoy_word(engine->generation, round);
    uint64_t expected = engine->own_words[round & 1];
    if (CONVOY_MUTATED(publish_overwrites_seal)) {
        atomic_store(&cell->word, word);
    } else if (!atomic_compare_exchange_strong(&cell->word, &expected, word)) {
        return false; /* sealed, most likely: the whole way knows what that means */
    }
    engine->own_words[round & 1] = word;
    return true;
}

convoy_operation convoy_engine_quick_publish(struct convoy_engine *engine, const struct convoy_quick *quick)
{
    uint64_t round = engine->next_round;
    if (!quick_swap(engine, quick, round)) {
        return 0;
    }
    CONVOY_POINT(publish_after_swap);
    engine->error_member = engine->member_count;
    engine->waited = (struct convoy_stats_wait){.kind = CONVOY_WAIT_NONE};
    convoy_engine_wake(engine);
    convoy_operation operation = (++engine->operation_count << 8) | 1;
    atomic_store_explicit(&engine->round, round, memory_order_relaxed);
    atomic_store_explicit(&engine->operation, operation, memory_order_relaxed);
    atomic_store_explicit(&engine->was_stuck, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&engine->published_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
    return operation;
}

/* Pauses, then yields, until a cell holds the word. Who waits longer than that needs a clock. */
static bool quick_wait(struct convoy_engine *engine, const struct convoy_cell *cell, uint64_t word)
{
    struct convoy_waiting *waiting = &engine->waiting;
    for (uint32_t i = 0; i < waiting->pauses; i++) {
        convoy_engine_pause();
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            engine->waited.kind = engine->waited.kind > CONVOY_WAIT_SPIN ? engine->waited.kind : CONVOY_WAIT_SPIN;
            return true;
        }
    }
    if (convoy_engine_waits_long(engine)) {
        return false;
    }
    engine->waited.kind = CONVOY_WAIT_YIELD;
    for (uint32_t i = 0; i < QUICK_YIELDS; i++) {
        engine->waited.yields++;
        (void)sched_yield();
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            convoy_engine_wait_learn(engine, 0);
            return true;
        }
    }
    return false;
}

/* All cells hold the word, and none is anything but a contribution like this member's own. */
static inline bool quick_look(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t round,
                              struct convoy_round_summary *summary_out)
{
    const struct convoy_contribution *own = &quick->contribution;
    const struct convoy_segment *segment = &engine->segment;
    const uint64_t word = engine->own_words[round & 1];
    const struct convoy_cell *cell = convoy_segment_cell(segment, 0, round);
    size_t stride = 2 * segment->geometry.cell_bytes;
    uint64_t tag = own->tag;
    bool is_alike = true;
    uint32_t votes_and = UINT32_MAX;
    uint32_t votes_or = 0;
    for (uint32_t local = 0; local < engine->local_count; local++) {
        if (atomic_load_explicit(&cell->word, memory_order_acquire) != word && !quick_wait(engine, cell, word)) {
            return false;
        }
        uint32_t votes = CONVOY_MUTATED(votes_not_merged) ? own->votes : cell->votes;
        uint64_t theirs = CONVOY_MUTATED(tags_ignored) ? 0 : cell->tag;
        is_alike &= (cell->fingerprint == quick->fingerprint || CONVOY_MUTATED(fingerprint_ignored)) &
                    (cell->info == own->payload_bytes) & (theirs == tag || theirs == 0 || tag == 0);
        tag |= theirs;
        votes_and &= votes;
        votes_or |= votes;
        cell = (const struct convoy_cell *)(const void *)((const uint8_t *)cell + stride);
    }
    summary_out->votes_and = votes_and;
    summary_out->votes_or = votes_or;
    return is_alike;
}

/* What the whole way finds after its own publish. */
__attribute__((noinline)) static bool quick_leave(struct convoy_engine *engine, const struct convoy_quick *quick)
{
    engine->contribution = quick->contribution;
    engine->printed = quick->contribution.header;
    engine->fingerprint = engine->reference = quick->fingerprint;
    engine->scan = 0;
    engine->error_member = engine->member_count;
    atomic_store_explicit(&engine->is_unread, 1, memory_order_relaxed);
    return false;
}

bool convoy_engine_quick_await(struct convoy_engine *engine, const struct convoy_quick *quick,
                               struct convoy_round_summary *summary_out, struct convoy_quick_payloads *payloads_out)
{
    uint64_t round = engine->next_round;
    if (!quick_look(engine, quick, round, summary_out)) {
        return quick_leave(engine, quick);
    }
    CONVOY_POINT(collect_complete);
    summary_out->round = round;
    summary_out->epoch = convoy_engine_epoch(engine);
    engine->summary = *summary_out;
    engine->waited.bytes_received = (uint64_t)quick->contribution.payload_bytes * (engine->local_count - 1);
    engine->ended_status = CONVOY_OK;
    engine->next_round = round + 1;
    payloads_out->first = convoy_segment_cell(&engine->segment, 0, round)->payload;
    payloads_out->stride = 2 * engine->segment.geometry.cell_bytes;
    payloads_out->count = engine->local_count;
    CONVOY_POINT(round_ended);
    uint64_t now_ns = engine->waited.kind < CONVOY_WAIT_YIELD
                          ? atomic_load_explicit(&engine->published_ns, memory_order_relaxed)
                          : convoy_engine_coarse_ns();
    atomic_store_explicit(&engine->finished_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_IDLE, memory_order_release);
    return true;
}
