/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: the network devices of one member, each with a UCX worker of its own, and the choice of the pair over which
 * two members talk. UCX 1.13 pairs devices by speed and never asks whether they reach each other, so that a bridge with
 * the same address on both hosts, or loopback, spoils the connection. Here the choice is made before UCX sees an
 * address.
 *
 * What a member hands to the others is a lane address: all its lanes with their network addresses and worker addresses.
 *
 *   bytes  "cvL1" | network u64 | lane count u8 | lanes...
 *   lane   kind u8 | has_fabric u8 | family u8 | prefix u8 | address 16 | name 16 | length u32 | worker address
 *
 * Pure code but for the route callback. Input from other processes: every length is checked.
 */
#ifndef CONVOY_NET_LANES_H
#define CONVOY_NET_LANES_H

#include "net/interfaces.h"

#include <stddef.h>

#define CONVOY_LANES_MAX 4
#define CONVOY_LANE_WORKER_BYTES_MAX 8192 /* a worker address on one device has about 80 bytes */

struct convoy_lane {
    char name[CONVOY_INTERFACE_NAME_BYTES]; /* "" = whatever UCX was configured with */
    enum convoy_interface_kind kind;
    bool has_fabric; /* also holds devices that are no IP interface; UCX checks the reach of those itself */
    struct convoy_interface_address address; /* family 0 = none known */
    const void *worker_address;
    size_t worker_address_bytes;
};

struct convoy_lane_set {
    uint64_t network; /* convoy_interfaces_network of the owner */
    uint32_t count;
    struct convoy_lane lanes[CONVOY_LANES_MAX];
};

struct convoy_lane_pair {
    uint32_t mine;
    uint32_t theirs;
};

/* As convoy_interfaces_route. */
typedef bool (*convoy_route_fn)(const struct convoy_interface_address *to, struct convoy_interface_address *from_out);

/* Bytes that encode writes. */
size_t convoy_lane_set_bytes(const struct convoy_lane_set *set);
void convoy_lane_set_encode(const struct convoy_lane_set *set, uint8_t *out);

/* worker_address pointers point into bytes. false: malformed. */
bool convoy_lane_set_decode(const uint8_t *bytes, size_t length, struct convoy_lane_set *set_out);

/*
 * The best pair that can reach each other: loopback, and equal addresses on both sides, only inside one network
 * namespace; the kernel must have a route that starts at the lane's own address; then plain interfaces before bridges,
 * one subnet before routed. false: no pair.
 */
bool convoy_lane_set_choose(const struct convoy_lane_set *mine, const struct convoy_lane_set *theirs,
                            convoy_route_fn route, struct convoy_lane_pair *pair_out);

/* "eth0 192.0.2.2, lo 127.0.0.1" for errors. */
void convoy_lane_set_text(const struct convoy_lane_set *set, char *text_out, size_t bytes);

#endif
