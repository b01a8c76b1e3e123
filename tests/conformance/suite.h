/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite of cases over four ways to be a group: members as threads of one process, processes over shared memory,
 * processes over UCX on one host, and processes in two network namespaces. A case is what one rank does; it knows the
 * transport only to skip what cannot be (a thread cannot be killed).
 */
#ifndef TESTS_CONFORMANCE_SUITE_H
#define TESTS_CONFORMANCE_SUITE_H

#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#define SUITE_MEMBERS 4u
#define SUITE_LATE_NS 300000000ull   /* a deadline that is meant to pass */
#define SUITE_LONG_NS 20000000000ull /* one that is not */

enum suite_transport {
    SUITE_THREADS = 0,
    SUITE_SHARED_MEMORY,
    SUITE_UCX,
    SUITE_NAMESPACES,
};

/* What a rank of a case has. */
struct suite {
    const struct rank *rank;
    struct plugin_member *member; /* not opened yet: the case may change its options first */
    struct exchange exchange;
    enum suite_transport transport;
    uint16_t ports[2]; /* for groups that a case opens beside the first */
    const char *host;  /* address of the rendezvous */
};

struct suite_case {
    const char *name;
    void (*run)(struct suite *suite); /* what every rank does */
    void (*parent)(struct ranks *ranks); /* what the test program does meanwhile; NULL = nothing */
    bool needs_processes;
};

/* All cases, in tables by theme. */
extern const struct suite_case suite_round_cases[];
extern const size_t suite_round_count;
extern const struct suite_case suite_alike_cases[];
extern const size_t suite_alike_count;
extern const struct suite_case suite_keyed_cases[];
extern const size_t suite_keyed_count;
extern const struct suite_case suite_between_cases[];
extern const size_t suite_between_count;
extern const struct suite_case suite_failure_cases[];
extern const size_t suite_failure_count;
extern const struct suite_case suite_loss_cases[];
extern const size_t suite_loss_count;
extern const struct suite_case suite_mixed_cases[];
extern const size_t suite_mixed_count;

/* Runs all cases over one transport as a cmocka group of that name; returns main's exit code. */
int suite_main(const char *name, enum suite_transport transport);

/* Opens the member's group. */
void suite_open(struct suite *suite);

/* A second member of another group beside the first (own context); gives (plugin_member_destroy). */
struct plugin_member *suite_member(struct suite *suite, const char *name, const int32_t *ids, uint32_t count,
                                   uint32_t own_index, uint32_t port_index);

/* A round of `count` states in which every rank brings `state`; expects OK and MIN over all. */
void suite_expect_round(struct suite *suite, size_t count, uint8_t state);

/* Reopens and expects OK; returns what was agreed. */
struct convoy_reopen_result suite_reopen(struct suite *suite);

struct convoy_group_info suite_info(struct suite *suite);

/* Whether this rank and another one meet in shared memory. */
bool suite_is_neighbour(const struct suite *suite, uint32_t other);

/* Whether that is what the dump says now of the link to a member. */
bool suite_link_is(struct suite *suite, uint32_t member, const char *link);

#endif
