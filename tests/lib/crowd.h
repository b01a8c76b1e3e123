/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are all members of one group: the usual shape of a test with real processes. The argument of the rank
 * function is a struct crowd.
 */
#ifndef TESTS_LIB_CROWD_H
#define TESTS_LIB_CROWD_H

#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#define CROWD_PORTS 4
#define CROWD_TIMEOUT_MS 120000u
#define CROWD_SOAK_TIMEOUT_MS 7000000u
#define CROWD_WAIT_NS 20000000000ull /* a deadline that is not meant to pass */
#define CROWD_LATE_NS 300000000ull   /* one that is */

struct crowd {
    uint16_t ports[CROWD_PORTS]; /* for groups; crowd_open takes the first */
};

/* Starts `count` processes that run it, waits for all, fails the test if one did. */
void crowd_run(uint32_t count, rank_fn run, size_t shared_bytes);

/* The same in two steps, for a parent that does something meanwhile. gives (ranks_finish) */
struct ranks *crowd_start(uint32_t count, rank_fn run, size_t shared_bytes);

/* This rank's member of a group of all, opened. gives (crowd_close) */
struct plugin_member *crowd_open(const struct rank *rank, const struct crowd *crowd, const char *name);

/* Waits until all ranks are here, then closes. */
void crowd_close(const struct rank *rank, struct plugin_member *member);

/* Two levels of 2 x 2 ranks 2t + c: first groups {0, 2} and {1, 3}, second groups {0, 1} and {2, 3}. */
struct crowd_levels {
    struct plugin_member *first;
    struct plugin_member *second;
};

void crowd_levels_open(const struct rank *rank, const struct crowd *crowd, struct crowd_levels *levels_out);
void crowd_levels_close(const struct rank *rank, struct crowd_levels *levels);

#endif
