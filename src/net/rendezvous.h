/* SPDX-License-Identifier: Apache-2.0 */
/* Where a group meets: "tcp://host:port", host a name, an IPv4 or an [IPv6] address; "/name" may follow. */
#ifndef CONVOY_NET_RENDEZVOUS_H
#define CONVOY_NET_RENDEZVOUS_H

#include "convoy/base.h"

#include <netinet/in.h>
#include <stdbool.h>

#define CONVOY_RENDEZVOUS_HOST_BYTES 256
#define CONVOY_RENDEZVOUS_ADDRESSES 16
#define CONVOY_ADDRESS_TEXT_BYTES 64

struct convoy_rendezvous {
    char host[CONVOY_RENDEZVOUS_HOST_BYTES]; /* without the brackets */
    uint16_t port;
};

union convoy_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct convoy_address_list {
    uint32_t count;
    union convoy_address addresses[CONVOY_RENDEZVOUS_ADDRESSES];
};

/* INVALID_ARGUMENT: the text says what is wrong. A path that is there must be the group's name. */
int32_t convoy_rendezvous_parse(const char *text, size_t length, const char *name, size_t name_length,
                                struct convoy_rendezvous *rendezvous_out, struct convoy_error *error);

/* Addresses to connect to. UNREACHABLE: the name is unknown (now). Blocks as long as the system's resolver does when
 * the host is a name. */
int32_t convoy_rendezvous_resolve(const struct convoy_rendezvous *rendezvous, struct convoy_address_list *list_out,
                                  struct convoy_error *error);

/*
 * Addresses to listen at, best first; the later ones are for when the earlier are not of this host. A name that
 * resolves to loopback (many hosts map their own name so) or not at all gives the wildcard, since others reach this
 * host by another address. Never fails.
 */
void convoy_rendezvous_candidates(const struct convoy_rendezvous *rendezvous, struct convoy_address_list *list_out);

socklen_t convoy_address_bytes(const union convoy_address *address);
bool convoy_address_is_wildcard(const union convoy_address *address);
bool convoy_address_is_equal(const union convoy_address *one, const union convoy_address *other);

/* "1.2.3.4:5" or "[::1]:5" */
void convoy_address_text(const union convoy_address *address, char text_out[CONVOY_ADDRESS_TEXT_BYTES]);

#endif
