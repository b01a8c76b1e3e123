/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/two_level.h"

#include "core/clock.h"
#include "core/error.h"
#include "poll/contribute.h"

static bool status_is_open(int32_t status)
{
    return status == CONVOY_IN_PROGRESS || status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED;
}

/* Tells the second group that this member has nothing to bring, so that nobody waits for it there. */
static void second_tell(struct convoy_poll *first, int32_t reason)
{
    struct convoy_poll *second = first->two.second;
    first->two.phase = CONVOY_TWO_LEVEL_FIRST_FAILED;
    first->two.operation = 0;
    const struct convoy_contribute_row row = {
        .reason = reason, .votes = first->votes, .tag = first->tag, .call_of = first};
    if (convoy_contribute_error(second, &row, NULL) == CONVOY_OK) {
        first->two.operation = second->error_row;
    }
}

/* A refusal is this member's own affair unless it asked to tell; a group that cannot start at all keeps the others
 * waiting in the second one. */
static bool start_must_tell(const struct convoy_poll_call *call, int32_t status)
{
    if (status == CONVOY_BUSY) {
        return false;
    }
    bool is_refusal = status > -300; /* the bands of the caller and of resources */
    return !is_refusal || (call->hint_flags & CONVOY_CALL_POST_ERROR) != 0;
}

static int32_t second_check(struct convoy_poll *first, struct convoy_poll *second, struct convoy_error *error)
{
    uint8_t *payload;
    if (first == second) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "second is the same group as first; they must differ");
    }
    int32_t status = convoy_poll_settle(second, 0, error);
    if (status == CONVOY_OK && second->two.is_open) {
        status = convoy_error_set(error, CONVOY_BUSY, "a two-level reduce is open");
    }
    if (status == CONVOY_OK) {
        status = convoy_engine_begin(second->engine, &payload, error);
    }
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_prefix(error, status, "second group");
}

int32_t convoy_two_level_start(struct convoy_poll *first, struct convoy_poll *second,
                               const struct convoy_poll_call *call, convoy_operation *operation_out,
                               struct convoy_error *error)
{
    int32_t status = second_check(first, second, error);
    status = status == CONVOY_OK ? convoy_poll_settle(first, 0, error) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_contribute_call(first, call, CONVOY_POLL_LEVEL_FIRST, NULL, error);
    if (status != CONVOY_OK) {
        if (start_must_tell(call, status)) {
            const struct convoy_contribute_row row = {
                .reason = status > -300 ? call->error_reason : status,
                .votes = call->votes,
                .tag = call->tag,
                .call_of = first,
            };
            (void)convoy_contribute_error(second, &row, NULL);
        }
        return status;
    }
    if (second->two_first != NULL && second->two_first != first) {
        convoy_poll_unlink(second->two_first);
    }
    if (first->two.second != second) {
        convoy_poll_unlink(first);
    }
    second->two_first = first;
    first->two.second = second;
    first->two.operation = 0;
    first->two.phase = CONVOY_TWO_LEVEL_FIRST;
    first->two.is_open = true;
    *operation_out = first->operation;
    return CONVOY_OK;
}

/* Level 1 until it is over; then exactly one contribution at level 2, of whichever kind. */
static int32_t first_look(struct convoy_poll *first, uint64_t deadline_ns, struct convoy_error *error)
{
    convoy_engine_heed(first->engine, first->two.second->engine); /* whose wait comes later: who closes it is not to wait */
    int32_t status = convoy_poll_look(first, deadline_ns, error);
    convoy_engine_heed(first->engine, NULL);
    if (status_is_open(status)) {
        return status;
    }
    if (status == CONVOY_OK) {
        status = convoy_contribute_second(first->two.second, first, error);
    }
    if (status != CONVOY_OK) {
        second_tell(first, status);
        first->two.is_open = false;
        return status;
    }
    first->two.phase = CONVOY_TWO_LEVEL_SECOND;
    first->two.operation = first->two.second->operation;
    atomic_store(&first->waits_in, first->two.second->engine);
    return CONVOY_OK;
}

static int32_t second_look(struct convoy_poll *first, uint64_t deadline_ns, struct convoy_poll_result *result,
                           struct convoy_error *error)
{
    struct convoy_poll *second = first->two.second;
    if (second->operation != first->two.operation || second->own != first) {
        return convoy_error_set(error, CONVOY_CLOSED, "the second group has gone on to another operation");
    }
    int32_t status = convoy_poll_look(second, deadline_ns, error);
    if (!status_is_open(status)) {
        first->two.is_open = false;
        atomic_store(&first->waits_in, first->engine);
    }
    if (status == CONVOY_OK) {
        return convoy_poll_deliver(second, result, error);
    }
    return convoy_poll_report(second, status, result);
}

/* Level 1 failed before. Reopen may have handed its result over since, but the others have our error row. */
static int32_t failed_look(struct convoy_poll *first, struct convoy_poll_result *result, struct convoy_error *error)
{
    struct convoy_round_summary summary;
    int32_t status = convoy_poll_look(first, 0, error);
    if (status == CONVOY_OK) {
        status = convoy_engine_test(first->two.second->engine, first->two.operation, &summary, error);
        return convoy_poll_report(first->two.second, status, result);
    }
    return convoy_poll_report(first, status, result);
}

static int32_t both_look(struct convoy_poll *first, convoy_operation operation, uint64_t deadline_ns,
                         struct convoy_poll_result *result, struct convoy_error *error)
{
    if (!convoy_poll_owns(first, operation) || first->two.phase == CONVOY_TWO_LEVEL_NONE) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %#llx is not this group's two-level reduce",
                                (unsigned long long)operation);
    }
    if (first->two.phase == CONVOY_TWO_LEVEL_FIRST_FAILED) {
        return failed_look(first, result, error);
    }
    if (first->two.phase == CONVOY_TWO_LEVEL_FIRST) {
        int32_t status = first_look(first, deadline_ns, error);
        if (status != CONVOY_OK) {
            return convoy_poll_report(first, status, result);
        }
    }
    return second_look(first, deadline_ns, result, error);
}

int32_t convoy_two_level_test(struct convoy_poll *first, convoy_operation operation,
                              struct convoy_poll_result *result, struct convoy_error *error)
{
    return both_look(first, operation, 0, result, error);
}

int32_t convoy_two_level_wait(struct convoy_poll *first, convoy_operation operation, uint64_t timeout_ns,
                              struct convoy_poll_result *result, struct convoy_error *error)
{
    return both_look(first, operation, convoy_poll_deadline(first, timeout_ns), result, error);
}

int32_t convoy_two_level_abandon(struct convoy_poll *first, convoy_operation operation, struct convoy_error *error)
{
    if (!convoy_poll_owns(first, operation) || !first->two.is_open) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %#llx is not an open two-level reduce of this group",
                                (unsigned long long)operation);
    }
    if (first->two.phase == CONVOY_TWO_LEVEL_SECOND) {
        int32_t status = convoy_engine_abandon(first->two.second->engine, first->two.operation, error);
        first->two.is_open = status == CONVOY_OK;
        if (!first->two.is_open) {
            atomic_store(&first->waits_in, first->engine);
        }
        return status;
    }
    second_tell(first, CONVOY_BROKEN);
    first->two.is_open = false;
    return convoy_engine_abandon(first->engine, operation, error);
}
