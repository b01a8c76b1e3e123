/* SPDX-License-Identifier: Apache-2.0 */
/* How much a test repeats: CONVOY_SCALE (1 when it is not set) multiplies the small count of `make test`. */
#ifndef TESTS_LIB_SCALE_H
#define TESTS_LIB_SCALE_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t test_scale(void)
{
    const char *scale = getenv("CONVOY_SCALE");
    unsigned long factor = scale == NULL ? 1 : strtoul(scale, NULL, 10);
    return factor < 1 ? 1 : factor;
}

/* count x scale, but not more than the test's full scale. */
static inline uint32_t test_scaled(uint32_t count, uint32_t full)
{
    uint64_t scaled = count * test_scale();
    return scaled < full ? (uint32_t)scaled : full;
}

#endif
