/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two network namespaces joined by a veth pair, to stand for two hosts on one machine. Made and removed with the `ip`
 * command; processes enter with `ip netns exec`, which also remounts /sys, where UCX looks for interfaces.
 */
#ifndef CONVOY_CLI_TWO_HOSTS_H
#define CONVOY_CLI_TWO_HOSTS_H

#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_TWO_HOSTS_ADDRESS "10.231.77.1" /* of the first one */

struct convoy_two_hosts {
    char names[2][32];
    bool exists[2];
};

/* Address of a host, 0 or 1. Static text. */
const char *convoy_two_hosts_address(uint32_t host);

/* SYSTEM: text has the command that failed; nothing is left behind. Needs root. */
int32_t convoy_two_hosts_open(struct convoy_two_hosts *hosts, struct convoy_error *error);

/* Accepts a zeroed or half-made pair. */
void convoy_two_hosts_close(struct convoy_two_hosts *hosts);

#endif
