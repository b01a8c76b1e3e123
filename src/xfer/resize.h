/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generations of an engine's pool: the next one is made on the host's thread, handed to the peers of this host on the progress
 * thread, and returned there once nothing of it is taken any more.
 *
 * At the local socket of the peer, which answers on the same connection and then ends it:
 *
 *   engine   "CVXG" 4 | zero 4 | nonce of the connection 16 | generation 8 | base 8     file: the pool
 *   peer     "CVXA" 4 | status 4 | generation 8
 *
 * A connection that ends without an answer (the peer does not know the nonce yet, or had no descriptor left) is tried again.
 * Until a peer has answered, what names the generation, and whatever is said behind it, waits in that peer's backlog.
 */
#ifndef CONVOY_XFER_RESIZE_H
#define CONVOY_XFER_RESIZE_H

#include "net/fd_channel.h"
#include "xfer/parts.h"

/* -- resize.c -- */
/* Returns the memory of generations that have ended, and tells the peers. [no lock] */
void convoy_xfer_reap(struct convoy_xfer *engine);
/* A peer that has just come: which generation it was given; it gets the current one too. */
void convoy_xfer_shares_begin(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                              const struct convoy_xfer_joined *joined);
/* Whether this may be said to the peer now: it has the generation that is named in it, or is about to be handed it. */
bool convoy_xfer_share_sees(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                            const struct convoy_ring_entry *entry);
/* That generation has ended: the peer is told if it has it. */
void convoy_xfer_share_end(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t generation);
/* The peer has taken it when it had ended already. */
void convoy_xfer_share_late(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t generation);
void convoy_xfer_on_forget(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_forget *forget);

/* -- share_files.c, on the progress thread -- */
/* Hands over what is wanted and hears what came of it; gives the lock up meanwhile. */
void convoy_xfer_shares_step(struct convoy_xfer *engine);
uint32_t convoy_xfer_shares_polls(const struct convoy_xfer *engine, struct pollfd *polls);
/* Whether the message is one of these, and then its end: takes its files. [no lock] */
bool convoy_xfer_shares_take(struct convoy_xfer *engine, int channel, struct convoy_fd_message *message);

#endif
