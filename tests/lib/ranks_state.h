/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks.c (the parent's side) and rank.c (the ranks' side) share. Tests do not include it. */
#ifndef TESTS_LIB_RANKS_STATE_H
#define TESTS_LIB_RANKS_STATE_H

#include "tests/lib/ranks.h"

#include <pthread.h>

#define RANKS_BARRIERS 8
#define RANKS_TEXT_BYTES 768
#define RANKS_SLICE_MS 50u /* how often a waiter looks whether another rank has failed */

enum ranks_ending { RANKS_RUNNING = 0, RANKS_PASSED, RANKS_FAILED, RANKS_GAVE_UP };

/* One rank's part of the shared memory. */
struct ranks_slot {
    uint32_t mark;   /* futex word */
    uint32_t ending; /* enum ranks_ending */
    char text[RANKS_TEXT_BYTES];
};

struct ranks_barrier {
    uint32_t arrived;
    uint32_t generation; /* futex word */
};

struct ranks_memory {
    struct ranks_barrier barriers[RANKS_BARRIERS];
    uint32_t has_failed;
    uint32_t parent_mark; /* futex word */
    struct ranks_slot slots[RANKS_MAX];
};

struct ranks {
    struct ranks_memory *memory;
    size_t mapped_bytes;
    uint32_t count;
    bool are_threads;
    bool is_started;
    uint32_t timeout_ms;
    uint64_t deadline_ns;
    rank_fn run;
    void *argument;
    struct rank ranks[RANKS_MAX];
    /* processes */
    pid_t pids[RANKS_MAX]; /* 0 = reaped */
    int pidfds[RANKS_MAX];
    int wait_status[RANKS_MAX];
    int expected_signal[RANKS_MAX];
    bool is_overdue[RANKS_MAX];
    /* threads */
    pthread_t threads[RANKS_MAX];
};

static inline uint32_t ranks_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void ranks_store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Milliseconds until the deadline, rounded up; 0 = passed. */
uint32_t ranks_left_ms(const struct ranks *ranks);
/* False: the deadline passed, or a rank failed so that waiting on has no point. */
bool ranks_mark_reached(const struct ranks *ranks, uint32_t index, uint32_t mark);
/* Sets a word of marks and wakes who waits for it. */
void ranks_mark_word(uint32_t *word, uint32_t mark);
/* Runs the rank's function in the calling process or thread and ends it. */
void rank_run(struct rank *rank) __attribute__((noreturn));
/* Ends the calling rank without a failure of its own. */
void rank_give_up(const struct rank *rank) __attribute__((noreturn));

#endif
