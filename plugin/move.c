/* SPDX-License-Identifier: Apache-2.0 */
/* A context moves: one walk over all its groups and engines for each step (states: convoy/move.h). */
#include "move_walk.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "sized.h"

#include <time.h>

#define LOOKS_BEFORE_SLEEP 4u /* and no yields: after one, spinning peers may have the core for milliseconds */
#define LOOK_AGAIN_NS 50000

/* -- who may do what ----------------------------------------------------------------------------------------------- */

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"new", "running", "quiescing", "quiesced", "imported", "retired", "closing"};
    return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

int32_t convoy_move_enter(struct convoy_context *context, const char *call, uint32_t allowed, struct convoy_error *error)
{
    if (context == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "context is NULL");
    }
    if (convoy_handle_is_forked(context->alive)) {
        return convoy_error_set(error, CONVOY_FORKED,
                                "this context was inherited through fork; open a fresh one in this process");
    }
    if (atomic_load(&context->is_closing) != 0) {
        return convoy_error_set(error, CONVOY_CLOSED, "the context is closing");
    }
    uint32_t state = atomic_load(&context->move);
    if ((allowed >> state & 1u) == 0) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "%s: the context is %s", call, state_name(state));
    }
    return CONVOY_OK;
}

struct convoy_group *convoy_move_first_group(struct convoy_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_group *group = context->groups;
    (void)pthread_mutex_unlock(&context->lock);
    return group;
}

struct convoy_transfer_engine *convoy_move_first_engine(struct convoy_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_transfer_engine *engine = context->engines;
    (void)pthread_mutex_unlock(&context->lock);
    return engine;
}

/* -- counting ------------------------------------------------------------------------------------------------------ */

int32_t convoy_context_holdings(convoy_context *context, struct convoy_holdings *holdings_out, struct convoy_error *error)
{
    struct convoy_holdings holdings = {0};
    if (context == NULL || convoy_handle_is_forked(context->alive)) {
        return convoy_move_enter(context, "holdings", 0, error);
    }
    int32_t status = convoy_sized_out_begin(&holdings, &CONVOY_SHAPE(holdings), holdings_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t struct_size = holdings.struct_size;
    holdings = (struct convoy_holdings){.struct_size = struct_size};
    holdings.state = atomic_load(&context->is_closing) != 0 ? CONVOY_CONTEXT_CLOSING : atomic_load(&context->move);
    holdings.call_count = atomic_load(&context->opening);
    holdings.descriptor_count = holdings.mapping_count = context->handover.page != NULL;
    holdings.thread_count = context->runtime != NULL ? atomic_load(&context->runtime->thread_count) : 0;
    for (struct convoy_group *group = convoy_move_first_group(context); group != NULL; group = group->next) {
        convoy_group_count(group, &holdings);
    }
    for (struct convoy_transfer_engine *engine = convoy_move_first_engine(context); engine != NULL; engine = engine->next) {
        convoy_transfer_engine_count(engine, &holdings);
    }
    convoy_sized_out_end(holdings_out, &CONVOY_SHAPE(holdings), &holdings);
    return CONVOY_OK;
}

/* -- quiesce and resume -------------------------------------------------------------------------------------------- */

/* The second pass sees what an open call on two groups has left in one that the first had passed already. */
static bool groups_are_still(struct convoy_context *context, char *why_out)
{
    for (int pass = 0; pass < 2; pass++) {
        CONVOY_EACH_GROUP(context, group)
        {
            convoy_group_halt(group);
            if (!convoy_group_is_still(group, why_out)) {
                return false;
            }
        }
    }
    return true;
}

/* Engines first: their copies may take a while, and rounds go on meanwhile. */
static bool is_still(struct convoy_context *context, char *why_out)
{
    if (atomic_load(&context->opening) != 0) {
        (void)snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "a group or an engine is being opened");
        return false;
    }
    CONVOY_EACH_ENGINE(context, engine)
    {
        if (!convoy_transfer_engine_is_still(engine, why_out)) {
            return false;
        }
    }
    return groups_are_still(context, why_out);
}

static int32_t wait_still(struct convoy_context *context, uint64_t deadline_ns, struct convoy_error *error)
{
    const struct timespec moment = {.tv_nsec = LOOK_AGAIN_NS};
    char why[CONVOY_STILL_TEXT_BYTES] = "";
    for (uint32_t looks = 0; !is_still(context, why); looks++) {
        if (convoy_now_ns() >= deadline_ns) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "%s; quiesce again, or resume", why);
        }
        if (looks >= LOOKS_BEFORE_SLEEP) {
            (void)nanosleep(&moment, NULL);
        }
    }
    return CONVOY_OK;
}

static int32_t freeze(struct convoy_context *context, struct convoy_error *error)
{
    CONVOY_EACH_ENGINE(context, engine)
    {
        int32_t status = convoy_transfer_engine_freeze(engine, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    CONVOY_EACH_GROUP(context, group)
    {
        int32_t status = convoy_group_freeze(group, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

int32_t convoy_context_quiesce(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    uint32_t from = CONVOY_MOVE_MAY(RUNNING) | CONVOY_MOVE_MAY(QUIESCING) | CONVOY_MOVE_MAY(QUIESCED);
    int32_t status = convoy_move_enter(context, "quiesce", from, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : context->runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    if (atomic_load(&context->move) == CONVOY_CONTEXT_QUIESCED) {
        return CONVOY_OK;
    }
    atomic_store(&context->move, CONVOY_CONTEXT_QUIESCING);
    CONVOY_EACH_ENGINE(context, engine)
    {
        convoy_transfer_engine_halt(engine);
    }
    CONVOY_POINT(move_halted);
    status = wait_still(context, deadline, error);
    CONVOY_POINT(move_still);
    if (status == CONVOY_OK) {
        status = freeze(context, error);
    }
    if (status == CONVOY_OK) {
        atomic_store(&context->move, CONVOY_CONTEXT_QUIESCED);
    }
    CONVOY_POINT(move_frozen);
    convoy_log_flush(&context->runtime->log);
    return status;
}

/* What was thawed before one that failed is halted again. */
static void halt_again(struct convoy_context *context, uint32_t state)
{
    if (state == CONVOY_CONTEXT_IMPORTED) {
        return; /* whoever imported closes it */
    }
    CONVOY_EACH_ENGINE(context, engine)
    {
        convoy_transfer_engine_halt(engine);
    }
    CONVOY_EACH_GROUP(context, group)
    {
        convoy_group_halt(group);
    }
    atomic_store(&context->move, CONVOY_CONTEXT_QUIESCING);
}

static int32_t thaw_all(struct convoy_context *context, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    CONVOY_EACH_ENGINE(context, engine)
    {
        status = status == CONVOY_OK ? convoy_transfer_engine_thaw(engine, error) : status;
    }
    CONVOY_EACH_GROUP(context, group)
    {
        status = status == CONVOY_OK ? convoy_group_thaw(group, error) : status;
    }
    return status;
}

/* Only one of all that know the same state can go on with it. */
static int32_t take_over(struct convoy_context *context, uint32_t state, struct convoy_error *error)
{
    if (convoy_handover_take(&context->handover)) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_BAD_STATE, "resume: another context has resumed what this one %s",
                            state == CONVOY_CONTEXT_IMPORTED ? "has imported; close it" : "had exported; retire it");
}

int32_t convoy_context_resume(convoy_context *context, struct convoy_error *error)
{
    uint32_t from = CONVOY_MOVE_MAY(RUNNING) | CONVOY_MOVE_MAY(QUIESCING) | CONVOY_MOVE_MAY(QUIESCED) | CONVOY_MOVE_MAY(IMPORTED);
    int32_t status = convoy_move_enter(context, "resume", from, error);
    uint32_t state = status == CONVOY_OK ? atomic_load(&context->move) : CONVOY_CONTEXT_RUNNING;
    if (status != CONVOY_OK || state == CONVOY_CONTEXT_RUNNING) {
        return status;
    }
    status = take_over(context, state, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = thaw_all(context, error);
    if (status == CONVOY_OK) {
        convoy_handover_end(&context->handover);
        CONVOY_EACH_ENGINE(context, engine)
        {
            convoy_transfer_engine_go(engine); /* not before: nothing can be taken back that was heard or said */
        }
        atomic_store(&context->move, CONVOY_CONTEXT_RUNNING);
    } else {
        convoy_handover_give_back(&context->handover);
        halt_again(context, state);
    }
    CONVOY_POINT(move_resumed);
    convoy_log_flush(&context->runtime->log);
    return status;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static bool retire_all(struct convoy_context *context)
{
    bool is_done = true;
    CONVOY_EACH_GROUP(context, group)
    {
        is_done = convoy_group_retire(group) && is_done;
    }
    CONVOY_EACH_ENGINE(context, engine)
    {
        is_done = convoy_transfer_engine_retire(engine) && is_done;
    }
    return is_done;
}

int32_t convoy_context_retire(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = convoy_move_enter(context, "retire", CONVOY_MOVE_MAY(QUIESCED) | CONVOY_MOVE_MAY(RETIRED), error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct timespec moment = {.tv_nsec = LOOK_AGAIN_NS};
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : context->runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    atomic_store(&context->move, CONVOY_CONTEXT_RETIRED);
    convoy_handover_end(&context->handover);
    while (!retire_all(context)) {
        if (convoy_now_ns() >= deadline) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "a call is still inside, or a peer has not heard of the move; "
                                                               "retire the context again");
        }
        (void)nanosleep(&moment, NULL);
    }
    CONVOY_POINT(move_retired);
    convoy_log_flush(&context->runtime->log);
    return CONVOY_OK;
}
