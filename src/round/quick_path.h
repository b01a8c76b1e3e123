/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short round itself (see round/quick.h), for the one file of each family that goes it: inlined there, since on this
 * way a call costs as much as what it does. The engine's inside is used here and not beyond.
 */
#ifndef CONVOY_ROUND_QUICK_PATH_H
#define CONVOY_ROUND_QUICK_PATH_H

#include "core/fault.h"
#include "core/ticks.h"
#include "round/engine_internal.h"
#include "round/quick.h"

#define QUICK_REST_TICKS 50000u /* 10 to 50 us where the counter counts cycles, and more where it counts slower */

#define CONVOY_QUICK_INLINE static inline __attribute__((always_inline))

/* For the next cell of this member. Ownership of its lines has to come back from the processors of those who have read
 * them: asked for now, it does so while other things are done. Not before all have contributed to the round after it:
 * until then a slower one may still be reading, and would have to fetch what it reads a second time. */
CONVOY_QUICK_INLINE void quick_claim(const struct convoy_cell *cell, uint32_t payload_bytes)
{
    const char *line = (const char *)&cell->word;
    const char *end = (const char *)cell->payload + payload_bytes;
    do {
        convoy_engine_quick_own(line);
        line += CONVOY_LINE_BYTES;
    } while (line < end);
}

/* The cell and its word. false: the word is not what this member left there. */
CONVOY_QUICK_INLINE bool quick_swap(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t round)
{
    struct convoy_cell *cell = engine->own_cells[round & 1];
    uint64_t *cold_print = &engine->cold_prints[round & 1];
    if (*cold_print != quick->fingerprint && !(CONVOY_MUTATED(cold_line_stale) && *cold_print != 0)) {
        cell->cold = quick->contribution.header;
        *cold_print = quick->fingerprint;
    }
    cell->fingerprint = quick->fingerprint;
    cell->votes = quick->votes;
    cell->info = quick->payload_bytes | quick->form;
    cell->tag = quick->tag;
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

/* The first member's cell. */
CONVOY_QUICK_INLINE const uint8_t *quick_cells(const struct convoy_engine *engine, uint64_t round)
{
    return (round & 1) != 0 ? engine->cells + engine->cell_bytes : engine->cells;
}

/* All lines of the round, those of one member as those of another: one after the other they would take their time one
 * after the other. */
CONVOY_QUICK_INLINE void quick_fetch(const struct convoy_engine *engine, uint32_t payload_bytes)
{
    const size_t stride = 2 * engine->cell_bytes;
    const uint8_t *at = quick_cells(engine, engine->next_round);
    for (uint32_t left = engine->local_count; left != 0; left--, at += stride) {
        const struct convoy_cell *cell = (const struct convoy_cell *)(const void *)at;
        const uint8_t *end = cell->payload + payload_bytes;
        for (const uint8_t *line = (const uint8_t *)&cell->word; line < end; line += CONVOY_LINE_BYTES) {
            __builtin_prefetch(line);
        }
    }
}

/* What the caller can do while the cells come: all of it when the last round is just over, so that they are on their way;
 * as little as possible when it comes after a rest, so that they may all be there, and all wait for this member. */
CONVOY_QUICK_INLINE void quick_aside(const struct convoy_engine *engine, const struct convoy_quick_call *call,
                                     uint64_t ticks)
{
    uint64_t last = atomic_load_explicit(&engine->quick_ticks, memory_order_relaxed);
    if (__builtin_expect(ticks - last > QUICK_REST_TICKS && call->keep != NULL, 0)) {
        call->keep(call->user);
    } else if (call->idle != NULL) {
        call->idle(call->user);
    }
}

/* Contributed: wakes who sleeps, and lets the caller do what can wait while the others' cells come. Returns when that
 * was. */
CONVOY_QUICK_INLINE uint64_t quick_announce(struct convoy_engine *engine, const struct convoy_quick *quick,
                                            const struct convoy_quick_call *call)
{
    uint32_t wakes = 0;
    CONVOY_POINT(publish_after_swap);
    if (__builtin_expect(atomic_load(&convoy_segment_head(&engine->segment)->sleepers) != 0, 0)) {
        wakes = convoy_engine_quick_wake(engine);
    }
    uint64_t ticks = convoy_ticks_now();
    quick_aside(engine, call, ticks);
    quick_fetch(engine, quick->payload_bytes);
    engine->waited = (struct convoy_stats_wait){.kind = CONVOY_WAIT_NONE, .wakes = wakes};
    return ticks;
}

/* All cells hold the word; `seen` has whether they are contributions like this member's own, which is one of them. */
CONVOY_QUICK_INLINE bool quick_look(struct convoy_engine *engine, const struct convoy_quick *quick,
                                    const struct convoy_quick_call *call, struct convoy_quick_seen *seen)
{
    const uint64_t word = engine->own_words[engine->next_round & 1];
    const size_t stride = 2 * engine->cell_bytes;
    const uint8_t *at = quick_cells(engine, engine->next_round);
    const uint32_t info = quick->payload_bytes | quick->form;
    struct convoy_quick_seen all = {.votes_and = quick->votes, .votes_or = quick->votes};
    uint64_t different = 0;
    for (uint32_t left = engine->local_count; left != 0; left--, at += stride) {
        const struct convoy_cell *cell = (const struct convoy_cell *)(const void *)at;
        if (atomic_load_explicit(&cell->word, memory_order_acquire) != word &&
            !convoy_engine_quick_wait(engine, cell, word, call)) {
            return false;
        }
        uint32_t votes = CONVOY_MUTATED(votes_not_merged) ? quick->votes : cell->votes;
        uint64_t tag = CONVOY_MUTATED(tags_ignored) ? quick->tag : cell->tag;
        uint64_t print = CONVOY_MUTATED(fingerprint_ignored) ? quick->fingerprint : cell->fingerprint;
        different |= (print ^ quick->fingerprint) | (cell->info ^ info) | (tag ^ quick->tag);
        all.votes_and &= votes;
        all.votes_or |= votes;
    }
    all.is_alike = different == 0;
    *seen = all;
    return true;
}

/* As convoy_engine_end for a round that is OK, and was read. What the round before, which was OK too, has left as it is
 * to be stays: ended_status, error_member, the epoch of the summary. */
CONVOY_QUICK_INLINE void quick_finish(struct convoy_engine *engine, const struct convoy_quick *quick, uint64_t round,
                                      uint64_t ticks, const struct convoy_quick_seen *seen)
{
    CONVOY_POINT(round_ended);
    struct convoy_cell *next = engine->own_cells[(round + 1) & 1];
    engine->summary.round = round;
    engine->summary.votes_and = seen->votes_and;
    engine->summary.votes_or = seen->votes_or;
    engine->waited.bytes_received = (uint64_t)quick->payload_bytes * (engine->local_count - 1);
    engine->next_round = round + 1;
    engine->front.payload = next->payload;
    if (__builtin_expect(engine->waited.kind >= CONVOY_WAIT_YIELD, 0)) {
        ticks = convoy_ticks_now();
    }
    atomic_store_explicit(&engine->quick_ticks, ticks, memory_order_relaxed);
    atomic_store_explicit(&engine->round, round, memory_order_relaxed);
    atomic_store_explicit(&engine->operation, convoy_engine_operation(engine), memory_order_relaxed);
}

/* Contributes what quick says, with the payload that lies in the cell, and waits for the others. */
CONVOY_QUICK_INLINE enum convoy_quick_end convoy_engine_quick_round(struct convoy_engine *engine,
                                                                    const struct convoy_quick *quick,
                                                                    const struct convoy_quick_call *call,
                                                                    struct convoy_quick_round *round_out)
{
    struct convoy_quick_seen seen;
    uint64_t round = engine->next_round;
    if (__builtin_expect(!quick_swap(engine, quick, round), 0)) {
        return CONVOY_QUICK_CLOSED;
    }
    engine->operation_count++;
    round_out->operation = convoy_engine_operation(engine);
    round_out->summary = &engine->summary;
    uint64_t ticks = quick_announce(engine, quick, call);
    if (__builtin_expect(!quick_look(engine, quick, call, &seen) || !seen.is_alike, 0)) {
        struct convoy_quick_seen late;
        int32_t status;
        if (convoy_engine_quick_wait_long(engine, quick, call, &late, &status) == CONVOY_QUICK_ENDED) {
            round_out->status = status;
            return CONVOY_QUICK_ENDED;
        }
        seen = late;
    }
    CONVOY_POINT(collect_complete);
    quick_claim(engine->own_cells[(engine->next_round + 1) & 1], quick->payload_bytes);
    round_out->payloads = quick_cells(engine, round) + offsetof(struct convoy_cell, payload);
    round_out->stride = 2 * engine->cell_bytes;
    round_out->count = engine->local_count;
    quick_finish(engine, quick, round, ticks, &seen);
    return CONVOY_QUICK_OVER;
}

#endif
