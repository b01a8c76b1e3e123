/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The race for a cell: its owner publishes, or somebody who gives up seals, and exactly one of them wins.
 *
 * Sequentially consistent throughout: the publisher's swap and its look at `sleepers` must not pass each other, nor
 * the sleeper's announcement and its last look at the words (wait.c).
 */
#include "round/remote.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Unpublished for (generation, round): anything of an earlier generation, or two rounds back. */
static bool seal_is_unpublished(uint64_t word, uint32_t generation, uint64_t round)
{
    return convoy_cell_view_of(word, generation, round) == CONVOY_CELL_PENDING;
}

bool convoy_engine_swap_own(struct convoy_engine *engine, uint64_t round)
{
    struct convoy_cell *cell = convoy_segment_cell(&engine->segment, engine->local_index, round);
    uint64_t word = convoy_word(engine->generation, round);
    uint64_t expected = engine->own_words[round & 1];
    if (CONVOY_MUTATED(publish_overwrites_seal)) {
        atomic_store(&cell->word, word);
        return true;
    }
    while (!atomic_compare_exchange_strong(&cell->word, &expected, word)) {
        if (!seal_is_unpublished(expected, engine->generation, round)) {
            return false; /* sealed: the round has ended without us */
        }
    }
    engine->own_words[round & 1] = word;
    return true;
}

bool convoy_engine_seal(struct convoy_engine *engine, uint32_t local, uint64_t round, uint32_t reason)
{
    struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, round);
    uint64_t sealed = convoy_word_sealed(engine->generation, round, reason, engine->local_index);
    uint64_t word = atomic_load(&cell->word);
    while (seal_is_unpublished(word, engine->generation, round)) {
        if (CONVOY_MUTATED(no_seal)) {
            return true;
        }
        CONVOY_POINT(seal_before_swap);
        if (atomic_compare_exchange_strong(&cell->word, &word, sealed)) {
            CONVOY_POINT(seal_after_swap);
            convoy_engine_wake(engine);
            return true;
        }
    }
    return convoy_cell_view_of(word, engine->generation, round) == CONVOY_CELL_SEALED;
}

bool convoy_engine_wake_any(struct convoy_engine *engine)
{
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    if (atomic_load(&head->sleepers) == 0 || CONVOY_MUTATED(no_wake)) {
        return false;
    }
    (void)atomic_fetch_add(&head->wake, 1);
    (void)syscall(SYS_futex, (void *)&head->wake, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    return true;
}

void convoy_engine_wake(struct convoy_engine *engine)
{
    if (convoy_engine_wake_any(engine)) {
        engine->waited.wakes++;
    }
}

void convoy_engine_note_loss(struct convoy_engine *engine, uint32_t member, bool is_closed, uint8_t noticed_by)
{
    struct convoy_loss *loss = &engine->losses[member];
    if (loss->is_dead == 0 && loss->is_closed == 0) {
        engine->loss_count++;
        convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
        (void)atomic_fetch_add_explicit(&engine->counters.members_lost, 1, memory_order_relaxed);
        loss->noticed_by = noticed_by;
    }
    loss->is_dead = loss->is_dead != 0 || !is_closed;
    loss->is_closed = loss->is_closed != 0 || is_closed;
}

/* Seals the pending cell of a member that is known to be gone. */
static void seal_gone(struct convoy_engine *engine, uint32_t local)
{
    const struct convoy_loss *loss = &engine->losses[engine->local_members[local]];
    uint32_t reason = loss->is_closed != 0 ? CONVOY_SEAL_CLOSED : CONVOY_SEAL_LOST;
    (void)convoy_engine_seal(engine, local, atomic_load_explicit(&engine->round, memory_order_relaxed), reason);
}

/* Local members that have not contributed and whose end has not been noticed yet, into the poll set. */
static nfds_t seal_watch(struct convoy_engine *engine)
{
    nfds_t count = 0;
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    for (uint32_t local = engine->scan; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        uint64_t word = atomic_load(&convoy_segment_cell(&engine->segment, local, round)->word);
        if (member == engine->own_index || convoy_engine_is_lost(engine, member) ||
            convoy_cell_view_of(word, engine->generation, round) != CONVOY_CELL_PENDING) {
            continue;
        }
        if (atomic_load(&convoy_segment_slot(&engine->segment, local)->closed) != 0) {
            convoy_engine_note_loss(engine, member, true, CONVOY_NOTICED_CLOSE);
        }
        if (engine->losses[member].is_dead != 0 || engine->losses[member].is_closed != 0) {
            seal_gone(engine, local);
            continue;
        }
        engine->pollfds[count] = (struct pollfd){.fd = engine->local.pidfds[member], .events = POLLIN};
        engine->poll_members[count] = local;
        count++;
    }
    return count;
}

static void seal_check_local(struct convoy_engine *engine)
{
    nfds_t count = seal_watch(engine);
    if (count == 0 || poll(engine->pollfds, count, 0) <= 0) {
        return;
    }
    for (nfds_t i = 0; i < count; i++) {
        bool has_ended = (engine->pollfds[i].revents & POLLIN) != 0; /* what a pidfd says once its process has ended */
        if (has_ended && !CONVOY_MUTATED(dead_not_noticed)) {
            convoy_engine_note_loss(engine, engine->local_members[engine->poll_members[i]], false,
                                    CONVOY_NOTICED_PROCESS);
            seal_gone(engine, engine->poll_members[i]);
        }
    }
}

void convoy_engine_check_peers(struct convoy_engine *engine)
{
    seal_check_local(engine);
    if (engine->remote != NULL) {
        convoy_remote_check(engine, convoy_now_ns());
    }
}
