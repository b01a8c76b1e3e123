/* SPDX-License-Identifier: Apache-2.0 */
/* The last operation of a poll that moves: its end may be read again, and one that was lost may still be handed over by a
 * reopen. Of two levels nothing is written: their end is read by then. Used by poll_move.c alone. */
#ifndef CONVOY_POLL_POLL_LAST_H
#define CONVOY_POLL_POLL_LAST_H

#include "core/bundle.h"
#include "poll/poll.h"

bool convoy_poll_last_is_kept(const struct convoy_poll *poll);

/* Items into the open item. */
void convoy_poll_last_save(const struct convoy_poll *poll, struct convoy_bundle_writer *writer);

/* MALFORMED. */
int32_t convoy_poll_last_restore(struct convoy_poll *poll, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);

#endif
