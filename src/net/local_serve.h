/* SPDX-License-Identifier: Apache-2.0 */
/* The lowest member of a candidate host: takes the others in and hands out the segment and everybody's pidfd. */
#ifndef CONVOY_NET_LOCAL_SERVE_H
#define CONVOY_NET_LOCAL_SERVE_H

#include "net/local_join.h"
#include "net/local_roll.h"

/*
 * Takes in the members of `coming` (see roll; [member_count]), makes the segment, and hands it out with everybody's pidfd.
 * Strangers on the socket are turned away. OK also when nobody came (segment_fd stays -1). NO_MEMORY, or SYSTEM when
 * there is no segment: the members were told, and nothing is held.
 */
int32_t convoy_local_serve(struct convoy_local_join *join, const struct convoy_local_socket *at, const uint8_t *coming,
                           struct convoy_error *error);

#endif
