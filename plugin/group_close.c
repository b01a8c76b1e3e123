/* SPDX-License-Identifier: Apache-2.0 */
/* Closing a group from any state, with a deadline, as often as needed. */
#include "group.h"

#include "convoy/move.h"
#include "core/clock.h"
#include "core/error.h"
#include "round/engine_move.h"

/* Waits until no serialized call is inside; true when so. Each look cancels: the call may have been between two waits. */
static bool close_drain_calls(struct convoy_group *group, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = 200000};
    while (atomic_exchange(&group->inside, 1) != 0) {
        (void)pthread_mutex_lock(&group->lock);
        if (group->poll != NULL) { /* reaches the second group of a two-level call too */
            convoy_poll_cancel(group->poll, "closing", 7);
        }
        (void)pthread_mutex_unlock(&group->lock);
        if (convoy_now_ns() >= deadline_ns) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

/* Ends an open that runs on our thread. False when it does not end in time. */
static bool close_end_opening(struct convoy_group *group, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % CONVOY_NS_PER_S)};
    (void)pthread_mutex_lock(&group->lock);
    if (group->bootstrap != NULL) {
        convoy_bootstrap_cancel(group->bootstrap);
    }
    while (!group->is_open_done && convoy_now_ns() < deadline_ns) {
        (void)pthread_cond_timedwait(&group->opened, &group->lock, &until);
    }
    bool is_done = group->is_open_done;
    bool must_join = is_done && group->has_open_thread;
    group->has_open_thread = group->has_open_thread && !must_join;
    (void)pthread_mutex_unlock(&group->lock);
    if (must_join) {
        convoy_runtime_thread_join(group->context->runtime, group->open_thread);
    }
    return is_done;
}

/* Waits until nobody is inside group_open_test or _wait any more: they have been told, and look at the handle once more. */
static bool close_drain_openers(const struct convoy_group *group, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = 200000};
    while (atomic_load(&group->opening) != 0) {
        if (convoy_now_ns() >= deadline_ns) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static void close_destroy(struct convoy_group *group, uint64_t deadline_ns)
{
    convoy_record_settle(&group->record);
    (void)pthread_mutex_lock(&group->lock);
    struct convoy_engine *engine = group->engine;
    if (engine != NULL) {
        convoy_group_keep_info(group);
    }
    group->engine = NULL; /* calls from any thread see the tombstone from now on */
    convoy_record_shrink(&group->record);
    (void)pthread_mutex_unlock(&group->lock);
    convoy_engine_stop(engine); /* a round may be open, and another host's part of it may come just now */
    convoy_sync_close(group->sync);
    group->sync = NULL;
    convoy_poll_close(group->poll);
    group->poll = NULL;
    if (atomic_load(&group->context->move) == CONVOY_CONTEXT_RETIRED) {
        convoy_engine_drop(engine, false); /* retire ran out of time: its importer speaks for this member all the same */
    } else {
        convoy_engine_close(engine, deadline_ns);
    }
    atomic_store(&group->phase, CONVOY_PHASE_CLOSED);
}

int32_t convoy_group_shut(struct convoy_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout_ns);
    (void)pthread_mutex_lock(&group->lock);
    uint32_t phase = atomic_load(&group->phase);
    bool is_closed = phase == CONVOY_PHASE_CLOSED || phase == CONVOY_PHASE_RETIRED; /* it is another build's to close */
    if (convoy_group_has_engine(group)) {
        convoy_group_keep_info(group);
    }
    if (!is_closed) {
        atomic_store(&group->phase, CONVOY_PHASE_CLOSING);
    }
    (void)pthread_mutex_unlock(&group->lock);
    if (is_closed) {
        return CONVOY_OK;
    }
    if (!close_end_opening(group, deadline) || !close_drain_openers(group, deadline) ||
        !close_drain_calls(group, deadline)) {
        return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "group %.*s: a call is still inside; close it again",
                                (int)group->options.name_length, group->options.name);
    }
    close_destroy(group, deadline);
    atomic_store(&group->inside, 0);
    return CONVOY_OK;
}

int32_t convoy_group_close(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    if (group == NULL || convoy_handle_is_forked(group->alive)) {
        return CONVOY_OK;
    }
    struct convoy_runtime *runtime = group->context->runtime;
    if (runtime == NULL) {
        return CONVOY_OK; /* debug build: with its context */
    }
    if (atomic_load(&group->phase) == CONVOY_PHASE_FROZEN) {
        return convoy_group_refuse(group, error); /* closed here, it would still be open there */
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    int32_t status = convoy_group_shut(group, timeout, error);
    convoy_log_flush(&runtime->log);
    return status;
}
