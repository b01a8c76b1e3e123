/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks: a test starts N processes (or threads) that each run one function, with memory shared among them and with the
 * parent, marks and barriers to order them without sleeping, signals by rank, and one deadline for all.
 *
 *   create -> start -> [signal, await_mark, mark, await_exit, reap]... -> finish
 *
 * The parent calls ranks_*, the ranks call rank_*. A rank ends by returning (passed), by a failed expectation, or by a
 * signal. Processes die with the test program, and whatever they forked is killed when they are reaped.
 * The parent must have one thread when it starts processes.
 */
#ifndef TESTS_LIB_RANKS_H
#define TESTS_LIB_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX 64
#define RANKS_TIMEOUT_MS 30000u /* what a timeout of 0 means */

struct ranks;

/* What a rank knows about itself. */
struct rank {
    struct ranks *ranks;
    uint32_t index;
    uint32_t count;
    void *shared; /* shared_bytes of zeros at first, one and the same for all */
};

typedef void (*rank_fn)(const struct rank *rank, void *argument);

/* Never NULL (fails the test). count: 1 to RANKS_MAX. gives (ranks_finish). */
struct ranks *ranks_create(uint32_t count, size_t shared_bytes);
void *ranks_shared(const struct ranks *ranks);

/* Starts all ranks as processes. timeout_ms: for everything until finish; 0 = RANKS_TIMEOUT_MS.
 * argument: as seen at the fork, so changes of it stay in the rank; results go into shared memory. */
void ranks_start(struct ranks *ranks, rank_fn run, void *argument, uint32_t timeout_ms);
/* The same as threads of this process: no signals, and a rank that outlives its deadline ends the program. */
void ranks_start_threads(struct ranks *ranks, rank_fn run, void *argument, uint32_t timeout_ms);

pid_t ranks_pid(const struct ranks *ranks, uint32_t index);
/* Sends a signal (SIGSTOP, SIGCONT, ...) to one rank. After SIGKILL its death by it is expected. */
void ranks_signal(struct ranks *ranks, uint32_t index, int signal_number);
/* The rank will end itself by this signal, for example at a kill point. */
void ranks_expect_signal(struct ranks *ranks, uint32_t index, int signal_number);
/* Waits until the rank has stopped after SIGSTOP. */
void ranks_await_stop(struct ranks *ranks, uint32_t index);
/* Both: returns when the rank stands still, until it gets SIGCONT. */
void ranks_stop(struct ranks *ranks, uint32_t index);
/* Waits until the rank has marked `mark` or more. */
void ranks_await_mark(struct ranks *ranks, uint32_t index, uint32_t mark);
/* The parent's own marks, for what it alone can see, for example that a rank has stopped. They only grow too. */
void ranks_mark(struct ranks *ranks, uint32_t mark);
/* Waits until the process has ended. It stays an unreaped zombie until ranks_reap or ranks_finish. */
void ranks_await_exit(struct ranks *ranks, uint32_t index);
void ranks_reap(struct ranks *ranks, uint32_t index);

/* Waits for all, kills what is over its deadline, frees, then fails the test if a rank did not end as expected. */
void ranks_finish(struct ranks *ranks);

/* Marks how far this rank has come; marks only grow. Any rank and the parent can wait for it. */
void rank_mark(const struct rank *rank, uint32_t mark);
void rank_await_mark(const struct rank *rank, uint32_t other, uint32_t mark);
/* Waits until the parent has marked `mark` or more. */
void rank_await_parent(const struct rank *rank, uint32_t mark);
/* Whether the other one has come to `mark`, without waiting: for ranks that go on with something until then. */
bool rank_has_marked(const struct rank *rank, uint32_t other, uint32_t mark);
/* Returns when all ranks are here. */
void rank_barrier(const struct rank *rank);
/* The same for `parties` ranks, for example the survivors. slot: 1 to 7, one for each such set. */
void rank_barrier_of(const struct rank *rank, uint32_t slot, uint32_t parties);

/* In a rank: stores the text and ends the rank. Elsewhere: returns. Used by expect.h. */
void rank_fail(const char *text);

/* A bounded wait on a 32-bit word in shared memory until it differs from `seen`. False: timeout_ms passed. */
bool ranks_futex_wait(uint32_t *word, uint32_t seen, uint32_t timeout_ms);
void ranks_futex_wake(uint32_t *word);

#endif
