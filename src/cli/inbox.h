/* SPDX-License-Identifier: Apache-2.0 */
/* What comes to one member of the pipeline: one accept at a time, each request once. */
#ifndef CONVOY_CLI_INBOX_H
#define CONVOY_CLI_INBOX_H

#include "cli/arrival.h"
#include "cli/pipeline_board.h"

struct convoy_inbox {
    const struct convoy_transfer_host *host; /* borrows */
    struct convoy_pipeline_board *board;     /* borrows */
    uint32_t member;
    uint8_t *is_seen; /* by request */
    convoy_transfer accept; /* under way; 0 = none */
    struct convoy_arrival arrival; /* of the last request that came */
};

/* NO_MEMORY. On failure: fini. */
int32_t convoy_inbox_init(struct convoy_inbox *inbox, const struct convoy_transfer_host *host,
                          struct convoy_pipeline_board *board, uint32_t member, struct convoy_error *error);
void convoy_inbox_fini(struct convoy_inbox *inbox);

/* Waits for the next request, wait_ns at most. OK: inbox->arrival is what came, until load_out is released.
 * IN_PROGRESS: nothing yet, or something that was dropped and counted: a request seen before, a load without room.
 * MALFORMED: a request that is not for this member. Else as accept_start and the end of its transfer. */
int32_t convoy_inbox_take(struct convoy_inbox *inbox, uint64_t wait_ns, uint32_t *request_out,
                          convoy_transfer *load_out, struct convoy_error *error);

/* Gives a request's memory back and notes when. */
void convoy_inbox_release(struct convoy_inbox *inbox, uint32_t request, convoy_transfer load);

#endif
