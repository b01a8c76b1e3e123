/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nobody tells: a condition is looked at again and again, and in between the processor is offered to whoever brings it
 * about. Nothing sleeps, and what does not come fails the test. What a call of the library or a mark of ranks.h tells is
 * waited for with those.
 */
#ifndef TESTS_LIB_AWAIT_H
#define TESTS_LIB_AWAIT_H

#include "core/clock.h"
#include "tests/lib/expect.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define AWAIT_NS 10000000000ull /* a hundred times what anything here takes */

static inline uint64_t await_end(void)
{
    return convoy_now_ns() + AWAIT_NS;
}

/* Between two looks; false once it is too late for another. */
static inline bool await_again(uint64_t end_ns)
{
    (void)sched_yield();
    return convoy_now_ns() < end_ns;
}

/* Returns once the condition is true. */
#define AWAIT(condition)                                                                                               \
    do {                                                                                                               \
        const uint64_t await_end_ns = await_end();                                                                     \
        while (!(condition)) {                                                                                         \
            if (!await_again(await_end_ns)) {                                                                          \
                expect_fail(EXPECT_SITE(#condition), "has not become true");                                           \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#endif
