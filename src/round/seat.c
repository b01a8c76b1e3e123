/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that outnumber their processors. Who yields there gives its processor to somebody who may have nothing to do but
 * yield in turn, and gets it back only after all of them: several switches, each of which takes longer than the rest of a
 * round. So each member says which processor it waits on, and whoever finds that all who are late wait elsewhere looks a
 * while for them instead: nobody whom the round needs is kept from running. It is a guess, since members move, and it is
 * worth no more than a few yields.
 */
#include "round/engine_internal.h"

#include "core/hot.h"

#include <sched.h>

#define SEAT_WATCH_NS 10000u /* about two switches among many processes */
#define SEAT_LOOKS 8u        /* between two looks at the clock */

/* 1 + the processor that this member runs on; 0 = not told. */
static uint32_t seat_take(struct convoy_engine *engine)
{
    int cpu = sched_getcpu();
    uint32_t seat = cpu >= 0 ? (uint32_t)cpu + 1 : 0;
    struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, engine->local_index);
    if (atomic_load_explicit(&slot->seat, memory_order_relaxed) != seat) {
        atomic_store_explicit(&slot->seat, seat, memory_order_relaxed);
    }
    return seat;
}

/* Whether somebody is late, and all who are sit elsewhere. */
static bool seat_is_watching(const struct convoy_engine *engine, uint64_t round, uint32_t own_seat)
{
    uint64_t word = convoy_word(engine->generation, round);
    bool is_late = false;
    for (uint32_t local = 0; local < engine->local_count; local++) {
        const struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, round);
        if (atomic_load_explicit(&cell->word, memory_order_acquire) != word) {
            uint32_t seat = atomic_load_explicit(&convoy_segment_slot(&engine->segment, local)->seat, memory_order_relaxed);
            if (seat == 0 || seat == own_seat) {
                return false;
            }
            is_late = true;
        }
    }
    return is_late;
}

CONVOY_HOT
void convoy_engine_seat_watch(struct convoy_engine *engine, uint64_t round)
{
    uint32_t seat = engine->waiting.pauses == 0 && engine->remote == NULL ? seat_take(engine) : 0;
    if (seat == 0 || !seat_is_watching(engine, round, seat)) {
        return;
    }
    uint64_t until = convoy_now_ns() + SEAT_WATCH_NS;
    do {
        for (uint32_t i = 0; i < SEAT_LOOKS; i++) {
            convoy_engine_pause();
            if (!seat_is_watching(engine, round, seat)) {
                return;
            }
        }
    } while (convoy_now_ns() < until);
}
