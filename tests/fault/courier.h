/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines in two processes that go through every kind of transfer, one step after another:
 *
 *   dialer    connect, withdraw, view, copy, broker, push, raw, close        sends
 *   listener            (nothing), view, copy, broker, push, raw, close      receives, by request name
 *
 * One of the two may die on the way. The other never waits for longer than it takes to notice: each of its transfers ends,
 * well or as PEER_LOST, and courier_run returns. What is left then is for the test to see.
 */
#ifndef TESTS_FAULT_COURIER_H
#define TESTS_FAULT_COURIER_H

#include "tests/lib/engines.h"
#include "tests/lib/ranks.h"

#define COURIER_LIVES 2u /* of the one that dies */
#define COURIER_TIMEOUT_NS 20000000000ull /* of everything; nothing comes near it */
#define COURIER_NOTICE_NS 5000000000ull   /* from a death to the end of what was for the dead one */

enum courier_role { COURIER_LISTENER = 0, COURIER_DIALER, COURIER_ROLES };

/* In memory that both share; one for each life. */
struct courier_life {
    char sessions[COURIER_ROLES][CONVOY_SESSION_BYTES];
    uint32_t steps[COURIER_ROLES]; /* how far each has come */
    uint32_t is_dead;              /* set by the parent once the process has ended */
    uint64_t addresses[2];
    char descriptor[4096];
    uint64_t descriptor_bytes;
};

struct courier {
    struct courier_life *life;
    enum courier_role role;
    struct engine *engine;
    convoy_peer peer; /* 0 = not connected */
    uint8_t *data;
};

/* Goes through all steps. true: all was done. false: the other is gone, and everything of it has ended. */
bool courier_run(struct courier *courier);

/* Waits until nothing is left of the other: no lease, no reader, nothing quarantined, no transfer, no peer. */
void courier_await_empty(struct courier *courier);

uint8_t *courier_make_data(void);

#endif
