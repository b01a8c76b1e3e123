/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When something happened, for a few nanoseconds and without touching memory: the processor's counter, which is made
 * nanoseconds of CLOCK_MONOTONIC only by whoever wants to know. For times that people read (ages in a dump), not for
 * deadlines: a counter that jumps (a machine that was moved) gives a wrong age, never one before the base or after now.
 */
#ifndef CONVOY_CORE_TICKS_H
#define CONVOY_CORE_TICKS_H

#include "core/clock.h"

/* One moment by both clocks. */
struct convoy_ticks {
    uint64_t ticks;
    uint64_t ns;
};

static inline uint64_t convoy_ticks_now(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return convoy_now_ns();
#endif
}

static inline struct convoy_ticks convoy_ticks_both(void)
{
    return (struct convoy_ticks){convoy_ticks_now(), convoy_now_ns()};
}

/* CLOCK_MONOTONIC at `ticks`, which lie between the two moments. */
static inline uint64_t convoy_ticks_ns(const struct convoy_ticks *base, const struct convoy_ticks *now, uint64_t ticks)
{
    if (ticks <= base->ticks || now->ns <= base->ns) {
        return base->ns;
    }
    if (ticks >= now->ticks) {
        return now->ns;
    }
    double part = (double)(ticks - base->ticks) / (double)(now->ticks - base->ticks);
    return base->ns + (uint64_t)((double)(now->ns - base->ns) * part);
}

#endif
