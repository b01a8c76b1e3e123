/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the star's listening member: its state and the loop that both phases (admitting, exchanging) run. */
#ifndef CONVOY_NET_STAR_SERVER_H
#define CONVOY_NET_STAR_SERVER_H

#include "net/carrier.h"
#include "net/frame.h"
#include "net/listener.h"
#include "net/message.h"
#include "net/roster.h"

struct server_member {
    struct convoy_frame_stream stream; /* fd -1: not here, or gone */
    bool is_told;                      /* knows how the opening ended, or was refused for what ended it */
    char from[CONVOY_ADDRESS_TEXT_BYTES];
    uint8_t *body; /* its blob frame of this exchange: sequence, then the blob; NULL = not yet */
    uint32_t body_bytes;
};

struct star_server {
    struct convoy_bootstrap *bootstrap;
    struct convoy_seat *seat; /* NULL once all are here */
    uint32_t count;
    uint32_t heard_count;
    uint8_t heard[CONVOY_ROSTER_SET_BYTES]; /* admitted, later: blob is here; own index included */
    uint64_t heard_due_ns;                  /* when the members are told next; 0 = nothing new */
    struct convoy_hello window;             /* own hello with the wire versions that all members so far have */
    struct convoy_error doom;               /* why the opening failed, when is_doomed */
    bool is_doomed;
    bool is_exchanging; /* blobs are expected */
    struct convoy_seat_news news; /* who did not get in; told to the members with the next HEARD, and at the deadline */
    uint8_t *table; /* frame of the last exchange's blobs */
    struct server_member *members;
    struct pollfd *polls;    /* [count + 2] */
    uint32_t *poll_members;  /* whose polls[i] is */
};

/* Ends the opening for everyone with this cause and tells those who are here; the first cause wins. */
void convoy_server_doom(struct star_server *server, const struct convoy_error *cause);

/* The same at the deadline: who is missing, and who came meanwhile and did not get in. */
void convoy_server_doom_missing(struct star_server *server);

/* Member `index` is in, or its blob is here: noted, and the others hear of it soon. */
void convoy_server_note_heard(struct star_server *server, uint32_t index);

/* One poll and all that it brought. OK, TIMED_OUT, CANCELED. */
int32_t convoy_server_step(struct star_server *server, uint64_t deadline_ns);

/* Judges and admits or refuses one connection. takes arrival */
void convoy_server_admit(struct star_server *server, struct convoy_arrival *arrival);

/* Waits shortly until the members have read why, then closes their connections. */
void convoy_server_part(struct star_server *server);

#endif
