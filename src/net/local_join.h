/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The talk between the lowest member of a candidate host (the server) and the others, over the local sockets:
 *
 *   other  -> server  JOIN     who I am, proof, my pidfd          (before the exchange that says so: never waited for)
 *   server -> other   SEGMENT  status, proof, the segment, how many pidfds follow
 *   server -> other   MEMBERS  up to 64 member indexes and their pidfds, repeated
 *
 * A proof is a keyed hash of kind, sender and receiver under the session token: the token itself never travels.
 */
#ifndef CONVOY_NET_LOCAL_JOIN_H
#define CONVOY_NET_LOCAL_JOIN_H

#include "net/fd_channel.h"
#include "net/local.h"
#include "net/local_socket.h"

/* One member's side of it. Arrays are borrowed and have member_count elements. */
struct convoy_local_join {
    const struct convoy_local_request *request;
    uint32_t own_index;
    uint32_t member_count;
    int own_pidfd;
    int *pidfds;         /* filled: owned by the caller; -1 = none */
    int segment_fd;      /* filled, or -1: owned by the caller */
    size_t segment_bytes;
};

#define CONVOY_LOCAL_PROOF_BYTES 32u

enum convoy_local_kind { CONVOY_LOCAL_JOIN = 1, CONVOY_LOCAL_SEGMENT = 2, CONVOY_LOCAL_MEMBERS = 3 };

/* What stands in each message. */
struct convoy_local_body {
    uint32_t magic;
    uint32_t kind; /* enum convoy_local_kind */
    uint32_t sender;
    uint32_t count;     /* SEGMENT: pidfds that follow; MEMBERS: of this message */
    int32_t status;     /* SEGMENT: why there is none */
    int32_t sys_errno;  /* SEGMENT */
    uint8_t proof[CONVOY_LOCAL_PROOF_BYTES];
    uint32_t members[CONVOY_FD_MESSAGE_FDS_MAX]; /* MEMBERS */
};

/* Completes the body in `message` (kind and own fields are set) and sends it with its descriptors. */
int32_t convoy_local_join_send(const struct convoy_local_join *join, int channel_fd, uint32_t receiver,
                               struct convoy_fd_message *message, struct convoy_error *error);

/* The body when the message is whole, of this kind, and from someone who holds the session token; else NULL. */
const struct convoy_local_body *convoy_local_join_check(const struct convoy_local_join *join,
                                                        const struct convoy_fd_message *message,
                                                        enum convoy_local_kind kind);

/* Sends JOIN to the server. */
int32_t convoy_local_join_ask(const struct convoy_local_join *join, int channel_fd, uint32_t server,
                              struct convoy_error *error);

/* Receives segment and pidfds. Any failure means "not joined"; nothing is held then. SYSTEM, TRUNCATED, LIMIT,
 * TIMED_OUT, MALFORMED (UNAUTHENTICATED: proof), or what the server said. */
int32_t convoy_local_join_receive(struct convoy_local_join *join, int channel_fd, uint32_t server,
                                  struct convoy_error *error);

/* Closes segment and pidfds. */
void convoy_local_join_release(struct convoy_local_join *join);

#endif
