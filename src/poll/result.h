/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a finished round: into the caller's result, and into the record for the call log. */
#ifndef CONVOY_POLL_RESULT_H
#define CONVOY_POLL_RESULT_H

#include "poll/poll.h"

/* The room was checked (convoy_check_result). */
void convoy_result_write(struct convoy_poll *poll, struct convoy_poll_result *result);

/* Calls poll->record or poll->repeat. */
void convoy_result_record(struct convoy_poll *poll, int32_t status);

#endif
