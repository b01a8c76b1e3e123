/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real round engines of a group that spans hosts, all in one thread over fake links (fake_link.h), without progress
 * threads: nothing happens but what the test asks for, in the order in which it does. Members of one host share a
 * segment. A round's result is the sum of what its members brought.
 */
#ifndef CONVOY_TESTS_FAKE_HOSTS_H
#define CONVOY_TESTS_FAKE_HOSTS_H

#include "core/bundle.h"
#include "round/remote_internal.h"
#include "tests/lib/fake_link.h"

#define FAKE_HOSTS_EPOCH 40u

struct fake_member {
    struct convoy_engine *engine;
    struct convoy_engine *exporter; /* what `engine` was imported from, until it is retired; NULL = none */
    convoy_operation operation;
    uint32_t sum; /* of the last round that ended well */
    uint32_t merged;
    struct convoy_round_summary summary;
    struct convoy_reopen_result reopened;
    struct convoy_error error;
    struct convoy_group_options options;
};

struct fake_hosts {
    struct convoy_runtime *runtime;
    uint32_t count;
    int32_t ids[FAKE_LINKS_MAX];
    uint32_t numbers[FAKE_LINKS_MAX]; /* of the links that they open with */
    struct fake_member members[FAKE_LINKS_MAX];
    int life[FAKE_LINKS_MAX]; /* eventfd that stands for the process: readable once it is dead */
};

/* host_of: [count], ascending. gives (fake_hosts_destroy) */
struct fake_hosts *fake_hosts_create(const uint32_t *host_of, uint32_t count);
void fake_hosts_destroy(struct fake_hosts *hosts);

/* Starts a round with a number; expects OK. */
void fake_hosts_start(struct fake_hosts *hosts, uint32_t index, uint8_t number);

/* What test, abandon and reopen return; none waits. Reopen is TIMED_OUT while it has not been agreed on. */
int32_t fake_hosts_test(struct fake_hosts *hosts, uint32_t index);
int32_t fake_hosts_abandon(struct fake_hosts *hosts, uint32_t index);
int32_t fake_hosts_reopen(struct fake_hosts *hosts, uint32_t index);

/* What a progress thread does when it looks in. */
void fake_hosts_look(struct fake_hosts *hosts, uint32_t index);

/* A member moves to another build: freezes and is imported; its importer, or the exporter, starts to run; the exporter
 * looks at what still comes to it (true: all have heard the importer), and ends. move: all of it, while others look. */
void fake_hosts_import(struct fake_hosts *hosts, uint32_t index);
void fake_hosts_thaw(struct fake_hosts *hosts, uint32_t index);
void fake_hosts_go_back(struct fake_hosts *hosts, uint32_t index);
bool fake_hosts_is_left(struct fake_hosts *hosts, uint32_t index);
void fake_hosts_retire(struct fake_hosts *hosts, uint32_t index);
void fake_hosts_move(struct fake_hosts *hosts, uint32_t index);

/* The two halves of import, of a frozen member. The bundle's first item is what remote has saved. */
int32_t fake_hosts_save(struct fake_hosts *hosts, uint32_t index, struct convoy_bundle_writer *bundle);
int32_t fake_hosts_restore(struct fake_hosts *hosts, uint32_t index, const struct convoy_bundle_writer *bundle);

/* The number of a member's link (fake_link.h); its index until it moves. */
uint32_t fake_hosts_link(const struct fake_hosts *hosts, uint32_t index);

/* The member is dead: nothing may be asked of it any more. */
void fake_hosts_kill(struct fake_hosts *hosts, uint32_t index);

/* What is sent again after a while is due now, and a host of one member whose link is down is waited for no longer. */
void fake_hosts_pass_time(struct fake_hosts *hosts);

/* Looks by turns until no message is under way. */
void fake_hosts_settle(struct fake_hosts *hosts);

/* A round of all that are alive, each with its index + 1: ends well, with that number and sum on all. Settles. */
void fake_hosts_expect_round(struct fake_hosts *hosts, uint64_t round);

/* Looks and reopens by turns until all that are alive have agreed; expects that they do, on one epoch and round.
 * Settles. */
void fake_hosts_expect_reopen(struct fake_hosts *hosts, uint64_t epoch, uint64_t next_round);

#endif
