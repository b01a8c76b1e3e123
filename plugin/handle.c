/* SPDX-License-Identifier: Apache-2.0 */
#include "handle.h"

#include "convoy/move.h"
#include "core/error.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#define READER_TRIES 100000u /* a call that is inside settles the record as soon as it has contributed */
#define READER_YIELDS 100u
#define READER_MOMENT_NS 20000

bool convoy_handle_is_forked(const _Atomic uint32_t *alive)
{
    uint32_t word = atomic_load_explicit(alive, memory_order_relaxed);
    return word != CONVOY_ALIVE_HERE && word != (CONVOY_ALIVE_ASK | (uint32_t)getpid());
}

int32_t convoy_context_check_look(const struct convoy_context *context, struct convoy_error *error)
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
    if (atomic_load(&context->move) == CONVOY_CONTEXT_RETIRED) {
        return convoy_error_set(error, CONVOY_MOVED, "another build has taken over what this context had");
    }
    return CONVOY_OK;
}

int32_t convoy_context_check(const struct convoy_context *context, struct convoy_error *error)
{
    int32_t status = convoy_context_check_look(context, error);
    if (status == CONVOY_OK && atomic_load(&context->move) != CONVOY_CONTEXT_RUNNING) {
        return convoy_error_set(error, CONVOY_MOVED, "another build takes over what this context has");
    }
    return status;
}

static int32_t group_refuse_busy(struct convoy_group *group, struct convoy_error *error)
{
    int name_length = (int)group->options.name_length;
    const char *name = group->options.name;
    if (convoy_debug_is_own(&group->caller)) {
        return convoy_error_set(error, CONVOY_BUSY, "a call of group %.*s from a callback of another one of it",
                                name_length, name);
    }
    return convoy_error_set(error, CONVOY_BUSY, "another call is inside group %.*s; calls of one group are serialized",
                            name_length, name);
}

static int32_t group_refuse_phase( struct convoy_group *group, struct convoy_error *error)
{
    int name_length = (int)group->options.name_length;
    const char *name = group->options.name;
    switch ((enum convoy_group_phase)atomic_load(&group->phase)) {
    case CONVOY_PHASE_OPENING:
        return convoy_error_set(error, CONVOY_BAD_STATE, "group %.*s is still opening", name_length, name);
    case CONVOY_PHASE_FAILED:
        return convoy_error_set(error, CONVOY_BAD_STATE, "group %.*s failed to open; close it", name_length, name);
    case CONVOY_PHASE_CLOSING:
    case CONVOY_PHASE_CLOSED:
        return convoy_error_set(error, CONVOY_CLOSED, "group %.*s is closed", name_length, name);
    case CONVOY_PHASE_HALTED:
    case CONVOY_PHASE_FROZEN:
    case CONVOY_PHASE_RETIRED:
        return convoy_error_set(error, CONVOY_MOVED, "group %.*s: another build takes it over", name_length, name);
    case CONVOY_PHASE_OPEN:
        break;
    }
    return group_refuse_busy(group, error);
}

bool convoy_group_wait_reader(struct convoy_group *group)
{
    const struct timespec moment = {.tv_nsec = READER_MOMENT_NS};
    for (uint32_t tries = 0;; tries++) { /* a reader copies one round and leaves */
        uint32_t inside = 0;
        if (atomic_compare_exchange_strong(&group->inside, &inside, 1)) {
            return true;
        }
        if (inside == 1) {
            return false;
        }
        if (tries < READER_YIELDS) {
            (void)sched_yield();
        } else { /* it may have a lower priority than this thread, for which a yield is none */
            (void)nanosleep(&moment, NULL);
        }
    }
}

void convoy_group_settle(struct convoy_group *group)
{
    for (uint32_t i = 0; i < READER_TRIES && convoy_record_is_late(&group->record); i++) {
        uint32_t inside = 0;
        if (atomic_compare_exchange_strong(&group->inside, &inside, 2)) {
            convoy_record_settle(&group->record);
            atomic_store(&group->inside, 0);
            return;
        }
        (void)sched_yield();
    }
}

int32_t convoy_group_refuse(struct convoy_group *group, struct convoy_error *error)
{
    if (group == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group is NULL");
    }
    if (convoy_handle_is_forked(group->alive)) {
        return convoy_error_set(error, CONVOY_FORKED,
                                "this group was inherited through fork; open a fresh context in this process");
    }
    return group_refuse_phase(group, error);
}

int32_t convoy_group_refuse_open(struct convoy_group *group, struct convoy_error *error)
{
    bool is_halted = group != NULL && !convoy_handle_is_forked(group->alive) &&
                     atomic_load(&group->phase) == CONVOY_PHASE_HALTED;
    return is_halted ? group_refuse_busy(group, error) : convoy_group_refuse(group, error);
}

int32_t convoy_group_status(struct convoy_group *group, int32_t status, struct convoy_error *error)
{
    if (status >= CONVOY_OK) {
        return status;
    }
    convoy_record_settle(&group->record); /* the host's callback may look at the group */
    convoy_log_flush(&group->context->runtime->log);
    uint32_t phase = atomic_load(&group->phase);
    if (status == CONVOY_CANCELED && (phase == CONVOY_PHASE_CLOSING || phase == CONVOY_PHASE_CLOSED)) {
        return convoy_error_set(error, CONVOY_CLOSED, "group %.*s was closed during the call",
                                (int)group->options.name_length, group->options.name);
    }
    return status;
}
