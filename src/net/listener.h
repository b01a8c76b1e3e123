/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One listening TCP port of a runtime, shared by all groups that open there at the same time. Its thread exists only
 * while a group has a seat; it authenticates connections and hands each to the seat of its group. Strangers, silent and
 * half-open connections are dropped and counted; they never keep a group from forming.
 *
 * Locks, in order: runtime->lock (the list of listeners), listener lock (its seats and their queues).
 */
#ifndef CONVOY_NET_LISTENER_H
#define CONVOY_NET_LISTENER_H

#include "net/hello.h"
#include "net/rendezvous.h"
#include "net/runtime.h"
#include "net/wait.h"

#define CONVOY_LISTENER_PENDING_MAX 256u

struct convoy_seat;

#define CONVOY_SEAT_REASON_BYTES 140u

/* Who came and did not get in since the seat was taken. Texts are printable. */
struct convoy_seat_news {
    uint64_t refused_count;                /* strangers at this port, and members that were refused */
    char reason[CONVOY_SEAT_REASON_BYTES]; /* why the last of them was; "" = none */
    int32_t asker; /* a member of this group that asks for another one, which nobody opens here (yet); -1 = none */
    char asked[CONVOY_SEAT_REASON_BYTES]; /* it, its address and that group */
};

/* An authenticated connection for a group. */
struct convoy_arrival {
    struct convoy_arrival *next;
    int fd; /* owned, nonblocking */
    char from[CONVOY_ADDRESS_TEXT_BYTES];
    uint8_t *bytes; /* owned; hello points into it */
    struct convoy_hello hello;
};

/*
 * Takes a seat for the group `name` (borrowed until leave); tries to bind until the wait ends. SYSTEM: the port could
 * not be bound; errno and address in the text. BUSY: the name has a seat there already. NO_MEMORY, CANCELED.
 */
int32_t convoy_listener_join(struct convoy_runtime *runtime, const struct convoy_rendezvous *where,
                             const struct convoy_hello_group *group, const struct convoy_wait *wait,
                             struct convoy_seat **seat_out, struct convoy_error *error);

/* Readable when something has arrived, or there is news. */
int convoy_seat_fd(const struct convoy_seat *seat);

/* The oldest arrival, or NULL. gives: convoy_arrival_destroy. */
struct convoy_arrival *convoy_seat_take(struct convoy_seat *seat);

/* true: there is news since the last call; news_out is all of it, old and new. Else news_out stays as it is. */
bool convoy_seat_take_news(struct convoy_seat *seat, struct convoy_seat_news *news_out);

/* Notes a member that the seat's owner has refused. */
void convoy_seat_note_refused(struct convoy_seat *seat, const char *reason);

/* Gives the seat up. The last one ends the thread and closes the port before this returns. NULL is a no-op. */
void convoy_listener_leave(struct convoy_seat *seat);

/* Closes what it still owns. */
void convoy_arrival_destroy(struct convoy_arrival *arrival);

#endif
