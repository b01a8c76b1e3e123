/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to a rendezvous, once. */
#ifndef CONVOY_NET_DIAL_H
#define CONVOY_NET_DIAL_H

#include "net/rendezvous.h"
#include "net/wait.h"

/* Connects to the first of the host's addresses that takes it; *fd_out is nonblocking and the caller's. UNREACHABLE:
 * why the last one did not, or that the name is unknown. CANCELED. Looking up a name is outside the wait. */
int32_t convoy_dial(const struct convoy_rendezvous *where, const struct convoy_wait *wait, int *fd_out,
                    struct convoy_error *error);

#endif
