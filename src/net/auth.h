/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof of the shared secret: HMAC-SHA-256 over a role and both hellos (or all of them). The nonces in the hellos make
 * a recorded answer worthless, the role keeps an answer from being sent back to whoever gave it. Pure code.
 */
#ifndef CONVOY_NET_AUTH_H
#define CONVOY_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_AUTH_BYTES 32u

enum convoy_auth_role {
    CONVOY_AUTH_CONNECTOR = 1, /* texts: its hello, the listener's */
    CONVOY_AUTH_LISTENER = 2,  /* the same texts */
    CONVOY_AUTH_GATHER = 3,    /* texts: index of the member, all hellos */
    CONVOY_AUTH_SESSION = 4,   /* texts: salt, epoch, group name; the result is the session token */
};

struct convoy_auth_text {
    const void *bytes;
    size_t count;
};

/* key: the secret, of any length, the empty one included. */
void convoy_auth_mac(struct convoy_auth_text key, enum convoy_auth_role role, const struct convoy_auth_text *texts,
                     size_t text_count, uint8_t mac_out[CONVOY_AUTH_BYTES]);

/* In constant time. */
bool convoy_auth_equal(const uint8_t one[CONVOY_AUTH_BYTES], const uint8_t other[CONVOY_AUTH_BYTES]);

#endif
