/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmark programs of staged transfer share: two forked, pinned processes, sender (rank 0) and receiver (rank
 * 1), that hand over a payload once per round, and the words in shared memory by which they keep step.
 *
 *   sender     stamps its source | start .. taken = the sample |                 waits for checked
 *   receiver                       loads, taken                  looks at it, checked
 *
 * A case is "KIND[:BYTES[:PIECES]]". First and last word of every piece hold the number of the round; the receiver looks
 * at them outside of the measured time. Every process ends at its alarm, so that no wait is without a deadline.
 */
#ifndef TESTS_BENCH_HANDOVER_H
#define TESTS_BENCH_HANDOVER_H

#include "tests/bench/bench.h"

#define HANDOVER_SAMPLES_MAX 20000u
#define HANDOVER_ALARM_S 100u /* below the limit of the script that runs the program */

/* A word in lines of its own: processors fetch lines in pairs. */
struct handover_word {
    _Alignas(128) uint64_t value;
};

/* Shared, all zero at first. Counts go up over all rounds of a case. */
struct handover {
    struct handover_word barrier;
    struct handover_word published; /* by the sender: pieces that may be read */
    struct handover_word taken;     /* by the receiver: pieces that it has */
    struct handover_word checked;   /* by the receiver: rounds that it has looked at */
    struct handover_word choice;    /* by the sender: which of the ways that were tried; from 1 */
    uint64_t samples_ns[HANDOVER_SAMPLES_MAX];
};

struct handover_case {
    char kind[16];
    size_t bytes;
    uint32_t pieces; /* at least 1 */
    char text[64];   /* as given */
};

/* Ends the program on bad usage. */
void handover_parse(const char *text, struct handover_case *case_out);

/* How often a hand-over of so many bytes is repeated: few long ones, many short ones. */
uint32_t handover_rounds(size_t bytes, bool is_quick);

/* This process ends when it is not done by then. */
void handover_deadline(void);

static inline void handover_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void handover_await(const struct handover_word *word, uint64_t at_least);

static inline void handover_set(struct handover_word *word, uint64_t value)
{
    __atomic_store_n(&word->value, value, __ATOMIC_RELEASE);
}

/* Bytes without a pattern: memory full of zeros is copied faster by some processors (1 MiB with streaming stores: 15 instead of
 * 25 us on an EPYC of the Zen 5 class), and no payload is. Touches every page. */
void handover_fill(void *memory, size_t bytes);

/* The two words of a piece of at least 16 bytes. check ends the program when they are another round's. */
void handover_stamp(void *piece, size_t bytes, uint64_t round);
void handover_check(const void *piece, size_t bytes, uint64_t round, const char *what);

/* Median of all but the first tenth; sorts them. */
uint64_t handover_median_ns(uint64_t *samples_ns, uint32_t count);

/* Prints the line of JSON; sorts the samples. more: further members, as in ", \"chunk\": 4096", or "". */
void handover_print(const char *peer, const char *text, uint64_t *samples_ns, uint32_t count, const char *more);

#endif
