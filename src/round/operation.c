/* SPDX-License-Identifier: Apache-2.0 */
/* One operation from begin to its end. The states are drawn in engine.h. */
#include "round/remote.h"

#include <sched.h>

static int32_t operation_refuse_start(struct convoy_engine *engine, struct convoy_error *error)
{
    int name_length = (int)engine->group->name_length;
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    if (convoy_engine_is_open(engine) || convoy_engine_is_unread(engine)) {
        return convoy_error_set_peer(error, CONVOY_BUSY, -1, round,
                                     "group %.*s: round %llu is still open; test, wait for or abandon it first",
                                     name_length, engine->group->name, (unsigned long long)round);
    }
    return convoy_error_set_peer(error, CONVOY_BROKEN, -1, round,
                                 "group %.*s: broken since round %llu (%s); reopen it first", name_length,
                                 engine->group->name, (unsigned long long)round,
                                 convoy_status_text(engine->ended_status));
}

static int32_t operation_begin(struct convoy_engine *engine, uint8_t **payload_out, struct convoy_error *error)
{
    if (atomic_load_explicit(&engine->state, memory_order_relaxed) != CONVOY_ENGINE_IDLE || convoy_engine_is_unread(engine)) {
        return operation_refuse_start(engine, error);
    }
    uint64_t cell_round = CONVOY_MUTATED(one_cell_for_two) ? 0 : engine->next_round;
    *payload_out = convoy_segment_cell(&engine->segment, engine->local_index, cell_round)->payload;
    return CONVOY_OK;
}

/* Everything of the cell but its word. The cold line is only written when it has changed since two rounds ago. */
static void operation_fill_cell(struct convoy_engine *engine, uint64_t round)
{
    struct convoy_contribution *own = &engine->contribution;
    struct convoy_cell *cell = convoy_segment_cell(&engine->segment, engine->local_index, round);
    bool is_stale = engine->cold_prints[round & 1] != engine->fingerprint;
    if (is_stale && !(CONVOY_MUTATED(cold_line_stale) && engine->cold_prints[round & 1] != 0)) {
        cell->cold = own->header;
        engine->cold_prints[round & 1] = engine->fingerprint;
    }
    cell->fingerprint = engine->fingerprint;
    cell->votes = own->votes;
    cell->tag = own->tag;
    if (own->is_error) {
        memcpy(cell->payload, &own->error_reason, sizeof own->error_reason);
        cell->info = CONVOY_INFO_ERROR | (uint32_t)sizeof own->error_reason;
    } else {
        cell->info = own->payload_bytes;
    }
}

/* The fingerprint of a header like the last one is the last one's: comparing is a third of the cost. */
static void operation_fingerprint(struct convoy_engine *engine)
{
    const struct convoy_round_header *header = &engine->contribution.header;
    if (memcmp(header, &engine->printed, sizeof *header) != 0 || engine->fingerprint == 0) {
        engine->printed = *header;
        engine->fingerprint = convoy_fingerprint(header);
    }
}

bool convoy_engine_contribute(struct convoy_engine *engine)
{
    uint64_t round = engine->next_round;
    convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
    engine->contribution.header.wire = engine->agreement.wire;
    engine->contribution.header.epoch = CONVOY_MUTATED(epoch_not_in_fingerprint) ? 0 : convoy_engine_epoch(engine);
    operation_fingerprint(engine);
    engine->reference = engine->contribution.is_error ? 0 : engine->fingerprint;
    engine->scan = 0;
    engine->error_member = engine->member_count;
    atomic_store_explicit(&engine->round, round, memory_order_relaxed);
    engine->waited = (struct convoy_stats_wait){.kind = CONVOY_WAIT_NONE};
    atomic_store_explicit(&engine->was_stuck, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->published_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_OPEN, memory_order_relaxed);
    bool is_published;
    if (CONVOY_MUTATED(number_before_payload)) {
        is_published = convoy_engine_swap_own(engine, round);
        (void)sched_yield(); /* so that others run into it soon */
        operation_fill_cell(engine, round);
    } else {
        operation_fill_cell(engine, round);
        CONVOY_POINT(publish_before_swap);
        is_published = convoy_engine_swap_own(engine, round);
    }
    CONVOY_POINT(publish_after_swap);
    if (is_published) {
        convoy_engine_wake(engine);
    }
    return is_published;
}

/* This member's own cell was sealed before it could publish: the round has ended without it. */
static int32_t operation_sealed(struct convoy_engine *engine, struct convoy_error *error)
{
    atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
    engine->scan = 0;
    int32_t status = convoy_engine_collect(engine);
    if (status == CONVOY_IN_PROGRESS || status == CONVOY_OK) {
        status = convoy_engine_end(engine, CONVOY_BROKEN, NULL);
        return convoy_error_set(error, CONVOY_INVARIANT, "own cell is sealed and the round goes on");
    }
    return convoy_error_copy(error, &engine->ended_error);
}

static int32_t operation_publish(struct convoy_engine *engine, const struct convoy_contribution *contribution,
                              convoy_operation *operation_out, struct convoy_error *error)
{
    if (atomic_load_explicit(&engine->state, memory_order_relaxed) != CONVOY_ENGINE_IDLE) {
        return operation_refuse_start(engine, error);
    }
    engine->contribution = *contribution;
    engine->operation_count++;
    convoy_operation operation = convoy_engine_operation(engine);
    atomic_store_explicit(&engine->operation, operation, memory_order_relaxed);
    atomic_store_explicit(&engine->is_unread, 1, memory_order_relaxed);
    if (!convoy_engine_contribute(engine)) {
        return operation_sealed(engine, error);
    }
    *operation_out = operation;
    return CONVOY_OK;
}

int32_t convoy_engine_result(struct convoy_engine *engine, int32_t status, struct convoy_round_summary *summary_out,
                             struct convoy_error *error)
{
    bool is_reopening = status == CONVOY_TIMED_OUT && /* degrade.c: it is over here, and will come again */
                        atomic_load_explicit(&engine->state, memory_order_relaxed) == CONVOY_ENGINE_BROKEN;
    bool is_unread = convoy_engine_is_open(engine) || status == CONVOY_IN_PROGRESS || is_reopening;
    atomic_store_explicit(&engine->is_unread, is_unread, memory_order_relaxed);
    if (status == CONVOY_OK) {
        bool is_usual = engine->remote == NULL && (engine->loss_count | engine->lost_count) == 0 && !is_unread;
        convoy_engine_quick_gate(engine, is_usual ? engine->generation : CONVOY_QUICK_NOBODY);
        engine->front.payload = engine->own_cells[engine->next_round & 1]->payload;
        *summary_out = engine->summary;
        return CONVOY_OK;
    }
    if (status == CONVOY_TIMED_OUT || status == CONVOY_CANCELED) {
        if (error != NULL) {
            convoy_engine_report_open_text(engine, status, error);
        }
        return status;
    }
    return status == CONVOY_IN_PROGRESS ? status : convoy_error_copy(error, &engine->ended_error);
}

static int32_t operation_check(const struct convoy_engine *engine, convoy_operation operation,
                               struct convoy_error *error)
{
    if (operation == 0 || operation != atomic_load_explicit(&engine->operation, memory_order_relaxed)) {
        return convoy_error_set(error, CONVOY_CLOSED, "group %.*s: operation %llx is stale",
                                (int)engine->group->name_length, engine->group->name, (unsigned long long)operation);
    }
    return CONVOY_OK;
}

static int32_t operation_test(struct convoy_engine *engine, convoy_operation operation,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    int32_t status = operation_check(engine, operation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_engine_collect(engine);
    if (status == CONVOY_IN_PROGRESS) {
        convoy_engine_check_peers(engine);
        status = convoy_engine_collect(engine);
    }
    status = convoy_engine_degrade(engine, status, 0, false);
    return convoy_engine_result(engine, status, summary_out, error);
}

static int32_t operation_wait(struct convoy_engine *engine, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    int32_t status = operation_check(engine, operation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_engine_wait_until(engine, timeout_ns != 0 ? timeout_ns : engine->timeout_ns);
    return convoy_engine_result(engine, status, summary_out, error);
}

static int32_t operation_abandon(struct convoy_engine *engine, convoy_operation operation, struct convoy_error *error)
{
    int32_t status = operation_check(engine, operation, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!convoy_engine_is_open(engine) && convoy_engine_is_unread(engine) && engine->ended_status == CONVOY_OK) {
        return CONVOY_OK; /* complete, though nobody has looked: test has its result */
    }
    if (!convoy_engine_is_open(engine)) {
        atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
        return convoy_error_set(error, CONVOY_CLOSED, "group %.*s: the operation has ended already (%s)",
                                (int)engine->group->name_length, engine->group->name,
                                convoy_status_text(engine->ended_status));
    }
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    for (uint32_t local = 0; local < engine->local_count; local++) {
        if (!convoy_engine_is_lost(engine, engine->local_members[local]) && !CONVOY_MUTATED(abandon_seals_nothing)) {
            (void)convoy_engine_seal(engine, local, round, CONVOY_SEAL_ABANDON);
        }
    }
    if (CONVOY_MUTATED(no_reread_after_failed_swap)) { /* takes it that what could not be sealed was sealed by others */
        return convoy_engine_end(engine, CONVOY_BROKEN, NULL);
    }
    if (engine->remote != NULL && convoy_remote_abandon(engine)) {
        atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
        return convoy_error_copy(error, &engine->ended_error);
    }
    status = convoy_engine_collect(engine);
    if (status == CONVOY_BROKEN || status == CONVOY_PEER_LOST) {
        atomic_store_explicit(&engine->is_unread, 0, memory_order_relaxed);
        return convoy_error_copy(error, &engine->ended_error);
    }
    return CONVOY_OK; /* nothing was left to seal: the round is complete and test has its result */
}

void convoy_engine_cancel(struct convoy_engine *engine, const char *reason, size_t length)
{
    size_t kept = length < CONVOY_CANCEL_TEXT_BYTES - 1 ? length : CONVOY_CANCEL_TEXT_BYTES - 1;
    (void)pthread_mutex_lock(&engine->report_lock);
    if (kept != 0) {
        memcpy(engine->cancel_text, reason, kept);
    }
    engine->cancel_text[kept] = '\0';
    (void)pthread_mutex_unlock(&engine->report_lock);
    atomic_store(&engine->cancel_requested, 1);
    (void)convoy_engine_wake_any(engine);
}

/* In a group that spans hosts the progress thread may be at work: the caller takes over for the length of its call. */
static void operation_enter(struct convoy_engine *engine)
{
    if (engine->remote != NULL) {
        convoy_remote_enter(engine);
    }
}

static int32_t operation_leave(struct convoy_engine *engine, int32_t status)
{
    if (engine->remote != NULL) {
        convoy_remote_leave(engine);
    }
    return status;
}

int32_t convoy_engine_begin(struct convoy_engine *engine, uint8_t **payload_out, struct convoy_error *error)
{
    operation_enter(engine);
    return operation_leave(engine, operation_begin(engine, payload_out, error));
}

int32_t convoy_engine_publish(struct convoy_engine *engine, const struct convoy_contribution *contribution,
                              convoy_operation *operation_out, struct convoy_error *error)
{
    operation_enter(engine);
    return operation_leave(engine, operation_publish(engine, contribution, operation_out, error));
}

int32_t convoy_engine_test(struct convoy_engine *engine, convoy_operation operation,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    operation_enter(engine);
    return operation_leave(engine, operation_test(engine, operation, summary_out, error));
}

int32_t convoy_engine_wait(struct convoy_engine *engine, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    operation_enter(engine);
    return operation_leave(engine, operation_wait(engine, operation, timeout_ns, summary_out, error));
}

int32_t convoy_engine_abandon(struct convoy_engine *engine, convoy_operation operation, struct convoy_error *error)
{
    operation_enter(engine);
    return operation_leave(engine, operation_abandon(engine, operation, error));
}

void convoy_engine_heed(struct convoy_engine *engine, struct convoy_engine *beside)
{
    engine->beside = beside;
}

convoy_operation convoy_engine_last(const struct convoy_engine *engine)
{
    return atomic_load_explicit(&engine->operation, memory_order_relaxed);
}

bool convoy_engine_holds(const struct convoy_engine *engine, convoy_operation operation)
{
    return convoy_engine_is_unread(engine) && operation == atomic_load_explicit(&engine->operation, memory_order_relaxed);
}
