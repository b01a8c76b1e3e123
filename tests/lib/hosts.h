/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts of a test on one machine: network namespaces, all joined to one bridge. A process enters one for good: with a
 * mount namespace of its own in which /sys shows that network, since UCX reads /sys/class/net. Needs root.
 */
#ifndef TESTS_LIB_HOSTS_H
#define TESTS_LIB_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define HOSTS_MAX 4

/* Makes `count` hosts; false: namespaces cannot be made here (the reason is printed). */
bool hosts_create(uint32_t count);
void hosts_destroy(void);

/* Moves the calling process into a host, before it opens anything. */
void hosts_enter(uint32_t index);

/* Address of a host: 10.231.78.1 and so on. Static storage. */
const char *hosts_address(uint32_t index);

/* Runs one `ip` command given as words, for what a test wants beside; true when it exits with 0. */
bool hosts_ip(const char *command);

/* The name of a host's namespace, for hosts_ip. Static storage. */
const char *hosts_name(uint32_t index);

#endif
