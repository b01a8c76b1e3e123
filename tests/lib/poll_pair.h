/* SPDX-License-Identifier: Apache-2.0 */
/* Two members of a poll group over real engines, driven from one thread or from two; the first reduces, the other mostly
 * starts before it, so that nobody waits. */
#ifndef CONVOY_TESTS_LIB_POLL_PAIR_H
#define CONVOY_TESTS_LIB_POLL_PAIR_H

#include "poll/poll.h"
#include "tests/lib/neighbours.h"

#define POLL_PAIR_LISTS 3u
#define POLL_PAIR_ENTRIES 80u

struct poll_side {
    struct neighbours *all;
    struct neighbour *member;
    struct convoy_poll *poll;
    uint8_t states[POLL_PAIR_LISTS][POLL_PAIR_ENTRIES];
    uint8_t out[POLL_PAIR_LISTS][POLL_PAIR_ENTRIES];
    uint64_t keys[POLL_PAIR_ENTRIES];
    struct convoy_poll_list lists[POLL_PAIR_LISTS];
    struct convoy_poll_list_result list_results[POLL_PAIR_LISTS];
    struct convoy_poll_call call;
    struct convoy_poll_result result;
    convoy_operation operation;
    uint32_t records;
    uint32_t keeps;
    uint32_t idles;
    int32_t recorded_status;
    uint64_t recorded_round;
    uint8_t recorded_input; /* first state of the first list */
    struct poll_side *bring; /* starts this side's round in the next idle call */
};

struct poll_pair {
    struct neighbours *all;
    struct poll_side sides[2];
};

/* Their first round has gone the whole way, so the next can go the short one. gives (poll_pair_destroy) */
struct poll_pair *poll_pair_create(const char *settings, uint32_t list_count, size_t entries, bool keeps);
void poll_pair_destroy(struct poll_pair *pair);

/* The same lists for both: the first of `entries`, each other one longer by one; all states of a member alike. */
void poll_pair_fill(struct poll_pair *pair, uint32_t list_count, size_t entries, uint8_t first, uint8_t second);

int32_t poll_side_start(struct poll_side *side);
int32_t poll_pair_reduce(struct poll_pair *pair);
int32_t poll_pair_test_other(struct poll_pair *pair);

/* Whether the last reduce went the short way. */
bool poll_pair_was_short(const struct poll_pair *pair);

/* One round of filled sides; the other side first, the whole way. Every outcome is `state`. Whose states go by the half
 * byte is not alone then. */
void poll_pair_round(struct poll_pair *pair, bool is_short, uint8_t state);

#define POLL_PAIR_ROUNDS 500u

/* Rounds in which every entry of every member has a state of its own; numbered from 0, right after the first one. */
void poll_side_round_fill(struct poll_side *side, uint32_t round);
bool poll_side_round_is_right(const struct poll_side *side, uint32_t round);

#endif
