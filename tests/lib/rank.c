/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' side: running the function, ending, marks and barriers. */
#include "tests/lib/ranks_state.h"

#include "core/clock.h"
#include "tests/lib/expect.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* There only in builds with the address sanitizer: ranks leave by _exit, past its own check at exit. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

#ifdef CONVOY_COVERAGE
#define LEAVE exit /* writes what was counted */
#else
#define LEAVE _exit
#endif

/* Which rank the calling thread is: the expectations must know it without a parameter. */
static _Thread_local const struct rank *current;

bool ranks_futex_wait(uint32_t *word, uint32_t seen, uint32_t timeout_ms)
{
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), timeout_ms * CONVOY_NS_PER_MS);
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % CONVOY_NS_PER_S)};
    while (ranks_load(word) == seen) {
        long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
        if (rc != 0 && errno == ETIMEDOUT) {
            return ranks_load(word) != seen;
        }
    }
    return true;
}

void ranks_futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static _Noreturn void end(const struct rank *rank, enum ranks_ending ending)
{
    ranks_store(&rank->ranks->memory->slots[rank->index].ending, ending);
    if (ending == RANKS_FAILED) {
        ranks_store(&rank->ranks->memory->has_failed, 1);
    }
    current = NULL;
    if (rank->ranks->are_threads) {
        pthread_exit(NULL);
    }
    (void)fflush(NULL);
    LEAVE(ending == RANKS_PASSED ? EXIT_SUCCESS : EXIT_FAILURE);
}

void rank_fail(const char *text)
{
    if (current != NULL) {
        (void)snprintf(current->ranks->memory->slots[current->index].text, RANKS_TEXT_BYTES, "%s", text);
        end(current, RANKS_FAILED);
    }
}

void rank_give_up(const struct rank *rank)
{
    end(rank, RANKS_GAVE_UP);
}

void rank_run(struct rank *rank)
{
    current = rank;
    rank->ranks->run(rank, rank->ranks->argument);
    if (!rank->ranks->are_threads && __lsan_do_recoverable_leak_check != NULL) {
        EXPECT_EQUAL(__lsan_do_recoverable_leak_check(), 0);
    }
    end(rank, RANKS_PASSED);
}

uint32_t ranks_left_ms(const struct ranks *ranks)
{
    return (uint32_t)convoy_deadline_poll_ms(convoy_now_ns(), ranks->deadline_ns);
}

/* One slice of waiting for the word to change. False: give up. */
static bool wait_slice(const struct ranks *ranks, uint32_t *word, uint32_t seen)
{
    if (ranks_load(&ranks->memory->has_failed) != 0 || ranks_left_ms(ranks) == 0) {
        return false;
    }
    (void)ranks_futex_wait(word, seen, RANKS_SLICE_MS);
    return true;
}

static bool word_reached(const struct ranks *ranks, uint32_t *word, uint32_t mark)
{
    for (uint32_t seen = ranks_load(word); seen < mark; seen = ranks_load(word)) {
        if (!wait_slice(ranks, word, seen)) {
            return false;
        }
    }
    return true;
}

bool ranks_mark_reached(const struct ranks *ranks, uint32_t index, uint32_t mark)
{
    return word_reached(ranks, &ranks->memory->slots[index].mark, mark);
}

void ranks_mark_word(uint32_t *word, uint32_t mark)
{
    EXPECT(mark > ranks_load(word));
    ranks_store(word, mark);
    ranks_futex_wake(word);
}

void rank_mark(const struct rank *rank, uint32_t mark)
{
    ranks_mark_word(&rank->ranks->memory->slots[rank->index].mark, mark);
}

/* Whether the others failed or the time is up: the second is this rank's own failure to report. */
static _Noreturn void give_up(const struct rank *rank, const char *what)
{
    if (ranks_load(&rank->ranks->memory->has_failed) != 0) {
        rank_give_up(rank);
    }
    expect_fail(EXPECT_SITE(what), "not reached within %u ms", rank->ranks->timeout_ms);
}

void rank_await_mark(const struct rank *rank, uint32_t other, uint32_t mark)
{
    if (!ranks_mark_reached(rank->ranks, other, mark)) {
        give_up(rank, "rank_await_mark");
    }
}

void rank_await_parent(const struct rank *rank, uint32_t mark)
{
    if (!word_reached(rank->ranks, &rank->ranks->memory->parent_mark, mark)) {
        give_up(rank, "rank_await_parent");
    }
}

bool rank_has_marked(const struct rank *rank, uint32_t other, uint32_t mark)
{
    return ranks_load(&rank->ranks->memory->slots[other].mark) >= mark;
}

void rank_barrier_of(const struct rank *rank, uint32_t slot, uint32_t parties)
{
    EXPECT(slot < RANKS_BARRIERS);
    struct ranks_barrier *barrier = &rank->ranks->memory->barriers[slot];
    uint32_t generation = ranks_load(&barrier->generation);
    if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) == parties) {
        ranks_store(&barrier->arrived, 0); /* before the release, so that the next use starts at 0 */
        ranks_store(&barrier->generation, generation + 1);
        ranks_futex_wake(&barrier->generation);
        return;
    }
    while (ranks_load(&barrier->generation) == generation) {
        if (!wait_slice(rank->ranks, &barrier->generation, generation)) {
            give_up(rank, "rank_barrier");
        }
    }
}

void rank_barrier(const struct rank *rank)
{
    rank_barrier_of(rank, 0, rank->count);
}
