/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one member of the pipeline has on its way to the next role: a bounded number of requests, each staged in its own
 * pool and sent to the member that plays the next role for it.
 *
 *   free --stage, send--> under way --SENT, given back--> free
 *                           |   ^
 *            send refused   v   |  after the time that the peer named; at most CONVOY_OUTBOX_ATTEMPTS in all
 *                          waiting
 *
 * A full outbox and a full pool are back-pressure, not failures: both answer BUSY and the caller comes again.
 */
#ifndef CONVOY_CLI_OUTBOX_H
#define CONVOY_CLI_OUTBOX_H

#include "cli/pipeline_board.h"
#include "cli/transfer_host.h"

#include <stdbool.h>

#define CONVOY_OUTBOX_SLOTS_MAX 16u
#define CONVOY_OUTBOX_ATTEMPTS 3u

struct convoy_outbox_slot {
    bool is_used;
    bool is_staged;
    uint32_t request;
    uint32_t attempts;
    convoy_transfer staged;
    convoy_transfer send;     /* 0 = between two attempts */
    convoy_transfer upstream; /* whose memory is being copied from; 0 = none, or released */
    uint64_t retry_ns;        /* when to send again */
    uint64_t sent_ns;         /* 0 = not yet */
};

struct convoy_outbox {
    const struct convoy_transfer_host *host; /* borrows */
    struct convoy_pipeline_board *board;     /* borrows */
    uint32_t member;                         /* whose it is */
    uint32_t refused; /* the request that the pool had no room for last, plus 1: it counts once, however often it comes */
    uint32_t slot_count;
    struct convoy_outbox_slot slots[CONVOY_OUTBOX_SLOTS_MAX];
    convoy_peer peers[CONVOY_PIPELINE_MEMBERS_MAX]; /* of the next role, by member */
};

void convoy_outbox_init(struct convoy_outbox *outbox, const struct convoy_transfer_host *host,
                        struct convoy_pipeline_board *board, uint32_t member);

/* Releases all that is still under way. */
void convoy_outbox_fini(struct convoy_outbox *outbox);

/* Connects to all members of the next role, whose sessions are on the board. As peer_connect; the text names who. */
int32_t convoy_outbox_connect(struct convoy_outbox *outbox, struct convoy_error *error);

/* Takes a request in. upstream: the loaded transfer that the stage reads from, released here when it was copied; 0 = none.
 * On failure nothing was taken. BUSY: there is no room now, text has whose. Else as stage_start and send_start. */
int32_t convoy_outbox_add(struct convoy_outbox *outbox, uint32_t request, const struct convoy_stage *stage,
                          convoy_transfer upstream, struct convoy_error *error);

/* Looks at all that is under way. A failure is final and its text names request, peer and status. */
int32_t convoy_outbox_work(struct convoy_outbox *outbox, struct convoy_error *error);

/* Returns when something may have happened, a millisecond later at most. */
void convoy_outbox_wait(struct convoy_outbox *outbox);

uint32_t convoy_outbox_count(const struct convoy_outbox *outbox);

#endif
