/* SPDX-License-Identifier: Apache-2.0 */
#include "round/quick.h"
#include "round/engine_internal.h"

#include <sched.h>

#define QUICK_YIELDS 16u /* of one round, without a look at the clock */
#define QUICK_PATIENT_NS (100 * CONVOY_NS_PER_MS) /* the shortest deadline that so many yields cannot be late for: each may
                                                     take a time slice of others */

void convoy_engine_quick_note(const struct convoy_engine *engine, struct convoy_quick *quick_out)
{
    bool is_usual = engine->remote == NULL && !engine->contribution.is_error &&
                    !engine->contribution.errors_as_presence && engine->waiting.is_settled;
    is_usual = is_usual && !CONVOY_MUTATED(number_before_payload); /* these two are in the whole way only */
    is_usual = is_usual && !CONVOY_MUTATED(one_cell_for_two);
    quick_out->generation = is_usual ? engine->generation : 0;
    quick_out->fingerprint = engine->fingerprint;
    quick_out->contribution = engine->contribution;
}

/* Ownership of the next cell's lines has to come back from the processors of those who have read them, and nobody reads
 * them any more: asked for now, it does so while other things are done. */
static inline void quick_claim(const struct convoy_cell *cell, uint32_t payload_bytes)
{
    const char *line = (const char *)&cell->word;
    const char *end = (const char *)cell->payload + payload_bytes;
    do {
#if defined(__x86_64__)
        __asm__ __volatile__("prefetchw %0" : : "m"(*line));
#else
        __builtin_prefetch(line, 1);
#endif
        line += CONVOY_LINE_BYTES;
    } while (line < end);
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

/* Contributed: wakes who sleeps, and lets the caller do what can wait while the others' cells come. */
static inline void quick_announce(struct convoy_engine *engine, const struct convoy_quick_call *call)
{
    CONVOY_POINT(publish_after_swap);
    engine->waited = (struct convoy_stats_wait){.kind = CONVOY_WAIT_NONE};
    if (__builtin_expect(atomic_load(&convoy_segment_head(&engine->segment)->sleepers) != 0, 0)) {
        convoy_engine_wake(engine);
    }
    atomic_store_explicit(&engine->published_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
    if (call->idle != NULL) {
        call->idle(call->idle_user);
    }
}

/* Pauses, then yields, until a cell holds the word. Who waits longer than that needs a clock. */
__attribute__((noinline)) static bool quick_wait(struct convoy_engine *engine, const struct convoy_cell *cell,
                                                 uint64_t word, uint64_t timeout_ns)
{
    struct convoy_waiting *waiting = &engine->waiting;
    for (uint32_t i = 0; i < waiting->pauses; i++) {
        convoy_engine_pause();
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            engine->waited.kind = engine->waited.kind > CONVOY_WAIT_SPIN ? engine->waited.kind : CONVOY_WAIT_SPIN;
            return true;
        }
    }
    if (convoy_engine_waits_long(engine) || timeout_ns < QUICK_PATIENT_NS) {
        return false;
    }
    engine->waited.kind = CONVOY_WAIT_YIELD;
    while (engine->waited.yields < QUICK_YIELDS) {
        engine->waited.yields++;
        (void)sched_yield();
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            convoy_engine_wait_learn(engine, 0);
            return true;
        }
    }
    return false;
}

/* The first member's cell. */
static inline const uint8_t *quick_cells(const struct convoy_engine *engine, uint64_t round)
{
    return (round & 1) != 0 ? engine->cells + engine->cell_bytes : engine->cells;
}

/* What the others' cells say beside their payloads. */
struct quick_seen {
    uint32_t votes_and;
    uint32_t votes_or;
    bool is_alike;
};

/* Cells [from, to) hold the word; `seen` has whether they are contributions like this member's own. */
static inline bool quick_look(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t timeout_ns,
                              uint32_t from, uint32_t to, struct quick_seen *seen)
{
    const struct convoy_contribution *own = &quick->contribution;
    const uint64_t word = engine->own_words[engine->next_round & 1];
    const size_t stride = 2 * engine->cell_bytes;
    const uint8_t *at = quick_cells(engine, engine->next_round) + from * stride;
    for (uint32_t local = from; local < to; local++, at += stride) {
        const struct convoy_cell *cell = (const struct convoy_cell *)(const void *)at;
        if (atomic_load_explicit(&cell->word, memory_order_acquire) != word && !quick_wait(engine, cell, word, timeout_ns)) {
            return false;
        }
        uint32_t votes = CONVOY_MUTATED(votes_not_merged) ? own->votes : cell->votes;
        uint64_t tag = CONVOY_MUTATED(tags_ignored) ? own->tag : cell->tag;
        uint64_t print = CONVOY_MUTATED(fingerprint_ignored) ? quick->fingerprint : cell->fingerprint;
        seen->is_alike &= ((print ^ quick->fingerprint) | (cell->info ^ own->payload_bytes) | (tag ^ own->tag)) == 0;
        seen->votes_and &= votes;
        seen->votes_or |= votes;
    }
    return true;
}

/* All others' cells hold the word and are contributions like this member's own. */
static inline __attribute__((always_inline)) bool quick_look_all(struct convoy_engine *engine,
                                                                 const struct convoy_quick *quick,
                                                                 uint64_t timeout_ns, struct quick_seen *seen)
{
    uint32_t own = engine->local_index;
    uint32_t votes = quick->contribution.votes;
    *seen = (struct quick_seen){.votes_and = votes, .votes_or = votes, .is_alike = true};
    return quick_look(engine, quick, timeout_ns, 0, own, seen) &&
           quick_look(engine, quick, timeout_ns, own + 1, engine->local_count, seen) && seen->is_alike;
}

/* What other threads, and the whole way, may see of a round that is open. Who is through in a moment is not seen. */
static void quick_leave(struct convoy_engine *engine, const struct convoy_quick *quick)
{
    convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
    engine->contribution = quick->contribution;
    engine->printed = quick->contribution.header;
    engine->fingerprint = engine->reference = quick->fingerprint;
    engine->scan = 0;
    engine->error_member = engine->member_count;
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&engine->round, engine->next_round, memory_order_release); /* who sees it sees the state */
    atomic_store_explicit(&engine->operation, convoy_engine_operation(engine), memory_order_relaxed);
    atomic_store_explicit(&engine->was_stuck, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->is_unread, 1, memory_order_relaxed);
}

/* Waits as the whole way does, but comes back when all are there. true: they are, and as expected. */
__attribute__((noinline)) static bool quick_wait_long(struct convoy_engine *engine, const struct convoy_quick *quick,
                                                      uint64_t timeout_ns, struct quick_seen *seen, int32_t *status_out)
{
    quick_leave(engine, quick);
    engine->stops_at_arrival = true;
    int32_t status = convoy_engine_wait_until(engine, timeout_ns);
    engine->stops_at_arrival = false;
    if (status == CONVOY_ENGINE_ARRIVED) {
        if (engine->loss_count == 0 && quick_look_all(engine, quick, timeout_ns, seen)) {
            convoy_engine_quick_gate(engine, engine->generation);
            atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
            atomic_store_explicit(&engine->state, CONVOY_ENGINE_IDLE, memory_order_release);
            return true;
        }
        status = convoy_engine_finish_local(engine);
    }
    *status_out = status;
    return false;
}

/* As convoy_engine_end for a round that is OK, and was read. */
static inline void quick_finish(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t round,
                                const struct quick_seen *seen)
{
    CONVOY_POINT(round_ended);
    struct convoy_cell *next = engine->own_cells[(round + 1) & 1];
    engine->summary.round = round;
    engine->summary.epoch = convoy_engine_epoch(engine);
    engine->summary.votes_and = seen->votes_and;
    engine->summary.votes_or = seen->votes_or;
    engine->waited.bytes_received = (uint64_t)quick->contribution.payload_bytes * (engine->local_count - 1);
    engine->ended_status = CONVOY_OK;
    engine->error_member = engine->member_count;
    engine->next_round = round + 1;
    engine->front.payload = next->payload;
    quick_claim(next, quick->contribution.payload_bytes);
    uint64_t now_ns = engine->waited.kind < CONVOY_WAIT_YIELD
                          ? atomic_load_explicit(&engine->published_ns, memory_order_relaxed)
                          : convoy_engine_coarse_ns();
    atomic_store_explicit(&engine->finished_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&engine->round, round, memory_order_relaxed);
    atomic_store_explicit(&engine->operation, convoy_engine_operation(engine), memory_order_relaxed);
}

enum convoy_quick_end convoy_engine_quick_round(struct convoy_engine *engine, const struct convoy_quick *quick,
                                                const struct convoy_quick_call *call,
                                                struct convoy_quick_round *round_out)
{
    struct quick_seen seen;
    uint64_t timeout_ns = call->timeout_ns != 0 ? call->timeout_ns : engine->timeout_ns;
    uint64_t round = engine->next_round;
    if (!quick_swap(engine, quick, round)) {
        return CONVOY_QUICK_CLOSED;
    }
    engine->operation_count++;
    round_out->operation = convoy_engine_operation(engine);
    round_out->summary = &engine->summary;
    quick_announce(engine, call);
    if (!quick_look_all(engine, quick, timeout_ns, &seen) &&
        !quick_wait_long(engine, quick, timeout_ns, &seen, &round_out->status)) {
        struct convoy_round_summary summary; /* the same as engine->summary */
        round_out->status = convoy_engine_result(engine, round_out->status, &summary, call->error);
        return CONVOY_QUICK_ENDED;
    }
    CONVOY_POINT(collect_complete);
    round_out->payloads = quick_cells(engine, round) + offsetof(struct convoy_cell, payload);
    round_out->stride = 2 * engine->cell_bytes;
    round_out->count = engine->local_count;
    quick_finish(engine, quick, round, &seen);
    return CONVOY_QUICK_OVER;
}
