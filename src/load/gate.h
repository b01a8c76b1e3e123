/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom while a loader swaps its build. Three rules, one lock that nobody holds while it calls a plugin:
 *
 *   opens and closes of contexts, opens of groups and engines   wait until no swap is under way; the swap counts those
 *                                                               that are inside
 *   calls that were answered MOVED                              wait until the swap's pause is over, then are made again
 *   another swap                                                is refused while one is under way; after it, waits for
 *                                                               those that were held up
 *
 * All of these waits end at the swap's own deadline. The thread that swaps never waits for itself: what a log callback
 * calls in it is refused. In a forked child a swap that the parent was in does not count, and nothing is locked or waited
 * for: whoever held the lock, or waited, need not be in it.
 */
#ifndef CONVOY_LOAD_GATE_H
#define CONVOY_LOAD_GATE_H

#include "convoy/base.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct convoy_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of the fields below */
    pid_t process;
    bool is_swapping;
    bool is_paused;       /* within a swap: the old build begins nothing new */
    uint32_t inside;      /* opens of contexts that are under way */
    uint32_t waiters;     /* calls that wait for a swap, or are just being woken */
    pthread_t swapper;    /* while is_swapping */
    uint64_t deadline_ns; /* while is_swapping: how long others wait for it */
    uint64_t turns;       /* pauses that have begun or ended: tells a call that was MOVED whether to try again */
};

/* SYSTEM: the kernel gives no condition. */
int32_t convoy_gate_init(struct convoy_gate *gate, struct convoy_error *error);
void convoy_gate_fini(struct convoy_gate *gate);

/* Around what others keep under the gate's lock. */
void convoy_gate_lock(struct convoy_gate *gate);
void convoy_gate_unlock(struct convoy_gate *gate);

/* Waits until no swap is under way, then counts the caller in `counter`. BUSY: the swap is late, or is this thread's. */
int32_t convoy_gate_enter(struct convoy_gate *gate, uint32_t *counter, struct convoy_error *error);
void convoy_gate_leave(struct convoy_gate *gate, uint32_t *counter);

/* BUSY: another swap is under way, or an open of a context does not return. */
int32_t convoy_gate_swap_begin(struct convoy_gate *gate, uint64_t deadline_ns, struct convoy_error *error);
void convoy_gate_swap_end(struct convoy_gate *gate);

/* The pause of a swap: calls may be answered MOVED from begin to end, and wait. End wakes them. */
void convoy_gate_pause_begin(struct convoy_gate *gate, uint64_t deadline_ns);
void convoy_gate_pause_end(struct convoy_gate *gate);

/* Waits until the counter is 0. false: not before the deadline. */
bool convoy_gate_drain(struct convoy_gate *gate, const uint32_t *counter, uint64_t deadline_ns);

/* One call that was answered MOVED, over all its tries. */
struct convoy_again {
    uint64_t turns; /* as they were when it was tried last */
    bool is_tried;
    bool has_timeout;
    uint64_t begun_ns;   /* with has_timeout: when the host called, by convoy_gate_coarse_ns */
    uint64_t timeout_ns; /* with has_timeout: in, what the host gave; out, what is left of it */
};

/* Cheap and coarse, at the begin of every wait of an engine. */
uint64_t convoy_gate_coarse_ns(void);

/*
 * Waits for the pause that is under way, and says whether to call again. false: no swap has anything to do with the
 * answer, which stays (*status untouched), or the swap is late (*status BUSY, with text).
 */
bool convoy_gate_again(struct convoy_gate *gate, struct convoy_again *again, int32_t *status, struct convoy_error *error);

#endif
