/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One link in one rank (tests/lib/ranks.h): a context, a link, and counters of what arrived. Addresses travel through
 * the ranks' shared memory. Every rank is a process of its own: UCX does not survive a fork, so the parent never opens
 * it. For unit tests only (it uses the inside of the library).
 */
#ifndef TESTS_LIB_LINKNODE_H
#define TESTS_LIB_LINKNODE_H

#include "net/link.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <stdbool.h>

#define LINKNODE_RANKS 4
#define LINKNODE_BYTES 16384u
#define LINKNODE_LONG_BYTES 200000u /* the longest message that is taken */

/* Lies in the ranks' shared memory. */
struct linknode_shared {
    struct {
        uint64_t bytes;
        uint8_t address[2048];
    } ports[LINKNODE_RANKS];
    uint64_t numbers[16]; /* for the test */
};

struct linknode {
    struct convoy_runtime *runtime;
    struct convoy_link *link;
    const struct rank *rank;
    struct linknode_shared *shared;
    uint64_t received;
    uint64_t last;      /* number in the header of the last message */
    uint64_t last_bytes;
    uint32_t last_from;
    uint64_t wrong;     /* messages whose content was not as sent */
    uint32_t downs;
    uint32_t last_down;
};

/* settings: JSON object or NULL. All ranks call it; returns when every rank has its address out. */
void linknode_open(struct linknode *node, const struct rank *rank, const char *settings);
void linknode_connect(struct linknode *node, uint32_t peer);

/* Sends `bytes` bytes numbered `number`; LIMIT is waited out. */
int32_t linknode_send(struct linknode *node, uint32_t peer, uint64_t number, size_t bytes);

/* Progresses (sleeping = with wake-up) until the counter reaches the value and own sends are out, so that the rank may
 * block elsewhere afterwards; false: timeout_ms passed. */
bool linknode_await(struct linknode *node, const uint64_t *counter, uint64_t value, bool sleeping, uint32_t timeout_ms);
bool linknode_await_down(struct linknode *node, uint32_t downs, uint32_t timeout_ms);

/* Returns milliseconds that closing the link took. */
uint64_t linknode_close(struct linknode *node, uint64_t timeout_ns);

#endif
