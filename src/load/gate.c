/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gate.h"

#include "core/clock.h"
#include "core/error.h"

#include <unistd.h>

int32_t convoy_gate_init(struct convoy_gate *gate, struct convoy_error *error)
{
    pthread_condattr_t attributes;
    *gate = (struct convoy_gate){.process = getpid()};
    int fault = pthread_mutex_init(&gate->lock, NULL);
    if (fault != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, fault, "a loader's lock");
    }
    fault = pthread_condattr_init(&attributes);
    if (fault == 0) {
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* cannot fail for this clock */
        fault = pthread_cond_init(&gate->changed, &attributes);
        (void)pthread_condattr_destroy(&attributes);
    }
    if (fault != 0) {
        (void)pthread_mutex_destroy(&gate->lock);
        return convoy_error_set_errno(error, CONVOY_SYSTEM, fault, "a loader's condition");
    }
    return CONVOY_OK;
}

/* In a child of fork nothing but the memory is there: the lock may be held, and the condition waited for, by threads that
 * it does not have, and it would wait for them. */
static bool is_here(const struct convoy_gate *gate)
{
    return gate->process == getpid();
}

void convoy_gate_fini(struct convoy_gate *gate)
{
    if (!is_here(gate)) {
        return;
    }
    (void)pthread_cond_destroy(&gate->changed);
    (void)pthread_mutex_destroy(&gate->lock);
}

void convoy_gate_lock(struct convoy_gate *gate)
{
    if (is_here(gate)) {
        (void)pthread_mutex_lock(&gate->lock);
    }
}

void convoy_gate_unlock(struct convoy_gate *gate)
{
    if (is_here(gate)) {
        (void)pthread_mutex_unlock(&gate->lock);
    }
}

static void tell(struct convoy_gate *gate)
{
    if (is_here(gate)) {
        (void)pthread_cond_broadcast(&gate->changed);
    }
}

/* Until something changes or the time has come; false = it has. Locked. */
static bool wait_change(struct convoy_gate *gate, uint64_t deadline_ns)
{
    if (convoy_now_ns() >= deadline_ns) {
        return false;
    }
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % CONVOY_NS_PER_S)};
    (void)pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
    return true;
}

/* A child of fork has the flag of a swap whose thread it has not. Locked. */
static bool is_swapping_here(const struct convoy_gate *gate)
{
    return gate->is_swapping && is_here(gate);
}

/* Why a swap is not waited for any longer. Locked. */
static int32_t refuse(const struct convoy_gate *gate, struct convoy_error *error)
{
    if (pthread_equal(gate->swapper, pthread_self()) != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "called from inside convoy_loader_swap, which would wait for itself");
    }
    return convoy_error_set(error, CONVOY_BUSY, "a swap of this loader is under way and has not ended by its deadline");
}

/* Locked. */
static void end_waiting(struct convoy_gate *gate)
{
    gate->waiters--;
    if (gate->waiters == 0) {
        tell(gate);
    }
}

/* -- opens and closes ---------------------------------------------------------------------------------------------- */

int32_t convoy_gate_enter(struct convoy_gate *gate, uint32_t *counter, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    convoy_gate_lock(gate);
    gate->waiters++;
    while (status == CONVOY_OK && is_swapping_here(gate)) {
        if (pthread_equal(gate->swapper, pthread_self()) != 0 || !wait_change(gate, gate->deadline_ns)) {
            status = refuse(gate, error);
        }
    }
    end_waiting(gate);
    if (status == CONVOY_OK) {
        (*counter)++;
    }
    convoy_gate_unlock(gate);
    return status;
}

void convoy_gate_leave(struct convoy_gate *gate, uint32_t *counter)
{
    convoy_gate_lock(gate);
    (*counter)--;
    tell(gate);
    convoy_gate_unlock(gate);
}

bool convoy_gate_drain(struct convoy_gate *gate, const uint32_t *counter, uint64_t deadline_ns)
{
    bool is_in_time = true;
    convoy_gate_lock(gate);
    while (*counter != 0 && is_in_time) {
        is_in_time = wait_change(gate, deadline_ns);
    }
    bool is_drained = *counter == 0;
    convoy_gate_unlock(gate);
    return is_drained;
}

/* -- swaps --------------------------------------------------------------------------------------------------------- */

int32_t convoy_gate_swap_begin(struct convoy_gate *gate, uint64_t deadline_ns, struct convoy_error *error)
{
    convoy_gate_lock(gate);
    /* Those that the last swap held up come first, or swaps in a row would hold them up for ever. */
    while (!is_swapping_here(gate) && gate->waiters != 0 && wait_change(gate, deadline_ns)) {
    }
    if (is_swapping_here(gate)) {
        convoy_gate_unlock(gate);
        return convoy_error_set(error, CONVOY_BUSY, "another swap of this loader is under way");
    }
    gate->is_swapping = true;
    gate->swapper = pthread_self();
    gate->deadline_ns = deadline_ns;
    convoy_gate_unlock(gate);
    if (!convoy_gate_drain(gate, &gate->inside, deadline_ns)) {
        convoy_gate_swap_end(gate);
        return convoy_error_set(error, CONVOY_BUSY, "a context is being opened, and its open has not returned");
    }
    return CONVOY_OK;
}

void convoy_gate_swap_end(struct convoy_gate *gate)
{
    convoy_gate_lock(gate);
    gate->is_swapping = false;
    tell(gate);
    convoy_gate_unlock(gate);
}

void convoy_gate_pause_begin(struct convoy_gate *gate, uint64_t deadline_ns)
{
    convoy_gate_lock(gate);
    gate->is_paused = true;
    gate->deadline_ns = deadline_ns;
    gate->turns++;
    convoy_gate_unlock(gate);
}

void convoy_gate_pause_end(struct convoy_gate *gate)
{
    convoy_gate_lock(gate);
    gate->is_paused = false;
    gate->turns++;
    tell(gate);
    convoy_gate_unlock(gate);
}

/* -- calls that were answered MOVED -------------------------------------------------------------------------------- */

uint64_t convoy_gate_coarse_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* vDSO, no read of a counter; cannot fail for this clock */
    return (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Locked. */
static bool wait_pause(struct convoy_gate *gate, int32_t *status, struct convoy_error *error)
{
    bool is_over = true;
    gate->waiters++;
    while (is_over && gate->is_paused && is_swapping_here(gate)) {
        if (pthread_equal(gate->swapper, pthread_self()) != 0 || !wait_change(gate, gate->deadline_ns)) {
            *status = refuse(gate, error);
            is_over = false;
        }
    }
    end_waiting(gate);
    return is_over;
}

/* A wait that had waited before it was MOVED goes on with what is left; 1 ns, for the build's own words, when nothing is. */
static void take_left(struct convoy_again *again, bool had_waited)
{
    if (had_waited && again->timeout_ns != 0) {
        uint64_t now_ns = convoy_gate_coarse_ns();
        uint64_t left_ns = convoy_deadline_left(now_ns, convoy_deadline_after(again->begun_ns, again->timeout_ns));
        again->timeout_ns = left_ns != 0 ? left_ns : 1;
        again->begun_ns = now_ns;
    }
}

bool convoy_gate_again(struct convoy_gate *gate, struct convoy_again *again, int32_t *status, struct convoy_error *error)
{
    bool had_waited = again->has_timeout && convoy_gate_coarse_ns() > again->begun_ns;
    convoy_gate_lock(gate);
    bool was_paused = gate->is_paused && is_swapping_here(gate);
    bool may = wait_pause(gate, status, error);
    /* Outside a pause the first answer may be of one that has ended since; a second one of the same turn is not. */
    may = may && (was_paused || !again->is_tried || again->turns != gate->turns);
    again->turns = gate->turns;
    again->is_tried = true;
    convoy_gate_unlock(gate);
    if (may && again->has_timeout) {
        take_left(again, had_waited);
        again->begun_ns = convoy_gate_coarse_ns();
    }
    return may;
}
