/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poll reduce of a group moves to another build: what it knows that the other members know too (identities that have ended,
 * those that the last keyed round has agreed on), and how its last operation ended. What makes calls short is left behind:
 * the first call goes the whole way.
 */
#ifndef CONVOY_POLL_POLL_MOVE_H
#define CONVOY_POLL_POLL_MOVE_H

#include "core/bundle.h"
#include "poll/poll.h"

/* Whether nobody has anything left to read here. Reads the ends of error rows. */
bool convoy_poll_is_still(struct convoy_poll *poll);

/* Items into the open item. */
void convoy_poll_save(const struct convoy_poll *poll, struct convoy_bundle_writer *writer);

/* Into one that was just opened. MALFORMED, TOO_NEW, TOO_OLD. */
int32_t convoy_poll_restore(struct convoy_poll *poll, const struct convoy_bundle_item *item, struct convoy_error *error);

#endif
