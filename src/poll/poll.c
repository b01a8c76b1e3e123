/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/poll.h"

#include "core/clock.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/memory.h"
#include "poll/check.h"
#include "poll/contribute.h"
#include "poll/result.h"
#include "poll/states_wide.h"
#include "poll/two_level.h"

#include <string.h>

#define TIMEOUT_DEFAULT_NS (5 * CONVOY_NS_PER_S)
#define DECIDED_PER_ENTRY 2u /* a full outcome can end and still be known while the next one ends */
#define DECIDED_MIN 4096u

size_t convoy_poll_partial_bytes_max(size_t blob_bytes_max)
{
    return convoy_keyed_partial_bytes_max(blob_bytes_max);
}

/* All tables in one: they live and die together, and a group that moves waits for as few mappings as can be. */
static void parts_place(struct convoy_poll *poll, struct convoy_memory_plan *plan)
{
    uint32_t entries = (uint32_t)poll->bytes_max; /* an entry takes at least one byte */
    poll->positional_states = convoy_memory_place(plan, entries, sizeof *poll->positional_states);
    convoy_capture_place(&poll->capture, entries, plan);
    convoy_keyed_place(&poll->keyed, poll->bytes_max, poll->positional_states, plan);
    uint32_t keyed = poll->keyed.capacity;
    uint32_t decided = keyed * DECIDED_PER_ENTRY > DECIDED_MIN ? keyed * DECIDED_PER_ENTRY : DECIDED_MIN;
    convoy_poll_quick_place(&poll->quick, entries, keyed, plan);
    convoy_order_place(&poll->order, keyed, plan);
    convoy_outcome_place(&poll->outcome, keyed, plan);
    convoy_decided_place(&poll->decided, decided, plan);
}

static int32_t parts_make(struct convoy_poll *poll)
{
    struct convoy_memory_plan plan = {0};
    parts_place(poll, &plan);
    if (!convoy_memory_plan_make(&plan)) {
        return CONVOY_NO_MEMORY;
    }
    poll->tables = plan.base;
    parts_place(poll, &plan);
    return CONVOY_OK;
}

int32_t convoy_poll_open(const struct convoy_poll_options *options, struct convoy_poll **poll_out,
                         struct convoy_error *error)
{
    struct convoy_poll *poll = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *poll);
    if (poll == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for poll reduce");
    }
    poll->engine = options->engine;
    poll->bytes_max = options->group->blob_bytes_max;
    poll->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT_NS;
    poll->record = options->record;
    poll->repeat = options->repeat;
    poll->settle = options->settle;
    poll->keep = options->keep;
    poll->record_user = options->record_user;
    poll->has_wide = convoy_cpu_has_avx2();
    poll->own = poll;
    atomic_init(&poll->waits_in, poll->engine);
    int32_t status = convoy_inject_init(&poll->inject, options->group->poll_faults, error);
    if (status == CONVOY_OK && parts_make(poll) != CONVOY_OK) {
        status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for poll reduce with blobs of %zu bytes",
                                  poll->bytes_max);
    }
    if (status != CONVOY_OK) {
        convoy_poll_close(poll);
        return status;
    }
    *poll_out = poll;
    return CONVOY_OK;
}

void convoy_poll_unlink(struct convoy_poll *first)
{
    struct convoy_poll *second = first->two.second;
    if (second == NULL) {
        return;
    }
    if (second->own == first) {
        second->own = second;
        second->has_own = false;
    }
    second->two_first = NULL;
    first->two.second = NULL;
    first->two.phase = CONVOY_TWO_LEVEL_NONE;
    first->two.is_open = false;
    atomic_store(&first->waits_in, first->engine);
}

void convoy_poll_close(struct convoy_poll *poll)
{
    if (poll == NULL) {
        return;
    }
    convoy_poll_unlink(poll);
    if (poll->two_first != NULL) {
        convoy_poll_unlink(poll->two_first);
    }
    convoy_inject_fini(&poll->inject);
    convoy_memory_table_free(poll->tables);
    convoy_memory_free(poll);
}

uint64_t convoy_poll_deadline(const struct convoy_poll *poll, uint64_t timeout_ns)
{
    return convoy_deadline_after(convoy_now_ns(), timeout_ns != 0 ? timeout_ns : poll->timeout_ns);
}

/* -- the end of a round ------------------------------------------------------------------------------------------ */

/* Made once per round, when the engine says OK: every member makes the same of the same merge state. */
static void round_finish(struct convoy_poll *poll)
{
    poll->is_finished = true;
    poll->status = CONVOY_OK;
    poll->has_own = true;
    if (poll->shape.keyed_count == 0) {
        return;
    }
    convoy_keyed_agree(&poll->keyed);
    if (poll->keyed.has_overflow) {
        poll->status = CONVOY_LIMIT;
        return;
    }
    bool decides = poll->level != CONVOY_POLL_LEVEL_FIRST;
    convoy_outcome_finish(&poll->outcome, &poll->keyed, decides ? &poll->decided : NULL);
    poll->has_own = convoy_outcome_own(&poll->outcome, &poll->keyed, &poll->own->order);
}

static bool status_is_open(int32_t status)
{
    return status == CONVOY_IN_PROGRESS || status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED;
}

/* Only a lost or sealed round can still be handed over by a reopen. */
static bool status_is_final(int32_t status)
{
    return status == CONVOY_OK || status == CONVOY_DIVERGED || status == CONVOY_PEER_ERROR ||
           status == CONVOY_MALFORMED || status == CONVOY_LIMIT;
}

static int32_t limit_refuse(const struct convoy_poll *poll, struct convoy_error *error)
{
    const struct convoy_keyed *keyed = &poll->keyed;
    uint64_t entries = keyed->overflow_entries;
    return convoy_error_set_peer(error, CONVOY_LIMIT, -1, poll->summary.round,
                                 "the outcome of round %llu needs up to %zu bytes (%llu identities), the group's "
                                 "blob_bytes_max is %zu; open it with a larger one",
                                 (unsigned long long)poll->summary.round,
                                 convoy_keyed_outcome_bytes(keyed, entries, true), (unsigned long long)entries,
                                 poll->bytes_max);
}

__attribute__((noinline)) static int32_t round_conclude_any(struct convoy_poll *poll, int32_t status,
                                                            struct convoy_error *error)
{
    if (status_is_open(status)) {
        return status;
    }
    if (status == CONVOY_OK && !poll->is_finished) {
        round_finish(poll);
        poll->is_recorded = false;
    }
    if (status == CONVOY_OK && poll->status != CONVOY_OK) {
        status = limit_refuse(poll, error);
    }
    poll->is_unseen = !status_is_final(status);
    if (!poll->is_recorded && poll->record != NULL) {
        convoy_result_record(poll, status);
        if (status == CONVOY_OK && poll->shape.keyed_count != 0) {
            convoy_poll_quick_note(poll);
        }
    }
    poll->is_recorded = true;
    return status;
}

/* The usual end, a positional round that is OK and seen for the first time, is all there is to it. */
static inline int32_t round_conclude(struct convoy_poll *poll, int32_t status, struct convoy_error *error)
{
    if (status != CONVOY_OK || poll->is_finished || poll->shape.keyed_count != 0) {
        return round_conclude_any(poll, status, error);
    }
    poll->is_finished = poll->has_own = poll->is_recorded = true;
    poll->is_unseen = false;
    poll->status = CONVOY_OK;
    if (poll->record != NULL) {
        convoy_result_record(poll, CONVOY_OK);
        convoy_poll_quick_note(poll);
    }
    return CONVOY_OK;
}

/* wait_ns 0 = test. */
static inline int32_t round_look(struct convoy_poll *poll, uint64_t wait_ns, struct convoy_error *error)
{
    int32_t status = wait_ns == 0
                         ? convoy_engine_test(poll->engine, poll->operation, &poll->summary, error)
                         : convoy_engine_wait(poll->engine, poll->operation, wait_ns, &poll->summary, error);
    return round_conclude(poll, status, error);
}

int32_t convoy_poll_look(struct convoy_poll *poll, uint64_t deadline_ns, struct convoy_error *error)
{
    uint64_t wait_ns = deadline_ns == 0 ? 0 : poll->timeout_ns;
    if (deadline_ns != 0 && deadline_ns != CONVOY_DEADLINE_NEVER) {
        wait_ns = convoy_deadline_left(convoy_now_ns(), deadline_ns);
        wait_ns += wait_ns == 0; /* 0 would mean the default */
    }
    return round_look(poll, wait_ns, error);
}

int32_t convoy_poll_report(struct convoy_poll *poll, int32_t status, struct convoy_poll_result *result)
{
    bool has_report = status != CONVOY_OK && status != CONVOY_IN_PROGRESS && status / 100 != CONVOY_INVALID_ARGUMENT / 100;
    if (has_report && result != NULL && result->report != NULL) {
        convoy_engine_report(poll->engine, result->report);
    }
    return status;
}

int32_t convoy_poll_deliver(struct convoy_poll *poll, struct convoy_poll_result *result, struct convoy_error *error)
{
    if (!poll->has_own) {
        return convoy_error_set(error, CONVOY_INVARIANT, "the outcome of round %llu lacks an own entry",
                                (unsigned long long)poll->summary.round);
    }
    const struct convoy_payload_shape *shape = &poll->own->shape;
    int32_t status = convoy_check_result_fits(result, shape) ? CONVOY_OK : convoy_check_result(result, shape, error);
    if (status == CONVOY_OK) {
        convoy_result_write(poll, result);
    }
    return status;
}

/* -- calls ------------------------------------------------------------------------------------------------------- */

int32_t convoy_poll_settle_slow(struct convoy_poll *poll, uint64_t timeout_ns, struct convoy_error *error)
{
    if (poll->operation != 0 && poll->is_unseen && !convoy_engine_holds(poll->engine, poll->operation)) {
        (void)convoy_poll_look(poll, 0, NULL);
    }
    if (poll->error_row == 0) {
        return CONVOY_OK;
    }
    struct convoy_round_summary summary;
    int32_t status = timeout_ns == 0
                         ? convoy_engine_test(poll->engine, poll->error_row, &summary, NULL)
                         : convoy_engine_wait(poll->engine, poll->error_row, timeout_ns, &summary, error);
    if (status == CONVOY_IN_PROGRESS) {
        return convoy_error_set(error, CONVOY_BUSY, "the error row of a refused call still waits for the other members");
    }
    if (status_is_open(status)) {
        return status;
    }
    poll->error_row = 0;
    return CONVOY_OK;
}

/* The error row of the call that was just refused becomes the group's operation, which its caller finishes like any
 * other; 0: none was posted. Its end is not recorded: nothing of that call was captured. */
static convoy_operation row_take(struct convoy_poll *poll)
{
    if (poll->error_row != 0) {
        poll->operation = poll->error_row;
        poll->error_row = 0;
        poll->level = CONVOY_POLL_LEVEL_ONLY;
        poll->is_recorded = true;
        return poll->operation;
    }
    return 0;
}

int32_t convoy_poll_start(struct convoy_poll *poll, const struct convoy_poll_call *call,
                          convoy_operation *operation_out, struct convoy_error *error)
{
    int32_t status = convoy_poll_settle(poll, 0, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_contribute_call(poll, call, CONVOY_POLL_LEVEL_ONLY, NULL, error);
    if (status == CONVOY_OK) {
        *operation_out = poll->operation;
    } else if ((call->hint_flags & CONVOY_CALL_POST_ERROR) != 0) {
        *operation_out = row_take(poll);
    }
    return status;
}

static int32_t operation_check(const struct convoy_poll *poll, convoy_operation operation, struct convoy_error *error)
{
    if (operation == 0 || operation != poll->operation) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %#llx is over; the group's last poll operation is %#llx",
                                (unsigned long long)operation, (unsigned long long)poll->operation);
    }
    if (poll->level != CONVOY_POLL_LEVEL_ONLY) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "operation %#llx belongs to a two-level reduce; use the reduce2 calls of its first group",
                                (unsigned long long)operation);
    }
    return CONVOY_OK;
}

static inline int32_t round_read(struct convoy_poll *poll, uint64_t wait_ns, struct convoy_poll_result *result,
                                 struct convoy_error *error)
{
    int32_t status = round_look(poll, wait_ns, error);
    if (status == CONVOY_OK) {
        return convoy_poll_deliver(poll, result, error);
    }
    return convoy_poll_report(poll, status, result);
}

static inline uint64_t wait_of(const struct convoy_poll *poll, uint64_t timeout_ns)
{
    return timeout_ns != 0 ? timeout_ns : poll->timeout_ns;
}

int32_t convoy_poll_test(struct convoy_poll *poll, convoy_operation operation, struct convoy_poll_result *result,
                         struct convoy_error *error)
{
    int32_t status = operation_check(poll, operation, error);
    return status == CONVOY_OK ? round_read(poll, 0, result, error) : status;
}

int32_t convoy_poll_wait(struct convoy_poll *poll, convoy_operation operation, uint64_t timeout_ns,
                         struct convoy_poll_result *result, struct convoy_error *error)
{
    int32_t status = operation_check(poll, operation, error);
    return status == CONVOY_OK ? round_read(poll, wait_of(poll, timeout_ns), result, error) : status;
}

static int32_t reduce_end(struct convoy_poll *poll, int32_t status, struct convoy_poll_result *result,
                          struct convoy_error *error)
{
    if (status != CONVOY_OK) {
        return convoy_poll_report(poll, status, result);
    }
    if (!poll->has_own) {
        return convoy_poll_deliver(poll, result, error);
    }
    convoy_result_write(poll, result); /* the room was checked before anything was sent */
    return CONVOY_OK;
}

int32_t convoy_poll_reduce_end(struct convoy_poll *poll, int32_t status, struct convoy_poll_result *result,
                               struct convoy_error *error)
{
    return reduce_end(poll, round_conclude(poll, status, error), result, error);
}

int32_t convoy_poll_reduce_whole(struct convoy_poll *poll, const struct convoy_poll_call *call, uint64_t timeout_ns,
                                 struct convoy_poll_result *result, struct convoy_error *error)
{
    if (poll->settle != NULL) {
        poll->settle(poll->record_user);
    }
    int32_t status = convoy_poll_settle(poll, timeout_ns, error);
    if (status == CONVOY_OK) {
        status = convoy_contribute_call(poll, call, CONVOY_POLL_LEVEL_ONLY, result, error);
        if (status != CONVOY_OK && row_take(poll) != 0) {
            (void)round_look(poll, timeout_ns, NULL); /* the caller's own error is the first cause */
            return status;
        }
    }
    if (status == CONVOY_OK) {
        status = round_look(poll, timeout_ns, error);
    }
    return reduce_end(poll, status, result, error);
}

int32_t convoy_poll_abandon(struct convoy_poll *poll, convoy_operation operation, struct convoy_error *error)
{
    if (poll->two.is_open && convoy_poll_owns(poll, operation)) {
        return convoy_two_level_abandon(poll, operation, error);
    }
    return convoy_engine_abandon(poll->engine, operation, error);
}

bool convoy_poll_owns(const struct convoy_poll *poll, convoy_operation operation)
{
    return operation != 0 && operation == poll->operation;
}

void convoy_poll_cancel(struct convoy_poll *poll, const char *reason, size_t length)
{
    convoy_engine_cancel(atomic_load(&poll->waits_in), reason, length);
}
