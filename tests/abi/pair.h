/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of two members, both in this process and both driven by the test's thread, so that each state of a group can be
 * made at will. Each member has a context of its own, and in it a group of one member too, as second level of reduce2.
 */
#ifndef TESTS_ABI_PAIR_H
#define TESTS_ABI_PAIR_H

#include "tests/abi/calls.h"

struct pair {
    struct plugin_member *own;
    struct plugin_member *peer;
    convoy_group *own_alone; /* one member */
    convoy_group *peer_alone;
    struct convoy_sync_schema schema;
    struct calls calls; /* of the own group */
    struct calls peer_calls;
};

/* Contexts are open, the groups are not; options may still be changed. gives (pair_destroy). */
struct pair *pair_create(void);
/* The same with settings of the contexts, such as {"net":"ucx"}: then each member counts as a host of its own. */
struct pair *pair_create_with(const char *settings);
/* And at a port of the caller's (plugin_port, which stays open in the process that called it). */
struct pair *pair_create_at(uint16_t port, const char *settings);
/* Starts the own open only. */
void pair_start_own(struct pair *pair);
/* Starts and finishes both opens. */
void pair_open(struct pair *pair);
/* One poll round of both members. */
void pair_round(struct pair *pair);
/* Closes what is open. */
void pair_destroy(struct pair *pair);

#endif
