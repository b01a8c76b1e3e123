/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A party: ranks that make rounds while some of them are killed, stopped or cut off, and a log of what each has seen.
 * Every round's result tells who contributed and which round it is, so a result of another round cannot pass for it.
 * The parent compares the logs of the survivors.
 */
#ifndef TESTS_FAULT_PARTY_H
#define TESTS_FAULT_PARTY_H

#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <stdbool.h>

#define PARTY_MAX 8u
#define PARTY_ENTRIES_MAX 8192u
#define PARTY_LONG_NS 20000000000ull

enum party_place {
    PARTY_MEMORY = 0, /* one host, shared memory */
    PARTY_UCX,        /* one machine, every member a host of its own */
    PARTY_HOSTS,      /* three network namespaces */
};

/* One round as one member saw it. */
struct party_entry {
    uint64_t round;
    uint64_t epoch;
    int32_t status;
    uint32_t contributors; /* bit per member, from the result */
};

struct party_log {
    uint32_t has_opened;
    uint32_t is_done;
    uint32_t count;
    int32_t reopen_status; /* of the last reopen */
    struct party_entry entries[PARTY_ENTRIES_MAX];
};

/* Lies in the ranks' shared memory. */
struct party_shared {
    uint32_t go;    /* futex word, set by the parent */
    uint32_t words[15]; /* for the test */
    struct party_log logs[PARTY_MAX];
};

/* What all ranks of a party know when they start. */
struct party_plan {
    enum party_place place;
    uint32_t count;
    uint16_t port;
    uint32_t critical_flags; /* of the group */
    uint64_t open_timeout_ns; /* 0 = long */
    bool is_split; /* rounds in the split form */
    const void *user;
};

struct party {
    const struct rank *rank;
    const struct party_plan *plan;
    struct plugin_member *member;
    struct party_shared *shared;
    struct party_log *log;
    struct exchange exchange;
    uint64_t next; /* number of the round that comes next */
};

/* In the parent. shared memory as party_shared. */
struct ranks *party_ranks(struct party_plan *plan);
void party_go(struct ranks *ranks);

/* Whether a rank has neither ended nor become a zombie. */
bool party_is_running(const struct ranks *ranks, uint32_t index);

/* In a rank: enters its host, makes its member; nothing is opened. gives (party_leave) */
struct party *party_enter(const struct rank *rank, const struct party_plan *plan);
int32_t party_open(struct party *party);
void party_leave(struct party *party);

/* Which host of PARTY_HOSTS a member is on. */
uint32_t party_host_of(uint32_t index, uint32_t count);

/* Waits for the parent's go. */
void party_await_go(const struct party *party);

/* One round: prepares and starts it, or finishes it; what ends it is logged. party_round: in one call, which may go the
 * engine's short way, unless the plan is split. */
int32_t party_start(struct party *party, convoy_operation *operation_out);
int32_t party_finish(struct party *party, convoy_operation operation, uint64_t timeout_ns);
int32_t party_round(struct party *party, uint64_t timeout_ns);
int32_t party_abandon(struct party *party, convoy_operation operation);

/* What a round in one call has left open. */
convoy_operation party_operation(struct party *party);

/* Reopens; a result that others hand over is read and logged. */
int32_t party_reopen(struct party *party);

/* Rounds, reopening whenever one fails, until round `last` has ended well. */
void party_survive(struct party *party, uint64_t last);

/*
 * Compares what the members of the set `survivors` have seen: each good round once, in order, up to `last`, with one
 * result; on one host also every failure alike.
 */
void party_check(const struct party_shared *shared, const struct party_plan *plan, uint32_t survivors, uint64_t last);

/* The contributors of a round that ended well on a member; 0 = it did not. */
uint32_t party_contributors(const struct party_log *log, uint64_t round);

/* Milliseconds that all ranks of a party have: CONVOY_TEST_TIMEOUT_MS, else 60,000. */
uint32_t party_timeout_ms(void);

/* Whether a test of that name is to run: CONVOY_TEST_ONLY is not set or is a part of it. */
bool party_is_wanted(const char *name);

/* Makes three hosts for the first test that needs them; false, and the reason on stdout: they cannot be made here. */
bool party_has_hosts(void);

struct CMUnitTest;

/* Runs those tests of the array that are wanted, as a cmocka group; returns main's exit code. */
int party_main(const char *name, const struct CMUnitTest *tests, size_t count);

/* A test's size: `small` times CONVOY_SCALE, which is 1 if not set. */
uint32_t party_scaled(uint32_t small);

#endif
