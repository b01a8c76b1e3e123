/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group moves to another build: the steps but for saving and restoring (group_state.c).
 *
 *   phase      halt     freeze           thaw                  retire            discard     close (of the context)
 *   OPENING    -        -                -                     -                 -           as ever
 *   OPEN       HALTED   -                -                     -                 -           as ever
 *   HALTED     -        FROZEN, or -     OPEN                  -                 -           as ever, with a goodbye
 *   FROZEN     -        -                OPEN, or -            RETIRED, or -     freed       as ever, with a goodbye
 *   RETIRED    -        -                -                     -                 -           -
 *   CLOSING    -        refused          -                     -                 -           as ever
 *
 * A restored one is FROZEN too, and nothing of it was touched until it is thawed.
 */
#include "group_state.h"

#include "core/error.h"
#include "poll/poll_move.h"
#include "round/engine_move.h"
#include "sync/sync_move.h"

bool convoy_group_is_live(const struct convoy_group *group)
{
    switch ((enum convoy_group_phase)atomic_load(&group->phase)) {
    case CONVOY_PHASE_OPENING:
    case CONVOY_PHASE_OPEN:
    case CONVOY_PHASE_CLOSING: /* not over yet: whoever moves waits for it */
    case CONVOY_PHASE_HALTED:
    case CONVOY_PHASE_FROZEN:
        return true;
    case CONVOY_PHASE_FAILED:
    case CONVOY_PHASE_CLOSED:
    case CONVOY_PHASE_RETIRED:
        break;
    }
    return false;
}

/* -- halting ------------------------------------------------------------------------------------------------------- */

/* Goes from one phase to another unless a close came first. */
static bool change(struct convoy_group *group, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&group->phase, &from, to);
}

void convoy_group_halt(struct convoy_group *group)
{
    (void)change(group, CONVOY_PHASE_OPEN, CONVOY_PHASE_HALTED);
}

static bool say(const struct convoy_group *group, const char *what, char *why_out)
{
    int length = snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "group %.*s: %s", (int)group->options.name_length,
                          group->options.name, what);
    return length < 0; /* false: a text that is cut still says most of it */
}

/* What is open, in words; or `otherwise`. Any thread may be inside. */
static bool say_open(struct convoy_group *group, const char *otherwise, char *why_out)
{
    char what[CONVOY_STILL_TEXT_BYTES] = "";
    (void)pthread_mutex_lock(&group->lock);
    if (convoy_group_has_engine(group)) {
        convoy_engine_still_text(group->engine, what, sizeof what);
    }
    (void)pthread_mutex_unlock(&group->lock);
    return say(group, what[0] != '\0' ? what : otherwise, why_out);
}

/* By whoever is inside. A gather that stayed local is over when it starts; it was read when its record was made. */
static bool is_read(struct convoy_group *group)
{
    convoy_record_settle(&group->record);
    bool is_alone = group->sync != NULL && convoy_sync_is_alone(group->sync) && group->record.is_gathering;
    return convoy_poll_is_still(group->poll) && !is_alone;
}

bool convoy_group_is_still(struct convoy_group *group, char *why_out)
{
    uint32_t phase = atomic_load(&group->phase);
    if (phase == CONVOY_PHASE_FROZEN) {
        return true;
    }
    if (phase != CONVOY_PHASE_HALTED) {
        return say(group, phase == CONVOY_PHASE_OPENING ? "it is still opening" : "it is being closed", why_out);
    }
    if (atomic_load(&group->opening) != 0) {
        return say(group, "group_open_test or group_open_wait is inside", why_out);
    }
    uint32_t free = 0;
    if (!atomic_compare_exchange_strong(&group->inside, &free, 2)) { /* as a reader: a call that comes now waits for this */
        return say_open(group, "a call is inside", why_out);
    }
    bool is_still = is_read(group);
    atomic_store(&group->inside, 0);
    return is_still || say_open(group, "the end of an operation was not read", why_out);
}

/* -- freezing ------------------------------------------------------------------------------------------------------ */

/* The thread that opened it, if the host has not asked how that ended. */
static void join_opener(struct convoy_group *group)
{
    (void)pthread_mutex_lock(&group->lock);
    bool must_join = group->has_open_thread && group->is_open_done;
    group->has_open_thread = group->has_open_thread && !must_join;
    (void)pthread_mutex_unlock(&group->lock);
    if (must_join) {
        convoy_runtime_thread_join(group->context->runtime, group->open_thread);
    }
}

int32_t convoy_group_freeze(struct convoy_group *group, struct convoy_error *error)
{
    if (atomic_load(&group->phase) == CONVOY_PHASE_FROZEN) {
        return CONVOY_OK;
    }
    if (!change(group, CONVOY_PHASE_HALTED, CONVOY_PHASE_FROZEN)) {
        return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "group %.*s is being closed", (int)group->options.name_length,
                                group->options.name);
    }
    join_opener(group);
    int32_t status = convoy_engine_freeze(group->engine, error);
    if (status != CONVOY_OK) {
        (void)change(group, CONVOY_PHASE_FROZEN, CONVOY_PHASE_HALTED);
    }
    return status;
}

int32_t convoy_group_thaw(struct convoy_group *group, struct convoy_error *error)
{
    if (atomic_load(&group->phase) == CONVOY_PHASE_FROZEN) {
        int32_t status = convoy_engine_thaw(group->engine, error);
        if (status != CONVOY_OK) {
            return status;
        }
        group->is_restored = false;
        (void)change(group, CONVOY_PHASE_FROZEN, CONVOY_PHASE_OPEN);
        return CONVOY_OK;
    }
    (void)change(group, CONVOY_PHASE_HALTED, CONVOY_PHASE_OPEN);
    return CONVOY_OK;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* All that was built on the engine, and the engine. Nobody is told. */
static void drop(struct convoy_group *group)
{
    (void)pthread_mutex_lock(&group->lock);
    struct convoy_engine *engine = group->engine;
    group->engine = NULL; /* calls from any thread see that from now on */
    convoy_record_shrink(&group->record);
    (void)pthread_mutex_unlock(&group->lock);
    convoy_sync_close(group->sync);
    group->sync = NULL;
    convoy_poll_close(group->poll);
    group->poll = NULL;
    convoy_engine_drop(engine, group->is_restored);
}

bool convoy_group_retire(struct convoy_group *group)
{
    uint32_t free = 0;
    if (!change(group, CONVOY_PHASE_FROZEN, CONVOY_PHASE_RETIRED)) {
        return !convoy_group_is_live(group);
    }
    if (atomic_load(&group->opening) != 0 || !atomic_compare_exchange_strong(&group->inside, &free, 1)) {
        (void)change(group, CONVOY_PHASE_RETIRED, CONVOY_PHASE_FROZEN); /* it will be refused in a moment */
        return false;
    }
    drop(group);
    atomic_store(&group->inside, 0);
    return true;
}

void convoy_group_discard(struct convoy_group *group)
{
    drop(group);
    atomic_store(&group->phase, CONVOY_PHASE_FAILED); /* its handle was given to nobody, or is free to go with its context */
    convoy_group_free(group);
}

void convoy_group_count(const struct convoy_group *group, struct convoy_holdings *holdings)
{
    struct convoy_group *mutable_group = (struct convoy_group *)(uintptr_t)group; /* for its lock alone */
    bool is_moved = atomic_load(&group->phase) == CONVOY_PHASE_RETIRED;
    holdings->group_count += is_moved || convoy_group_is_live(group);
    holdings->call_count += (atomic_load(&group->inside) == 1) + atomic_load(&group->opening);
    (void)pthread_mutex_lock(&mutable_group->lock);
    if (convoy_group_has_engine(group)) {
        struct convoy_engine_count count = convoy_engine_count(group->engine);
        holdings->operation_count += count.operations;
        holdings->descriptor_count += count.descriptors;
        holdings->mapping_count += count.mappings;
    }
    (void)pthread_mutex_unlock(&mutable_group->lock);
}
