/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy degrade across hosts: when a host is lost in the middle of a round, the engine reopens by itself inside the
 * caller's deadline and brings the same contribution to the round of that number in the new epoch, where the lost
 * members count as absent. (On one host a sealed cell is the absence itself and nothing needs to be reopened.)
 */
#include "round/remote.h"

static bool degrade_applies(const struct convoy_engine *engine, int32_t status)
{
    return status == CONVOY_PEER_LOST && engine->degrade && engine->remote != NULL;
}

/* The payload still lies in this member's cell: only the epoch in front of it is new. */
static int32_t degrade_republish(struct convoy_engine *engine)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    if (engine->next_round != round) {
        return engine->ended_status; /* others had completed it: its result was handed over, or it is gone */
    }
    return convoy_engine_contribute(engine) ? CONVOY_IN_PROGRESS : convoy_engine_collect(engine);
}

int32_t convoy_engine_degrade(struct convoy_engine *engine, int32_t status, uint64_t deadline_ns, bool is_waiting)
{
    if (!degrade_applies(engine, status)) {
        return status;
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t reopened = convoy_remote_reopen(engine, deadline_ns, &error);
    if (reopened == CONVOY_TIMED_OUT && !is_waiting) {
        return CONVOY_IN_PROGRESS; /* agreement is under way; the next test looks again */
    }
    if (reopened == CONVOY_TIMED_OUT) { /* so does the next wait */
        atomic_store(&engine->was_stuck, 1);
        convoy_engine_report_fill(engine, CONVOY_TIMED_OUT, CONVOY_FIELD_NONE);
        return CONVOY_TIMED_OUT;
    }
    if (reopened != CONVOY_OK) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "no going on degraded: %.200s", error.text);
        return status;
    }
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "group %.*s goes on without %u members in epoch %llu",
                    (int)engine->group->name_length, engine->group->name, engine->lost_count,
                    (unsigned long long)convoy_engine_epoch(engine));
    engine->recovered = false; /* the call that is running returns it */
    return degrade_republish(engine);
}
