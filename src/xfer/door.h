/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ends of a new connection do alike: the files that are handed over the local socket, and taking what came.
 *
 *   message   "CVXF" 4 | zero 4 | nonce 16     files: notes, wake, process, then the pool (if it may be read), the ring last
 *                                              (from the connector only)
 *             generation 8 | base 8            of a pool that was resized; else its first generation, from offset 0
 */
#ifndef CONVOY_XFER_DOOR_H
#define CONVOY_XFER_DOOR_H

#include "net/fd_channel.h"
#include "xfer/parts.h"

#define CONVOY_DOOR_MESSAGE_BYTES (8u + CONVOY_INTRODUCE_NONCE_BYTES)
#define CONVOY_DOOR_RESIZED_BYTES (CONVOY_DOOR_MESSAGE_BYTES + 16u)

/* ring_fd: -1 = none. Borrows the files, but for that of the pool, in its present generation: shared_out->file, to be closed
 * once the message is sent, unless -1. SYSTEM: no descriptor is left. */
int32_t convoy_door_files(const struct convoy_xfer *engine, const uint8_t nonce[CONVOY_INTRODUCE_NONCE_BYTES], int ring_fd,
                          struct convoy_fd_message *message_out, struct convoy_pool_share *shared_out,
                          struct convoy_error *error);
void convoy_door_files_fini(struct convoy_fd_message *message, struct convoy_pool_share *shared);

/* The nonce of a message, NULL: it is none of these. */
const uint8_t *convoy_door_nonce(const struct convoy_fd_message *message);

/*
 * Maps what came and proves that it is the introduced engine's memory; takes the files out of the message. On OK all but
 * introduction, side and tcp_fd of joined_out is set and owned by the caller. ring_fd: of the connector's own; -1 = it is in
 * the message. channel: that it came by. MALFORMED, UNREACHABLE (the token is another, or, if the two may do without shared
 * memory, its process must not be read), SYSTEM, NO_MEMORY.
 */
int32_t convoy_door_take(struct convoy_fd_message *message, const struct convoy_introduction *introduction, int ring_fd,
                         int channel, bool may_be_far, struct convoy_xfer_joined *joined_out,
                         struct convoy_error *error);

/* Whether the settings allow peers that share no memory with this engine. */
bool convoy_door_may_be_far(const struct convoy_xfer *engine);

/* Takes back what take gave. */
void convoy_door_drop(struct convoy_xfer_joined *joined);

/* Where both can meet on one host, or that they go without shared memory (is_far_out). UNSUPPORTED: neither, the reason is in
 * the text. */
int32_t convoy_door_match(const struct convoy_xfer *engine, const struct convoy_introduction *theirs,
                          struct convoy_local_socket_target *target_out, bool *is_far_out, struct convoy_error *error);

#endif
