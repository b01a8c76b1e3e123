/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two engines say over their TCP connection once both hellos are authenticated: who they are, where on this host they
 * can be met, and the token that the other must read through the mapping of this one's memory: that, and no address, proves
 * that the two share a host. Pure.
 *
 *   connector  INTRODUCE -->            its own; asked = the incarnation that its host named
 *              <-- INTRODUCED           the listener's own, with the nonce that names this connection at the local socket
 *              <-- REFUSED              status and text (net/message.h)
 *
 * Where they share no memory (the answer says REMOTE) each then gives the address of its bulk (net/bulk.h), the connector
 * first; the listener's means that it is connected, the connector says so in its first frame.
 */
#ifndef CONVOY_XFER_INTRODUCE_H
#define CONVOY_XFER_INTRODUCE_H

#include "convoy/transfer.h"
#include "net/host_map.h"

#define CONVOY_INTRODUCE_TOKEN_BYTES 32u
#define CONVOY_INTRODUCE_NONCE_BYTES 16u
#define CONVOY_INTRODUCE_BYTES 320u
#define CONVOY_INTRODUCE_VERSION 2u /* of the notices too: 2 brought lists of raw parts, and CLOSED */

enum convoy_introduce_frame {
    CONVOY_INTRODUCE_ASK = 101,
    CONVOY_INTRODUCE_ANSWER,
    CONVOY_INTRODUCE_REFUSED,
    CONVOY_INTRODUCE_BULK,
    CONVOY_INTRODUCE_MOVED, /* later, at any time (xfer/far_rewire.h) */
};

#define CONVOY_INTRODUCE_PRIVATE 1u    /* its pool cannot be mapped */
#define CONVOY_INTRODUCE_BY_PROCESS 2u /* but may be read out of its process, at pool_address */
#define CONVOY_INTRODUCE_REMOTE 4u     /* no memory is to be shared */
#define CONVOY_INTRODUCE_MOVES 8u      /* it understands MOVED */

struct convoy_introduction {
    uint32_t flags; /* CONVOY_INTRODUCE_* */
    uint64_t asked; /* 0 = whoever is there */
    uint64_t incarnation;
    uint64_t pool_bytes;
    uint64_t pool_address;
    uint64_t token_address; /* of the notes' token, in that process */
    uint64_t context; /* random number of the context: the same = the same process */
    struct convoy_host_keys keys;
    uint8_t token[CONVOY_INTRODUCE_TOKEN_BYTES];  /* stands at the start of its notes */
    uint8_t socket[CONVOY_INTRODUCE_TOKEN_BYTES]; /* names its local socket (net/local_socket.h) */
    uint8_t nonce[CONVOY_INTRODUCE_NONCE_BYTES];
    char session[CONVOY_SESSION_BYTES]; /* ends in a zero */
};

void convoy_introduction_encode(const struct convoy_introduction *introduction,
                                uint8_t bytes_out[CONVOY_INTRODUCE_BYTES]);

/* MALFORMED, VERSION_MISMATCH: both versions are in the text. */
int32_t convoy_introduction_decode(const uint8_t *data, size_t bytes, struct convoy_introduction *introduction_out,
                                   struct convoy_error *error);

#endif
