/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of net/listener.c: the port itself and the thread that serves it. */
#ifndef CONVOY_NET_LISTENER_PORT_H
#define CONVOY_NET_LISTENER_PORT_H

#include "net/handshake.h"
#include "net/listener.h"

/* A group that is opening here. Protected by the listener's lock. */
struct convoy_seat {
    struct convoy_seat *next;
    struct convoy_listener *listener;
    const struct convoy_hello_group *group; /* borrowed, and what it points at */
    int event_fd;
    struct convoy_arrival *first;
    struct convoy_arrival *last;
    struct convoy_seat_news news;
    bool has_news; /* that the owner has not taken */
    char asked_name[CONVOY_HELLO_NAME_MAX]; /* of the group that news.asked is about, as it came */
    uint32_t asked_length;
};

struct convoy_listener {
    struct convoy_listener *next; /* runtime->listeners, under runtime->lock */
    struct convoy_runtime *runtime;
    union convoy_address address;
    int fd;
    int stop_fd; /* eventfd: the thread ends when it is readable */
    pthread_t thread;
    pthread_mutex_t lock; /* protects seats */
    struct convoy_seat *seats;
    uint64_t resume_ns; /* the thread's own from here on; out of descriptors until then, 0 = no */
    uint32_t pending_count;
    struct convoy_handshake *pending[CONVOY_LISTENER_PENDING_MAX];
};

/* Binds and starts the thread. SYSTEM with errno and address. */
int32_t convoy_listener_open(struct convoy_runtime *runtime, const union convoy_address *address,
                             struct convoy_listener **listener_out, struct convoy_error *error);

/* Ends the thread and closes the port. */
void convoy_listener_destroy(struct convoy_listener *listener);

/* For the following three the caller holds listener->lock, or is the only one who knows the listener. */
void convoy_seat_refuse(struct convoy_seat *seat, const char *reason);

/* Nobody opens the group that the arrival asks for. That may still come, so it is no refusal; but a group that waits
 * for this very member keeps it in mind. error: for the arrival. */
void convoy_listener_note_asked(struct convoy_listener *listener, const struct convoy_arrival *arrival,
                                struct convoy_error *error);

struct convoy_seat *convoy_listener_find_seat(const struct convoy_listener *listener, const char *name,
                                              uint32_t length);

#endif
