/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines of two ranks that share no memory: each on a host of its own (tests/lib/hosts.h), or, without the right to make
 * such, in two processes of one host that are set to share none.
 */
#ifndef TESTS_LIB_FAR_HOSTS_H
#define TESTS_LIB_FAR_HOSTS_H

#include "tests/lib/scene.h"

/* What the ranks share. */
struct far_shared {
    struct scene_sessions sessions;
    char text[4096];
    uint64_t numbers[8];
};

/* Set-up and tear-down of a group of tests. */
int far_make_hosts(void **state);
int far_remove_hosts(void **state);

/* Starts both ranks and waits for them. */
void far_run(void (*run)(const struct rank *rank, void *argument), void *argument);

/* Opens this rank's engine on its host, tells its session and marks 1. pool_bytes 0: 256 MiB. prealloc_count: of 64 KiB. */
struct engine *far_open(const struct rank *rank, uint64_t pool_bytes, uint32_t prealloc_count);
/* The two halves of it, for options of the caller's (address apart): goes to this rank's host; opens there. */
void far_enter(const struct rank *rank);
struct engine *far_open_with(const struct rank *rank, const struct convoy_transfer_options *options);
/* Another engine of a rank that has one already. */
struct engine *far_open_again(const struct rank *rank, uint64_t pool_bytes);

/* Connects to the other rank, which must have marked 1, and sees that it is far. */
convoy_peer far_connect(const struct rank *rank, struct engine *engine);

convoy_transfer far_send(struct engine *engine, convoy_peer peer, const char *request, const uint8_t *data,
                         const uint64_t *bytes, uint32_t flags);
convoy_transfer far_accept(struct engine *engine, uint32_t mode);
void far_release(struct engine *engine, convoy_transfer transfer);

/* Waits until a transfer is in this state, or has ended. */
void far_await_state(struct engine *engine, convoy_transfer transfer, uint32_t state);

/* A number of what STATS says about peers on other hosts, 0 before there is one. */
uint64_t far_number(struct engine *engine, const char *name);

/* Both sides have nothing left, and only then close. */
void far_finish(const struct rank *rank, struct engine *engine);

#endif
