/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-level reduce: MIN over the first group, then MIN of that outcome over the second; exactly one round each.
 * Decisions (poll/decided.h) are taken at the second level only: what one first-level group agrees on is no end yet.
 *
 *   first open --OK--> second open --> over
 *        |  \--any other end--> error row in the second group --> over with the first level's status
 *        \--TIMED_OUT, CANCELED: stays open
 */
#ifndef CONVOY_POLL_TWO_LEVEL_H
#define CONVOY_POLL_TWO_LEVEL_H

#include "poll/poll.h"

/* See reduce2_* in convoy/poll.h. The operation is the first group's. outcome.listed_by counts members of the second
 * group whose first-level outcome has the identity. */
int32_t convoy_two_level_start(struct convoy_poll *first, struct convoy_poll *second,
                               const struct convoy_poll_call *call, convoy_operation *operation_out,
                               struct convoy_error *error);
int32_t convoy_two_level_test(struct convoy_poll *first, convoy_operation operation,
                              struct convoy_poll_result *result, struct convoy_error *error);
int32_t convoy_two_level_wait(struct convoy_poll *first, convoy_operation operation, uint64_t timeout_ns,
                              struct convoy_poll_result *result, struct convoy_error *error);
int32_t convoy_two_level_abandon(struct convoy_poll *first, convoy_operation operation, struct convoy_error *error);

#endif
