/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both hellos and both MACs, on either side of one connection:
 *
 *   connector --hello-->   listener        the connector's has its group; the listener's does not, it may serve several
 *             <--hello, MAC--
 *             --MAC-->                     only now does the listener look at what the hello says
 *
 * The listener's side never blocks (its thread serves many connections); the connector's waits.
 */
#ifndef CONVOY_NET_HANDSHAKE_H
#define CONVOY_NET_HANDSHAKE_H

#include "net/auth.h"
#include "net/hello.h"
#include "net/rendezvous.h"
#include "net/runtime.h"
#include "net/wait.h"

/* One connection at the listener, from accept until it is known who it is. */
struct convoy_handshake {
    int fd; /* owned; -1 = given away */
    uint64_t deadline_ns;
    union convoy_address from;
    uint32_t theirs_bytes;
    uint32_t ours_bytes; /* 0 = not answered yet */
    uint32_t mac_bytes;
    uint8_t mac[CONVOY_AUTH_BYTES];
    uint8_t ours[CONVOY_HELLO_FIXED_BYTES + 64 + CONVOY_AUTH_BYTES]; /* hello without a group, then the MAC */
    uint8_t theirs[CONVOY_HELLO_BYTES_MAX];
};

/* Fills what every hello of this runtime has, with a fresh nonce. */
int32_t convoy_handshake_hello(struct convoy_runtime *runtime, struct convoy_hello *hello_out,
                               struct convoy_error *error);

/* Goes as far as the socket lets it. OK: the other side holds the secret; theirs is its hello. IN_PROGRESS.
 * MALFORMED: it speaks something else. UNAUTHENTICATED: another secret. PEER_LOST, SYSTEM. */
int32_t convoy_handshake_step(struct convoy_handshake *handshake, struct convoy_runtime *runtime);

/* The connector's side, over a connected socket. theirs_out: the listener's hello. MALFORMED: what answers is no
 * convoy. UNAUTHENTICATED, PEER_LOST, TIMED_OUT, CANCELED. Versions are not compared here: the listener, which knows
 * both members' names, refuses. */
int32_t convoy_handshake_connect(struct convoy_runtime *runtime, int fd, const struct convoy_wait *wait,
                                 const struct convoy_hello *ours, struct convoy_hello *theirs_out,
                                 struct convoy_error *error);

#endif
