/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time and deadlines. Times are CLOCK_MONOTONIC nanoseconds (shared by all processes of a host). */
#ifndef CONVOY_CORE_CLOCK_H
#define CONVOY_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CONVOY_NS_PER_MS 1000000ull
#define CONVOY_NS_PER_S 1000000000ull
#define CONVOY_DEADLINE_NEVER UINT64_MAX

static inline uint64_t convoy_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* vDSO; cannot fail for this clock */
    return (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Absolute deadline of a relative timeout; saturates. */
static inline uint64_t convoy_deadline_after(uint64_t now_ns, uint64_t timeout_ns)
{
    return timeout_ns > CONVOY_DEADLINE_NEVER - now_ns ? CONVOY_DEADLINE_NEVER : now_ns + timeout_ns;
}

/* Nanoseconds left, 0 when passed. */
static inline uint64_t convoy_deadline_left(uint64_t now_ns, uint64_t deadline_ns)
{
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* The same as a poll(2) timeout: rounded up, at most INT32_MAX ms. */
static inline int convoy_deadline_poll_ms(uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t left = convoy_deadline_left(now_ns, deadline_ns);
    uint64_t ms = left / CONVOY_NS_PER_MS + (left % CONVOY_NS_PER_MS != 0);
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

#endif
