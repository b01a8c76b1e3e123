/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

struct replay {
    struct convoy_rank rank;
    struct convoy_scheduler scheduler;
    struct convoy_scheduler_outcome outcome;
    uint64_t started_ns;
    uint64_t step;       /* executed */
    uint64_t trace_step; /* 20 ms each; idle gaps are skipped */
};

static void replay_sleep(uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / CONVOY_NS_PER_S), .tv_nsec = (long)(ns % CONVOY_NS_PER_S)};
    (void)nanosleep(&pause, NULL);
}

/* With --speed: waits for the step's moment, in slices, so that a wish to stop is seen. */
static void replay_pace(const struct replay *replay)
{
    const struct convoy_rank_setup *setup = replay->rank.setup;
    if (setup->speed <= 0) {
        return;
    }
    double step_ns = CONVOY_TRACE_STEP_MS * (double)CONVOY_NS_PER_MS / setup->speed;
    uint64_t moment_ns = replay->started_ns + (uint64_t)((double)replay->trace_step * step_ns);
    uint64_t left_ns = 0;
    while ((left_ns = convoy_deadline_left(convoy_now_ns(), moment_ns)) != 0 &&
           atomic_load(&setup->board->is_stop_wanted) == 0) {
        replay_sleep(left_ns < 100 * CONVOY_NS_PER_MS ? left_ns : 100 * CONVOY_NS_PER_MS);
    }
}

/* Suffers the fault that is due in this step; returns the tag to bring. */
static uint64_t replay_fault(const struct replay *replay)
{
    const struct convoy_run_fault *fault = &replay->rank.setup->fault;
    uint64_t tag = replay->step + 1;
    if (fault->kind == CONVOY_RUN_FAULT_NONE || fault->rank != replay->rank.rank || fault->step != replay->step) {
        return tag;
    }
    if (fault->kind == CONVOY_RUN_FAULT_KILL) {
        (void)kill(getpid(), SIGKILL);
    } else if (fault->kind == CONVOY_RUN_FAULT_STALL) {
        replay_sleep(fault->stall_ms * CONVOY_NS_PER_MS);
    }
    return fault->kind == CONVOY_RUN_FAULT_DIVERGE ? tag + 1 : tag;
}

static uint32_t replay_votes(struct replay *replay)
{
    struct convoy_rank *rank = &replay->rank;
    uint32_t votes = 0;
    if (convoy_scheduler_is_empty(&replay->scheduler, replay->trace_step)) {
        votes |= CONVOY_RANK_VOTE_EMPTY;
    }
    if (!convoy_run_log_reserve(&rank->log)) {
        rank->board->is_log_full = true;
    }
    if (rank->board->is_log_full || atomic_load_explicit(&rank->setup->board->is_stop_wanted, memory_order_relaxed)) {
        votes |= CONVOY_RANK_VOTE_STOP;
    }
    return votes;
}

static void replay_log_requests(struct replay *replay, char tag, const uint32_t *requests, uint32_t count)
{
    if (count == 0) {
        return;
    }
    struct convoy_run_log *log = &replay->rank.log;
    convoy_run_log_begin(log, tag);
    convoy_run_log_number(log, replay->step);
    convoy_run_log_number(log, count);
    for (uint32_t i = 0; i < count; i++) {
        convoy_run_log_number(log, requests[i]);
    }
    convoy_run_log_end(log);
}

/* Reduces the queue's states, when there is a queue, and applies what was agreed. */
static int32_t replay_reduce(struct replay *replay)
{
    struct convoy_rank *rank = &replay->rank;
    uint32_t count = replay->scheduler.queue_count;
    if (count != 0) {
        convoy_scheduler_states(&replay->scheduler, replay->trace_step, rank->ids, rank->states);
        int32_t status = convoy_rank_reduce(rank, replay->step, count);
        if (status != CONVOY_OK) {
            convoy_rank_fail(rank, "reduce", status);
            return status;
        }
    }
    struct convoy_scheduler_outcome *outcome = &replay->outcome;
    convoy_scheduler_apply(&replay->scheduler, replay->trace_step, rank->agreed, outcome);
    replay_log_requests(replay, 'C', outcome->committed, outcome->committed_count);
    replay_log_requests(replay, 'D', outcome->dropped, outcome->dropped_count);
    atomic_fetch_add_explicit(&rank->board->committed, outcome->committed_count, memory_order_relaxed);
    atomic_fetch_add_explicit(&rank->board->dropped, outcome->dropped_count, memory_order_relaxed);
    return CONVOY_OK;
}

/* One scheduler step. IN_PROGRESS: go on; OK: the replay has ended and the board says how. */
static int32_t replay_step(struct replay *replay)
{
    struct convoy_rank *rank = &replay->rank;
    struct convoy_rank_gather gather = {.step = replay->step, .trace_step = replay->trace_step};
    replay_pace(replay);
    int32_t status = convoy_rank_swap(rank, replay->step);
    if (status != CONVOY_OK) {
        convoy_rank_fail(rank, "swap", status);
        return status;
    }
    convoy_scheduler_begin(&replay->scheduler, replay->trace_step);
    gather.votes = replay_votes(replay);
    convoy_scheduler_row(&replay->scheduler, replay->trace_step, gather.row);
    gather.tag = replay_fault(replay);
    status = convoy_rank_gather(rank, &gather);
    if (status != CONVOY_OK) {
        convoy_rank_fail(rank, "gather", status);
        return status;
    }
    if ((gather.votes_or & CONVOY_RANK_VOTE_STOP) != 0) {
        rank->board->outcome = CONVOY_BOARD_STOPPED;
        return CONVOY_OK;
    }
    if ((gather.votes_and & CONVOY_RANK_VOTE_EMPTY) != 0) {
        /* Everybody is idle and says so: all jump to the same next arrival. */
        replay->trace_step = convoy_trace_next_step(rank->setup->trace, replay->trace_step);
        if (replay->trace_step != UINT64_MAX) {
            return CONVOY_IN_PROGRESS;
        }
        rank->board->outcome = CONVOY_BOARD_FINISHED;
        return CONVOY_OK;
    }
    status = replay_reduce(replay);
    replay->trace_step++;
    return status == CONVOY_OK ? CONVOY_IN_PROGRESS : status;
}

static int32_t replay_loop(struct replay *replay)
{
    struct convoy_board_rank *board = replay->rank.board;
    int32_t status = CONVOY_IN_PROGRESS;
    replay->started_ns = convoy_now_ns();
    replay->trace_step = convoy_trace_step(replay->rank.setup->trace, 0);
    /* A trace that starts late starts now. */
    if (replay->rank.setup->speed > 0) {
        double step_ns = CONVOY_TRACE_STEP_MS * (double)CONVOY_NS_PER_MS / replay->rank.setup->speed;
        replay->started_ns -= (uint64_t)((double)replay->trace_step * step_ns);
    }
    uint64_t began_ns = convoy_now_ns();
    while (status == CONVOY_IN_PROGRESS) {
        atomic_store_explicit(&board->trace_step, replay->trace_step, memory_order_relaxed);
        uint64_t step_ns = convoy_now_ns();
        status = replay_step(replay);
        convoy_swapper_turn(&replay->rank.swapper, convoy_now_ns() - step_ns);
        replay->step += status >= 0;
        atomic_store_explicit(&board->steps, replay->step, memory_order_relaxed);
        board->wall_ns = convoy_now_ns() - began_ns;
    }
    return status;
}

static void replay_log_end(struct replay *replay)
{
    static const uint32_t reasons[] = {
        [CONVOY_BOARD_NONE] = CONVOY_RUN_LOG_END_FAILED,
        [CONVOY_BOARD_FINISHED] = CONVOY_RUN_LOG_END_FINISHED,
        [CONVOY_BOARD_STOPPED] = CONVOY_RUN_LOG_END_STOPPED,
        [CONVOY_BOARD_FAILED] = CONVOY_RUN_LOG_END_FAILED,
    };
    if (replay->rank.log.data != NULL) {
        convoy_run_log_begin(&replay->rank.log, 'E');
        convoy_run_log_number(&replay->rank.log, reasons[replay->rank.board->outcome]);
        convoy_run_log_end(&replay->rank.log);
    }
}

static int32_t replay_run(struct replay *replay, const struct convoy_rank_setup *setup, uint32_t index)
{
    int32_t status = convoy_rank_init(&replay->rank, setup, index);
    if (status == CONVOY_OK) {
        status = convoy_scheduler_init(&replay->scheduler, setup->trace, &setup->shape, index, setup->seed);
        if (status != CONVOY_OK) {
            (void)convoy_error_set(&replay->rank.error, status, "no memory for the scheduler's batch");
        }
    }
    if (status != CONVOY_OK) {
        convoy_rank_fail(&replay->rank, "open", status);
        return status;
    }
    atomic_store_explicit(&replay->rank.board->phase, CONVOY_BOARD_RUNNING, memory_order_release);
    return replay_loop(replay);
}

int convoy_replay_rank(const struct convoy_rank_setup *setup, uint32_t index)
{
    struct replay *replay = convoy_memory_zalloc(sizeof *replay);
    if (replay == NULL) {
        return CONVOY_EXIT_FAILURE;
    }
    int32_t status = replay_run(replay, setup, index);
    replay_log_end(replay);
    convoy_rank_fini(&replay->rank);
    convoy_scheduler_fini(&replay->scheduler);
    convoy_memory_free(replay);
    atomic_store_explicit(&setup->board->ranks[index].phase, CONVOY_BOARD_ENDED, memory_order_release);
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}
