/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which members share a host. Two pure steps: from what each member says about where it runs to candidate hosts (who
 * should try to reach whom), and from who reached whom to the final map. Equal keys only suggest a host; reaching
 * each other's socket proves it (a cloned virtual machine has the same boot id). No I/O here. Included by net, round.
 */
#ifndef CONVOY_NET_HOST_MAP_H
#define CONVOY_NET_HOST_MAP_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_HOST_BOOT_BYTES 16u

/* convoy_host_keys.flags */
#define CONVOY_HOST_HAS_BOOT 1u      /* boot is valid */
#define CONVOY_HOST_HAS_NETWORK 2u   /* an abstract socket listens in the network namespace of `network` */
#define CONVOY_HOST_HAS_DIRECTORY 4u /* a socket listens in the directory of `directory` */
#define CONVOY_HOST_ONLY_UCX 8u      /* configured never to share memory */
#define CONVOY_HOST_ONLY_SHM 16u     /* configured never to go without */

/* Where one member runs. */
struct convoy_host_keys {
    uint32_t flags;
    uint32_t reserved;
    uint8_t boot[CONVOY_HOST_BOOT_BYTES]; /* boot id of the kernel */
    uint64_t network[2];                  /* st_dev, st_ino of the network namespace */
    uint64_t directory[2];                /* st_dev, st_ino of the shared directory */
};

/* The hosts of a group, the same on all members. Hosts are numbered by their lowest member index. */
struct convoy_host_map {
    uint32_t member_count;
    uint32_t host_count;
    uint32_t *host_of; /* [member_count] */
};

/* The two run on one kernel, as far as they know. */
bool convoy_host_keys_same_boot(const struct convoy_host_keys *a, const struct convoy_host_keys *b);

/* They can meet at an abstract socket, or at a path. */
bool convoy_host_keys_share_network(const struct convoy_host_keys *a, const struct convoy_host_keys *b);
bool convoy_host_keys_share_directory(const struct convoy_host_keys *a, const struct convoy_host_keys *b);

/*
 * For each member the lowest index that it should join (its own index: it serves, or is alone). Every member of a
 * candidate host shares a key with its lowest member itself, because that is whom it connects to. leader_of_out:
 * [count].
 */
void convoy_host_map_candidates(const struct convoy_host_keys *keys, uint32_t count, uint32_t *leader_of_out);

/* Members (beside `leader`) whose candidate is `leader`. */
uint32_t convoy_host_map_followers(const uint32_t *leader_of, uint32_t count, uint32_t leader);

/* Builds the map from who joined whom (own index = nobody). MALFORMED: a member joined one that is not its candidate,
 * or that has itself joined another. NO_MEMORY. map_out: fini. */
int32_t convoy_host_map_init(const uint32_t *joined, const uint32_t *leader_of, uint32_t count,
                             struct convoy_host_map *map_out);

/* Members on the host of `index`, itself included. */
uint32_t convoy_host_map_size(const struct convoy_host_map *map, uint32_t index);

/* Safe on zeroed storage. */
void convoy_host_map_fini(struct convoy_host_map *map);

#endif
