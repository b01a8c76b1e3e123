/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/listener_port.h"
#include "net/message.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BIND_PAUSE_NS_MAX (20 * CONVOY_NS_PER_MS)
#define NAME_SHOWN_BYTES 41u /* of a group in a text, with the zero */

/* -- seats ------------------------------------------------------------------------------------------------------- */

static struct convoy_seat *seat_create(const struct convoy_hello_group *group)
{
    struct convoy_seat *seat = convoy_memory_zalloc(sizeof *seat);
    if (seat == NULL) {
        return NULL;
    }
    seat->group = group;
    seat->news.asker = -1;
    seat->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (seat->event_fd < 0) {
        convoy_memory_free(seat);
        return NULL;
    }
    return seat;
}

static void seat_destroy(struct convoy_seat *seat)
{
    while (seat->first != NULL) {
        struct convoy_arrival *arrival = seat->first;
        seat->first = arrival->next;
        convoy_arrival_destroy(arrival);
    }
    (void)close(seat->event_fd);
    convoy_memory_free(seat);
}

void convoy_arrival_destroy(struct convoy_arrival *arrival)
{
    if (arrival == NULL) {
        return;
    }
    if (arrival->fd >= 0) {
        (void)close(arrival->fd);
    }
    convoy_memory_free(arrival->bytes);
    convoy_memory_free(arrival);
}

int convoy_seat_fd(const struct convoy_seat *seat)
{
    return seat->event_fd;
}

struct convoy_arrival *convoy_seat_take(struct convoy_seat *seat)
{
    uint64_t ignored;
    (void)pthread_mutex_lock(&seat->listener->lock);
    struct convoy_arrival *arrival = seat->first;
    if (arrival != NULL) {
        seat->first = arrival->next;
        arrival->next = NULL;
    }
    if (seat->first == NULL) {
        seat->last = NULL;
        (void)!read(seat->event_fd, &ignored, sizeof ignored);
    }
    (void)pthread_mutex_unlock(&seat->listener->lock);
    return arrival;
}

/* -- news -------------------------------------------------------------------------------------------------------- */

static void seat_announce(struct convoy_seat *seat)
{
    seat->has_news = true;
    (void)!eventfd_write(seat->event_fd, 1);
}

void convoy_seat_refuse(struct convoy_seat *seat, const char *reason)
{
    seat->news.refused_count++;
    convoy_message_text(reason, strlen(reason), seat->news.reason, sizeof seat->news.reason);
    seat_announce(seat);
}

void convoy_seat_note_refused(struct convoy_seat *seat, const char *reason)
{
    (void)pthread_mutex_lock(&seat->listener->lock);
    convoy_seat_refuse(seat, reason);
    (void)pthread_mutex_unlock(&seat->listener->lock);
}

bool convoy_seat_take_news(struct convoy_seat *seat, struct convoy_seat_news *news_out)
{
    (void)pthread_mutex_lock(&seat->listener->lock);
    bool has_news = seat->has_news;
    if (has_news) {
        *news_out = seat->news;
        seat->has_news = false;
    }
    (void)pthread_mutex_unlock(&seat->listener->lock);
    return has_news;
}

static bool seat_waits_for(const struct convoy_seat *seat, int32_t id)
{
    uint32_t index = 0;
    while (index < seat->group->member_count && convoy_hello_member(seat->group, index) != id) {
        index++;
    }
    return index < seat->group->member_count;
}

static bool seat_has_noted(const struct convoy_seat *seat, const struct convoy_hello_group *asked)
{
    return seat->news.asker >= 0 && seat->asked_length == asked->name_length &&
           memcmp(seat->asked_name, asked->name, asked->name_length) == 0;
}

/* The same member asks again every few milliseconds; that is no news. */
static void seat_note_asked(struct convoy_seat *seat, const struct convoy_arrival *arrival, const char *name)
{
    const struct convoy_hello_group *asked = &arrival->hello.group;
    if (seat_has_noted(seat, asked) && seat->news.asker == asked->own_id) {
        return;
    }
    seat->news.asker = asked->own_id;
    seat->asked_length = asked->name_length;
    memcpy(seat->asked_name, asked->name, asked->name_length);
    (void)snprintf(seat->news.asked, sizeof seat->news.asked, "member %d of %s asks for group %s", asked->own_id,
                   arrival->from, name);
    seat_announce(seat);
}

void convoy_listener_note_asked(struct convoy_listener *listener, const struct convoy_arrival *arrival,
                                struct convoy_error *error)
{
    const struct convoy_hello_group *asked = &arrival->hello.group;
    char name[NAME_SHOWN_BYTES];
    char other[NAME_SHOWN_BYTES] = "";
    if (!arrival->hello.has_group) {
        (void)convoy_error_set(error, CONVOY_NOT_FOUND, "the listener does not open a group without a name");
        return;
    }
    convoy_message_text(asked->name, asked->name_length, name, sizeof name);
    for (struct convoy_seat *seat = listener->seats; seat != NULL; seat = seat->next) {
        if (seat_waits_for(seat, asked->own_id)) {
            seat_note_asked(seat, arrival, name);
            convoy_message_text(seat->group->name, seat->group->name_length, other, sizeof other);
        }
    }
    (void)convoy_error_set(error, CONVOY_NOT_FOUND, "the listener does not open group %s (yet)%s%s", name,
                           other[0] != '\0' ? ", it opens group " : "", other);
}

/* A group that opens here now was asked for rightly. */
static void listener_forget_asked(struct convoy_listener *listener, const struct convoy_hello_group *group)
{
    for (struct convoy_seat *seat = listener->seats; seat != NULL; seat = seat->next) {
        if (seat_has_noted(seat, group)) {
            seat->news.asker = -1;
            seat_announce(seat);
        }
    }
}

/* -- finding or opening the port --------------------------------------------------------------------------------- */

/* One that already takes what would come to this address. */
static struct convoy_listener *listeners_find(const struct convoy_runtime *runtime, const union convoy_address *address)
{
    for (struct convoy_listener *each = runtime->listeners; each != NULL; each = each->next) {
        bool has_port = each->address.v4.sin_port == address->v4.sin_port; /* lies at the same place in both families */
        bool takes_all = convoy_address_is_wildcard(&each->address) &&
                         (each->address.any.sa_family == AF_INET6 || address->any.sa_family == AF_INET);
        if (has_port && (takes_all || convoy_address_is_equal(&each->address, address))) {
            return each;
        }
    }
    return NULL;
}

/* Adds the seat to a listener. BUSY: its name is taken. */
static int32_t listener_add(struct convoy_listener *listener, struct convoy_seat *seat, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    (void)pthread_mutex_lock(&listener->lock);
    if (convoy_listener_find_seat(listener, seat->group->name, seat->group->name_length) != NULL) {
        status = convoy_error_set(error, CONVOY_BUSY, "a group of this name is already opening at this port");
    } else {
        seat->listener = listener;
        listener_forget_asked(listener, seat->group);
        seat->next = listener->seats;
        listener->seats = seat;
    }
    (void)pthread_mutex_unlock(&listener->lock);
    return status;
}

/* Sits down at one candidate address, opening the port if nobody has. Caller holds runtime->lock. */
static int32_t seat_place_locked(struct convoy_runtime *runtime, const union convoy_address *address,
                                 struct convoy_seat *seat, struct convoy_error *error)
{
    struct convoy_listener *listener = listeners_find(runtime, address);
    if (listener != NULL) {
        return listener_add(listener, seat, error);
    }
    int32_t status = convoy_listener_open(runtime, address, &listener, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = listener_add(listener, seat, error);
    listener->next = runtime->listeners;
    runtime->listeners = listener;
    return status;
}

/* One go through the candidates. An address that is not of this host leads to the next one. */
static int32_t seat_place(struct convoy_runtime *runtime, const struct convoy_address_list *list,
                          struct convoy_seat *seat, struct convoy_error *error)
{
    int32_t status = CONVOY_SYSTEM;
    struct convoy_error own = CONVOY_ERROR_INIT;
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    for (uint32_t i = 0; i < list->count; i++) {
        (void)pthread_mutex_lock(&runtime->lock);
        status = seat_place_locked(runtime, &list->addresses[i], seat, &own);
        (void)pthread_mutex_unlock(&runtime->lock);
        if (status != CONVOY_SYSTEM || (own.sys_errno != EADDRNOTAVAIL && own.sys_errno != EAFNOSUPPORT)) {
            break;
        }
        convoy_address_text(&list->addresses[i], text);
        convoy_log_line(&runtime->log, CONVOY_LOG_DEBUG, "rendezvous address %s is not of this host", text);
    }
    if (status != CONVOY_OK && error != NULL) {
        *error = own;
    }
    return status;
}

/* Somebody else may hold the port for a moment: another process that opens a group, or our own listener on its way
 * out. Tries again with growing pauses. */
static int32_t seat_place_until(struct convoy_runtime *runtime, const struct convoy_address_list *list,
                                const struct convoy_wait *wait, struct convoy_seat *seat, struct convoy_error *error)
{
    uint64_t pause_ns = CONVOY_NS_PER_MS;
    struct convoy_error own = CONVOY_ERROR_INIT;
    for (;;) {
        int32_t status = seat_place(runtime, list, seat, &own);
        bool is_taken = status == CONVOY_SYSTEM && own.sys_errno == EADDRINUSE;
        uint64_t now_ns = convoy_now_ns();
        if (is_taken && now_ns < wait->deadline_ns) {
            uint64_t end_ns = now_ns + pause_ns < wait->deadline_ns ? now_ns + pause_ns : wait->deadline_ns;
            const struct convoy_wait pause = {.cancel_fd = wait->cancel_fd, .deadline_ns = end_ns};
            pause_ns = 2 * pause_ns < BIND_PAUSE_NS_MAX ? 2 * pause_ns : BIND_PAUSE_NS_MAX;
            if (convoy_wait_one(&pause, -1, 0) == CONVOY_CANCELED) {
                return CONVOY_CANCELED;
            }
            continue;
        }
        if (status != CONVOY_OK && error != NULL) {
            *error = own;
        }
        return status;
    }
}

int32_t convoy_listener_join(struct convoy_runtime *runtime, const struct convoy_rendezvous *where,
                             const struct convoy_hello_group *group, const struct convoy_wait *wait,
                             struct convoy_seat **seat_out, struct convoy_error *error)
{
    struct convoy_seat *seat = seat_create(group);
    if (seat == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory or descriptor for a place at the rendezvous");
    }
    struct convoy_address_list list;
    convoy_rendezvous_candidates(where, &list);
    int32_t status = seat_place_until(runtime, &list, wait, seat, error);
    if (status != CONVOY_OK) {
        seat_destroy(seat);
        return status;
    }
    *seat_out = seat;
    return CONVOY_OK;
}

/* Takes the seat out; true: it was the last one, and the listener is off the list, so nobody else can find it. */
static bool seat_unlink(struct convoy_runtime *runtime, struct convoy_listener *listener, struct convoy_seat *seat)
{
    (void)pthread_mutex_lock(&runtime->lock);
    (void)pthread_mutex_lock(&listener->lock);
    struct convoy_seat **link = &listener->seats;
    while (*link != seat) {
        link = &(*link)->next;
    }
    *link = seat->next;
    bool is_last = listener->seats == NULL;
    (void)pthread_mutex_unlock(&listener->lock);
    if (is_last) {
        struct convoy_listener **at = &runtime->listeners;
        while (*at != listener) {
            at = &(*at)->next;
        }
        *at = listener->next;
    }
    (void)pthread_mutex_unlock(&runtime->lock);
    return is_last;
}

void convoy_listener_leave(struct convoy_seat *seat)
{
    if (seat == NULL) {
        return;
    }
    struct convoy_listener *listener = seat->listener;
    if (seat_unlink(listener->runtime, listener, seat)) {
        convoy_listener_destroy(listener);
    }
    seat_destroy(seat);
}
