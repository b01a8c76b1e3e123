/* SPDX-License-Identifier: Apache-2.0 */
#include "round/quick_path.h"

#include "core/hot.h"

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
    quick_out->payload_bytes = engine->contribution.payload_bytes;
    quick_out->form = 0;
    quick_out->contribution = engine->contribution;
}

void convoy_engine_quick_shorten(struct convoy_quick *quick, uint32_t payload_bytes)
{
    quick->payload_bytes = payload_bytes;
    quick->form = CONVOY_INFO_SHORT;
}

uint32_t convoy_engine_quick_wake(struct convoy_engine *engine)
{
    return convoy_engine_wake_any(engine) ? 1 : 0;
}

static inline uint64_t quick_timeout(const struct convoy_engine *engine, uint64_t timeout_ns)
{
    return timeout_ns != 0 ? timeout_ns : engine->timeout_ns;
}

static void quick_published(struct convoy_engine *engine)
{
    atomic_store_explicit(&engine->published_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
}

CONVOY_HOT
bool convoy_engine_quick_wait(struct convoy_engine *engine, const struct convoy_cell *cell, uint64_t word,
                              const struct convoy_quick_call *call)
{
    struct convoy_waiting *waiting = &engine->waiting;
    for (uint32_t i = 0; i < waiting->pauses; i++) {
        convoy_engine_pause();
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            engine->waited.kind = engine->waited.kind > CONVOY_WAIT_SPIN ? engine->waited.kind : CONVOY_WAIT_SPIN;
            return true;
        }
    }
    if (engine->waited.kind < CONVOY_WAIT_YIELD) {
        quick_published(engine);
    }
    if (call->idle != NULL) {
        call->idle(call->user);
    }
    if (convoy_engine_waits_long(engine) || quick_timeout(engine, call->timeout_ns) < QUICK_PATIENT_NS) {
        return false;
    }
    engine->waited.kind = CONVOY_WAIT_YIELD;
    while (engine->waited.yields < QUICK_YIELDS) {
        convoy_engine_seat_watch(engine, engine->next_round);
        if (atomic_load_explicit(&cell->word, memory_order_acquire) != word) {
            engine->waited.yields++;
            (void)sched_yield();
        }
        if (atomic_load_explicit(&cell->word, memory_order_acquire) == word) {
            convoy_engine_wait_learn(engine, 0);
            return true;
        }
    }
    return false;
}

/* What other threads, and the whole way, may see of a round that is open. Who is through in a moment is not seen. */
CONVOY_HOT
static void quick_leave(struct convoy_engine *engine, const struct convoy_quick *quick)
{
    convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
    engine->contribution = quick->contribution;
    engine->contribution.votes = quick->votes;
    engine->contribution.tag = quick->tag;
    engine->contribution.payload_bytes = quick->payload_bytes;
    engine->printed = quick->contribution.header;
    engine->fingerprint = engine->reference = quick->fingerprint;
    engine->scan = 0;
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&engine->round, engine->next_round, memory_order_release); /* who sees it sees the state */
    atomic_store_explicit(&engine->operation, convoy_engine_operation(engine), memory_order_relaxed);
    atomic_store_explicit(&engine->was_stuck, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->is_unread, 1, memory_order_relaxed);
}

CONVOY_HOT
enum convoy_quick_end convoy_engine_quick_wait_long(struct convoy_engine *engine, const struct convoy_quick *quick,
                                                    const struct convoy_quick_call *call,
                                                    struct convoy_quick_seen *seen_out, int32_t *status_out)
{
    struct convoy_round_summary summary; /* the same as engine->summary */
    uint64_t timeout_ns = quick_timeout(engine, call->timeout_ns);
    if (engine->waited.kind < CONVOY_WAIT_YIELD) { /* not all are alike */
        quick_published(engine);
    }
    quick_leave(engine, quick);
    engine->stops_at_arrival = true;
    int32_t status = convoy_engine_wait_until(engine, timeout_ns);
    engine->stops_at_arrival = false;
    if (status == CONVOY_ENGINE_ARRIVED) {
        if (engine->loss_count == 0 && quick_look(engine, quick, call, seen_out) && seen_out->is_alike) {
            convoy_engine_quick_gate(engine, engine->generation);
            atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
            atomic_store_explicit(&engine->state, CONVOY_ENGINE_IDLE, memory_order_release);
            return CONVOY_QUICK_OVER;
        }
        status = convoy_engine_finish_local(engine);
    }
    *status_out = convoy_engine_result(engine, status, &summary, call->error);
    return CONVOY_QUICK_ENDED;
}
