/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces of this network namespace, and which of them the kernel would use to reach an address. */
#ifndef CONVOY_NET_INTERFACES_H
#define CONVOY_NET_INTERFACES_H

#include <stdbool.h>
#include <stdint.h>

#define CONVOY_INTERFACE_NAME_BYTES 16

/* Larger = less likely to lead to another host. */
enum convoy_interface_kind {
    CONVOY_INTERFACE_PLAIN = 0, /* a device, or one end of a pair whose other end is elsewhere */
    CONVOY_INTERFACE_INNER,     /* bridge, dummy or tunnel end: often only of this host */
    CONVOY_INTERFACE_LOOPBACK,
};

/* family 4 or 6; 0 = none. bytes: network order, the first 4 or all 16 count. */
struct convoy_interface_address {
    uint8_t family;
    uint8_t prefix;
    uint8_t bytes[16];
};

struct convoy_interface {
    char name[CONVOY_INTERFACE_NAME_BYTES];
    enum convoy_interface_kind kind;
    struct convoy_interface_address address; /* its first one, IPv4 before IPv6: the one that UCX takes */
};

/* Interfaces that are up and have an address, in the kernel's order. Returns how many were written. */
uint32_t convoy_interfaces_list(struct convoy_interface *interfaces_out, uint32_t capacity);

/* Own address that the kernel would send from to reach `to`; false: no route. Sends nothing. */
bool convoy_interfaces_route(const struct convoy_interface_address *to, struct convoy_interface_address *from_out);

/* A number that is the same exactly for processes of one network namespace (hash of boot id and namespace). */
uint64_t convoy_interfaces_network(void);

/* Pure: same family and bytes; and: within one subnet by the longer of the two prefixes. */
bool convoy_interface_address_equal(const struct convoy_interface_address *a, const struct convoy_interface_address *b);
bool convoy_interface_address_near(const struct convoy_interface_address *a, const struct convoy_interface_address *b);

#endif
